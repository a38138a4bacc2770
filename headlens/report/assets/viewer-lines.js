// Two columns of tokens, queries and keys, with a line for each weight.

import { element, sizeCanvas } from "./viewer-dom.js";
import { HEAD_COLOURS } from "./viewer-colours.js";
import { tokenElement } from "./viewer-tokens.js";

const BETWEEN = { least: 70, most: 320 }; // CSS pixels from one column to the other
const NAMES = { q: "Queries: the tokens that look", k: "Keys: the tokens that are looked at" };

export class Lines {
  constructor(data, actions) {
    this.data = data;
    this.actions = actions; // point(place or null), pin(place)
    this.canvas = element("canvas", { class: "hl-lines-canvas", "aria-hidden": "true" });
    this.columns = Object.entries(NAMES).map(([side, name]) => element("ol", { class: `hl-column hl-${side}`, "aria-label": name }));
    this.body = element("div", { class: "hl-lines-body" }, this.columns[0], this.canvas, this.columns[1]);
    this.root = element("div", { class: "hl-lines", tabindex: "-1", on: { scroll: () => this.draw() } }, this.body);
    this.items = { q: [], k: [] };
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  show(state, matrices, point) {
    this.state = state;
    this.matrices = matrices;
    this.lay();
    if (state.pin) this.reveal(state.pin);
    this.mark(point);
  }

  itemAt(place) {
    return this.items[place[0]][Number(place.slice(1))];
  }

  focusOn(place) {
    this.itemAt(place)?.button.focus({ preventScroll: true });
  }

  reveal(place) {
    const { row } = this.itemAt(place);
    const [top, bottom] = [row.offsetTop - this.body.offsetTop, row.offsetTop - this.body.offsetTop + row.offsetHeight];
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop || bottom > scrollTop + clientHeight) this.root.scrollTop = top - clientHeight / 3;
  }

  lay() {
    const axes = this.data.axes(this.state, this.state.heads[0]);
    ["q", "k"].forEach((side, index) => {
      const labels = axes[index].labels;
      if (this.items[side].map((item) => item.label).join("\n") === labels.join("\n")) return;
      this.items[side] = labels.map((label, place) => this.item(label, `${side}${place}`));
      this.columns[index].replaceChildren(...this.items[side].map((item) => item.row));
    });
  }

  item(label, place) {
    const bars = element("span", { class: "hl-bars", "aria-hidden": "true" });
    const button = element("button", {
      type: "button",
      class: "hl-token",
      tabindex: place.endsWith("0") && place.length === 2 ? "0" : "-1",
      "data-place": place,
      on: {
        click: () => this.actions.pin(place),
        mouseenter: () => this.actions.point(place),
        mouseleave: () => this.actions.point(null),
        focus: () => this.actions.point(place),
        blur: () => this.actions.point(null),
      },
    }, tokenElement(label));
    const row = element("li", {}, ...(place[0] === "q" ? [button, bars] : [bars, button]));
    return { label, row, button, bars };
  }

  // Isolate a token: its lines alone, and beside every token of the other column how much each head gives.
  mark(point) {
    this.point = point;
    for (const side of ["q", "k"]) {
      this.items[side].forEach((item, place) => {
        const here = point === `${side}${place}`;
        item.button.classList.toggle("hl-pointed", here);
        item.button.setAttribute("aria-pressed", this.state.pin === `${side}${place}`);
        if (here || item.bars.firstChild) item.bars.replaceChildren();
      });
    }
    if (point) this.bars(point);
    this.draw();
  }

  bars(point) {
    const [side, place] = [point[0], Number(point.slice(1))];
    const other = side === "q" ? "k" : "q";
    const peak = this.data.peak(this.state);
    this.items[other].forEach((item, index) => {
      const parts = this.matrices.map((matrix, order) => {
        const cell = side === "q" ? place * matrix.columns + index : index * matrix.columns + place;
        const bar = element("i");
        bar.style.background = HEAD_COLOURS[order];
        bar.style.width = `${100 * Math.sqrt(Math.min(1, matrix.values[cell] / peak))}%`;
        return bar;
      });
      item.bars.replaceChildren(...parts);
    });
  }

  // Only what is in view is drawn, so that long texts stay quick.
  draw() {
    if (!this.matrices || !this.root.isConnected || !this.items.q.length) return;
    const [width, height] = this.room();
    const pen = sizeCanvas(this.canvas, width, height);
    const top = this.canvas.getBoundingClientRect().top;
    const middles = ["q", "k"].map((side) => this.middles(this.items[side], top));
    const peak = this.data.peak(this.state);
    this.matrices.forEach((matrix, order) => {
      pen.strokeStyle = HEAD_COLOURS[order];
      for (const [query, key, share] of this.strokes(matrix, peak)) {
        const [from, to] = [middles[0][query], middles[1][key]];
        if (Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
        pen.globalAlpha = Math.sqrt(share);
        pen.lineWidth = 0.8 + 2.2 * share;
        pen.beginPath();
        pen.moveTo(0, from);
        pen.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
        pen.stroke();
      }
    });
  }

  // What the columns leave of the width, and of the height as much as is in view.
  room() {
    const wide = this.root.clientWidth - 12 - this.columns[0].offsetWidth - this.columns[1].offsetWidth;
    const long = Math.max(this.columns[0].offsetHeight, this.columns[1].offsetHeight);
    const width = Math.min(BETWEEN.most, Math.max(BETWEEN.least, wide));
    return [width, Math.max(1, Math.min(this.root.clientHeight, long))];
  }

  middles(items, top) {
    const first = items[0].row.getBoundingClientRect();
    const step = items.length > 1 ? items[1].row.getBoundingClientRect().top - first.top : 0;
    return items.map((_, index) => first.top - top + first.height / 2 + index * step);
  }

  // Query, key and share of full weight of every line; all of a token that is pointed at, else the heavy ones.
  *strokes(matrix, peak) {
    const least = this.point ? 1e-9 : Number(this.state.least);
    const side = this.point?.[0];
    const place = Number(this.point?.slice(1));
    const rows = side === "q" ? [place] : [...Array(matrix.rows).keys()];
    for (const row of rows) {
      const [first, end] = side === "k" ? [place, place + 1] : [0, matrix.columns];
      for (let column = first; column < end; column++) {
        const share = Math.min(1, matrix.values[row * matrix.columns + column] / peak);
        if (share > 0 && share >= least) yield [row, column, share];
      }
    }
  }
}
