// Tokens as text: isolated, so that right-to-left ones read right and do not turn what is around them.

import { element } from "./viewer-dom.js";

export function tokenElement(label) {
  return element("bdi", { class: "hl-text", dir: "auto" }, label);
}
