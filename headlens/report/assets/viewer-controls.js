// Everything that can be chosen, each with a label.

import { element } from "./viewer-dom.js";

export class Controls {
  constructor(data, update) {
    this.data = data;
    this.update = update;
    const text = data.payload.texts[0];
    this.fields = [];
    this.root = element("div", { class: "hl-controls" });
    const { texts, tagged, importance } = data.payload;
    if (texts.length > 1) this.select("text", "Text", texts.map((one, index) => [index, short(one.title)]), Number);
    this.head();
    const all = texts.every((one) => one.byWords);
    if (!all) this.select("unit", "Show", [["tokens", "tokens"], ["words", "words"]]);
    if (texts.some((one) => one.hasSpecial)) this.check("special", "Special tokens");
    if (texts.some((one) => one.norms)) this.select("lens", "Measure", [["weights", "weights"], ["norms", "norms"]]);
    const orders = [["layer", "layer"], ["entropy", "entropy"]];
    if (importance) orders.push(["importance", "importance"]);
    if (tagged) orders.push(["tag", "tag"]);
    if (data.heads.length > 1 && text) this.select("sort", "Sort heads by", orders);
    this.select("shape", "Draw", [["lines", "lines"], ["heatmap", "heatmap"]]);
    this.select("least", "Lines from", ["0", "0.01", "0.05", "0.1", "0.25", "0.5"].map((share) => [share, share]));
    this.select("theme", "Colours", [["auto", "as the system"], ["light", "light"], ["dark", "dark"]]);
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
    const field = element("input", { type: "checkbox", name, on: { change: () => this.update({ [name]: field.checked }) } });
    this.fields.push([name, (state) => { field.checked = state[name]; }]);
    this.root.append(element("label", {}, field, ` ${label}`));
  }

  render(state) {
    for (const [, show] of this.fields) show(state);
    const text = this.data.text(state);
    for (const option of this.root.querySelectorAll("[name=heads] option")) option.disabled = text.maps[option.value] === undefined;
  }
}

function short(title) {
  const signs = [...title];
  return signs.length > 60 ? `${signs.slice(0, 59).join("")}\u2026` : title;
}
