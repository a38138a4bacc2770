"""Which words are related: by a table, or by the model's input embeddings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import headlens
from headlens.corpus.corpus import Corpus, Document, Sentence, Word
from headlens.errors import CorpusError, InputError
from headlens.scoring.base import Context
from headlens.scoring.scorers.semantic import (
    NEIGHBOURS,
    Relations,
    content_lemmas,
    neighbours,
    read_relations,
)
from support import planted
from support.families import build


def corpus(*texts: str) -> Corpus:
    """Words in capitals are no content words."""
    sentences = []
    for text in texts:
        kinds = [(form, "DET" if form.isupper() else "NOUN") for form in text.split()]
        words = tuple(Word(form, form, kind, None, "", True) for form, kind in kinds)
        sentences.append(Sentence(words, "", "x", 1))
    return Corpus((Document("d", tuple(sentences), ()),), ("x",), "", False, False, True)


class TestRelations:
    def test_content_lemmas(self):
        assert content_lemmas(Context(None, corpus("dog THE cat", "A Dog horse"))) == ["cat", "dog", "horse"]

    def table(self, tmp_path, text):
        path = tmp_path / "r.tsv"
        path.write_text(text, encoding="utf-8")
        return Context(None, corpus("cat dog fish"), relations=path)

    def test_a_table_goes_both_ways(self, tmp_path):
        context = self.table(tmp_path, "Cat\tdog\n\nfish\tunicorn\ndog\tcat\n")
        made = Relations.make(context, ["cat", "dog", "fish"], 3)
        every = np.array([(a, b) for a in range(3) for b in range(3)])
        assert every[made.related(every)].tolist() == [[0, 1], [1, 0]]
        for moved, flags in zip(made.permutations, made.shuffled(every), strict=True):
            assert sorted(moved) == [0, 1, 2]
            pairs = every[flags]
            assert len(pairs) == 2
            assert pairs[0].tolist() == pairs[1][::-1].tolist()
            assert {int(moved[a]) for a in pairs[0]} == {0, 1}

    def test_shuffles_are_seeded(self, tmp_path):
        context = self.table(tmp_path, "a\tb\n")
        one, same, other = (
            Relations.make(replace(context, seed=seed), [*"abcdefgh"], 5).permutations.tolist()
            for seed in (0, 0, 1)
        )
        assert one == same != other

    def test_a_table_about_other_words_is_told(self, tmp_path):
        context = self.table(tmp_path, "cat\tdog\n")
        with pytest.raises(InputError) as error:
            Relations.make(context, [*"abc"], 5)
        assert str(error.value) == (
            f"No pair of {context.relations} is a pair of content words of the corpus. Write lemmas of the "
            "corpus, two to a line, or leave --relations out."
        )

    @pytest.mark.parametrize("line", ["cat", "cat dog", "cat\tdog\tfish", "cat\t", "\tdog", "\t"])
    def test_broken_lines(self, tmp_path, line):
        path = self.table(tmp_path, f"cat\tdog\n\n{line}\n").relations
        with pytest.raises(InputError) as error:
            read_relations(path)
        assert str(error.value) == (
            f"{path}, line 3: expected two words with a tab between, found {line!r}. "
            "Write one pair of related words on each line."
        )

    def test_no_file_and_no_text(self, tmp_path):
        with pytest.raises(CorpusError) as error:
            read_relations(tmp_path / "none.tsv")
        assert str(error.value) == (
            f"Expected a relations file at {tmp_path / 'none.tsv'}, found nothing. Check the path."
        )
        (tmp_path / "r.tsv").write_bytes(b"cat\tdog\nch\xe2t\tchien\n")
        with pytest.raises(CorpusError, match=r"r\.tsv, line 2: expected UTF-8, found byte 0xe2"):
            read_relations(tmp_path / "r.tsv")

    def test_neighbours_in_the_input_embeddings(self):
        model = build("bert")
        lens = headlens.load(model, planted.tokenizer())
        words = [word for word in planted.WORDS if not word.startswith("[")]
        pairs = neighbours(lens, words)
        table = model.get_input_embeddings().weight.detach()[[planted.ID[word] for word in words]].double()
        table = table - table.mean(0)
        found = {}
        for one, other in pairs.tolist():
            found.setdefault(one, set()).add(other)
        assert sorted(found) == list(range(len(words)))
        for one, others in found.items():
            near = [
                (-math.inf if k == one else float(torch.cosine_similarity(table[one], table[k], dim=0)), k)
                for k in range(len(words))
            ]
            assert others == {k for _, k in sorted(near)[-NEIGHBOURS:]}
        made = Relations.make(Context(lens, corpus("x")), words, 1)
        every = np.array([(a, b) for a in range(len(words)) for b in range(len(words))])
        related = made.related(every).reshape(len(words), len(words))
        assert (related == related.T).all()
        assert not related.diagonal().any()
        assert all(related[one, other] for one, other in pairs)
        assert related.sum() < 2 * len(pairs)

    @pytest.mark.parametrize("words", [[], ["dep0"], ["dep0", "dep1", "dep2"]])
    def test_few_words(self, words):
        lens = headlens.load(build("bert"), planted.tokenizer())
        assert neighbours(lens, words).shape == (len(words) * max(0, len(words) - 1), 2)
