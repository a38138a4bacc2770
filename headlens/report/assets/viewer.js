// The attention viewer: a grid of all heads, and the head that is chosen as lines or as a heatmap.

import { aboutNumbers } from "./viewer-about.js";
import { Colours, HEAD_COLOURS } from "./viewer-colours.js";
import { Controls } from "./viewer-controls.js";
import { ViewerData } from "./viewer-data.js";
import { element } from "./viewer-dom.js";
import { Grid } from "./viewer-grid.js";
import { chip, factsOf, named, placeOf } from "./viewer-heads.js";
import { Heatmap } from "./viewer-heatmap.js";
import { HELP, onKey } from "./viewer-keys.js";
import { Lines } from "./viewer-lines.js";
import { Link } from "./viewer-link.js";
import { Readout } from "./viewer-readout.js";
import { fitting, MOST_HEADS, startState } from "./viewer-state.js";

class Viewer {
  constructor(root, payload, { fragment = true } = {}) {
    this.root = root;
    this.data = new ViewerData(payload);
    this.link = fragment ? new Link(this.data, (state) => this.set(state)) : null;
    root.classList.add("hl-viewer");
    const actions = { point: (place) => this.pointAt(place), pin: (place) => this.pin(place) };
    this.colours = new Colours(root, payload.palette);
    this.controls = new Controls(this.data, (patch) => this.update(patch));
    this.grid = new Grid(this.data, this.colours, (name, more) => this.choose(name, more));
    this.shapes = { lines: new Lines(this.data, actions), heatmap: new Heatmap(this.data, this.colours, actions) };
    this.readout = new Readout(this.data);
    this.build();
    root.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.update({}, ["theme"]));
    this.set(this.link ? this.link.read() : startState(this.data));
  }

  build() {
    this.title = element("h2", { class: "hl-head" });
    this.stage = element("div", { class: "hl-stage", tabindex: "-1" });
    this.about = element("p", { class: "hl-about" });
    this.notes = element("div", { class: "hl-notes" });
    const overview = [this.grid.root, ...this.legend()];
    const detail = [this.title, this.stage, this.readout.root];
    this.root.replaceChildren(
      this.controls.root, this.notes,
      element("div", { class: "hl-panes" },
        element("section", { class: "hl-overview", "aria-label": "Overview of heads" }, ...overview),
        element("section", { class: "hl-detail", "aria-label": "The chosen head" }, ...detail)),
      element("p", { class: "hl-help" }, HELP), this.about);
  }

  // Show a head, as a click on it does.
  show(name) {
    if (this.data.byName.has(name)) this.update({ heads: [name] });
  }

  legend() {
    const styles = Object.entries(this.data.payload.tags);
    const hint = "Click a head to see it; with Shift or Ctrl to see it beside the others.";
    return [
      styles.length ? element("p", { class: "hl-legend" }, ...styles.flatMap((one) => [named(...one), " "])) : null,
      this.data.heads.length > 1 ? element("p", { class: "hl-legend" }, hint) : null,
    ].filter(Boolean);
  }

  // What is pinned is a place among what is shown, so it goes when something else is shown.
  update(patch, also = []) {
    const next = fitting({ ...this.state, ...patch }, this.data);
    const other = ["unit", "special", "text"].some((name) => next[name] !== this.state[name]);
    this.set(other && !("pin" in patch) ? { ...next, pin: null } : next, also);
  }

  set(wanted, also = []) {
    const state = fitting(wanted, this.data);
    const changed = new Set(Object.keys(state).filter((name) => `${state[name]}` !== `${this.state?.[name]}`));
    also.forEach((name) => changed.add(name));
    this.state = state;
    this.root.dataset.theme = state.theme;
    this.link?.write(state);
    this.controls.render(state);
    this.grid.render(state, changed);
    if (changed.has("heads")) this.grid.reveal(state.heads[0]);
    this.detail();
  }

  async detail() {
    const state = this.state;
    const matrices = await Promise.all(state.heads.map((name) => this.data.matrix(state, name)));
    if (state !== this.state) return; // something else was chosen while maps were opened
    const focused = this.stage.contains(document.activeElement);
    this.matrices = matrices;
    this.point = state.pin;
    const shape = this.shapes[state.shape];
    if (this.stage.firstChild !== shape.root) this.stage.replaceChildren(shape.root);
    this.describe(state);
    shape.show(state, matrices, this.point);
    this.readout.show(state, matrices, this.point);
    if (focused && !this.stage.contains(document.activeElement)) this.stage.focus({ preventScroll: true });
    this.root.dataset.ready = state.heads.join(",");
  }

  describe(state) {
    const several = state.heads.length > 1;
    const tags = this.data.payload.tags;
    this.title.replaceChildren(...state.heads.map((name, order) => {
      const head = this.data.byName.get(name);
      const swatch = element("span", { class: "hl-swatch" });
      swatch.style.background = HEAD_COLOURS[order];
      const chips = head.tags.map((tag) => (several ? chip : named)(tag, tags[tag]));
      const facts = several ? null : element("span", { class: "hl-facts" }, factsOf(head, state, this.data).join("; "));
      return element("span", { class: "hl-named" }, swatch, several ? `${name} ` : placeOf(head, this.data), ...chips, facts);
    }));
    const notes = [...this.data.payload.notes, ...this.data.text(state).notes];
    this.notes.replaceChildren(...notes.map((note) => element("p", {}, note)));
    this.about.textContent = aboutNumbers(state, this.data);
  }

  pointAt(place) {
    this.point = place || this.state.pin;
    if (!this.matrices) return;
    this.shapes[this.state.shape].mark(this.point);
    this.readout.show(this.state, this.matrices, this.point);
  }

  pin(place) {
    this.update({ pin: this.state.pin === place ? null : place });
  }

  choose(name, more) {
    if (!more) return this.update({ heads: [name] });
    const { heads } = this.state;
    const chosen = heads.includes(name) ? heads.filter((one) => one !== name) : [...heads, name];
    return this.update({ heads: chosen.length ? chosen.slice(0, MOST_HEADS) : heads });
  }

  key(event) {
    const patch = onKey(event, this.state, this.data);
    if (!patch) return;
    event.preventDefault();
    event.stopPropagation();
    const inGrid = this.grid.root.contains(document.activeElement);
    const inTokens = this.shapes.lines.root.contains(document.activeElement);
    this.update(patch);
    if (patch.heads && inGrid) this.grid.focusOn(this.state.heads[0]);
    if (patch.pin && inTokens) this.shapes.lines.focusOn(patch.pin);
  }
}

export function openViewer(root, payload, options = {}) {
  if (typeof DecompressionStream === "undefined") {
    root.textContent = "This page needs a browser of 2023 or later: Chrome 103, Edge 103, Firefox 113 or Safari 16.4.";
    return { show() {} };
  }
  return new Viewer(root, payload, options);
}
