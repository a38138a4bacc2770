"""Whether a finished run is about the model at hand: shapes alone do not tell, since models share them."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headlens.errors import RunError
from headlens.model.lens import Lens
from headlens.report.page.files import at, read_json
from headlens.util.files import from_home, is_directory, is_there


class SameModel:
    """Holds runs against one model; its weight files are hashed once, and only if a run has hashes.

    Args:
        lens: the model.
    """

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        self._found: Mapping[str, str] | None = None

    def check(self, run: Path) -> None:
        """Refuse a run of another model, and warn where it cannot be told.

        Where both have hashes of weight files, these decide; else the names and revisions do. It misleads
        where a checkpoint without such files was changed in its place: its name is still the same.

        Args:
            run: directory of a run.

        Raises:
            RunError: the run is about another model, or its run.json cannot be read.
        """
        file = run / "run.json"
        told = read_json(file) if is_there(file) else {}
        told = told if isinstance(told, Mapping) else {}
        theirs = at(told, "model", default={})
        name = str(at(theirs, "name", default=""))
        if not name:
            warnings.warn(
                f"{run} does not say which model it is about: be sure it is this one.", stacklevel=3
            )
        elif self._lens.source is None:
            kind = f" (a {kind})" if (kind := at(theirs, "architecture")) else ""
            warnings.warn(
                f"{run} is about {name}{kind}; whether that is the model at hand cannot be told, since this "
                "one was not loaded from a place.",
                stacklevel=3,
            )
        elif (hashes := at(theirs, "weights_sha256", default={})) and self._lens.source.files:
            if hashes != self._hashes:
                raise self._another(run, at(told, "command"), name, "with other weights than")
        elif not _same_place(name, self._lens.source.name) or self._other_revision(theirs):
            raise self._another(run, at(told, "command"), name, "not with")

    @property
    def _hashes(self) -> Mapping[str, str]:
        if self._found is None:
            self._found = self._lens.source.sha256() if self._lens.source else {}
        return self._found

    def _other_revision(self, theirs: Mapping[str, Any]) -> bool:
        source = self._lens.source
        mine, its = source.options.get("revision") if source else None, at(theirs, "revision")
        return mine is not None and its is not None and mine != its

    def _another(self, run: Path, command: Any, name: str, how: str) -> RunError:
        mine = self._lens.source.name if self._lens.source else ""
        wanted = f"headlens {command if command == 'ablate' else 'classify'} {shlex.quote(mine)} --out DIR"
        return RunError(
            f"{run} is about another model: it was made with {name}, {how} {mine} as it is now.",
            f"Type first: {wanted}, and give that run.",
        )


def _same_place(one: str, other: str) -> bool:
    paths = [from_home(name) for name in (one, other)]
    return one == other or (
        all(is_there(path) or is_directory(path) for path in paths) and paths[0].samefile(paths[1])
    )
