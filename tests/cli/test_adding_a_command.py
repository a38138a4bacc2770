"""The recipe of CONTRIBUTING.md, followed word for word: a command is one file and one line."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from headlens.cli import COMMANDS, main
from support.toytext import store_bert

RECIPE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def count(tmp_path, monkeypatch):
    """Types ``headlens count``, which the recipe added."""
    recipe = RECIPE.read_text(encoding="utf-8").partition("## Add a command")[2].partition("\n## ")[0]
    file, line = re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)
    (tmp_path / "count_heads.py").write_text(file)
    monkeypatch.syspath_prepend(tmp_path)
    ((name, module),) = re.findall(r'"(.*)": "(.*)",', line)
    assert module == "headlens.cli.count"  # which is elsewhere here, so that nothing is left in the package
    monkeypatch.setitem(COMMANDS, name, "count_heads")
    store_bert(tmp_path / "model")

    def typed(*words):
        return CliRunner().invoke(main, list(map(str, words)))

    return typed


def test_one_file_and_one_line_add_a_command(count, tmp_path):
    assert "\n  count          Count heads of MODEL.\n" in count("--help").stdout
    assert "--save-as FILE.toml" in count("count", "--help").stdout
    file, model = tmp_path / "x.toml", tmp_path / "model"
    made = count("count", model, "--heads", "0.*", "--out", tmp_path / "a", "--save-as", file)
    assert (made.exit_code, made.stdout) == (0, "4 heads.\n"), made.output
    assert "[count]\n" in file.read_text()
    figure = 'what = "heads"\nvalue = 4\nsource = "s"\nrun = "a"\ntable = "run.json"\ncolumn = "n_heads"\n'
    file.write_text(f"{file.read_text()}[[published]]\n{figure}")
    again = count("run", file, "--out", tmp_path / "b")
    assert again.exit_code == 0, again.output
    assert "         4              4   heads (" in again.stdout
    records = [json.loads((tmp_path / place / "run.json").read_text()) for place in ("a", "b/a")]
    assert [(record["command"], record["n_heads"]) for record in records] == [("count", 4)] * 2


def test_a_key_of_its_section_is_an_option_of_it(count, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(f"[model]\nname = '{tmp_path / 'model'}'\n[count]\nhaeds = '0.*'\n")
    assert "[count] of x.toml cannot have 'haeds'. Did you mean heads?" in count("run", file).stderr
    file.write_text(f"[model]\nname = '{tmp_path / 'model'}'\n[count]\n")
    assert "[count] of x.toml: Missing option '--heads'." in count("run", file).stderr
