"""Whether the weights in a checkpoint's files are those that its config asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headlens.errors import ModelError
from headlens.sources import Source
from headlens.util.formatting import counted

if TYPE_CHECKING:
    from headlens.lens import Lens

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
PICKLED = "pytorch_model*.bin"  # what transformers can convert
ENTRIES: Mapping[str, str] = {
    r"\.(k|v|key|value)(_proj|_lin)?\.": "num_key_value_heads (or head_dim)",
    r"position": "max_position_embeddings",
    r"embed_tokens|word_embeddings|wte|shared|embed_in|embed_out|lm_head|predictions": "vocab_size",
    r"mlp|intermediate|ffn|feed_forward|fc[12]\b|\d\.output\.dense": "intermediate_size",
    r"attn|attention": "num_attention_heads, num_key_value_heads or head_dim",
}
"""What the names of all weights of a wrong shape have in common, and the entry of the config behind it."""

Misfit = tuple[str, Iterable[int], Iterable[int]]


def check_shapes(misfits: Iterable[Misfit], name: str) -> None:
    """Refuse weights of another shape than the config asks for.

    Args:
        misfits: of each such weight its name, its shape in the files, and its shape by the config.
        name: of the model, for the message.

    Raises:
        ModelError: there is one.
    """
    known = {weight: (list(there), list(wanted)) for weight, there, wanted in misfits}
    if not known:
        return
    first = in_order(known)[0]
    there, wanted = known[first]
    more = len(known) - 1
    entry = next((entry for pattern, entry in ENTRIES.items() if _all_have(pattern, known)), "the sizes")
    rest = f"; so it is with {counted(more, 'more weight')}" if more else ""
    raise ModelError(
        f"Weights and config of {name!r} do not fit: {first} is {there} in the files, and {wanted} by the "
        f"config{rest}.",
        f"Correct {entry} in its config.json, or take the checkpoint that belongs to it.",
    )


def check_pickled(source: Source, class_name: str) -> None:
    """Refuse a directory that holds pickled weights alone.

    Args:
        source: where the checkpoint is.
        class_name: of the model in `transformers`.

    Raises:
        ModelError: that is all there is; the message says how to convert them.
    """
    place = Path(source.place)
    if source.files or not place.is_dir():
        return
    pickled = sorted(path.name for path in place.glob(PICKLED))
    if pickled:
        raise ModelError(
            f"The weights of {source.name!r} are pickled ({pickled[0]}), and pickles can run code, so "
            "headlens loads none.",
            "Convert them where that may happen: "
            f"transformers.{class_name}.from_pretrained({source.place!r}).save_pretrained(NEW), and copy the "
            "tokenizer's files to NEW.",
        )


def surplus_weights(lens: Lens) -> tuple[str, ...]:
    """List the unused weights that belong to numbered layers beyond those that the model has.

    Args:
        lens: a loaded model.

    Returns:
        Names, in order; those of other parts, a pooler or another task's head, are not among them.
    """
    prefix = f"{lens.model.base_model_prefix}."
    used = {name.removeprefix(prefix) for name in lens.model.state_dict()}
    kinds = {NUMBER.sub("#", name) for name in used}
    places = {name[: found.end()] for name in used for found in NUMBER.finditer(name)}
    config = lens.model.config.get_text_config()
    last = getattr(config, "num_hidden_layers", 0) or 0
    ahead = getattr(config, "num_nextn_predict_layers", 0) or 0  # layers that guess further tokens at once

    def is_surplus(name: str) -> bool:
        new = [found for found in NUMBER.finditer(name) if name[: found.end()] not in places]
        if not new or NUMBER.sub("#", name) not in kinds:
            return False
        return not last <= int(new[0].group()) < last + ahead

    return tuple(name for name in in_order(lens.unused) if is_surplus(name.removeprefix(prefix)))


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names with numbers by their numbers: layer 2 before layer 10."""
    return sorted(names, key=_numbered)


def _numbered(name: str) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _all_have(pattern: str, names: Iterable[str]) -> bool:
    return all(re.search(pattern, name) for name in names)
