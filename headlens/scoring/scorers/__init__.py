"""The scorers, one tag family per file; `SCORERS` names them."""

from __future__ import annotations

from headlens.scoring.base import Scorer
from headlens.scoring.scorers.broad import Broad
from headlens.scoring.scorers.copying import DuplicateToken, Induction
from headlens.scoring.scorers.coreference import Coreference
from headlens.scoring.scorers.delimiter import Delimiter
from headlens.scoring.scorers.positional import Positional
from headlens.scoring.scorers.rare_token import RareToken
from headlens.scoring.scorers.semantic import Semantic
from headlens.scoring.scorers.syntactic import Syntactic

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
