"""What a config says, and what a mask shows far out, against counting by hand and masks made in full."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import masking_utils

import headlens
from headlens.checks.of_model import Reach, config_of, counts, reach_of
from headlens.model.attention_call import LazyMask
from support.families import ALL, build
from support.toys import site


def mask(function) -> LazyMask:
    return LazyMask(
        {
            "batch_size": 2,
            "q_length": 4,
            "kv_length": 4,
            "q_offset": 0,
            "kv_offset": 0,
            "mask_function": function,
            "attention_mask": torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]], dtype=torch.bool),
            "device": "cpu",
        }
    )


@pytest.mark.parametrize(
    ("function", "sees"),
    [
        (masking_utils.causal_mask_function, lambda q, k: k <= q),
        (masking_utils.bidirectional_mask_function, lambda q, k: True),
        (masking_utils.sliding_window_causal_mask_function(3), lambda q, k: 0 <= q - k < 3),
        (masking_utils.sliding_window_bidirectional_mask_function(3), lambda q, k: abs(q - k) <= 3),
        (
            masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.int)),
            lambda q, k: k <= q and q // 3 == k // 3,
        ),
    ],
)
def test_what_a_query_would_see(function, sees):
    for query in (0, 7, 100_000):
        first = max(0, query - 9)
        expected = [sees(query, key) for key in range(first, first + 20)]
        assert mask(function).seen_by(query, first, 20).tolist() == expected


def test_heads_of_a_config():
    first, second = site(0, 4), site(1, 4)
    config = transformers.LlamaConfig(num_attention_heads=8, num_key_value_heads=2)
    assert set(counts(config, first, "num_attention_heads")) == {8}
    assert set(counts(config, first, "num_key_value_heads")) == {2}
    assert counts(transformers.BertConfig(), first, "num_key_value_heads") == []
    by_layer = transformers.PreTrainedConfig(num_attention_heads=[8, 6])
    assert set(counts(by_layer, second, "num_attention_heads")) == {6}
    config.swa_num_key_value_heads = 4  # of sliding layers, as MiMo has it
    assert set(counts(config, first, "num_key_value_heads")) == {2, 4}


def test_layers_with_configs_of_their_own():
    config = transformers.LlamaConfig(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8)
    config.per_layer_config = {1: {"num_attention_heads": 6, "num_key_value_heads": 3}}
    found = [counts(config, site(layer, 4), "num_attention_heads")[0] for layer in (0, 1)]
    assert found == [8, 6]
    assert counts(config, site(1, 4), "num_key_value_heads")[0] == 3


def test_the_config_of_a_stack():
    lens = headlens.load(build("bart"))
    lens.model.config.decoder_attention_heads = 2
    by_stack = {
        one.stack: counts(config_of(lens, one), one, "num_attention_heads")[0] for one in lens.anatomy.sites
    }
    assert by_stack == {"encoder": 4, "decoder": 2, "cross": 2}


def test_how_far_layers_see_by_their_config():
    layers = [site(0, 4, "decoder"), site(1, 4, "decoder"), site(2, 4, "decoder")]
    llama, mistral, gemma3 = (
        getattr(transformers, ALL[name][0])(**ALL[name][2]) for name in ("llama", "mistral", "gemma3")
    )
    assert reach_of(llama, layers[0]) == Reach("full")
    assert reach_of(mistral, layers[0]) == Reach("sliding", 4)
    assert [reach_of(gemma3, one) for one in layers] == [Reach("sliding", 4), Reach("full"), None]
    assert reach_of(mistral, site(0, 4, "cross")) == Reach("full")
    mistral.layer_types = ["heavily_compressed_attention"]  # in words that are not known here
    assert reach_of(mistral, layers[0]) is None
