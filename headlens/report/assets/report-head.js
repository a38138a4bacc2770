// One head: its attention on the examples of its run, and every number about it. The address says which is open.

import { element } from "./viewer-dom.js";
import { openViewer } from "./viewer.js";
import { evidenceOf, partsOfHead, sameHead, tagChip } from "./report-evidence.js";

export class HeadDialog {
  constructor(dialog, data) {
    this.dialog = dialog;
    this.data = data;
    this.runs = [...document.querySelectorAll(".run")];
    this.title = dialog.querySelector("h2");
    this.evidence = element("div");
    this.shown = element("div");
    dialog.querySelector("#head-body").replaceChildren(this.evidence, this.shown);
    this.viewers = new Map();
    this.open = null;
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => this.clicked(event));
    dialog.addEventListener("close", () => this.closed());
    document.addEventListener("click", (event) => this.linkClicked(event));
    addEventListener("hashchange", () => this.follow());
  }

  // A link to a head inside a run means that run.
  linkClicked(event) {
    const link = event.target.closest?.("a[href]");
    const run = link?.closest(".run");
    const name = new URLSearchParams((link?.getAttribute("href") || "").replace(/^#/, "")).get("head");
    if (!run || !name || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.visit(this.runs.indexOf(run), name);
  }

  // Beside the dialog means away from it; so does a link to another place of the page.
  clicked(event) {
    if (event.target === this.dialog || event.target.closest("a.tag")) this.dialog.close();
  }

  visit(number, name) {
    const fragment = this.runs.length > 1 ? `#run=${number}&head=${name}` : `#head=${name}`;
    if (location.hash === fragment) this.follow();
    else location.hash = fragment;
  }

  // Do what the address says; what it says about no head is left alone.
  follow() {
    const given = new URLSearchParams(location.hash.slice(1));
    const numbers = given.has("run") ? [Number(given.get("run") || NaN)] : this.runs.map((_, number) => number);
    for (const number of given.has("head") ? numbers : []) {
      const name = headNamed(this.data.runs[number], partsOfHead(given.get("head")));
      if (name) return this.show(number, name);
    }
    if (this.dialog.open) this.dialog.close();
    return undefined;
  }

  async show(number, name) {
    const [run, told] = [this.runs[number], this.data.runs[number]];
    const mine = `${number} ${name}`;
    if (this.open === mine) return;
    this.open = mine;
    const tags = (told.tags[name] || "").split(";").filter(Boolean);
    this.title.replaceChildren(`Head ${name} `, ...tags.flatMap((tag) => [tagChip(tag, this.data), " "]));
    const attention = this.attention(number, name);
    if (this.shown.firstChild !== attention) this.shown.replaceChildren(attention); // what has the focus stays
    if (!this.dialog.open) this.dialog.showModal();
    const parts = await Promise.all(told.evidence.map((one) => evidenceOf(run, one, name, this.data)));
    if (this.open !== mine) return;
    const about = this.runs.length > 1 ? [element("p", { class: "soft" }, told.title)] : [];
    this.evidence.replaceChildren(...about, ...parts);
    this.dialog.dataset.ready = mine;
  }

  closed() {
    this.open = null;
    this.evidence.replaceChildren();
    delete this.dialog.dataset.ready;
    if (new URLSearchParams(location.hash.slice(1)).has("head")) history.replaceState(null, "", location.pathname + location.search);
  }

  // The viewer of a run is made once, and moved into the dialog whenever a head of that run is shown.
  attention(number, name) {
    const holder = this.runs[number].querySelector("script.examples");
    if (!holder) return element("p", { class: "soft" }, "This run kept no example sentences, so there is no attention to show.");
    if (!this.viewers.has(number)) this.viewers.set(number, heldViewer(JSON.parse(holder.textContent)));
    const held = this.viewers.get(number);
    const known = held.payload.heads.find((head) => sameHead(head.name, partsOfHead(name)));
    if (!known) return element("p", { class: "soft" }, "The examples do not reach this head.");
    // made once it is in the page, where it can measure itself
    queueMicrotask(() => {
      held.viewer ??= openViewer(held.root, held.payload, { fragment: false });
      if (held.root.dataset.ready?.split(",")[0] !== known.name) held.viewer.show(known.name);
      held.watch ??= this.watch(number, held.root);
    });
    return held.section;
  }

  // Another head chosen in the viewer is another head altogether.
  watch(number, root) {
    const watch = new MutationObserver(() => {
      const name = root.dataset.ready?.split(",")[0];
      if (this.dialog.open && this.open?.startsWith(`${number} `) && !sameHead(name, partsOfHead(this.open.split(" ")[1]))) this.visit(number, name);
    });
    watch.observe(root, { attributes: true, attributeFilter: ["data-ready"] });
    return watch;
  }
}

// The head of a run that is meant; a stack that the run does not have means none.
function headNamed(told, place) {
  return told?.heads.find((one) => sameHead(partsOfHead(one)[0] || !told.stack ? one : `${told.stack}.${one}`, place));
}

function heldViewer(payload) {
  const root = element("div");
  return { payload, root, viewer: null, section: element("section", {}, element("h3", {}, "What it looks at"), root) };
}
