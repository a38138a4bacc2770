"""Where there is nothing to find, next to nothing is tagged.

Models whose weights are drawn at random, and real heads held against gold that was dealt out at random. The
weights of a model at initialisation are small and its patterns nearly uniform, so the second kind is the
harder test. Set HEADLENS_SLOW for ten seeds of the first.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headlens
from headlens.corpus.corpus import Corpus, Document, Sentence
from headlens.scoring.classify import read_corpus
from support import real

FROM_DATA = ["syntactic", "coreference", "semantic", "rare-token", "induction"]
SEEDS = range(10 if os.environ.get("HEADLENS_SLOW") else 3)
MOST = 0.05  # of heads may be tagged by mistake


@pytest.fixture(scope="module")
def corpus():
    """The first 200 sentences of the sample."""
    whole, left, documents = read_corpus(None), 200, []
    for document in whole.documents:
        sentences = document.sentences[:left]
        mentions = tuple(m for m in document.mentions if m.sentence < len(sentences))
        documents.append(Document(document.name, sentences, mentions))
        left -= len(sentences)
    made = Corpus(tuple(d for d in documents if d.sentences), whole.paths, whole.sha256, True, True, True)
    assert sum(len(document.sentences) for document in made.documents) == 200
    return made


@pytest.fixture(scope="module")
def minilm():
    return headlens.load(real.need_minilm())


def tagged(lens, corpus: Corpus, tags: list[str]) -> tuple[float, list[str]]:
    """Share of heads that get one of the tags, and which."""
    found = headlens.classify(lens, corpus, tags)
    rows = found.scores[found.scores["tagged"]]
    names = [f"{row.layer}.{row.head} {row.tag}: {row.measure}" for row in rows.itertuples()]
    heads = rows[["layer", "head"]].drop_duplicates()
    return len(heads) / len(found.tags), names


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_bert_at_random(minilm, corpus, seed):
    torch.manual_seed(seed)
    lens = headlens.load(BertModel(minilm.model.config).eval(), minilm.tokenizer)
    share, names = tagged(lens, corpus, FROM_DATA)
    assert share <= MOST, names


@pytest.fixture(scope="module")
def byte_pieces(corpus):
    """A byte-level tokenizer of 2,000 pieces, as GPT-2's are made, learnt from the sample."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator((sentence.text for _, sentence in corpus.sentences), trainer)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, pad_token=end)


@pytest.mark.parametrize("seed", SEEDS[::3])
@pytest.mark.slow
def test_gpt2_at_random(byte_pieces, corpus, seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(byte_pieces),
        n_embd=384,
        n_layer=6,
        n_head=12,
        n_positions=512,
        bos_token_id=0,
        eos_token_id=0,
    )
    lens = headlens.load(GPT2LMHeadModel(config).eval(), byte_pieces)
    share, names = tagged(lens, corpus, FROM_DATA)
    assert share <= MOST, names


Deal = Callable[[Sentence, random.Random], list[int]]


def strange(sentence: Sentence, word: int) -> list[int]:
    """The words that are neither the head nor a dependent of a word, nor itself."""
    heads = [other.head for other in sentence.words]
    return [i for i in range(len(heads)) if i != word and heads[word] != i and heads[i] != word]


def to_any_word(sentence: Sentence, rng: random.Random) -> list[int]:
    """For every word a strange one, each as likely."""
    return [rng.choice(strange(sentence, i) or [-1]) for i in range(len(sentence.words))]


def dealt_out(sentence: Sentence, rng: random.Random) -> list[int]:
    """For every word the head of another, strange to it: no word has more or fewer dependents than before.

    Where no such deal is found (a verb that heads nearly all words of a short sentence), no arcs are left.
    """
    heads = [word.head for word in sentence.words]
    rng.shuffle(heads)
    for _ in range(200):
        wrong = [i for i, head in enumerate(heads) if head >= 0 and head not in strange(sentence, i)]
        if not wrong:
            return heads
        for i in wrong:
            j = rng.randrange(len(heads))
            heads[i], heads[j] = heads[j], heads[i]
    return [-1] * len(heads)


def with_new_heads(corpus: Corpus, deal: Deal, seed: int) -> Corpus:
    """Every word keeps its relation and gets another head, so that no arc is gold, in either direction."""
    rng = random.Random(seed)
    documents = []
    for document in corpus.documents:
        sentences = []
        for sentence in document.sentences:
            words = tuple(
                replace(word, head=head)
                for word, head in zip(sentence.words, deal(sentence, rng), strict=True)
            )
            sentences.append(replace(sentence, words=words))
        documents.append(Document(document.name, tuple(sentences), ()))
    return Corpus(tuple(documents), corpus.paths, corpus.sha256, True, False, True)


@pytest.mark.parametrize("deal", [to_any_word, dealt_out])
@pytest.mark.slow
def test_arcs_that_are_not_gold(minilm, corpus, deal):
    draws = [tagged(minilm, with_new_heads(corpus, deal, seed), ["syntactic"]) for seed in range(2)]
    assert sum(share for share, _ in draws) / len(draws) <= MOST, draws


@pytest.mark.slow
def test_entities_dealt_out_anew(minilm, corpus):
    """Every document keeps its mentions and the sizes of its entities.

    Heads agree on what they look at, so that by chance several are tagged in one draw in ten and none in
    the others: the share is taken over draws.
    """
    draws = []
    for seed in range(3):
        rng, documents = random.Random(seed), []
        for document in corpus.documents:
            names = [mention.entity for mention in document.mentions]
            rng.shuffle(names)
            pairs = zip(document.mentions, names, strict=True)
            mentions = tuple(replace(mention, entity=name) for mention, name in pairs)
            documents.append(Document(document.name, document.sentences, mentions))
        dealt = Corpus(tuple(documents), corpus.paths, corpus.sha256, True, True, True)
        draws.append(tagged(minilm, dealt, ["coreference"]))
    assert sum(share for share, _ in draws) / len(draws) <= MOST, draws
