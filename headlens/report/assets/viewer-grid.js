// All heads as small pictures, drawn when they come into view.

import { HEAD_COLOURS } from "./viewer-colours.js";
import { element, sizeCanvas } from "./viewer-dom.js";
import { chip, described, ordered } from "./viewer-heads.js";
import { pooled } from "./viewer-matrix.js";

const SIDE = 44; // CSS pixels
const SLICE = 12; // milliseconds of drawing between two looks at what the user does

export class Grid {
  constructor(data, colours, choose) {
    this.data = data;
    this.colours = colours;
    this.choose = choose; // called with a head's name and whether it is added to the others
    this.root = element("div", { class: "hl-grid", role: "group", "aria-label": "All heads" });
    this.cells = new Map();
    this.waiting = new Set();
    this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "200px" });
  }

  render(state, changed) {
    if (["sort", "text"].some((name) => changed.has(name))) this.lay(state);
    if (["unit", "special", "lens", "text", "theme"].some((name) => changed.has(name))) this.redraw();
    this.state = state;
    for (const [name, cell] of this.cells) {
      const order = state.heads.indexOf(name);
      cell.button.setAttribute("aria-pressed", order >= 0);
      cell.button.tabIndex = order === 0 ? 0 : -1;
      cell.button.classList.toggle("hl-first", order === 0);
      cell.button.style.setProperty("--hl-mine", HEAD_COLOURS[order] || "");
    }
  }

  // Redraw all: those in view first, since only they are watched as seen anew.
  redraw() {
    for (const { button } of this.cells.values()) {
      this.watch.unobserve(button);
      this.watch.observe(button);
    }
  }

  reveal(name) {
    this.cells.get(name)?.button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  focusOn(name) {
    this.cells.get(name)?.button.focus({ preventScroll: true });
  }

  lay(state) {
    this.watch.disconnect();
    this.cells.clear();
    const here = this.data.heads.filter((head) => this.data.text(state).maps[head.name] !== undefined);
    const byLayer = state.sort === "layer";
    this.root.classList.toggle("hl-flow", !byLayer);
    const groups = byLayer
      ? this.data.stacks.map((stack) => here.filter((head) => head.stack === stack))
      : [ordered(here, state, this.data)];
    const lay = byLayer ? (group) => this.table(group, state) : (group) => group.map((head) => this.cell(head, state));
    this.root.replaceChildren(...groups.filter((group) => group.length).flatMap(lay));
    for (const { button } of this.cells.values()) this.watch.observe(button);
  }

  // A stack as rows of layers and columns of heads.
  table(group, state) {
    const columns = [...new Set(group.map((head) => head.head))].sort((a, b) => a - b);
    const rows = [...new Set(group.map((head) => head.layer))].sort((a, b) => a - b);
    const table = element("div", { class: "hl-table" });
    table.style.gridTemplateColumns = `auto repeat(${columns.length}, max-content)`;
    const corner = element("span", { class: "hl-corner" }, "layer\u2193", element("br"), "head\u2192");
    table.append(corner, ...columns.map((column) => element("span", { class: "hl-number" }, `${column}`)));
    for (const row of rows) {
      table.append(element("span", { class: "hl-number" }, `${row}`));
      for (const column of columns) {
        const head = group.find((one) => one.layer === row && one.head === column);
        table.append(head ? this.cell(head, state) : element("span"));
      }
    }
    const heading = this.data.stacks.length > 1 ? [element("h3", {}, group[0].stack)] : [];
    return [...heading, table];
  }

  cell(head, state) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    sizeCanvas(canvas, SIDE, SIDE);
    const name = element("span", { class: "hl-name" }, head.name);
    const chips = head.tags.map((tag) => chip(tag, this.data.payload.tags[tag]));
    const row = element("span", { class: "hl-tags", "aria-hidden": "true" }, ...chips);
    const said = described(head, state, this.data);
    const button = element("button", {
      type: "button",
      class: "hl-cell",
      "data-head": head.name,
      title: said,
      "aria-label": said,
      on: { click: (event) => this.choose(head.name, event.shiftKey || event.ctrlKey || event.metaKey) },
    }, canvas, this.data.payload.tagged ? row : null, name);
    this.cells.set(head.name, { button, canvas });
    return button;
  }

  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const name = target.dataset.head;
      if (isIntersecting) this.waiting.add(name);
      else this.waiting.delete(name);
    }
    if (!this.working) this.work();
  }

  async work() {
    this.working = true;
    let started = performance.now();
    for (const name of this.waiting) {
      this.waiting.delete(name);
      await this.draw(name);
      if (performance.now() - started > SLICE) {
        await new Promise((done) => setTimeout(done));
        started = performance.now();
      }
    }
    this.working = false;
  }

  async draw(name) {
    const cell = this.cells.get(name);
    const matrix = await this.data.matrix(this.state, name);
    if (!cell) return;
    const pen = sizeCanvas(cell.canvas, SIDE, SIDE);
    const small = pooled(matrix, cell.canvas.width); // no cell may fall between two pixels
    this.colours.paint(pen, small, this.data.peak(this.state), [0, 0, SIDE, SIDE]);
    cell.button.dataset.drawn = "";
  }
}
