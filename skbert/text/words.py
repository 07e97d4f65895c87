"""Raw texts as words with offsets, and entities in characters as entities in words.

A word is a run of letters, digits and marks, or a single other character that is no
space. Where a script does not part words by spaces (Chinese, Japanese, Thai, Lao, Khmer,
Burmese) each character, with its marks, is a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import regex as re

from skbert.text.tags import Span
from skbert.text.validation import to_builtin

__all__ = ["Offsets", "align_spans", "check_spans", "split_words"]

Offsets: TypeAlias = list[tuple[int, int]]

# What annotation tools, and pipelines of transformers, call the label of a span.
_LABEL_KEYS = ("label", "labels", "entity_group")

# Scripts written without spaces; ー, the mark of a long vowel, is of no one script.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_LETTER = rf"(?!{_UNSPACED})[\p{{L}}\p{{N}}_]"
# Marks and joiners belong to the character before them; emoji are joined to one.
_MARK = r"[\p{M}\u200c\u200d]"
_WORD = re.compile(
    rf"{_UNSPACED}\p{{M}}*|(?:{_LETTER}{_MARK}*)+|\S\p{{M}}*(?:\u200d\S\p{{M}}*)*"
)


def split_words(text: str) -> Offsets:
    """Start and end, in characters, of the words of a text.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of (start, end)
        In order; only spaces lie between them.

    Examples
    --------
    >>> from skbert.text.words import split_words
    >>> text = "Dr. Ada weiß: 我在北京"
    >>> [text[start:end] for start, end in split_words(text)]
    ['Dr', '.', 'Ada', 'weiß', ':', '我', '在', '北', '京']
    """
    return [match.span() for match in _WORD.finditer(text)]


class _Aligned(NamedTuple):
    spans: list[Span]
    n_widened: int


def align_spans(spans: Sequence[Span], offsets: Offsets, where: str) -> _Aligned:
    """Entities in words, from entities in characters.

    Parameters
    ----------
    spans : sequence of (start, end, label)
        In characters.
    offsets : list of (start, end)
        Of the words.
    where : str
        For messages.

    Returns
    -------
    spans : list of (start, end, label)
        In words; a word that an entity covers in part belongs to it.
    n_widened : int
        Entities that do not begin and end with a word, spaces apart.

    Raises
    ------
    ValueError
        If an entity covers no word, or two entities share one.

    Examples
    --------
    >>> from skbert.text.words import align_spans, split_words
    >>> text = "New York rocks"
    >>> align_spans([(0, 8, "LOC")], split_words(text), "y at position 0").spans
    [(0, 2, 'LOC')]
    """
    aligned: list[Span] = []
    n_widened, at = 0, 0
    for start, end, label in sorted(set(spans)):
        while at < len(offsets) and offsets[at][1] <= start:
            at += 1
        stop = at
        while stop < len(offsets) and offsets[stop][0] < end:
            stop += 1
        if stop == at:
            raise ValueError(
                f"{where} holds the span {(start, end, label)}, in which there is no word. "
                "Leave it out."
            )
        if aligned and aligned[-1][1] > at:
            raise ValueError(
                f"{where} holds two spans that share a word, since a word has one tag: "
                f"{(start, end, label)} is the second. Keep one of them, such as the "
                "outer."
            )
        n_widened += offsets[at][0] < start or offsets[stop - 1][1] > end
        aligned.append((at, stop, label))
    return _Aligned(aligned, n_widened)


def check_spans(y: Any, texts: Sequence[str] | None, name: str) -> list[list[Span]]:
    """Plain lists of spans, one list a text.

    Parameters
    ----------
    y : ragged array of spans
        A span is (start, end, label), or a mapping with these keys, in characters, with
        the end excluded. Mappings may have "labels" with one label, "entity_group", and
        "start_char" and "end_char" as of ``predict_spans``.
    texts : sequence of str or None
        In which the spans must lie; None: anywhere.
    name : str
        For messages.

    Returns
    -------
    list of list of (start, end, label)
        Sorted by start.

    Raises
    ------
    TypeError
        If y as a whole is no container.
    ValueError
        If there is not one list for each text, or a span is none, or lies outside of its
        text.

    Examples
    --------
    >>> from skbert.text.words import check_spans
    >>> check_spans([[{"start": 0, "end": 3, "label": "PER"}]], ["Ada wrote"], "y")
    [[(0, 3, 'PER')]]
    """
    rows = to_builtin(y)
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise TypeError(
            f"{name} must hold one list of spans for each text. Got an object of type "
            f"{type(y).__name__}."
        )
    if texts is not None and len(rows) != len(texts):
        raise ValueError(
            f"{name} must hold one list of spans for each text: Found input variables with "
            f"inconsistent numbers of samples: {len(texts)} texts and {len(rows)} lists."
        )
    ends = [None] * len(rows) if texts is None else [len(text) for text in texts]
    return [
        sorted(_check_row(row, end, f"{name} at position {at}"))
        for at, (row, end) in enumerate(zip(rows, ends, strict=True))
    ]


def _check_row(row: Any, length: int | None, where: str) -> list[Span]:
    spans = to_builtin(row)
    if not isinstance(spans, list | tuple) or isinstance(spans, str):
        raise ValueError(
            f"{where} must be a list of spans (start, end, label). Got {row!r}."
        )
    checked: list[Span] = []
    for span in spans:
        given = to_builtin(span)
        if isinstance(given, Mapping):
            # What predict_spans gives counts words in "start" and "end".
            chars = "start_char" in given and "end_char" in given
            keys = ("start_char", "end_char") if chars else ("start", "end")
            label = next((given[key] for key in _LABEL_KEYS if key in given), None)
            if isinstance(label, list | tuple) and len(label) == 1:
                (label,) = label
            given = [*(given.get(key) for key in keys), label]
        fits = isinstance(given, list | tuple) and len(given) == 3
        start, end, label = map(to_builtin, given) if fits else (None, None, None)
        if isinstance(start, float) and isinstance(
            end, float
        ):  # pandas makes these of ints
            start = int(start) if start.is_integer() else start
            end = int(end) if end.is_integer() else end
        if type(start) is not int or type(end) is not int or not _is_label(label):
            raise ValueError(
                f"{where} must hold spans: (start, end, label), or mappings with these "
                f"keys, with two ints and a str that is not empty. Got {span!r}. For tags "
                "give X as lists of words."
            )
        if not 0 <= start < end or (length is not None and end > length):
            bound = "" if length is None else f" <= {length}, the length of its text"
            raise ValueError(
                f"{where} holds the span {(start, end, label)}, but must keep to "
                f"0 <= start < end{bound}."
            )
        checked.append((start, end, label))
    return checked


def _is_label(label: Any) -> TypeGuard[str]:
    return isinstance(label, str) and bool(label)
