"""Self-checks: whether what headlens measures on a model can be believed; `CHECKS` names them in order."""

from __future__ import annotations

from headlens.checks import ablation, backends, causal, outputs, padding, patterns, shape, text, weights
from headlens.checks.base import Check

CHECKS: dict[str, Check] = {
    "weights": Check(
        weights.weights,
        "This is not the trained model: missing weights are random, layers that are left out change what is "
        "computed, and broken weights spoil all numbers.",
    ),
    "heads": Check(
        shape.heads,
        "Heads are counted or grouped otherwise than in the config, so numbers may stand at wrong heads.",
    ),
    "windows": Check(
        shape.windows,
        "Layers are taken to see other tokens than they do, so far-away attention is invented or lost.",
    ),
    "tokens": Check(
        text.tokens,
        "The model reads another text than yours, so tokens and weights do not belong together.",
    ),
    "words": Check(
        text.words,
        "Attention would be added up over the wrong pieces, so scores by words are of other words.",
    ),
    "numbers": Check(
        patterns.numbers,
        "The model computes with what is no number, so nothing that is measured on it means anything; try "
        "--dtype float32.",
    ),
    "rows": Check(
        patterns.rows,
        "What is captured are not attention weights after softmax, so no score of them can be trusted.",
    ),
    "causality": Check(
        causal.causality,
        "Tokens reach others that they should not, or fail to reach those that they should, so the masks are "
        "wrong.",
    ),
    "evenness": Check(
        patterns.evenness,
        "All heads look everywhere alike, as in a model that was never trained, so nothing tells them apart.",
    ),
    "observing": Check(
        outputs.observing,
        "Looking changes what the model computes, so its patterns are not those of the model that is used.",
    ),
    "no-op": Check(
        outputs.no_op,
        "The place where heads are taken out changes the model by itself, so effects of ablation are not "
        "those of the heads.",
    ),
    "padding": Check(
        padding.padding,
        "Scores of a text depend on how long the other texts of its batch are.",
    ),
    "left-padding": Check(
        padding.left_padding,
        "Scores of a text depend on the padding before it: pad this model on the right.",
    ),
    "batch": Check(
        padding.batch,
        "Scores of a text depend on which other texts are in its batch: use --batch-size 1.",
    ),
    "own-patterns": Check(
        backends.own_patterns,
        "What is captured differs from the patterns that transformers itself returns for this model.",
        cheap=False,
    ),
    "backends": Check(
        backends.backends,
        "Patterns are those of eager attention, but under sdpa the model computes other numbers, so its "
        "outputs do not belong to them.",
        cheap=False,
    ),
    "ablation": Check(
        ablation.ablation,
        "Ablation does not reach the model, so a loss of nothing under ablation shows nothing.",
        cheap=False,
    ),
}
"""The checks by their names, in the order in which they are made."""
