"""What it takes from a text to a page, and to start at all."""

from __future__ import annotations

import sys

import transformers

from measure import peers
from measure.setting import Setting
from measure.timing import Row, against, process

TEXT = "The dog that the children found in the park had lost its collar and ran after everyone it saw."


def view(setting: Setting) -> list[Row]:
    """From the start of a program to the file, and with a model that is loaded already."""
    command = [sys.executable, "-m", "headlens"]
    ours, other = setting.folder / "ours.html", setting.folder / "other.html"
    rounds = 1 if setting.small else max(3, setting.rounds)
    start = process([*command, "--help"], rounds)
    drawn = process([*command, "view", setting.model, TEXT, "--quiet", "--out", str(ours)], rounds)
    name, part = "headlens view, start to page", f"view: {setting.model}, {len(TEXT.split())} words"
    rows = [Row("start", "headlens --help", start, "s"), Row(part, name, drawn, "s")]
    rows.append(Row(part, "page of headlens", ours.stat().st_size / 1024, "KB"))
    if not peers.has("bertviz"):
        return rows
    theirs = process(peers.bertviz_command(setting.checkpoint, TEXT, other), rounds)
    model = transformers.AutoModel.from_pretrained(setting.checkpoint, attn_implementation="eager").eval()
    lens = setting.lens
    return [
        *rows,
        Row(part, "page of BertViz", other.stat().st_size / 1024, "KB"),
        Row(part, name, drawn / theirs, "BertViz, start to page"),
        *against(
            part,
            {"text to page, model loaded": lambda: lens.attention(TEXT).to_html()},
            {"BertViz, model loaded": lambda: peers.bertviz_page(model, lens.tokenizer, TEXT)},
            rounds,
        ),
    ]
