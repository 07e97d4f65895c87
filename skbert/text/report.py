"""What one call could not read."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from skbert.exceptions import TruncationWarning, VocabularyWarning


def users_stacklevel() -> int:
    """How many frames up, from the caller, the first line outside of libraries stands."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in {"skbert", "sklearn", "joblib", "contextlib"}:
            break
        frame, level = frame.f_back, level + 1
    return level


@dataclass
class ReadingReport:
    """What one call could not read, to be told once at its end.

    Attributes
    ----------
    cut : set of int
        Positions of texts of which pieces were left out.
    long_words : set of int
        Positions of texts with words too long for the vocabulary.
    cut_words : set of int
        Positions of texts with words of which only the first characters were read.
    n_pieces, n_unknown : int
        Pieces read, and how many of them stand for something unknown.
    """

    cut: set[int] = field(default_factory=set)
    long_words: set[int] = field(default_factory=set)
    cut_words: set[int] = field(default_factory=set)
    n_pieces: int = 0
    n_unknown: int = 0

    def add(self, other: ReadingReport, positions: Sequence[Sequence[int]]) -> None:
        """Take over a report on distinct rows, which stand at these positions."""
        self.cut.update(p for row in other.cut for p in positions[row])
        self.long_words.update(p for row in other.long_words for p in positions[row])
        self.cut_words.update(p for row in other.cut_words for p in positions[row])
        self.n_pieces += other.n_pieces
        self.n_unknown += other.n_unknown

    def warn(
        self, caller: str, max_length: int, n_rows: int, longest: int | None = None
    ) -> None:
        """One warning for each kind of loss, pointing at the line of the user.

        ``longest`` is the largest ``max_length`` that the encoder allows, if it has one.
        """
        level = users_stacklevel()
        if self.cut:
            more = ""
            if longest is not None and longest > max_length:
                more = f", or raise max_length, to {longest} at most"
            warnings.warn(
                f"{caller} read only a part of {len(self.cut)} of {n_rows} rows, which "
                f"have more than max_length={max_length} pieces (first positions: "
                f"{sorted(self.cut)[:5]}). Use long_text='windows' to read them "
                f"whole{more}.",
                TruncationWarning,
                stacklevel=level,
            )
        if self.long_words:
            warnings.warn(
                f"{caller} read words that are too long for the vocabulary of the model "
                f"as one unknown piece each, in {len(self.long_words)} of {n_rows} rows "
                f"(first positions: {sorted(self.long_words)[:5]}). Two such words have "
                "the same vector; shorten or split them if they matter.",
                VocabularyWarning,
                stacklevel=level,
            )
        if self.cut_words:
            warnings.warn(
                f"{caller} read only the beginning of words that have more characters "
                f"than the model reads, in {len(self.cut_words)} of {n_rows} rows (first "
                f"positions: {sorted(self.cut_words)[:5]}). Words that begin alike have "
                "the same vector; shorten or split them if they matter.",
                VocabularyWarning,
                stacklevel=level,
            )
        if self.n_unknown * 2 > self.n_pieces:
            warnings.warn(
                f"{caller} found {self.n_unknown} of {self.n_pieces} pieces unknown to "
                "the vocabulary of the model: the vectors say little about the texts. "
                "Choose a model made for their language or domain, such as "
                "'bert-base-chinese' or 'xlm-roberta-base'.",
                VocabularyWarning,
                stacklevel=level,
            )
