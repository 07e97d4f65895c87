"""Texts as lists of words, for the estimators whose models read words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skbert.text.words import split_words

Tokenizer = Callable[[str], Sequence[str]]


def split_rows(
    rows: list[Any], tokenizer: Tokenizer | None, caller: str
) -> list[list[str]]:
    """Lists of words of texts; lists of words stay as they are.

    ``tokenizer`` maps a text to its words; None is ``skbert.text.words.split_words``.

    Raises
    ------
    TypeError
        If the tokenizer gives anything but words.
    """
    if not isinstance(rows[0], str):
        return [list(row) for row in rows]
    if tokenizer is None:
        return [[text[start:end] for start, end in split_words(text)] for text in rows]
    split = []
    for position, text in enumerate(rows):
        words = tokenizer(text)
        is_list = isinstance(words, Sequence) and not isinstance(words, str)
        if not is_list or not all(isinstance(word, str) for word in words):
            raise TypeError(
                f"The 'tokenizer' of {caller} must give a list of words (str) for a text. "
                f"It gave {words!r} for the text at position {position}."
            )
        split.append(list(words))
    return split
