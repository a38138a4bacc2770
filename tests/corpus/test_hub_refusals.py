"""What is said where a dataset cannot be had; nothing here reaches a network."""

import os
import sys
import time
from functools import partial

import datasets
import pytest

from headlens.corpus import hub as hub_opening
from headlens.corpus.read import read_files
from headlens.errors import CorpusError
from support import hubsets
from support.refusals import refused

OUT_OF_REACH = (
    "There is no folder 'owner/name'; as a dataset of the hub it is not in the cache, and the hub cannot be "
    "reached. What works without network: a local folder, as in hub:./my-data."
)


refusal = partial(refused, CorpusError, read_files)


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(hub_opening, "hub_reachable", lambda: False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def online(monkeypatch):
    """Let the hub answer with an error."""
    monkeypatch.setattr(hub_opening, "hub_reachable", lambda: True)

    def answer(error):
        def load(*_, **__):
            raise error

        monkeypatch.setattr(datasets, "load_dataset_builder", load)

    return answer


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refusal(f"hub:{tmp_path}") == (
        f"Reading hub:{tmp_path} needs the package datasets, which is not installed. Type: pip install "
        "'headlens[hub]'"
    )


def test_without_network(offline):
    state = datasets.config.HF_HUB_OFFLINE, datasets.are_progress_bars_disabled()
    started = time.perf_counter()
    assert refusal("hub:owner/name") == OUT_OF_REACH
    assert time.perf_counter() - started < 5
    assert (datasets.config.HF_HUB_OFFLINE, datasets.are_progress_bars_disabled()) == state


def test_without_network_what_is_cached_is_read(offline, tmp_path):
    hubsets.write_jsonl([{"text": "Fine."}], tmp_path / "name" / "x.jsonl")
    datasets.load_dataset(str(tmp_path / "name"), cache_dir=str(tmp_path / "cache"))
    made = next(path for path in (tmp_path / "cache" / "name").rglob("dataset_info.json")).parent
    place = tmp_path / "cache" / "owner___name" / "default" / "0.0.0" / ("a" * 40)
    place.parent.mkdir(parents=True)
    os.rename(made, place)  # noqa: PTH104
    corpus = read_files("hub:owner/name")
    assert [s.text for _, s in corpus.sentences] == ["Fine."]
    assert (corpus.datasets[0].revision, corpus.datasets[0].of_rows) == ("a" * 40, 1)
    assert "There are: default." in refusal("hub:owner/name:en")
    (place / "dataset_info.json").write_text(
        (place / "dataset_info.json").read_text().replace('"json"', '"text"')
    )
    assert "its copy in the cache does not tell any more where one ends." in refusal("hub:owner/name")


def test_a_dataset_that_the_hub_has_not(online):
    online(datasets.exceptions.DatasetNotFoundError("Dataset 'x' doesn't exist on the Hub\nor so."))
    assert refusal("hub:owner/name") == (
        "The hub has no dataset 'owner/name' that you may read: Dataset 'x' doesn't exist on the Hub or so. "
        "Check its name."
    )


def test_a_connection_that_breaks(online):
    online(ConnectionError("Couldn't reach it"))
    assert refusal("hub:owner/name") == (
        "hub:owner/name holds no data that can be read: Couldn't reach it. Name one of parquet, jsonl, csv "
        "or txt files."
    )


def test_a_loading_script(tmp_path):
    place = tmp_path / "name"
    place.mkdir()
    (place / "name.py").write_text("raise SystemExit(1)")
    assert refusal(f"hub:{place}") == (
        f"The dataset {str(place)!r} is a loading script, and headlens runs no code that comes with data. "
        "Take a copy of it that is parquet, jsonl or csv files."
    )


def test_folders_without_data(tmp_path):
    assert f"hub:{tmp_path} holds no data that can be read:" in refusal(f"hub:{tmp_path}")
    (tmp_path / "x.conllu").write_text("1\tHi\t_\t_\t_\t_\t0\troot\t_\t_\n")
    assert refusal(f"hub:{tmp_path}") == (
        f"hub:{tmp_path} holds CoNLL files, which have no columns that are named. Name the files, or their "
        "folder, without hub:."
    )
    (tmp_path / "x.conllu").rename(tmp_path / "x.png")
    assert "is a dataset of the kind 'imagefolder', which holds no text." in refusal(f"hub:{tmp_path}")
    (tmp_path / "x.png").rename(tmp_path / "x.jsonl")
    assert f"hub:{tmp_path}::train cannot be read:" in refusal(f"hub:{tmp_path}")


def test_configurations(tmp_path):
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: en\n  data_files: en/*.jsonl\n- config_name: de\n  data_files: "
        "de/*.jsonl\n---\n"
    )
    for name, text in (("en", "Fine."), ("de", "Gut.")):
        hubsets.write_jsonl([{"text": text}], tmp_path / name / "x.jsonl")
    place = f"hub:{tmp_path}"
    assert refusal(place) == f"{place} has several configurations: en, de. Type {place}:CONFIG."
    assert refusal(f"{place}:fr") == f"{place}:fr has no configuration 'fr'. There are: en, de."
    corpus = read_files(f"{place}:de")
    assert [s.text for _, s in corpus.sentences] == ["Gut."]
    assert (corpus.datasets[0].config, corpus.paths) == ("de", (f"{place}:de:train",))
    hubsets.write_jsonl([{"text": "One."}], tmp_path / "set" / "x.jsonl")
    assert refusal(f"{place}/set:en") == f"{place}/set:en has no configuration 'en'. There are: default."


def test_splits(tmp_path):
    place = f"hub:{tmp_path}"

    def read(text=place):
        return [s.text for _, s in read_files(text).sentences]

    for name in ("train", "unseen"):
        hubsets.write_jsonl([{"text": f"{name}."}], tmp_path / name / "x.jsonl")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train/*\n"
        "  - split: unseen\n    path: unseen/*\n---\n"
    )
    assert refusal(place) == (
        f"{place} has several splits. There are: train, unseen. Type for example {place}::train."
    )
    assert read(f"{place}::unseen") == ["unseen."]
    assert refusal(f"{place}::test") == (
        f"{place}::test has no split 'test'. There are: train, unseen. Type for example {place}::train."
    )
    (tmp_path / "README.md").unlink()
    hubsets.write_jsonl([{"text": "test."}], tmp_path / "test" / "x.jsonl")
    assert read() == ["test."]
    hubsets.write_jsonl([{"text": "validation."}], tmp_path / "validation" / "x.jsonl")
    assert read() == ["validation."]
    assert read(f"{place}::train") == ["train."]


def test_a_dataset_without_rows(tmp_path):
    hubsets.write_jsonl([{"text": ""}, {"text": None}], tmp_path / "x.jsonl")
    assert refusal(f"hub:{tmp_path}") == (
        f"hub:{tmp_path}::train holds no word. Name another split, or other --columns."
    )
