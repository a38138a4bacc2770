// What a word means, beside the pointer or the focus. It stays while the pointer is on it, and Escape puts it away.

const TIP_WAIT = 150; // milliseconds to move from a word to its meaning

export function readyTips(root, tip, terms) {
  let word = null;
  let leaving = 0;
  const hide = () => {
    clearTimeout(leaving);
    word?.removeAttribute("aria-describedby");
    word = null;
    if (tip.matches(":popover-open")) tip.hidePopover();
  };
  const show = (event) => {
    if (event.target.closest?.("#tip")) return clearTimeout(leaving);
    const found = event.target.closest?.("[data-term]");
    const meaning = found && terms[found.dataset.term]?.meaning;
    if (!meaning || found === word) return clearTimeout(leaving);
    hide();
    word = found;
    tip.textContent = meaning;
    (found.closest("dialog") || document.body).append(tip); // what is outside a dialog is not read out
    found.setAttribute("aria-describedby", tip.id);
    tip.showPopover();
    placeTip(tip, found.getBoundingClientRect());
    return undefined;
  };
  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(hide, TIP_WAIT);
  };
  root.addEventListener("mouseover", (event) => (event.target.closest?.("[data-term], #tip") ? show(event) : word && word !== document.activeElement && leave()));
  root.addEventListener("focusin", show);
  root.addEventListener("focusout", hide);
  root.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  root.addEventListener("scroll", () => word && placeTip(tip, word.getBoundingClientRect()), { capture: true, passive: true });
}

// Below the word, or above it where there is no room below.
function placeTip(tip, box) {
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const below = box.bottom + 6;
  const top = below + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 6 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
