// Files that the page carries: opened when they are wanted, and saved byte by byte as they were.

import { inflate } from "./viewer-codec.js";

const FILE_TYPES = { csv: "text/csv", svg: "image/svg+xml", json: "application/json" };

// The text of a file of a run.
export async function textOf(run, name) {
  const holder = [...run.querySelectorAll("script[data-name]")].find((one) => one.dataset.name === name);
  return new TextDecoder().decode(await inflate(holder.textContent));
}

export function readyFiles(root) {
  root.querySelectorAll("button.download").forEach((button) => button.addEventListener("click", () => saveFile(button.dataset.file)));
  root.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", () => copyCommand(button)));
}

async function saveFile(id) {
  const holder = document.getElementById(id);
  const name = holder.dataset.name;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await inflate(holder.textContent)], { type: FILE_TYPES[name.split(".").pop()] }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copyCommand(button) {
  const code = button.parentElement.querySelector("code");
  const said = button.parentElement.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(code.textContent);
    said.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(code); // the browser forbids it: the reader copies what is marked
    said.textContent = "Marked: now copy it.";
  }
}
