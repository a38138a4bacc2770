// Heads in a figure, by keyboard: one stop for the tab key, and arrows to the nearest head in a direction.

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function readyFigures(drawn) {
  const links = [...drawn.querySelectorAll("a[href]")];
  links.forEach((link, index) => link.setAttribute("tabindex", index ? "-1" : "0"));
  drawn.addEventListener("keydown", (event) => {
    const next = ARROWS[event.key] && nearestLink(links, document.activeElement, ARROWS[event.key]);
    if (!next) return;
    event.preventDefault();
    links.forEach((link) => link.setAttribute("tabindex", link === next ? "0" : "-1"));
    next.focus();
  });
}

// The nearest ahead; what lies aside counts double.
function nearestLink(links, from, [right, down]) {
  if (!links.includes(from)) return null;
  const [x, y] = middleOf(from);
  let best = null;
  let least = Infinity;
  for (const link of links) {
    const [dx, dy] = [middleOf(link)[0] - x, middleOf(link)[1] - y];
    const ahead = dx * right + dy * down;
    const away = ahead + 2 * Math.abs(dx * down + dy * right);
    if (ahead > 1 && away < least) [best, least] = [link, away];
  }
  return best;
}

function middleOf(link) {
  const box = link.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}
