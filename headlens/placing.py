"""Where a model goes: one device, or several that `accelerate` spreads it over."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch

from headlens.errors import ModelError

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
DeviceMap = str | Mapping[str, int | str]


def pick_device(device: str) -> torch.device:
    """Choose where to run.

    Args:
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:N" or "mps".

    Returns:
        The device.

    Raises:
        ModelError: this machine has no such device.
    """
    if device == "auto":
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
        device = next(name for name in there if there[name])
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        remedy = "Type --device cpu, or leave it out."
        raise ModelError(f"This machine has no device {device!r}.", remedy) from error
    return chosen


def check_device_map(device_map: DeviceMap | None, device: str = "auto") -> None:
    """Refuse a map that nobody can follow.

    Args:
        device_map: "auto", "balanced", "balanced_low_0" or "sequential", which `accelerate` follows: GPUs
            first, then the CPU, then disk; or devices by the names of modules; None for one device.
        device: what else was said about the device.

    Raises:
        ModelError: there is no such map, `accelerate` is not installed, or a device is chosen as well.
    """
    if device_map is None:
        return
    if device != "auto":
        raise ModelError("A device map places the model, and so does a device.", "Give one of the two.")
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        known = ", ".join(DEVICE_MAPS)
        raise ModelError(f"There is no device map {device_map!r}.", f"Choose one of: {known}.")
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError(
            "Spreading a model over devices needs the package accelerate, which is not installed.",
            "Type: pip install 'headlens[accelerate]'",
        )
