// One head as a map: rows are queries, columns are keys, the value stands beside the pointer.

import { colourOf, element, sizeCanvas } from "./viewer-dom.js";
import { written } from "./viewer-matrix.js";

const LONGEST = 16; // characters of a label
const LARGEST = 8192; // pixels of a side of a canvas
const CELL = { least: 1, most: 34 };

export class Heatmap {
  constructor(data, colours, actions) {
    this.data = data;
    this.colours = colours;
    this.actions = actions;
    this.canvas = element("canvas", { class: "hl-map", role: "img", on: {
      mousemove: (event) => this.over(event),
      mouseleave: () => this.leave(),
      click: (event) => this.click(event),
    } });
    this.tip = element("div", { class: "hl-tip", hidden: true });
    this.row = element("div", { class: "hl-cross" });
    this.frame = element("div", { class: "hl-map-frame" }, this.canvas, this.row, this.tip);
    this.root = element("div", { class: "hl-map-scroll" }, this.frame);
    this.last = [0, 0];
    new ResizeObserver(() => this.resize()).observe(this.root);
  }

  show(state, matrices, point) {
    this.state = state;
    this.matrix = matrices[0]; // of several heads the first
    this.axes = this.data.axes(state, state.heads[0]);
    this.draw();
    this.mark(point);
  }

  resize() {
    const size = [this.root.clientWidth, this.root.clientHeight];
    if (this.matrix && Math.abs(size[0] - this.last[0]) > 4) this.draw();
  }

  draw() {
    this.last = [this.root.clientWidth, this.root.clientHeight];
    if (!this.root.isConnected || !this.last[0]) return;
    this.measure();
    const { left, top, cell } = this;
    const { rows, columns } = this.matrix;
    const pen = sizeCanvas(this.canvas, left + columns * cell + this.after, top + rows * cell + this.after);
    this.colours.paint(pen, this.matrix, this.data.peak(this.state), [left, top, columns * cell, rows * cell]);
    pen.strokeStyle = colourOf(this.root, "--hl-line");
    pen.strokeRect(left - 0.5, top - 0.5, columns * cell + 1, rows * cell + 1);
    this.labels(pen);
    const lens = this.state.lens === "norms" ? "Norms" : "Weights";
    const size = `${rows} queries by ${columns} keys`;
    const said = `${lens} of head ${this.state.heads[0]}: ${size}. Press v for lists of tokens that can be read.`;
    this.canvas.setAttribute("aria-label", said);
  }

  // The size of cells and of the room for labels, from the font, so that larger text gets more room.
  measure() {
    const font = parseFloat(getComputedStyle(this.root).fontSize) * 0.8;
    const pen = this.canvas.getContext("2d");
    this.font = `${font}px ${getComputedStyle(this.root).fontFamily}`;
    pen.font = this.font;
    this.names = this.axes.map((axis) => axis.labels.map((label) => cut(label)));
    const rooms = this.names.map((names) => 8 + Math.max(0, ...names.map((name) => pen.measureText(name).width)));
    [this.left, this.top] = rooms.map(Math.ceil);
    const longest = Math.max(this.matrix.rows, this.matrix.columns);
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const wide = (this.last[0] - this.left - font) / this.matrix.columns;
    const fits = Math.min(wide, (LARGEST / ratio - Math.max(...rooms) - font) / longest);
    this.cell = Math.max(CELL.least, Math.min(fits, CELL.most));
    if (this.cell > 2) this.cell = Math.floor(this.cell);
    this.every = Math.ceil((font * 1.15) / this.cell);
    this.after = Math.max(1, Math.ceil((font * 1.3 - this.cell) / 2)); // the last label may be taller than its row
  }

  labels(pen) {
    pen.font = this.font;
    pen.fillStyle = colourOf(this.root, "--hl-ink");
    pen.textBaseline = "middle";
    this.names[0].forEach((name, index) => {
      if (index % this.every) return;
      pen.textAlign = "right";
      pen.fillText(name, this.left - 4, this.top + (index + 0.5) * this.cell);
    });
    this.names[1].forEach((name, index) => {
      if (index % this.every) return;
      pen.save();
      pen.translate(this.left + (index + 0.5) * this.cell, this.top - 4);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0);
      pen.restore();
    });
  }

  // Show the row or column of a token.
  mark(point) {
    const shown = point && this.matrix && this.cell;
    this.row.hidden = !shown;
    if (!shown) return;
    const place = Number(point.slice(1)) * this.cell;
    const box = point[0] === "q"
      ? [this.left, this.top + place, this.matrix.columns * this.cell, this.cell]
      : [this.left + place, this.top, this.cell, this.matrix.rows * this.cell];
    ["left", "top", "width", "height"].forEach((name, index) => {
      this.row.style[name] = `${box[index]}px`;
    });
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.cell);
    const row = Math.floor((event.clientY - box.top - this.top) / this.cell);
    const inside = row >= 0 && column >= 0 && row < this.matrix.rows && column < this.matrix.columns;
    return inside ? [row, column] : null;
  }

  over(event) {
    const found = this.cellAt(event);
    if (!found) return this.leave();
    const [row, column] = found;
    const index = row * this.matrix.columns + column;
    const value = written(this.matrix.values[index], this.matrix.doubt[index]);
    this.tip.hidden = false;
    this.tip.replaceChildren(
      element("bdi", { dir: "auto" }, this.axes[0].labels[row]), " \u2192 ",
      element("bdi", { dir: "auto" }, this.axes[1].labels[column]), ": ", element("b", {}, value));
    this.placeTip(event);
    this.mark(`q${row}`);
    return undefined;
  }

  // Below the pointer, or above it where there is no room; never outside of what is in view.
  placeTip(event) {
    const box = this.frame.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const right = this.root.scrollLeft + this.root.clientWidth - this.tip.offsetWidth - 4;
    const bottom = this.root.scrollTop + this.root.clientHeight - this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, right))}px`;
    this.tip.style.top = `${y + 18 < bottom ? y + 18 : y - 10 - this.tip.offsetHeight}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.mark(this.state.pin);
  }

  click(event) {
    const found = this.cellAt(event);
    if (found) this.actions.pin(`q${found[0]}`);
  }
}

function cut(label) {
  const signs = [...label];
  return signs.length > LONGEST ? `${signs.slice(0, LONGEST - 1).join("")}\u2026` : label;
}
