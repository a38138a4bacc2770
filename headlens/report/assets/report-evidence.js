// Everything that the tables of a run say about one head.

import { element } from "./viewer-dom.js";
import { numberOf, rowsOf } from "./report-csv.js";
import { textOf } from "./report-files.js";

const EVIDENCE_FIRST = 6; // rows that are shown at first
const openedTables = new Map();

const MATCHES = {
  head: (row, [stack, layer, head]) => row.layer === layer && row.head === head && (!stack || row.stack === stack),
  removed: (row, place) => !row.control_of && row.removed.split(" ").some((name) => sameHead(name, place)),
  kept: (row, place) => !row.control_of && row.kept.split(" ").some((name) => sameHead(name, place)),
};

// Stack (empty where the name has none), layer and head of a name such as 2.8 or cross.2.8.
export function partsOfHead(name) {
  const parts = name.split(".");
  if (parts.length > 3) return [name, "", ""]; // no head is called so
  return parts.length === 3 ? parts : ["", ...parts];
}

export function sameHead(name, [stack, layer, head]) {
  const [its, ...rest] = partsOfHead(name);
  return rest[0] === layer && rest[1] === head && (!its || !stack || its === stack);
}

export async function evidenceOf(run, one, name, data) {
  const key = `${run.id} ${one.file}`;
  if (!openedTables.has(key)) openedTables.set(key, textOf(run, one.file).then(rowsOf));
  const rows = (await openedTables.get(key)).filter((row) => MATCHES[one.match](row, partsOfHead(name)));
  for (const column of [...one.order].reverse()) rows.sort(byColumn(column.replace(/^-/, ""), column.startsWith("-") ? -1 : 1));
  const heading = element("h3", {}, `${one.title} `, element("small", { class: "soft" }, `${one.file}, ${rows.length} row${rows.length === 1 ? "" : "s"}`));
  return element("section", {}, heading, rows.length ? evidenceTable(rows, one.columns, data) : element("p", { class: "soft" }, "Nothing about this head."));
}

function byColumn(name, sign) {
  const worth = (row) => (row[name] === "True" ? 1 : row[name] === "False" ? 0 : numberOf(row[name]));
  return (a, b) => (a[name] === "") - (b[name] === "") || sign * (worth(a) - worth(b)) || 0;
}

function evidenceTable(rows, columns, data) {
  const heads = columns.map((column) => element("th", { scope: "col", class: WRITTEN[column.kind] ? "number" : null }, headingOf(column)));
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...columns.map((column) => evidenceCell(row[column.name], column.kind, data)))));
  const hidden = [...body.rows].slice(EVIDENCE_FIRST);
  hidden.forEach((row) => { row.hidden = true; });
  const showAll = () => {
    hidden.forEach((row) => { row.hidden = false; });
    more.remove();
  };
  const more = element("button", { type: "button", on: { click: showAll } }, `Show all ${rows.length} rows`);
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  return element("div", {}, element("div", { class: "scroll" }, table), hidden.length ? more : null);
}

function headingOf(column) {
  if (!column.meaning) return column.label;
  return element("span", { class: "term", tabindex: "0", "data-term": `column ${column.meaning}` }, column.label);
}

const WRITTEN = {
  number: (value) => (Number.isInteger(value) ? value.toLocaleString("en") : `${Number(value.toPrecision(4))}`),
  value: (value) => value.toFixed(4),
  change: (value) => `${value < 0 ? "" : "+"}${value.toFixed(4)}`,
  share: (value) => value.toFixed(3),
  p: (value) => `${Number(value.toPrecision(2))}`,
  count: (value) => value.toLocaleString("en"),
};

function evidenceCell(text, kind, data) {
  if (kind === "tags") return element("td", {}, ...text.split(";").filter(Boolean).flatMap((tag) => [tagChip(tag, data), " "]));
  if (!WRITTEN[kind] || text === "") return element("td", {}, { True: "yes", False: "no" }[text] ?? text);
  const value = numberOf(text);
  const endless = kind === "change" && value > 0 ? "+inf" : value > 0 ? "inf" : "-inf";
  const shown = Number.isFinite(value) ? WRITTEN[kind](value) : Number.isNaN(value) ? text : endless;
  return element("td", { class: "number", title: text }, shown);
}

// A tag as the rest of the page writes it: a link to what it means.
export function tagChip(tag, data) {
  const look = data.tags[tag];
  const letter = element("span", { class: "chip", "aria-hidden": "true" }, look.letter);
  letter.style.background = look.colour;
  letter.style.color = look.ink;
  const key = `tag ${look.name}`;
  return element("a", { class: "tag", href: `#${data.terms[key].id}`, "data-term": key }, letter, look.name);
}
