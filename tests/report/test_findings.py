"""What is said of scores."""

import pandas as pd
import pytest

from headlens.report.words import unscored_stacks


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        ({"encoder": 9, "decoder": 0, "cross": 0}, ["cross", "decoder"]),
        ({"encoder": 9, "decoder": 5, "cross": 7}, []),
        (
            {"encoder": 0, "decoder": 0, "cross": 0},
            [],
        ),  # nothing of the corpus could be used: no targets help
        ({"encoder": 0}, []),  # a model of one stack has no targets
    ],
)
def test_targets_are_asked_for_where_they_would_help(n, expected):
    scores = pd.DataFrame({"stack": list(n), "n": list(n.values())})
    assert unscored_stacks(scores) == expected
