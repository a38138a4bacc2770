// Tables that can be sorted and filtered; of long ones the first rows are shown, and it is said how many there are.

import { numberOf } from "./report-csv.js";

const COLLATOR = new Intl.Collator("en", { numeric: true });

export function readyTable(box) {
  const body = box.querySelector("tbody");
  const state = { rows: [...body.rows], all: false, wanted: "", shown: Number(box.dataset.shown) };
  const show = () => showRows(box, state);
  box.querySelectorAll("th").forEach((head, column) => {
    head.querySelector(".sort").addEventListener("click", () => {
      state.rows = sortedRows(box, state.rows, head, column);
      body.append(...state.rows);
      show();
    });
  });
  box.querySelector(".filter").addEventListener("input", (event) => {
    state.wanted = event.target.value.trim().toLowerCase();
    show();
  });
  box.querySelector(".all").addEventListener("click", () => {
    state.all = !state.all;
    show();
  });
  show();
}

// Rising first, then falling; rows that are equal stay as they were, and empty cells come last either way.
function sortedRows(box, rows, head, column) {
  const down = head.getAttribute("aria-sort") === "ascending";
  box.querySelectorAll("th").forEach((one) => one.setAttribute("aria-sort", one === head ? (down ? "descending" : "ascending") : "none"));
  const numeric = "numeric" in head.querySelector(".sort").dataset;
  const keys = new Map(rows.map((row) => [row, numeric ? row.cells[column].dataset.sort : row.cells[column].textContent]));
  const order = numeric ? (a, b) => numberOf(a) - numberOf(b) || 0 : COLLATOR.compare; // 0: both are infinite
  const filled = rows.filter((row) => keys.get(row) !== "");
  filled.sort((a, b) => (down ? -1 : 1) * order(keys.get(a), keys.get(b)));
  return [...filled, ...rows.filter((row) => keys.get(row) === "")];
}

function showRows(box, state) {
  const fitting = state.rows.filter((row) => row.textContent.toLowerCase().includes(state.wanted));
  const shown = new Set(state.all ? fitting : fitting.slice(0, state.shown));
  state.rows.forEach((row) => { row.hidden = !shown.has(row); });
  const total = state.rows.length.toLocaleString("en");
  box.querySelector(".count").textContent = shown.size === state.rows.length ? `${total} rows` : `${shown.size.toLocaleString("en")} of ${total} rows`;
  const button = box.querySelector(".all");
  button.hidden = fitting.length <= state.shown;
  button.textContent = state.all ? "Show fewer" : `Show all ${fitting.length.toLocaleString("en")}`;
}
