// The attention viewer: a grid of all heads, and the head that is chosen as lines or as a heatmap.

import { Colours, HEAD_COLOURS } from "./viewer-colours.js";
import { Controls } from "./viewer-controls.js";
import { ViewerData } from "./viewer-data.js";
import { element } from "./viewer-dom.js";
import { chip, Grid } from "./viewer-grid.js";
import { Heatmap } from "./viewer-heatmap.js";
import { HELP, onKey } from "./viewer-keys.js";
import { Lines } from "./viewer-lines.js";
import { Readout } from "./viewer-readout.js";
import { fitting, fragmentOf, MOST_HEADS, stateOf } from "./viewer-state.js";

class Viewer {
  constructor(root, payload, { fragment = true } = {}) {
    this.root = root;
    this.data = new ViewerData(payload);
    this.linked = fragment;
    root.classList.add("hl-viewer");
    const actions = { point: (place) => this.pointAt(place), pin: (place) => this.pin(place) };
    this.colours = new Colours(root, payload.palette);
    this.controls = new Controls(this.data, (patch) => this.update(patch));
    this.grid = new Grid(this.data, this.colours, (name, more) => this.choose(name, more));
    this.shapes = { lines: new Lines(this.data, actions), heatmap: new Heatmap(this.data, this.colours, actions) };
    this.readout = new Readout(this.data);
    this.title = element("h2", { class: "hl-head" });
    this.stage = element("div", { class: "hl-stage" });
    this.about = element("p", { class: "hl-about" });
    this.notes = element("div", { class: "hl-notes" });
    root.replaceChildren(
      this.controls.root, this.notes,
      element("div", { class: "hl-panes" },
        element("section", { class: "hl-overview", "aria-label": "Overview of heads" }, this.grid.root, this.legend()),
        element("section", { class: "hl-detail", "aria-label": "The chosen head" }, this.title, this.stage, this.readout.root, this.about)),
      element("p", { class: "hl-help" }, HELP));
    root.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.update({}, ["theme"]));
    if (fragment) addEventListener("hashchange", () => this.set(stateOf(location.hash, this.data)));
    this.set(stateOf(fragment ? location.hash : "", this.data));
  }

  // Show a head, as a click on it does.
  show(name) {
    if (this.data.byName.has(name)) this.update({ heads: [name] });
  }

  legend() {
    const styles = Object.entries(this.data.payload.tags);
    const used = styles.filter(([tag]) => this.data.heads.some((head) => head.tags.includes(tag)));
    return element("p", { class: "hl-legend" }, ...used.flatMap(([tag, style]) => [chip(tag, style), ` ${tag}  `]),
      this.data.heads.length > 1 ? "Click a head to see it; with Shift or Ctrl to see it beside the others." : "");
  }

  update(patch, also = []) {
    this.set({ ...this.state, ...patch }, also);
  }

  set(wanted, also = []) {
    const pinLost = this.state && ["unit", "special", "text"].some((name) => wanted[name] !== this.state[name]);
    const state = fitting(pinLost && wanted.pin === this.state.pin ? { ...wanted, pin: null } : wanted, this.data);
    const changed = new Set(Object.keys(state).filter((name) => `${state[name]}` !== `${this.state?.[name]}`));
    also.forEach((name) => changed.add(name));
    this.state = state;
    this.root.dataset.theme = state.theme;
    if (this.linked) document.documentElement.dataset.theme = state.theme;
    if (this.linked) keepFragment(fragmentOf(state, this.data));
    this.controls.render(state);
    this.grid.render(state, changed);
    if (changed.has("heads")) this.grid.reveal(state.heads[0]);
    this.detail();
  }

  async detail() {
    const state = this.state;
    const matrices = await Promise.all(state.heads.map((name) => this.data.matrix(state, name)));
    if (state !== this.state) return; // something else was chosen while maps were opened
    this.matrices = matrices;
    this.point = state.pin;
    const shape = this.shapes[state.shape];
    if (this.stage.firstChild !== shape.root) this.stage.replaceChildren(shape.root);
    this.describe(state);
    shape.show(state, matrices, this.point);
    this.readout.show(state, matrices, this.point);
    this.root.dataset.ready = state.heads.join(",");
  }

  describe(state) {
    const names = state.heads.map((name, order) => {
      const swatch = element("span", { class: "hl-swatch" });
      swatch.style.background = HEAD_COLOURS[order];
      const head = this.data.byName.get(name);
      return element("span", { class: "hl-named" }, swatch, `${name} `, ...head.tags.map((tag) => chip(tag, this.data.payload.tags[tag])));
    });
    this.title.replaceChildren(`Layer ${this.data.byName.get(state.heads[0]).layer}, head ${this.data.byName.get(state.heads[0]).head}: `, ...names);
    const text = this.data.text(state);
    this.notes.replaceChildren(...[...this.data.payload.notes, ...text.notes].map((note) => element("p", {}, note)));
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
    const heads = this.state.heads.includes(name) ? this.state.heads.filter((one) => one !== name) : [...this.state.heads, name];
    return this.update({ heads: heads.slice(0, MOST_HEADS) });
  }

  key(event) {
    const patch = onKey(event, this.state, this.data);
    if (!patch) return;
    event.preventDefault();
    event.stopPropagation();
    const inGrid = this.grid.root.contains(document.activeElement);
    this.update(patch);
    if (patch.heads && inGrid) this.grid.focusOn(this.state.heads[0]);
  }
}

function aboutNumbers(state, data) {
  const parts = ["Queries look at keys."];
  parts.push(state.lens === "norms" ? `Norms are the length of what a key hands over, weight times |f(x)| (Kobayashi et al. 2020); full colour is ${data.peak(state).toPrecision(3)}.` : "Colours and lines go by the square root of the weight, so that small ones stay visible.");
  if (state.unit === "words") parts.push("Words: the sum to a word's pieces, the mean from them.");
  if (!state.special) parts.push("Special tokens are left out; rows are not renormalised.");
  if (state.shape === "heatmap" && state.heads.length > 1) parts.push(`The heatmap shows ${state.heads[0]}, the first of the chosen heads.`);
  if (state.shape === "lines" && state.least !== "0") parts.push(`Lines under ${state.least} of full weight are drawn for a token that you point at.`);
  parts.push("Weights are kept in 8 bits, so numbers come with how far they can be off; exact ones: headlens view ... --out FILE.csv.");
  return parts.join(" ");
}

// A page inside a notebook has no address that could be changed.
function keepFragment(fragment) {
  if (location.protocol === "about:" || location.hash === fragment) return;
  history.replaceState(null, "", fragment);
}

export function openViewer(root, payload, options = {}) {
  if (typeof DecompressionStream === "undefined") {
    root.textContent = "This page needs a browser of 2023 or later: Chrome 103, Edge 103, Firefox 113 or Safari 16.4.";
    return { show() {} };
  }
  return new Viewer(root, payload, options);
}
