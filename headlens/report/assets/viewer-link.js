// The address of the page: what is shown stands in its fragment, so that a link brings it back.

import { fragmentOf, stateOf } from "./viewer-state.js";

const PAUSE = 300; // milliseconds: browsers refuse to change the address more often than that for long

export class Link {
  constructor(data, set) {
    this.data = data;
    addEventListener("hashchange", () => {
      clearTimeout(this.waiting);
      set(this.read());
    });
  }

  read() {
    this.known = location.hash;
    return stateOf(location.hash, this.data);
  }

  write(state) {
    document.documentElement.dataset.theme = state.theme;
    if (location.protocol === "about:") return; // a page inside a notebook has no address that could be changed
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      if (location.hash !== this.known) return; // somebody has just gone elsewhere, and will be followed
      const fragment = fragmentOf(state, this.data);
      if (location.hash !== fragment) history.replaceState(null, "", fragment);
      this.known = location.hash;
    }, PAUSE);
  }
}
