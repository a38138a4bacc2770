// Everything that can be chosen, each with a label.

import { element } from "./viewer-dom.js";
import { CHOICES } from "./viewer-state.js";

export class Controls {
  constructor(data, update) {
    this.data = data;
    this.update = update;
    this.fields = [];
    this.root = element("div", { class: "hl-controls" });
    const { texts, tagged, importance } = data.payload;
    const titles = texts.map((one, index) => [index, short(one.title)]);
    if (texts.length > 1) this.select("text", "Text", titles, Number);
    this.head();
    const all = texts.every((one) => one.byWords);
    if (!all) this.select("unit", "Show", twice("tokens", "words"));
    if (texts.some((one) => one.hasSpecial)) this.check("special", "Special tokens");
    if (texts.some((one) => one.norms)) this.select("lens", "Measure", twice("weights", "norms"));
    const orders = ["layer", "entropy", importance ? "importance" : null, tagged ? "tag" : null].filter(Boolean);
    if (data.heads.length > 1) this.select("sort", "Sort by", twice(...orders));
    this.select("shape", "Draw", twice("lines", "heatmap"));
    this.select("least", "Hide lines under", CHOICES.least.map((share) => [share, percent(share)]));
    this.select("theme", "Theme", twice(...CHOICES.theme));
  }

  head() {
    const options = this.data.heads.map((head) => [head.name, head.name]);
    this.select("heads", "Head", options, (name) => [name]);
  }

  select(name, label, options, read = (value) => value) {
    const field = element("select", { name, on: { change: () => this.update({ [name]: read(field.value) }) } },
      ...options.map(([value, text]) => element("option", { value }, `${text}`)));
    this.fields.push([name, (state) => { field.value = name === "heads" ? state.heads[0] : state[name]; }]);
    this.root.append(element("label", {}, `${label} `, field));
  }

  check(name, label) {
    const change = () => this.update({ [name]: field.checked });
    const field = element("input", { type: "checkbox", name, on: { change } });
    this.fields.push([name, (state) => { field.checked = state[name]; }]);
    this.root.append(element("label", {}, field, ` ${label}`));
  }

  render(state) {
    for (const [, show] of this.fields) show(state);
    const text = this.data.text(state);
    this.allow("unit", !text.byWords);
    this.allow("special", text.hasSpecial);
    this.allow("lens", text.norms);
    this.allow("least", state.shape === "lines");
    for (const option of this.root.querySelectorAll("[name=heads] option")) {
      option.disabled = text.maps[option.value] === undefined;
    }
  }

  // What this text has no choice of stays in its place, so that nothing jumps.
  allow(name, possible) {
    const field = this.root.querySelector(`[name=${name}]`);
    if (field) field.disabled = !possible;
  }
}

function twice(...values) {
  return values.map((value) => [value, value]);
}

export function percent(share) {
  return `${100 * Number(share)} %`;
}

function short(title) {
  const signs = [...title];
  return signs.length > 60 ? `${signs.slice(0, 59).join("")}\u2026` : title;
}
