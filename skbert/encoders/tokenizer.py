"""Texts and words to pieces, by the tokenizer of a checkpoint and nothing else of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skbert.text.encoding import Frame, Pieces, Special

# A tokenizer without a limit of its own reports about 1e30 pieces.
SANE_LENGTH = 1_000_000

PROBES = ("a", "A", "1", "the", "。", "的")


class PieceTokenizer:
    """A Rust tokenizer with truncation and padding off, and what was learnt from it.

    It has no settings that a call could change, so threads can share it.

    Parameters
    ----------
    backend_json : str
        The tokenizer as its own JSON.
    facts : dict
        Plain values that the JSON lacks: "cls_id", "unk_id", "pad_id", "max_length",
        "input_names".

    Attributes
    ----------
    frames : dict of {1, 2} to Frame
        Special pieces for one text and for a pair.
    n_ids : int
        Size of the vocabulary, added pieces included.
    needs_space : bool
        Whether words are known by the space before them.
    """

    def __init__(self, backend_json: str, facts: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        # Checkpoints may carry the settings of whoever used them last, such as a
        # truncation at 128 pieces.
        content = json.loads(backend_json)
        content["truncation"] = content["padding"] = None
        self.json = json.dumps(content, ensure_ascii=False)
        self.facts = facts
        self._backend = Tokenizer.from_str(self.json)
        self.n_ids = self._backend.get_vocab_size(with_added_tokens=True)
        probe = next((p for p in PROBES if self._ids(p)), None)
        if probe is None:
            raise ValueError(f"The tokenizer gives no piece for any of {PROBES}.")
        self.frames = {
            1: self._learn_frame(self._backend.encode(probe)),
            2: self._learn_frame(self._backend.encode(probe, probe)),
        }
        # Byte-level vocabularies know a word inside running text by the space before it,
        # which a list of words does not have.
        apart = self._backend.encode(
            [probe, probe], is_pretokenized=True, add_special_tokens=False
        )
        self.needs_space = apart.ids != self._ids(f"{probe} {probe}")
        longest = content["model"].get("max_input_chars_per_word")
        self._longest_word = longest or 0
        self._long_word = re.compile(rf"\S{{{longest + 1},}}") if longest else None

    @classmethod
    def from_pretrained(cls, folder: Path) -> PieceTokenizer:
        """Read the tokenizer of a checkpoint.

        Raises
        ------
        ValueError
            If it has only a slow tokenizer, or one without a vocabulary.
        """
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if not tokenizer.is_fast:
            raise ValueError(
                f"The model in {folder} has no fast tokenizer, which skbert needs to "
                "align words. Save one with it (tokenizer.json)."
            )
        special = set(tokenizer.all_special_ids)
        if len(tokenizer) <= len(special):
            raise ValueError(
                f"The tokenizer in {folder} knows no pieces besides special ones: its "
                "vocabulary file is missing or empty."
            )
        facts = {
            "cls_id": tokenizer.cls_token_id,
            "unk_id": tokenizer.unk_token_id,
            "pad_id": tokenizer.pad_token_id,
            "max_length": min(tokenizer.model_max_length, SANE_LENGTH),
            "input_names": list(tokenizer.model_input_names),
        }
        return cls(tokenizer.backend_tokenizer.to_str(), facts)

    def texts(self, texts: Sequence[str], *, parallel: bool) -> list[Pieces]:
        """Pieces of running texts. The strings of special pieces are read as such."""
        return self._encode(list(texts), parallel, is_pretokenized=False)

    def words(self, rows: Sequence[Sequence[str]], *, parallel: bool) -> list[Pieces]:
        """Pieces of word lists, each word read as it would be inside running text."""
        if self.needs_space:
            rows = [[_spaced(word) for word in row] for row in rows]
        return self._encode([list(row) for row in rows], parallel, is_pretokenized=True)

    def is_unknown(self, pieces: Pieces) -> np.ndarray:
        return pieces.ids == (-1 if (unk := self.facts["unk_id"]) is None else unk)

    def has_long_word(self, row: Any) -> bool:
        """Whether the vocabulary gives up on a word of the row for its length."""
        if self._long_word is None:
            return False
        parts = [row] if isinstance(row, str) else row
        return any(self._long_word.search(p) and self._gives_up(p) for p in parts)

    def _gives_up(self, text: str) -> bool:
        """Whether an unknown piece stands for that many characters.

        Text without spaces need not be a word: Chinese characters are words each.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        unknown = [
            stop - start for id_, (start, stop) in spans if id_ == self.facts["unk_id"]
        ]
        return max(unknown, default=0) > self._longest_word

    def _encode(self, rows: list[Any], parallel: bool, **options: Any) -> list[Pieces]:
        options["add_special_tokens"] = False
        if parallel:
            encodings = self._backend.encode_batch(rows, **options)
        else:
            # One by one: a batch would start the tokenizer's own pool of threads.
            encodings = [self._backend.encode(row, **options) for row in rows]
        return [
            Pieces(
                np.array(encoding.ids, dtype=np.int32),
                np.array(encoding.word_ids, dtype=np.int32),
            )
            for encoding in encodings
        ]

    def _ids(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    @staticmethod
    def _learn_frame(encoding: Any) -> Frame:
        n_texts = encoding.n_sequences
        specials: list[list[tuple[int, int]]] = [[] for _ in range(n_texts + 1)]
        text_types = [0] * n_texts
        seen = 0
        for piece, kind, text in zip(
            encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
        ):
            if text is None:
                specials[seen].append((piece, kind))
            else:
                seen = text + 1
                text_types[text] = kind
        runs = (
            Special(tuple(ids for ids, _ in part), tuple(kinds for _, kinds in part))
            for part in specials
        )
        return Frame(tuple(runs), tuple(text_types))


def _spaced(word: str) -> str:
    return f" {word}" if word and not word[0].isspace() else word
