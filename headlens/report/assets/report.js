// A page of finished runs.

import { readyFigures } from "./report-figures.js";
import { readyFiles } from "./report-files.js";
import { HeadDialog } from "./report-head.js";
import { readyTable } from "./report-table.js";
import { readyTips } from "./report-tips.js";

const reportData = JSON.parse(document.getElementById("report-data").textContent);

document.querySelectorAll(".table").forEach(readyTable);
document.querySelectorAll("figure .drawn").forEach(readyFigures);
readyFiles(document);
readyTips(document, document.getElementById("tip"), reportData.terms);
new HeadDialog(document.getElementById("head"), reportData).follow();
