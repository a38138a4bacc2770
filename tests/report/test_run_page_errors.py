"""Runs that no page can be made of."""

import re

import pytest

from headlens.errors import RunError
from headlens.report.artist import report_page, write_report
from headlens.util.files import ABLATION
from support import finishedruns


def broken(path, file, content):
    (path / file).write_text(content)
    return path


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda run: run / "nowhere",
            "there is no directory {run}/nowhere. Give what you gave a headlens classify, ",
        ),
        (lambda run: broken(run, "run.json", "{"), "{run}/run.json cannot be read: "),
        (lambda run: broken(run, "run.json", "[]"), "{run} holds one of headlens ?. "),
        (lambda run: broken(run, "run.json", '{"command": "prune"}'), "{run} holds one of headlens prune. "),
        (lambda run: broken(run, "ablation.csv", "condition\n"), "{run}/ablation.csv has no column sweep. "),
        (
            lambda run: broken(run, "ablation.csv", ",".join(ABLATION) + "\n"),
            "{run}/ablation.csv holds no rows. ",
        ),
        (lambda run: broken(run, "importance.csv", ""), "{run}/importance.csv cannot be read: "),
        (lambda run: broken(run, "examples.json", "no"), "{run}/examples.json cannot be read: "),
        (
            lambda run: broken(run, "run.json", '{"command": "ablate"}'),
            "{run}/run.json does not say which values of ",
        ),
    ],
)
def test_runs_that_cannot_be_shown(tmp_path, spoil, message):
    run = finishedruns.ablate_run(tmp_path / "a")
    with pytest.raises(RunError) as caught:
        report_page([spoil(run)])
    assert message.format(run=run) in str(caught.value)
    assert caught.value.remedy


def test_numbers_that_are_none_and_heads_that_are_none(tmp_path):
    table = finishedruns.ablation_rows()
    run = finishedruns.ablate_run(tmp_path / "a", table.assign(removed="all of them"))
    with pytest.raises(RunError, match=r"Expected heads such as encoder\.2\.8 in the column removed"):
        report_page([run])
    run = finishedruns.ablate_run(tmp_path / "b", table.assign(delta="much"))
    with pytest.raises(RunError, match=r"ablation\.csv cannot be read"):
        report_page([run])


def test_a_folder_of_runs_names_them(tmp_path):
    run = finishedruns.ablate_run(tmp_path / "a")
    with pytest.raises(RunError, match=re.escape(f"Give the runs inside it: {run}")):
        write_report([tmp_path], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()
