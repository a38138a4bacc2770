// A page with nothing but the viewer.

import { openViewer } from "./viewer.js";

const root = document.getElementById("viewer");
const viewer = openViewer(root, JSON.parse(document.getElementById("maps").textContent));

// Keys work as well while nothing has the focus; the text above scrolls by its own keys.
document.addEventListener("keydown", (event) => {
  if ([document.body, document.documentElement].includes(event.target) && viewer.key) viewer.key(event);
});
