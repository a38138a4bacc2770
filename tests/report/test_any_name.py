"""Whatever words, relations, files and models are called, no markup, path or formula comes of it."""

import csv
import json
import random
import shutil
from html.parser import HTMLParser
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from headlens.cli import main
from headlens.util.files import TAGS, write_csv
from support import hostile
from support.toytext import store_bert

NAMES = hostile.words("/", most=3).filter(lambda name: len(name.encode()) < 200 and name not in (".", ".."))
CELLS = st.lists(hostile.words().map(lambda text: " ".join(text.split())), min_size=5, max_size=5)
HARMLESS = ("name", ["one", "two", "three", "four", "five"])
OWN = ("all.html", "view.html", "tagged")
SIGNS = ("=", "+", "-", "@")


class Outline(HTMLParser):
    """Every kind of element of a page with the names of its attributes, and where links and sources lead."""

    def __init__(self):
        super().__init__()
        self.kinds, self.scripts, self.leads, self.classes = set(), 0, set(), set()

    def handle_starttag(self, tag, attributes):
        self.kinds |= {(tag, name) for name, _ in [*attributes, ("", "")]}
        self.scripts += tag == "script"
        self.classes |= {value for name, value in attributes if name in ("class", "type", "rel", "role")}
        self.leads |= {
            str(value).strip()[:1] if name == "href" else value
            for name, value in attributes
            if name in ("href", "src", "action", "srcdoc", "http-equiv", "formaction", "xlink:href")
        }


def outline(page):
    made = Outline()
    made.feed(page.read_text("utf-8"))
    made.close()
    return made.kinds, made.scripts, made.leads, made.classes


def treebank(path, words):
    """Five documents of sentences whose every cell may be hostile."""
    chance = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("# global.Entity = eid-etype-head-other\n")
        for document in range(5):
            file.write(f"# newdoc id = {words[document]}\n")
            for number in range(3):
                file.write(f"# sent_id = {words[number]}\n")
                for place in range(1, 7):
                    form, lemma, upos, relation = chance.choices(words, k=4)
                    eid = "".join(c for c in words[place % 2] if c not in "()-|=[] \u00a0") or "e"
                    mark = f"Entity=({eid}-x-1-x)" if place % 3 == 0 else "_"
                    cells = (place, form, lemma, upos, "_", "_", place - 1, relation, "_", mark)
                    file.write("\t".join(map(str, cells)) + "\n")
                file.write("\n")


def commands(folder, name, words):
    """Classify, ablate, similar, report and view with these names; the directories of their results."""
    model, corpus, pairs = (folder / f"{name}{ending}" for ending in ("", ".conllu", ".tsv"))
    shutil.copytree(folder.parent / "model", model)
    treebank(corpus, words)
    rows = [("text_a", "text_b", "score"), *((words[n % 5], f"w{n} w5", str(n)) for n in range(6, 18))]
    pairs.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8", newline="")
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    tagged = [("encoder", *heads[n], words[n % 5].replace(";", ","), words[0]) for n in range(8)]
    write_csv(pd.DataFrame(tagged, columns=TAGS), folder / "tagged" / "tags.csv", TAGS)
    typed = [
        ["classify", model, "--corpus", corpus, "--min-n", 2, "--tags", "syntactic,positional", "--quiet"],
        ["ablate", model, "--benchmark", f"similarity:{pairs}", "--sweep", "tags", "--draws", 2, "--quiet"],
    ]
    outs = [folder / f"{name}{number}" for number in (1, 2)]
    typed[1] += ["--from", folder / "tagged"]
    for one, out in zip(typed, outs, strict=True):
        invoke([*one, "--out", out])
    invoke(["report", *outs, "--out", folder / "all.html"])
    invoke(["view", model, "--out", folder / "view.html", "--tags", outs[0], "--", " ".join(words)])
    return [*outs, folder]


def invoke(typed):
    done = CliRunner().invoke(main, list(map(str, typed)))
    assert done.exit_code == 0, done.output
    assert not set(done.output) & set("\x07\x1b\x7f\x85\u202e")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("names")
    store_bert(place / "model")
    (place / "harmless").mkdir()
    *outs, folder = commands(place / "harmless", *HARMLESS)
    pages = [out / "report.html" for out in outs] + [folder / "all.html", folder / "view.html"]
    return place, [outline(page) for page in pages], listing(place / "harmless", HARMLESS[0])


def listing(folder, name):
    """All files below a folder; names made of tags aside."""
    found = set()
    for path in folder.rglob("*"):
        first, *rest = path.relative_to(folder).parts
        first = first if first in OWN else first.replace(name, "name", 1)
        found.add("units" if "units" in rest else "/".join((first, *rest)))
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # characters that no font has
@settings(hostile.examples(2), phases=[Phase.explicit, Phase.generate])  # to make it smaller takes minutes
@given(NAMES, CELLS)
@example("<b>&'\"$x^2$", ["../../x", "<script>alert(1)</script>", ";=1+1", "$\\frac{", "\x1b[31m\u202e"])
@example("=1+1", ["=1+1", "@a", "</script><img src=x onerror=alert(1)>", "{{7*7}}", "a b"])
@pytest.mark.slow
def test_any_name(place, name, words):
    place, harmless, files = place
    folder = place / "any"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = set(place.iterdir())
    with hostile.within(120):
        *outs, _ = commands(folder, name, words)
    pages = [out / "report.html" for out in outs] + [folder / "all.html", folder / "view.html"]
    for page, expected in zip(pages, harmless, strict=True):
        found = outline(page)
        assert found[0] <= expected[0]
        assert found[1] == expected[1]
        assert found[2:] == expected[2:]
    assert set(place.iterdir()) == before
    assert listing(folder, name) == files
    for path in folder.rglob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(SIGNS) and not is_number(cell)]
    for path in folder.rglob("*.svg"):
        assert not [
            one for one in ElementTree.parse(path).iter() if str(one.tag).endswith(("script", "image"))
        ]
    for path in folder.rglob("*.json"):
        json.loads(path.read_text("utf-8"))


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True
