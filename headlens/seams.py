"""The anatomy and the seam of every model that is looked at: they are the model's, whatever lenses it has."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from transformers import PreTrainedModel

from headlens.anatomy import Anatomy, examine
from headlens.attention import Seam
from headlens.by_interface import InterfaceSeam
from headlens.fallback import HookSeam

_known: WeakKeyDictionary[PreTrainedModel, tuple[Anatomy, Seam]] = WeakKeyDictionary()
_lock = threading.Lock()


def known(model: PreTrainedModel) -> tuple[Anatomy, Seam]:
    """Get a model's anatomy and seam, which are worked out anew where its parts were exchanged.

    Args:
        model: the model.

    Returns:
        Its anatomy, and the one door to its attention.

    Raises:
        ModelError: its attention cannot be looked at.
    """
    with _lock:
        if model not in _known or not _known[model][1].fits():
            anatomy = examine(model)
            _known[model] = (anatomy, _seam(model, anatomy))
        return _known[model]


def _seam(model: PreTrainedModel, anatomy: Anatomy) -> Seam:
    if anatomy.by_interface:
        return InterfaceSeam(model, anatomy.sites, anatomy.dense_masks)
    return HookSeam(model, anatomy.parts)
