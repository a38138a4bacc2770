// From the bytes of one head to the numbers that are shown: tokens or words, with or without special tokens.

// How far the exact weight can be from each level: half the way to the neighbours.
export function doubtsOf(levels) {
  return levels.map((level, index) => {
    const below = index ? (level - levels[index - 1]) / 2 : 0;
    const above = index + 1 < levels.length ? (levels[index + 1] - level) / 2 : 0;
    return Math.max(below, above);
  });
}

// Where each token of an axis goes among what is shown (-1: nowhere), and what stands there.
export function shownAxis(axis, state) {
  const words = state.unit === "words";
  const special = words ? axis.wordSpecial : axis.special;
  const labels = words ? axis.words : axis.tokens;
  const places = new Int32Array(labels.length).fill(-1);
  const shown = [];
  labels.forEach((label, index) => {
    if (!state.special && special[index]) return;
    places[index] = shown.length;
    shown.push(label);
  });
  const owner = axis.tokens.map((_, index) => places[words ? axis.owner[index] : index]);
  const pieces = new Float64Array(shown.length);
  owner.forEach((place) => {
    if (place >= 0) pieces[place] += 1;
  });
  return { labels: shown, owner, pieces };
}

// Attention to a word is the sum over its pieces, from it the mean. `doubt` is how far a number can be from
// the exact one, since weights come as the nearest of a few levels.
export function matrixOf({ codes, levels, doubts }, [queries, keys], gains) {
  const rows = queries.labels.length;
  const columns = keys.labels.length;
  const values = new Float64Array(rows * columns);
  const doubt = new Float64Array(rows * columns);
  const nQueries = queries.owner.length; // codes stand key by key
  queries.owner.forEach((row, query) => {
    if (row < 0) return;
    const share = 1 / queries.pieces[row];
    for (let key = 0; key < keys.owner.length; key++) {
      const column = keys.owner[key];
      if (column < 0) continue;
      const code = codes[key * nQueries + query];
      const factor = gains ? share * gains[key] : share;
      values[row * columns + column] += levels[code] * factor;
      doubt[row * columns + column] += doubts[code] * factor;
    }
  });
  return { rows, columns, values, doubt };
}

// The largest of each square of cells, so that what stands out stays visible in a small picture.
export function pooled(matrix, most) {
  const side = Math.max(1, Math.ceil(Math.max(matrix.rows, matrix.columns) / most));
  const rows = Math.ceil(matrix.rows / side);
  const columns = Math.ceil(matrix.columns / side);
  const values = new Float64Array(rows * columns);
  for (let row = 0; row < matrix.rows; row++) {
    const into = Math.floor(row / side) * columns;
    for (let column = 0; column < matrix.columns; column++) {
      const place = into + Math.floor(column / side);
      const value = matrix.values[row * matrix.columns + column];
      if (value > values[place]) values[place] = value;
    }
  }
  return { rows, columns, values };
}

// A number with as many digits as are known: what is shown is within the shown doubt of the exact one.
export function written(value, doubt) {
  const digits = Math.min(7, Math.max(1, 1 + Math.floor(-Math.log10(Math.max(doubt, 1e-7)))));
  const unit = 10 ** -digits;
  return `${value.toFixed(digits)} \u00b1 ${(Math.ceil(doubt / unit + 0.5) * unit).toFixed(digits)}`;
}
