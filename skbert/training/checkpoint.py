"""A training run on disk, for the case that it is interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

FILE = "checkpoint.pt"
# Seconds between two checkpoints within an epoch.
INTERVAL = 600.0


class Checkpoint:
    """One file that is always whole: the last state that was written down.

    Parameters
    ----------
    folder : str, path or None
        None writes nothing.
    recipe : str
        A digest of all that decides how the run goes; a file of another one is refused.
    caller : str
        Name of the estimator, for messages.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, recipe: str, caller: str
    ) -> None:
        self._file = None if folder is None else Path(os.path.expanduser(folder)) / FILE
        self._recipe, self._caller = recipe, caller
        self._last = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """What was written down last, or None. Runs no code from the file."""
        if self._file is None or not self._file.exists():
            return None
        content: dict[str, Any] = torch.load(
            self._file, map_location="cpu", weights_only=True
        )
        if content["recipe"] != self._recipe:
            raise ValueError(
                f"The folder {str(self._file.parent)!r} in 'checkpoint' of {self._caller} "
                "holds a run with other data, parameters or random_state. Give them as "
                "they were, or another folder, or remove it."
            )
        state: dict[str, Any] = content["state"]
        return state

    def offer(self, state: Callable[[], dict[str, Any]], now: bool) -> None:
        """Write down what ``state`` gives, if asked to or if it is long since the last."""
        if self._file is None or not (now or time.monotonic() - self._last > INTERVAL):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_name(f"{FILE}.{os.getpid()}")
        with open(temporary, "wb") as file:
            torch.save({"recipe": self._recipe, "state": state()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._file)
        self._last = time.monotonic()

    def remove(self) -> None:
        if self._file is None:
            return
        self._file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or never made
            self._file.parent.rmdir()
