// What the numbers and the colours of the chosen view mean.

import { percent } from "./viewer-controls.js";
import { entropyOf } from "./viewer-heads.js";

const ROOTS = "Colours and lines go by the square root of the weight, so that small ones stay visible.";
const EXACT = "Weights are kept in 8 bits, so numbers come with how far they can be off; "
  + "exact ones: headlens view ... --out FILE.csv.";

export function aboutNumbers(state, data) {
  const norms = `Norms are the length of what a key hands over, weight times |f(x)| (Kobayashi et al. 2020); `
    + `full colour is ${data.peak(state).toPrecision(3)}.`;
  const drawn = state.shape === "heatmap" ? aboutHeatmap(state) : aboutLines(state);
  return [
    "Queries look at keys.",
    state.lens === "norms" ? norms : ROOTS,
    state.unit === "words" ? "Words: the sum to a word's pieces, the mean from them." : "",
    state.special ? "" : "Special tokens are left out; rows are not renormalised.",
    `Entropy is the mean over queries, over ${entropyOf(state, data)}, whatever is shown.`,
    drawn,
    EXACT,
  ].filter(Boolean).join(" ");
}

function aboutHeatmap(state) {
  const first = `The heatmap shows ${state.heads[0]}, the first of the chosen heads.`;
  const labels = "Where cells are small, not every row and column has a label.";
  return state.heads.length > 1 ? `${first} ${labels}` : labels;
}

function aboutLines(state) {
  if (state.least === "0") return "";
  return `Lines under ${percent(state.least)} of full weight are drawn only for a token that you point at.`;
}
