// What the page holds: heads, texts, and maps that are opened when they are first shown.

import { floatsOf, inflate } from "./viewer-codec.js";
import { doubtsOf, matrixOf, shownAxis } from "./viewer-matrix.js";

const KEPT = 256 * 1024 * 1024; // bytes of opened maps

export class ViewerData {
  constructor(payload) {
    this.payload = payload;
    this.heads = payload.heads;
    this.byName = new Map(payload.heads.map((head) => [head.name, head]));
    this.stacks = [...new Set(payload.heads.map((head) => head.stack))];
    this.opened = new Map();
    this.bytes = 0;
  }

  text(state) {
    return this.payload.texts[state.text];
  }

  // Queries and keys of a head's stack, as they are shown.
  axes(state, name) {
    const text = this.text(state);
    const [queries, keys] = text.stacks[this.byName.get(name).stack];
    return [shownAxis(text.axes[queries], state), shownAxis(text.axes[keys], state)];
  }

  async matrix(state, name) {
    const { levels, norms } = this.text(state);
    const coded = { codes: await this.codes(state.text, name), levels, doubts: doubtsOf(levels) };
    return matrixOf(coded, this.axes(state, name), state.lens === "norms" ? floatsOf(norms[name]) : null);
  }

  // What full colour stands for: 1 for weights, the largest norm of the text for norms.
  peak(state) {
    return state.lens === "norms" ? this.text(state).peak[state.unit] : 1;
  }

  codes(text, name) {
    const key = `${text} ${name}`;
    if (!this.opened.has(key)) {
      this.opened.set(key, inflate(this.payload.texts[text].maps[name]));
      this.opened.get(key).then((codes) => this.keep(codes.length));
    }
    return this.opened.get(key);
  }

  // Forget all when too much is open: it is quickly opened again.
  keep(bytes) {
    this.bytes += bytes;
    if (this.bytes > KEPT) {
      this.opened.clear();
      this.bytes = 0;
    }
  }
}
