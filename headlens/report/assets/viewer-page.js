// A page with nothing but the viewer.

import { openViewer } from "./viewer.js";

const root = document.getElementById("viewer");
const viewer = openViewer(root, JSON.parse(document.getElementById("maps").textContent));

// Keys work wherever the focus is, as long as it is in no other control.
document.addEventListener("keydown", (event) => {
  if (!root.contains(event.target) && viewer.key) viewer.key(event);
});
