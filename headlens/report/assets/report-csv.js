// Comma-separated values, as headlens writes them, to rows by column name.

const FIELD = /("(?:[^"]|"")*"|[^",\n\r]*)(,|\r?\n|$)/y;

export function rowsOf(text) {
  const [names, ...lines] = csvLines(text);
  return lines.map((cells) => Object.fromEntries(names.map((name, index) => [name, cells[index] ?? ""])));
}

// The number of a cell, which may be infinite; NaN where it is none.
export function numberOf(text) {
  const infinite = /^([+-]?)inf(?:inity)?$/i.exec(text);
  if (!infinite) return text.trim() === "" ? NaN : Number(text);
  return infinite[1] === "-" ? -Infinity : Infinity;
}

function csvLines(text) {
  const lines = [];
  let line = [];
  FIELD.lastIndex = 0;
  while (FIELD.lastIndex < text.length) {
    const found = FIELD.exec(text);
    if (!found) throw new Error("This table is broken.");
    line.push(found[1].startsWith('"') ? found[1].slice(1, -1).replaceAll('""', '"') : found[1]);
    if (found[2] === ",") {
      if (FIELD.lastIndex === text.length) line.push("");
      else continue;
    }
    lines.push(line);
    line = [];
  }
  return lines;
}
