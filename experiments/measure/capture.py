"""What observing costs: against plain passes, and against other ways to get at all patterns."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headlens.lens import Lens, load
from measure import peers
from measure.setting import Setting, forward, random_inputs
from measure.timing import Row, Work, against


def capture(setting: Setting) -> list[Row]:
    """The real model at two lengths, a GPT-2 and a Llama shape."""
    shapes = [(2, 16), (1, 24)] if setting.small else [(32, 128), (4, 512)]
    rows = [row for shape in shapes for row in one_model(setting, setting.model, setting.lens, shape)]
    gpt2 = load(str(setting.gpt2))
    rows += one_model(setting, "GPT-2 shape", gpt2, (2, 16) if setting.small else (8, 128))
    if peers.has("transformer_lens"):
        rows += beside_transformer_lens(setting, gpt2, (2, 16) if setting.small else (8, 128))
    llama = load(str(setting.llama(1 if setting.small else 4)))
    return [*rows, *one_model(setting, "Llama shape", llama, (1, 32) if setting.small else (1, 2048))]


def observed(lens: Lens, inputs: dict[str, torch.Tensor], run: Callable[..., object] | None = None) -> None:
    """A pass that is observed by someone who does nothing."""
    with torch.inference_mode(), lens.observe(lambda site, block: None):
        lens.run(inputs) if run is None else run(**inputs)


def one_model(setting: Setting, name: str, lens: Lens, shape: tuple[int, int]) -> list[Row]:
    """Observing one batch."""
    inputs = random_inputs(lens, shape)
    works: dict[str, Work] = {
        "output_attentions=True": lambda: forward(lens, [inputs], output_attentions=True),
        "an eager pass": lambda: forward(lens, [inputs]),
        "an sdpa pass": lambda: forward(lens, [inputs], "sdpa"),
    }
    part = f"capture: {name}, {shape[0]} x {shape[1]:,} tokens"
    return against(part, {"observed": lambda: observed(lens, inputs)}, works, setting.rounds)


def beside_transformer_lens(setting: Setting, lens: Lens, shape: tuple[int, int]) -> list[Row]:
    """The whole model, with its logits, as TransformerLens runs it: hooks that do nothing, and all kept."""
    inputs = random_inputs(lens, shape)
    ids, other = inputs["input_ids"], peers.bridge(setting.gpt2)
    part = f"capture: GPT-2 shape, {shape[0]} x {shape[1]:,} tokens"
    return [
        *against(
            part,
            {"observed, with logits": lambda: observed(lens, inputs, lens.model)},
            {"TransformerLens, hooks": lambda: peers.pass_patterns(other, ids)},
            setting.rounds,
        ),
        *against(
            part,
            {"all patterns kept": lambda: lens.patterns(**inputs)},
            {"TransformerLens, run_with_cache": lambda: peers.keep_patterns(other, ids)},
            setting.rounds,
        ),
    ]
