// What is known about heads: in words, as chips, and as orders.

import { element } from "./viewer-dom.js";

export function chip(tag, style) {
  const made = element("span", { class: "hl-chip", title: tag }, style.letter);
  made.style.background = style.colour;
  made.style.color = style.ink;
  return made;
}

// A tag with its name written out.
export function named(tag, style) {
  return element("span", { class: "hl-key" }, chip(tag, style), ` ${tag}`);
}

// Numbers about a head on a text.
export function factsOf(head, state, data) {
  const entropy = data.text(state).entropy[head.name];
  const facts = entropy === undefined ? [] : [`entropy ${entropy.toFixed(2)} nats (${entropyOf(state, data)})`];
  if (head.importance !== null) facts.push(`importance ${head.importance.toPrecision(3)} (${data.payload.importance})`);
  return facts;
}

// What entropy is over: that of the text as it came, also where words are shown or special tokens are hidden.
export function entropyOf(state, data) {
  return data.text(state).entropyOf ?? "all tokens";
}

// A head in words: its name, tags, entropy and importance.
export function described(head, state, data) {
  const tags = head.tags.length ? head.tags.join(", ") : "no tag";
  return [`Head ${head.name}`, ...(data.payload.tagged ? [tags] : []), ...factsOf(head, state, data)].join("; ");
}

// A head as titles have it.
export function placeOf(head, data) {
  const stack = data.stacks.length > 1 ? `${head.stack}, ` : "";
  const place = `${stack}layer ${head.layer}, head ${head.head}`;
  return place[0].toUpperCase() + place.slice(1);
}

// Entropy: the most focused first. Importance: the largest first. Tag: tagged ones first, by tag.
export function ordered(heads, state, data) {
  const rank = Object.keys(data.payload.tags);
  const entropy = data.text(state).entropy;
  const keys = {
    layer: () => 0,
    entropy: (head) => entropy[head.name] ?? Infinity,
    importance: (head) => (head.importance === null ? Infinity : -head.importance),
    tag: (head) => (head.tags.length ? rank.indexOf(head.tags[0]) : rank.length),
  };
  const key = keys[state.sort];
  return heads.map((head) => [key(head), head]).sort((a, b) => a[0] - b[0] || 0).map(([, head]) => head);
}
