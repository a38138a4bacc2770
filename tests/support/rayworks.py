"""Works that workers on Ray can be given; they find them here."""

from __future__ import annotations

import os
import signal
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from headlens.errors import ModelError


@dataclass(frozen=True)
class Doing:
    """Does to a unit what its name says, once: a file notes that it was done."""

    folder: Path
    what: str = ""
    unit: int = 3

    def begin(self, lens):
        (self.folder / f"begun {os.getpid()}").touch()
        first = float(next(lens.model.parameters()).detach().flatten()[0])

        def do(unit):
            done = self.folder / "done"
            if self.what == "sleep" and unit > self.unit + 3:  # a worker holds two: one has arrived
                (self.folder / "later").touch()
            if unit == self.unit and self.what and not done.exists():
                if self.what != "die always":
                    done.touch()
                getattr(self, self.what.split()[0])()
            return unit * unit, first, torch.get_num_threads(), os.getpid()

        return do

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self):
        """Until a later unit has arrived, from the other worker."""
        until = time.monotonic() + 120
        while not (self.folder / "later").exists() and time.monotonic() < until:
            time.sleep(0.01)

    def warn(self):
        warnings.warn("The tea is cold.", stacklevel=2)

    def refuse(self):
        raise ModelError("The model has no tea.", "Make some.")

    def fail(self):
        raise ZeroDivisionError("tea by nothing")


@dataclass(frozen=True, eq=False)
class Unsendable:
    """What cannot be sent."""

    file: object

    def begin(self, lens):
        return lambda unit: unit
