// What the user chose, as a record, and as the fragment of a link that brings it back.

export const MOST_HEADS = 7; // at once, each in a colour of its own
export const CHOICES = {
  unit: ["tokens", "words"],
  lens: ["weights", "norms"],
  sort: ["layer", "entropy", "importance", "tag"],
  shape: ["lines", "heatmap"],
  least: ["0", "0.01", "0.05", "0.1", "0.25", "0.5"],
  theme: ["auto", "light", "dark"],
};

export function startState(data) {
  return {
    text: 0,
    heads: [data.heads[0].name],
    unit: "tokens",
    special: true,
    lens: "weights",
    sort: "layer",
    shape: "lines",
    least: "0.05",
    theme: "auto",
    pin: null,
    ...data.payload.start,
  };
}

export function stateOf(fragment, data) {
  const state = startState(data);
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const [name, allowed] of Object.entries(CHOICES)) {
    if (allowed.includes(given.get(name))) state[name] = given.get(name);
  }
  const heads = (given.get("head") || "").split(",").filter((name) => data.byName.has(name));
  if (heads.length) state.heads = [...new Set(heads)].slice(0, MOST_HEADS);
  if (given.has("special")) state.special = given.get("special") !== "0";
  const text = given.get("text") || "";
  if (/^\d+$/.test(text) && Number(text) < data.payload.texts.length) state.text = Number(text);
  if (given.has("pin")) state.pin = /^[qk]\d+$/.test(given.get("pin")) ? given.get("pin") : null;
  return fitting(state, data);
}

// What differs from the start, in a fixed order; several heads are joined by commas.
export function fragmentOf(state, data) {
  const start = startState(data);
  const words = new URLSearchParams();
  words.set("head", state.heads.join(","));
  if (state.text !== start.text) words.set("text", state.text);
  for (const name of Object.keys(CHOICES)) if (state[name] !== start[name]) words.set(name, state[name]);
  if (state.special !== start.special) words.set("special", state.special ? "1" : "0");
  if (state.pin !== start.pin) words.set("pin", state.pin || "");
  return `#${words.toString().replaceAll("%2C", ",")}`;
}

// Take back what this page or this text cannot show.
export function fitting(state, data) {
  const fit = { ...state };
  const text = data.text(fit);
  if (text.byWords) fit.unit = "words";
  if (text.withoutSpecial) fit.special = false;
  if (!text.norms) fit.lens = "weights";
  if (!data.payload.tagged && fit.sort === "tag") fit.sort = "layer";
  if (!data.payload.importance && fit.sort === "importance") fit.sort = "layer";
  fit.heads = fit.heads.filter((name) => text.maps[name] !== undefined);
  if (!fit.heads.length) fit.heads = [Object.keys(text.maps)[0]];
  const stack = data.byName.get(fit.heads[0]).stack;
  fit.heads = fit.heads.filter((name) => data.byName.get(name).stack === stack);
  let shown = data.axes(fit, fit.heads[0]);
  if (!fit.special && shown.some((axis) => !axis.labels.length)) {
    fit.special = true; // without special tokens nothing would be left
    shown = data.axes(fit, fit.heads[0]);
  }
  const [queries, keys] = shown;
  if (fit.pin && Number(fit.pin.slice(1)) >= (fit.pin[0] === "q" ? queries : keys).labels.length) fit.pin = null;
  return fit;
}
