// In words and numbers: what the token that is pointed at, or pinned, gives and gets.

import { element } from "./viewer-dom.js";
import { HEAD_COLOURS } from "./viewer-colours.js";
import { written } from "./viewer-matrix.js";

const SHOWN = 5;
const HINTS = {
  lines: "Point at a token to see where it looks; click to keep it.",
  heatmap: "Point at a cell to read its number; click to keep its row.",
};

export class Readout {
  constructor(data) {
    this.data = data;
    this.root = element("div", { class: "hl-readout", role: "status", "aria-live": "polite" });
  }

  show(state, matrices, point) {
    const [queries, keys] = this.data.axes(state, state.heads[0]);
    if (!point) {
      this.root.replaceChildren(element("p", { class: "hl-hint" }, HINTS[state.shape]));
      return;
    }
    const [side, place] = [point[0], Number(point.slice(1))];
    const own = (side === "q" ? queries : keys).labels[place];
    const others = (side === "q" ? keys : queries).labels;
    const says = side === "q" ? `(query ${place}) looks most at` : `(key ${place}) is looked at most by`;
    const lists = matrices.map((matrix, order) => (
      this.list(state.heads[order], order, best(matrix, side, place), others)));
    this.root.replaceChildren(
      element("p", {}, element("bdi", { dir: "auto", class: "hl-own" }, own), ` ${says}`), ...lists);
  }

  list(name, order, found, labels) {
    const mark = element("span", { class: "hl-swatch" });
    mark.style.background = HEAD_COLOURS[order];
    const items = found.map(([index, value, doubt]) => element("li", {},
      element("bdi", { dir: "auto" }, labels[index]),
      element("span", { class: "hl-place" }, ` ${index}`), " ",
      element("b", {}, written(value, doubt))));
    return element("div", { class: "hl-list" }, element("p", {}, mark, `head ${name}`), element("ol", {}, ...items));
  }
}

// Place, value and doubt of the largest weights of a row or column.
function best(matrix, side, place) {
  const count = side === "q" ? matrix.columns : matrix.rows;
  const cells = Array.from({ length: count }, (_, index) => {
    const cell = side === "q" ? place * matrix.columns + index : index * matrix.columns + place;
    return [index, matrix.values[cell], matrix.doubt[cell]];
  });
  return cells.sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
}
