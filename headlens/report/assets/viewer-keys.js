// The keyboard: arrows change layer and head, letters the rest.

export const HELP = "Keys: arrows change layer and head; j and k the token; v lines or heatmap; w words; "
  + "s special tokens; n norms; Esc lets go.";

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export function onKey(event, state, data) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input, textarea")) return null;
  if (MOVES[event.key]) return { heads: [neighbour(state.heads[0], MOVES[event.key], data, state)] };
  const from = event.target.closest("[data-place]")?.dataset.place || state.pin;
  const letters = {
    j: () => ({ pin: stepped(from, state, data, 1) }),
    k: () => ({ pin: stepped(from, state, data, -1) }),
    v: () => ({ shape: state.shape === "lines" ? "heatmap" : "lines" }),
    w: () => ({ unit: state.unit === "words" ? "tokens" : "words" }),
    s: () => ({ special: !state.special }),
    n: () => ({ lens: state.lens === "norms" ? "weights" : "norms" }),
    Escape: () => (state.pin ? { pin: null } : null),
  };
  return letters[event.key] ? letters[event.key]() : null;
}

// The next head in a direction; at the edge of a stack the next stack, at the edge of all the same head.
function neighbour(name, [down, right], data, state) {
  const here = data.heads.filter((head) => data.text(state).maps[head.name] !== undefined);
  const now = data.byName.get(name);
  if (right) {
    const row = here.filter((head) => head.stack === now.stack && head.layer === now.layer);
    const place = row.findIndex((head) => head.name === name) + right;
    return (row[place] || now).name;
  }
  const grid = data.stacks.flatMap((stack) => here.filter((head) => head.stack === stack));
  const rows = [...new Set(grid.map((head) => `${head.stack} ${head.layer}`))];
  const wanted = rows[rows.indexOf(`${now.stack} ${now.layer}`) + down];
  const row = here.filter((head) => `${head.stack} ${head.layer}` === wanted);
  const nearest = [...row].sort((a, b) => Math.abs(a.head - now.head) - Math.abs(b.head - now.head))[0];
  return (nearest || now).name;
}

function stepped(from, state, data, step) {
  const side = from ? from[0] : "q";
  const count = data.axes(state, state.heads[0])[side === "q" ? 0 : 1].labels.length;
  const place = from ? Number(from.slice(1)) + step : step > 0 ? 0 : count - 1;
  return `${side}${Math.min(count - 1, Math.max(0, place))}`;
}
