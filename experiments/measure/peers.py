"""Other tools, where they are installed: TransformerLens and BertViz."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from torch import Tensor

NAMES = {"transformer_lens": "TransformerLens", "bertviz": "BertViz"}

BERTVIZ = """
import sys, torch, transformers
from bertviz import head_view
place, text, out = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(place)
model = transformers.AutoModel.from_pretrained(place, attn_implementation="eager").eval()
inputs = tokenizer(text, return_tensors="pt")
with torch.inference_mode():
    attention = model(**inputs, output_attentions=True).attentions
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
page = head_view(attention, tokens, html_action="return")
open(out, "w", encoding="utf-8").write(page.data)
"""


def has(module: str) -> bool:
    """Whether a tool is installed; says so where it is not."""
    found = importlib.util.find_spec(module) is not None
    if not found:
        click.echo(f"{NAMES[module]} is not installed: its rows are left out.", err=True)
    return found


def bridge(checkpoint: Path) -> Any:
    """Load a checkpoint as TransformerLens does."""
    from transformer_lens.model_bridge import TransformerBridge

    logging.disable(logging.WARNING)
    return TransformerBridge.boot_transformers(str(checkpoint))


def is_pattern(name: str) -> bool:
    """Whether a place of TransformerLens is that of attention patterns."""
    return name.endswith("hook_pattern")


def keep_patterns(model: Any, ids: Tensor) -> Any:
    """All patterns, as TransformerLens keeps them."""
    with torch.inference_mode():
        return model.run_with_cache(ids, names_filter=is_pattern)[1]


def pass_patterns(model: Any, ids: Tensor) -> None:
    """A hook at every pattern that does nothing."""
    with torch.inference_mode():
        model.run_with_hooks(ids, fwd_hooks=[(is_pattern, lambda pattern, hook: None)])


def detect_previous_token(model: Any, texts: list[str]) -> Tensor:
    """Score heads as TransformerLens does: the share of their weight on the previous token."""
    from transformer_lens.head_detector import detect_head

    with torch.inference_mode():
        return detect_head(model, texts, "previous_token_head")


def bertviz_command(checkpoint: Path, text: str, out: Path) -> list[str]:
    """The program that draws a text with BertViz, as its readme has it."""
    return [sys.executable, "-c", BERTVIZ, str(checkpoint), text, str(out)]


def bertviz_page(model: transformers.PreTrainedModel, tokenizer: Any, text: str) -> str:
    """A text drawn by BertViz with a model that is loaded already."""
    from bertviz import head_view

    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        attention = model(**inputs, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    return str(head_view(attention, tokens, html_action="return").data)
