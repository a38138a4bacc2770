"""Scores with known answers, and against plain loops over random patterns."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
import torch

from headlens.scoring.scorers.coreference import Coreference
from headlens.scoring.scorers.delimiter import Delimiter
from headlens.scoring.scorers.positional import Positional
from headlens.scoring.scorers.syntactic import FARTHEST, Syntactic
from support.handmade import baselines, item, one_batch, random_pattern, shares, site, tally, visibility

#        0 the  1 dog     2 chased  3 its   4 tail  5 .
CHASE = [
    ("the", 1, "det"),
    ("dog", 2, "nsubj"),
    ("chased", -1, "root"),
    ("its", 4, "nmod"),
    ("tail", 2, "obj"),
    (".", 2, "punct"),
]
RELATIONS = ("det", "nmod", "nsubj", "obj", "punct")


def rows(length: int, targets: dict[int, int | dict[int, float]], rest: int | None = None) -> torch.Tensor:
    """One head's pattern [1, 1, query, key]: each row all on one key, or weights by key; else uniform."""
    pattern = torch.full((length, length), 1 / length)
    if rest is not None:
        pattern = torch.zeros(length, length)
        pattern[:, rest] = 1
    for query, keys in targets.items():
        pattern[query] = 0
        for key, weight in ({keys: 1.0} if isinstance(keys, int) else keys).items():
            pattern[query, key] = weight
    return pattern[None, None]


def arcs(transposed: bool = False) -> torch.Tensor:
    """The gold arcs of CHASE as a pattern over [CLS] words [SEP]; rows without an arc look at themselves."""
    pattern = torch.zeros(8, 8)
    for dependent, (_, head, _) in enumerate(CHASE):
        if head >= 0:
            pattern[dependent + 1, head + 1] = 1
    pattern = pattern.T if transposed else pattern
    pattern = pattern / pattern.sum(1, keepdim=True).clamp(min=1)
    pattern[pattern.sum(1) == 0] = torch.eye(8)[pattern.sum(1) == 0]
    return pattern[None, None]


class TestPositional:
    def test_previous_token_is_exactly_one(self):
        batch = one_batch([item(CHASE)])
        found = tally(Positional(), site(1), batch, rows(8, {i: max(i - 1, 0) for i in range(8)}))
        assert shares(found, "argmax@-1") == [1]
        assert shares(found, "mass@-1") == [1]
        assert found.n[0, found.scorer.measures.index("argmax@-1"), 0] == 7  # the first has no previous token
        assert shares(found, "argmax@-2") == [0]
        assert baselines(found, "argmax@-1") == pytest.approx([1 / 8])

    def test_it_is_no_evidence_of_syntax(self):
        batch = one_batch([item(CHASE)])
        found = tally(Syntactic(RELATIONS), site(1), batch, rows(8, {i: max(i - 1, 0) for i in range(8)}))
        # nothing here has its head just before it, and the best offset explains whatever had
        assert shares(found, "det:dependent->head") == [0]
        assert max(baselines(found, "det:dependent->head")) == 1

    def test_uniform_rows_are_ties(self):
        found = tally(Positional(), site(1), one_batch([item(CHASE)]), rows(8, {}))
        assert shares(found, "argmax@-1") == [0]
        assert shares(found, "mass@-1") == pytest.approx([1 / 8])

    def test_what_a_causal_row_cannot_see_is_not_counted(self):
        batch = one_batch([item(CHASE)])
        pattern = random_pattern(batch, 1, causal=True)
        found = tally(Positional(), site(1, True), batch, pattern, causal=True)
        assert found.n[0, found.scorer.measures.index("argmax@+1"), 0] == 0
        expected = sum(1 / (i + 1) for i in range(1, 8)) / 7
        assert baselines(found, "argmax@-1") == pytest.approx([expected])


class TestDelimiter:
    def test_all_on_the_separator(self):
        found = tally(Delimiter(), site(1), one_batch([item(CHASE)]), rows(8, {}, rest=7))
        assert shares(found, "special") == [1]
        assert shares(found, "punctuation") == [0]
        assert shares(found, "first-token") == [0]
        assert baselines(found, "special") == pytest.approx([2 / 8])
        assert baselines(found, "punctuation") == pytest.approx([1 / 8])
        assert baselines(found, "first-token") == pytest.approx([1 / 8])

    def test_nothing_to_rest_on_is_not_measured(self):
        words = CHASE[:5]
        batch = one_batch([item(words, list(range(5)))])
        found = tally(Delimiter(), site(1), batch, rows(5, {}))
        assert math.isnan(shares(found, "special")[0])
        assert math.isnan(shares(found, "punctuation")[0])
        assert shares(found, "first-token") == pytest.approx([1 / 5])

    def test_the_first_token_is_the_first_that_is_no_padding(self):
        batch = one_batch([item(CHASE), item(CHASE[:3])], left=True)
        assert batch.first.int().argmax(1).tolist() == [3, 0]  # the shorter input comes first


class TestSyntactic:
    def test_gold_arcs(self):
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), arcs())
        for relation in RELATIONS:
            assert shares(found, f"{relation}:dependent->head") == [1]

    def test_transposed_gold_arcs(self):
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), arcs(transposed=True))
        for relation in RELATIONS:
            assert shares(found, f"{relation}:head->dependent") == [1]
            assert shares(found, f"{relation}:dependent->head") == [0]

    def test_gold_arcs_under_a_sink(self):
        pattern = 0.05 * arcs() + 0.95 * rows(8, {}, rest=7)
        batch = one_batch([item(CHASE)])
        found = tally(Syntactic(RELATIONS), site(1), batch, pattern)
        assert shares(found, "nsubj:dependent->head") == [1]
        own = 0.05 * 2 / 8  # [CLS] and [SEP] have no arc and look at themselves
        assert shares(tally(Delimiter(), site(1), batch, pattern), "special") == pytest.approx([0.95 + own])

    def test_all_on_the_separator_is_an_abstention(self):
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), rows(8, {}, rest=7))
        for relation in RELATIONS:
            assert shares(found, f"{relation}:dependent->head") == [0]
            assert found.n[0, found.scorer.measures.index(f"{relation}:dependent->head"), 0] == 1

    def test_looking_at_the_verb_whoever_asks_is_chance(self):
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), rows(8, {}, rest=3))
        assert shares(found, "nsubj:dependent->head") == [1]  # "dog", "tail" and "." hang on "chased"
        assert shares(found, "det:dependent->head") == [0]
        chance = found.chance[0, :, 0]
        assert chance[RELATIONS.index("nsubj")] == pytest.approx(
            2 / 4
        )  # two of the other four arcs end there
        assert chance[RELATIONS.index("det")] == pytest.approx(3 / 4)

    def test_ties_are_abstentions(self):
        pattern = rows(8, {2: {3: 0.5, 4: 0.5}})  # "dog" on "chased" (right) and on "its"
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), pattern)
        assert shares(found, "nsubj:dependent->head") == [0]

    def test_a_word_does_not_choose_itself(self):
        pattern = rows(8, {2: {2: 0.9, 3: 0.1}})
        found = tally(Syntactic(RELATIONS), site(1), one_batch([item(CHASE)]), pattern)
        assert shares(found, "nsubj:dependent->head") == [1]

    def test_dependents_of_root_are_not_scored(self):
        scorer = Syntactic((*RELATIONS, "root"))
        found = tally(scorer, site(1), one_batch([item(CHASE)]), arcs())
        assert found.n[0, scorer.measures.index("root:dependent->head"), 0] == 0

    def test_a_head_that_cannot_be_seen_counts_as_wrong(self):
        pattern = arcs() * torch.ones(8, 8).tril()
        found = tally(Syntactic(RELATIONS), site(1, True), one_batch([item(CHASE)]), pattern, causal=True)
        assert shares(found, "nsubj:dependent->head") == [0]  # "chased" comes after "dog"
        assert shares(found, "obj:dependent->head") == [1]
        assert found.n.sum() == 10

    def test_attention_to_a_split_word_is_the_sum_and_from_it_the_mean(self):
        words = [("A", 1, "det"), ("B", -1, "root"), ("C", 1, "obj")]
        pattern = torch.tensor(
            [[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]
        )
        seen = []

        class Spy(Syntactic):
            def __call__(self, view):
                seen.append(view.weights)
                return super().__call__(view)

        for size in (None, 1, 2, 3):
            tally(
                Spy(("det", "obj")),
                site(1),
                one_batch([item(words, [0, 1, 1, 2])]),
                pattern[None, None],
                size=size,
            )
        expected = torch.tensor([[0.4, 0.5, 0.1], [0.325, 0.5, 0.175], [0.1, 0.5, 0.4]])
        for weights in seen:
            torch.testing.assert_close(weights[0, 0], expected)


#          0 Ann 1 saw 2 Bob 3 she 4 waved 5 him 6 Ann
MENTIONS = [
    ("a", 0, "proper"),
    ("b", 2, "proper"),
    ("a", 3, "pronoun"),
    ("b", 5, "pronoun"),
    ("a", 6, "proper"),
]
SAW = [
    (form, -1 if i == 1 else 1, "dep")
    for i, form in enumerate(["Ann", "saw", "Bob", "she", "waved", "him", "Ann"])
]


class TestCoreference:
    def found(self, targets, mentions=MENTIONS):
        batch = one_batch([item(SAW, list(range(7)), mentions=mentions)])
        return tally(Coreference(), site(1), batch, rows(7, targets))

    def test_any_mention_of_the_entity_is_right(self):
        found = self.found({3: 0, 5: 2, 6: 0})  # "Ann" looks past "she" at the first "Ann"
        assert shares(found, "antecedent") == [1]
        assert shares(found, "antecedent:pronoun") == [1]
        assert shares(found, "antecedent:proper") == [1]
        assert shares(found, "antecedent@words") == [1]
        assert found.n[0, :4, 0].tolist() == [3, 2, 1, 0]

    def test_nearest_mention_of_another_entity_is_wrong(self):
        assert shares(self.found({3: 2, 5: 3, 6: 5}), "antecedent") == [0]

    def test_words_that_are_no_mentions_compete_only_in_the_second_measure(self):
        found = self.found({3: {0: 0.4, 1: 0.6}, 5: 2, 6: 0})
        assert shares(found, "antecedent") == [1]
        assert shares(found, "antecedent@words") == pytest.approx([2 / 3])

    def test_later_words_never_compete(self):
        assert shares(self.found({3: {0: 0.1, 6: 0.9}, 5: 2, 6: 0}), "antecedent@words") == [1]

    def test_baselines(self):
        found = self.found({})
        # nearest: she->Bob, him->she, Ann->him: none right; same word: Ann->Ann
        assert baselines(found, "antecedent") == pytest.approx([0, 1 / 3])
        assert baselines(found, "antecedent:proper") == [0, 1]
        assert shares(found, "antecedent") == [0]  # uniform rows abstain

    def test_cataphora_is_not_scored(self):
        found = self.found({}, [("a", 3, "pronoun"), ("a", 6, "proper")])
        assert found.n[0, :4, 0].tolist() == [1, 0, 1, 0]
        assert self.found({}, [("a", 3, "pronoun")]).n.sum() == 0


ITEMS = [
    item(
        CHASE,
        [None, 0, 0, 1, 2, 3, 3, 3, 4, 5, None],
        unit=0,
        mentions=[("a", 1, "nominal"), ("a", 3, "pronoun")],
    ),
    item(CHASE[:3], unit=1),
    item(
        [(f"w{i}", (i * 7 + 3) % 11 if i != 4 else -1, ("det", "obj")[i % 2]) for i in range(11)],
        unit=1,
        mentions=[
            ("a", 0, "proper"),
            ("b", 3, "nominal"),
            ("a", 5, "pronoun"),
            ("b", 8, "nominal"),
            ("a", 10, "proper"),
        ],
    ),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [1, 3, None])
class TestAgainstPlainLoops:
    """Everything again, by loops over one query at a time that share no code with the scorers."""

    def setup(self, causal, left):
        batch = one_batch(ITEMS, left)
        pattern = random_pattern(batch, 3, causal)
        inputs = []
        for index, thing in enumerate(batch.items):
            length = len(thing.encoded)
            start = batch.real.shape[1] - length if left else 0
            place = slice(start, start + length)
            inputs.append(
                (thing, pattern[index, :, place, place], visibility(batch, causal)[index, 0, place, place])
            )
        return batch, pattern, inputs

    def compare(self, found, sums):
        for index, measure in enumerate(found.scorer.measures):
            for unit in (0, 1):
                score, n, baseline = sums[measure, unit]
                torch.testing.assert_close(
                    found.score[unit, index], torch.tensor(score).double(), atol=1e-5, rtol=0
                )
                assert found.n[unit, index, 0] == n, measure
                torch.testing.assert_close(
                    found.baseline[unit, index, 0], torch.tensor(baseline).double(), atol=1e-5, rtol=0
                )

    def test_tokens(self, causal, left, size):
        batch, pattern, inputs = self.setup(causal, left)
        sums = defaultdict(lambda: [[0.0] * 3, 0, [0.0]])

        def count(measure, unit, values, baseline):
            entry = sums[measure, unit]
            entry[0] = [a + b for a, b in zip(entry[0], values, strict=True)]
            entry[1] += 1
            entry[2] = [entry[2][0] + baseline]

        for thing, weights, seen in inputs:
            pieces, words = thing.encoded.words, thing.words
            kinds = {
                "special": [w is None for w in pieces],
                "punctuation": [w is not None and words[w].upos == "PUNCT" for w in pieces],
                "first-token": [i == 0 for i in range(len(pieces))],
            }
            for i in range(len(pieces)):
                visible = [j for j in range(len(pieces)) if seen[i, j]]
                for offset in range(-5, 6):
                    if i + offset in visible:
                        name = f"{offset:+d}" if offset else "0"
                        hits = [
                            float(max(visible, key=lambda j, h=h: float(weights[h, i, j])) == i + offset)
                            for h in range(3)
                        ]
                        count(f"argmax@{name}", thing.unit, hits, 1 / len(visible))
                        count(
                            f"mass@{name}", thing.unit, weights[:, i, i + offset].tolist(), 1 / len(visible)
                        )
                for kind, which in kinds.items():
                    inside = [j for j in visible if which[j]]
                    if inside:
                        mass = [sum(float(weights[h, i, j]) for j in inside) for h in range(3)]
                        count(kind, thing.unit, mass, len(inside) / len(visible))
        self.compare(tally(Positional(), site(3, causal), batch, pattern, causal, size), sums)
        self.compare(tally(Delimiter(), site(3, causal), batch, pattern, causal, size), sums)

    def word_weights(self, thing, weights):
        """[head][word][word] by plain sums and means."""
        owned = defaultdict(list)
        for position, word in enumerate(thing.encoded.words):
            if word is not None:
                owned[word].append(position)
        n = len(thing.words)
        return [
            [
                [
                    sum(float(weights[h, q, k]) for q in owned[a] for k in owned[b]) / len(owned[a])
                    for b in range(n)
                ]
                for a in range(n)
            ]
            for h in range(3)
        ]

    @staticmethod
    def choice(values: dict[int, float]) -> int | None:
        best = max(values.values(), default=0)
        winners = [key for key, value in values.items() if value == best]
        return winners[0] if best > 0 and len(winners) == 1 else None

    def test_trees(self, causal, left, size):
        batch, pattern, inputs = self.setup(causal, left)
        scorer = Syntactic(("det", "nmod", "nsubj", "obj", "punct"))
        sums = defaultdict(lambda: [[0.0] * 3, 0, [0.0] * (2 * FARTHEST + 1)])
        chance = defaultdict(lambda: [0.0] * 3)
        for thing, weights, _ in inputs:
            table = self.word_weights(thing, weights)
            arcs = [(place, word.head) for place, word in enumerate(thing.words) if word.head >= 0]
            others = range(len(thing.words))
            for dependent, word in enumerate(thing.words):
                if word.head < 0:
                    continue
                for direction in ("dependent->head", "head->dependent"):
                    entry = sums[f"{word.deprel}:{direction}", thing.unit]
                    entry[1] += 1
                    entry[2][word.head - dependent + FARTHEST] += 1
                    for h in range(3):
                        values = {
                            j: table[h][dependent][j]
                            if direction == "dependent->head"
                            else table[h][j][dependent]
                            for j in others
                            if j != dependent
                        }
                        chosen = self.choice(values)
                        entry[0][h] += chosen == word.head
                        same = sum(head == chosen for place, head in arcs if place != dependent)
                        chance[f"{word.deprel}:{direction}", thing.unit][h] += same / max(1, len(arcs) - 1)
        found = tally(scorer, site(3, causal), batch, pattern, causal, size)
        self.compare(found, sums)
        for index, measure in enumerate(scorer.measures):
            for unit in (0, 1):
                expected = torch.tensor(chance[measure, unit]).double()
                torch.testing.assert_close(found.chance[unit, index], expected, atol=1e-5, rtol=0)

    def test_mentions(self, causal, left, size):
        batch, pattern, inputs = self.setup(causal, left)
        sums = defaultdict(lambda: [[0.0] * 3, 0, [0.0] * 2])
        for thing, weights, _ in inputs:
            table = self.word_weights(thing, weights)
            for mention in thing.mentions:
                earlier = [m for m in thing.mentions if m.head < mention.head]
                right = {m.head for m in earlier if m.entity == mention.entity}
                if not right:
                    continue
                lemma = thing.words[mention.head].lemma
                alike = [m.head for m in earlier if thing.words[m.head].lemma == lemma]
                nearest = max(m.head for m in earlier) in right
                same = bool(alike) and max(alike) in right
                for among, places in (("", {m.head for m in earlier}), ("@words", set(range(mention.head)))):
                    for kind in ("", f":{mention.kind}"):
                        entry = sums[f"antecedent{among}{kind}", thing.unit]
                        entry[1] += 1
                        entry[2] = [entry[2][0] + nearest, entry[2][1] + same]
                        for h in range(3):
                            entry[0][h] += (
                                self.choice({j: table[h][mention.head][j] for j in places}) in right
                            )
        self.compare(tally(Coreference(), site(3, causal), batch, pattern, causal, size), sums)


def test_relations_come_from_the_corpus():
    from headlens.corpus.corpus import Sentence, Word

    words = (
        Word("a", "", "", 1, "det", True),
        Word("b", "", "", -1, "root", True),
        Word("c", "", "", None, "x", True),
    )
    assert Syntactic.of([Sentence(words, "", "", 1)]).relations == ("det",)
    assert Counter(Syntactic(("det",)).measures) == Counter(["det:dependent->head", "det:head->dependent"])
