"""Compact checkpoints: models some of whose matrices are smaller than their config can say.

`headlens prune --form compact` writes them, `headlens.load` reads them. config.json holds the model's own
config, the shapes of the smaller weights and what the modules around them count by; plain `transformers`
refuses it as a model type that it does not know, and never loads it half.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from headlens.util.files import is_there, load_json

MODEL_TYPE = "headlens_compact"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Compact:
    """How a model differs from what its config says.

    Args:
        config: the model's own config, as plain data.
        shapes: of the weights that are smaller, by name.
        attributes: numbers that modules count by, by the module's path and the attribute's name.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Mapping[str, int]]

    def own_config(self) -> PreTrainedConfig:
        """The model's own config."""
        facts = dict(self.config)
        return AutoConfig.for_model(facts.pop("model_type"), **facts)

    def then(self, more: Compact) -> Compact:
        """Shrink further what was shrunk before.

        Args:
            more: how a model that is compact already differs from itself after.

        Returns:
            How it differs from the config after both.
        """
        attributes = {path: dict(numbers) for path, numbers in self.attributes.items()}
        for path, numbers in more.attributes.items():
            attributes.setdefault(path, {}).update(numbers)
        return Compact(self.config, {**self.shapes, **more.shapes}, attributes)

    def shrink(self, model: nn.Module) -> None:
        """Make a model's weights as small as they are here; what they hold is then undefined.

        Args:
            model: made from the config.
        """
        for name, shape in self.shapes.items():
            path, _, leaf = name.rpartition(".")
            module = model.get_submodule(path)
            old = getattr(module, leaf)
            new = torch.empty(shape, dtype=old.dtype, device=old.device)
            if leaf in module._parameters:
                module._parameters[leaf] = nn.Parameter(new, requires_grad=old.requires_grad)
            else:
                module._buffers[leaf] = new
        self.count(model)

    def count(self, model: nn.Module) -> None:
        """Tell a model's modules what they count by here.

        Args:
            model: as large as it is here.
        """
        for path, numbers in self.attributes.items():
            for attribute, number in numbers.items():
                setattr(model.get_submodule(path), attribute, number)

    def save(self, model: PreTrainedModel, out: Path) -> None:
        """Write a model that was shrunk: its weights and its config.json.

        Args:
            model: the model.
            out: directory.
        """
        safetensors.torch.save_model(model, str(out / WEIGHTS), {"format": "pt"})
        facts = {
            "model_type": MODEL_TYPE,
            "architectures": self.config.get("architectures"),
            "config": dict(self.config),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "attributes": {path: dict(numbers) for path, numbers in self.attributes.items()},
        }
        (out / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def load(self, model: PreTrainedModel, place: Path) -> None:
        """Shrink a model made from the config, and read its weights.

        Args:
            model: the model.
            place: directory.
        """
        self.shrink(model)
        safetensors.torch.load_model(model, str(place / WEIGHTS))


def read_compact(place: str | Path) -> Compact | None:
    """Read how a compact checkpoint differs from its config.

    Args:
        place: a model directory or a config.json.

    Returns:
        None where it is no compact checkpoint.
    """
    path = Path(place)
    try:
        facts = load_json(path if is_there(path) else path / "config.json")
        if facts["model_type"] != MODEL_TYPE:
            return None
        shapes = {name: tuple(shape) for name, shape in facts["shapes"].items()}
        return Compact(facts["config"], shapes, facts["attributes"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
