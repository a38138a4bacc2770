"""The scorers, one tag family per file; `SCORERS` names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headlens.scorers.base import Scorer
from headlens.scorers.coreference import Coreference
from headlens.scorers.delimiter import Delimiter
from headlens.scorers.positional import Positional
from headlens.scorers.syntactic import Syntactic
from headlens.text.corpus import Corpus

SCORERS: Mapping[str, Callable[[Corpus], Scorer]] = {
    "positional": lambda corpus: Positional(),
    "delimiter": lambda corpus: Delimiter(),
    "syntactic": lambda corpus: Syntactic.of(sentence for _, sentence in corpus.sentences),
    "coreference": lambda corpus: Coreference(),
}
"""What makes the scorer of each tag for a corpus."""
