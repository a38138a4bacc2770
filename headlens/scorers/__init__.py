"""The scorers, one tag family per file; `SCORERS` names them."""

from __future__ import annotations

from headlens.scorers.base import Scorer
from headlens.scorers.broad import Broad
from headlens.scorers.coreference import Coreference
from headlens.scorers.delimiter import Delimiter
from headlens.scorers.duplicate import DuplicateToken
from headlens.scorers.induction import Induction
from headlens.scorers.positional import Positional
from headlens.scorers.rare_token import RareToken
from headlens.scorers.semantic import Semantic
from headlens.scorers.syntactic import Syntactic

SCORERS: dict[str, type[Scorer]] = {
    scorer.tag: scorer
    for scorer in (
        Positional,
        Delimiter,
        Syntactic,
        Coreference,
        Semantic,
        Induction,
        DuplicateToken,
        RareToken,
        Broad,
    )
}
"""The scorer of each tag."""
