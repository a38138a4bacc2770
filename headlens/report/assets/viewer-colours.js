// Colours: one scale for weights, one colour for each of several heads.

import { inDark } from "./viewer-dom.js";
import { bytesOf } from "./viewer-codec.js";

// Paul Tol's scheme "bright", told apart by colour-blind readers.
export const HEAD_COLOURS = ["#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#999999"];

export class Colours {
  constructor(root, palette) {
    this.root = root;
    this.table = bytesOf(palette); // 256 times red, green and blue, from dark to light
  }

  // Full weight is dark on light and light on dark.
  at(share) {
    const place = Math.round(255 * Math.min(1, Math.max(0, share)));
    const index = 3 * (inDark(this.root) ? place : 255 - place);
    return [this.table[index], this.table[index + 1], this.table[index + 2]];
  }

  css(share) {
    return `rgb(${this.at(share).join(" ")})`;
  }

  // A picture with one pixel for each cell; the square root keeps small weights visible.
  picture(matrix, peak) {
    const picture = new ImageData(matrix.columns, matrix.rows);
    const table = Array.from({ length: 256 }, (_, index) => this.at(index / 255));
    matrix.values.forEach((value, cell) => {
      const share = Math.sqrt(Math.min(1, value / peak));
      picture.data.set(table[Math.round(255 * share)], 4 * cell);
      picture.data[4 * cell + 3] = 255;
    });
    return picture;
  }

  // The same, drawn into a rectangle of a canvas without smoothing.
  paint(pen, matrix, peak, [left, top, width, height]) {
    const small = new OffscreenCanvas(matrix.columns, matrix.rows);
    small.getContext("2d").putImageData(this.picture(matrix, peak), 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, top, width, height);
  }
}
