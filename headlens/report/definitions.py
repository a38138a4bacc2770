"""What tags, columns and measures mean, in a sentence each, for readers of a report."""

from __future__ import annotations

from collections.abc import Mapping

from headlens.scoring.scorers import SCORERS

TAGS: Mapping[str, str] = {
    "positional": "At least 90 % of the head's largest weights, or more than half of its weight, fall on "
    "one offset: the previous token, the next, the token itself. Held against uniform attention.",
    "delimiter": "More than 60 % of the head's weight is on special tokens or on punctuation, or more than "
    "30 % on the first token. Held against the share of those tokens.",
    "syntactic": "For some relation of the dependency tree, the word that the dependent attends to most (or "
    "that attends to it most) is its head, 10 points more often than both the best fixed offset for that "
    "relation and what looking at the same words would give if arcs were dealt out anew.",
    "coreference": "The earlier mention that a mention attends to most is of the same entity, 5 points more "
    "often than both the nearest mention and the nearest with the same head word.",
    "semantic": "Content words give related content words more weight than unrelated ones at the same "
    "distances, and more than shuffled relations would give.",
    "induction": "On repeated random tokens, at least 40 % of the head's weight is on what followed earlier "
    "copies of the current token, and it raises the logits of what it looks at, where that can be told. "
    "Held against uniform attention.",
    "duplicate-token": "On repeated random tokens, at least 40 % of the head's weight is on earlier copies "
    "of the current token. Held against uniform attention.",
    "rare-token": "The head's largest weights fall on the two rarest words of a sentence, 10 points more "
    "often than chance at matched positions.",
    "broad": "The entropy of the head's rows is at least 90 % of what it could be: it looks everywhere "
    "alike. It has no baseline.",
}
"""The meaning of each tag with the margins that headlens has by default; run.json has those in force."""

COLUMNS: Mapping[str, str] = {
    "head": "layer.head, both counted from 0: 2.8 is head 8 of layer 2. A click shows the head.",
    "tags": "What the head was found to do, that with the strongest evidence first.",
    "evidence": "For each tag the measure that shows it most clearly, with its score and its baseline.",
    "measure": "The one quantity in this row: an offset, a kind of token, a relation with its direction.",
    "score": "A share of decisions or of weight, from 0 to 1.",
    "baseline": "What the score is held against. What had to be chosen was chosen on one half of the "
    "documents and counted on the other.",
    "effect": "Score minus baseline.",
    "interval": "The 95 % interval of the effect, from a bootstrap over documents (over sentences where "
    "there are fewer than 10 documents).",
    "p": "p-value of this row alone.",
    "q": "q-value: of all rows with a value up to this one, the expected share of false findings (Benjamini "
    "and Hochberg). Effects are claimed where it is below 0.05. Empty: not tested.",
    "n": "How many decisions, queries or examples the number rests on.",
    "tagged": "Whether this row carries the tag: its effect reaches the margin, its interval lies above 0, "
    "and q is below 0.05.",
    "taken out": "Which heads were taken out together.",
    "heads": "How many heads were taken out.",
    "metric": "What was measured; importance is about the first metric of the benchmark.",
    "value": "The metric without these heads.",
    "all heads": "The metric with all heads.",
    "change": "The metric without these heads minus the metric with all heads, in the metric's own "
    "direction.",
    "change interval": "The 95 % interval of the change, from a bootstrap over examples.",
    "importance": "How much the head matters by this method: positive where the model is worse without it.",
    "method": "How importance was estimated. each: measured by taking the head out alone; gradient: the "
    "mean size of the loss's derivative by the head's gate, which has no sign; taylor: the same with its "
    "sign; integrated: integrated gradients; shapley: mean effect over random orders of removal; gates: "
    "learned.",
    "rank": "1 is the most important.",
    "random sets": "The mean of the metric without random sets of as many heads of each layer.",
    "random interval": "Where 95 % of the random sets lie.",
    "at least as bad": "(1 + random sets without which the model is as bad or worse) / (1 + all drawn): a "
    "p-value of \u201cthis set is like a random one\u201d.",
    "gate": "The probability that the head's learned gate stays open, under pressure to close or to open.",
    "role": "What the two gates come to: facilitating, irrelevant or interfering.",
    "kept": "The head of the layer that does best alone, chosen on one half of the examples.",
    "gained": "Tags that the head carries in the second run only.",
    "lost": "Tags that the head carries in the first run only.",
    "kappa": "Cohen's kappa: agreement beyond chance; 1 is full agreement, 0 that of chance. Empty: not "
    "defined.",
    "correlation": "Correlation over heads of the scores of the two runs. Empty: not defined.",
    "divergence": "Jensen-Shannon divergence of what two heads look at, in nats, the mean over queries: 0 is "
    "the same, ln 2 = 0.693 no key in common.",
    "cka": "Linear CKA of what two heads write: 1 is the same up to a rotation and a scale. It is too high "
    "where tokens are few. Empty: a head writes nothing that varies, or its W_O is no plain layer.",
    "cluster": "By average linkage on the divergence.",
    "nearest": "The head with the smallest divergence; of several the first in the model.",
}
"""The meaning of each column, by the key that `headlens.report.page.parts.Column` names."""

BEST_OF_SEVERAL = frozenset({"syntactic", "coreference"})  # tags with more than one baseline
NO_BASELINE = frozenset({"broad"})

_MEASURES: Mapping[str, str] = {
    "special": "weight on special tokens",
    "punctuation": "weight on punctuation",
    "first-token": "weight on the first token",
    "antecedent": "mentions with an earlier one",
    "related": "weight on related words",
    "prefix-matching": "weight on what followed earlier copies",
    "duplicate-token": "weight on earlier copies",
    "rare-token": "largest weights on the rarest words",
    "entropy": "entropy",
}


def tag_definition(tag: str) -> str:
    """Say what a tag means.

    Args:
        tag: any tag, also of a scorer of the user's own.

    Returns:
        A text; of a tag of the user's own what its scorer says of itself, or nothing.
    """
    if tag in TAGS:
        return TAGS[tag]
    own = SCORERS[tag].__doc__ if tag in SCORERS else None
    return (own or "").strip().partition("\n")[0]


def measure_words(measure: str) -> str:
    """Say a measure in words.

    Args:
        measure: a value of the column `measure`.

    Returns:
        Words such as "obj, from dependent to head"; a measure that is not known stays as it is.
    """
    stem, _, detail = measure.partition(":")
    if detail in ("dependent->head", "head->dependent"):
        return f"{stem}, from {' to '.join(detail.split('->'))}"
    name, _, place = stem.partition("@")
    if name in ("argmax", "mass") and place:
        return f"{'largest weights' if name == 'argmax' else 'weight'} on offset {place}"
    words = _MEASURES.get(name, "")
    if not words:
        return measure
    return f"{detail} {words}".strip() + ", among all earlier words" * (place == "words")
