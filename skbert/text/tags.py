"""Entities written as one tag a word: schemes, spans, and which tag may follow which.

A tag is "O" (outside), or a prefix, a hyphen and a label: "B-PER". Only the first hyphen
counts: "B-per-son" has the label "per-son". A prefix that stands alone, "B", has the label
"". The schemes differ in their prefixes:

- IOB2 (also called BIO): B- opens every entity, I- goes on;
- IOB1: I- opens and goes on; B- only opens an entity that touches one of the same label;
- IOBES (BIOES): as IOB2, but E- ends an entity, and S- is an entity of one word;
- BILOU (BILUO): as IOBES, with L- for E- and U- for S-.

Spans are tuples (start, end, label) that count words, with the end excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from skbert.text.validation import to_builtin

__all__ = [
    "SCHEMES",
    "Span",
    "allowed_transitions",
    "check_entity_tags",
    "check_mode",
    "check_scheme",
    "check_tags",
    "detect_scheme",
    "spans_to_tags",
    "split_tag",
    "tags_to_spans",
]

Span: TypeAlias = tuple[int, int, str]
Sentences: TypeAlias = list[list[str]]

SCHEMES = ("IOB1", "IOB2", "IOBES", "BILOU")
_ALIASES = {"BIO": "IOB2", "BIOES": "IOBES", "BILUO": "BILOU"}
_PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
_ROLES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
# The roles of the words of one well-formed entity.
_WELL_FORMED = {"IOB1": "[BI]I*", "IOB2": "BI*", "IOBES": "S|BI*E", "BILOU": "S|BI*E"}
_OUTSIDE = ("O", "")
_N_NAMED = 5  # positions written out in a message

# Checks ------------------------------------------------------------------------------


def check_scheme(scheme: str) -> str:
    """One of `SCHEMES`, from its name or another name of it.

    Parameters
    ----------
    scheme : str
        In any case: "bio" is "IOB2".

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If there is no such scheme.
    """
    name = scheme.upper() if isinstance(scheme, str) else ""
    name = _ALIASES.get(name, name)
    if name not in SCHEMES:
        wanted = ", ".join(repr(known) for known in (*SCHEMES, *_ALIASES))
        raise ValueError(f"scheme must be one of {wanted}. Got {scheme!r}.")
    return name


def check_mode(mode: str) -> None:
    """Raise ValueError unless the mode is "default" or "strict"."""
    if mode not in ("default", "strict"):
        raise ValueError(f"mode must be 'default' or 'strict'. Got {mode!r}.")


def check_tags(y: Any, name: str = "y", *, only_str: bool = True) -> list[list[Any]]:
    """Plain lists of tags, one list a sentence, from any ragged container.

    Parameters
    ----------
    y : list of lists, object array, 2-D array, Series of lists, Arrow list array
        Sentences may be empty, and so may y.
    name : str, default="y"
        For messages.
    only_str : bool, default=True
        Refuse tags that are no strings; else numbers pass, missing values never do.

    Returns
    -------
    list of lists of str
        New lists; strings of numpy become plain ``str``.

    Raises
    ------
    TypeError
        If y as a whole is no container of sentences.
    ValueError
        If a sentence is no list of tags, or a tag is missing or no string.

    Examples
    --------
    >>> import numpy as np
    >>> from skbert.text.tags import check_tags
    >>> check_tags([np.array(["B-PER", "O"]), ("O",), []])
    [['B-PER', 'O'], ['O'], []]
    """
    rows = to_builtin(y)
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise TypeError(
            f"{name} must hold one list of tags for each sentence. Got an object of type "
            f"{type(y).__name__}. Use a list of lists, or one column of them."
        )
    return [
        _check_sentence(row, f"{name} at position {at}", only_str)
        for at, row in enumerate(rows)
    ]


def _check_sentence(row: Any, where: str, only_str: bool) -> list[Any]:
    tags = to_builtin(row)
    if not isinstance(tags, list | tuple):
        advice = " For one sentence wrap it: [tags]." if isinstance(tags, str) else ""
        raise ValueError(
            f"{where} must be a list of tags. Got {row!r} of type "
            f"{type(row).__name__}.{advice}"
        )
    if set(map(type, tags)) <= {str}:
        return list(tags)
    plain = [to_builtin(tag) for tag in tags]
    for word, tag in enumerate(plain):
        missing = tag is None or type(tag).__name__ == "NAType" or tag != tag
        if missing or not isinstance(tag, str if only_str else str | int | float):
            advice = "Give every word a tag." if missing else "Use the names of the tags."
            if isinstance(tag, tuple | list | Mapping):
                advice = (
                    "Spans go with texts in X, and are scored by span_f1_score or "
                    "span_f1_scorer."
                )
            raise ValueError(
                f"{where}, word {word}, must be a tag (str). Got {tag!r} of type "
                f"{type(tag).__name__}. {advice}"
            )
    return [str.__str__(tag) if isinstance(tag, str) else tag for tag in plain]


def check_entity_tags(sentences: Sentences, scheme: str | None, name: str) -> None:
    """Raise ValueError, with positions, unless all are tags of entities.

    Parameters
    ----------
    sentences : list of lists of str
    scheme : str or None
        One of `SCHEMES`. None: any prefix will do.
    name : str
        For messages.
    """
    wrong = {tag for tag in set().union(*sentences) if not _belongs(tag, scheme)}
    if not wrong:
        return
    places = [
        f"{tag!r} at position {at}, word {word}"
        for at, tags in enumerate(sentences)
        for word, tag in enumerate(tags)
        if tag in wrong
    ]
    prefixes = ", ".join(f"{p}-" for p in (_PREFIXES[scheme] if scheme else _ROLES))
    of = f" of {scheme}" if scheme else ""
    raise ValueError(
        f"{name} must hold entity tags{of}: 'O', or a label after one of {prefixes}. Got "
        f"{', '.join(places[:_N_NAMED])}; {len(places)} in all. For tags that are no "
        f"entities use word_accuracy_score."
    )


def _belongs(tag: str, scheme: str | None) -> bool:
    try:
        split_tag(tag)
    except ValueError:
        return False
    return scheme is None or tag == "O" or tag[0] in _PREFIXES[scheme]


# Tags --------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """Role and label of a tag.

    Parameters
    ----------
    tag : str

    Returns
    -------
    role : {"O", "B", "I", "E", "S"}
        L- has the role E, and U- the role S.
    label : str
        Empty for "O" and for a prefix that stands alone.

    Raises
    ------
    ValueError
        If it is no entity tag.

    Examples
    --------
    >>> from skbert.text.tags import split_tag
    >>> split_tag("L-per-son")
    ('E', 'per-son')
    """
    if tag == "O":
        return _OUTSIDE
    prefix, hyphen, label = tag.partition("-")
    if prefix not in _ROLES or bool(hyphen) != bool(label):
        raise ValueError(
            f"A tag of an entity must be 'O', or one of {', '.join(_ROLES)} with a hyphen "
            f"and a label. Got {tag!r}."
        )
    return _ROLES[prefix], label


def detect_scheme(y: Any) -> str | None:
    """Scheme in which the tags are written, None if they are no entity tags.

    IOB1 and IOB2 have the same prefixes; it is IOB1 if some entity opens with I- and no
    B- stands elsewhere than directly after a word of the same label.

    Parameters
    ----------
    y : ragged array of tags
        As `check_tags` reads it; sentences, since the order of tags counts.

    Returns
    -------
    {"IOB1", "IOB2", "IOBES", "BILOU"} or None
        "IOB2" if every tag is "O"; None if there is no tag at all. Prefixes that stand
        alone count if "B" is among them, since a lone "S" or "I" may mean anything.

    Examples
    --------
    >>> from skbert.text.tags import detect_scheme
    >>> detect_scheme([["B-PER", "I-PER", "O"], ["O"]])
    'IOB2'
    >>> detect_scheme([["DET", "NOUN", "VERB"]]) is None
    True
    """
    sentences = check_tags(y, only_str=False)
    tags = set().union(*sentences)
    if not tags or not all(isinstance(tag, str) and _belongs(tag, None) for tag in tags):
        return None
    if any(tag in _ROLES for tag in tags) and "B" not in tags:
        return None
    prefixes = {tag[0] for tag in tags} - {"O"}
    if prefixes <= {"B", "I"}:
        return "IOB1" if _looks_like_iob1(sentences) else "IOB2"
    for scheme in ("IOBES", "BILOU"):
        # I- and E- alone would be a scheme of its own, without beginnings
        if prefixes <= set(_PREFIXES[scheme]) and prefixes - {"I", "E", "L"}:
            return scheme
    return None


def _looks_like_iob1(sentences: Sentences) -> bool:
    opens_with_i = False
    for tags in sentences:
        previous = _OUTSIDE
        for role, label in map(split_tag, tags):
            touches = previous[0] != "O" and previous[1] == label
            if role == "B" and not touches:
                return False
            opens_with_i |= role == "I" and not touches
            previous = (role, label)
    return opens_with_i


# Spans -------------------------------------------------------------------------------


def tags_to_spans(
    tags: Sequence[str], *, scheme: str | None = None, mode: str = "default"
) -> list[Span]:
    """Entities of one sentence.

    Parameters
    ----------
    tags : sequence of str of length n_words
    scheme : str or None, default=None
        Tags of another scheme are an error. None, in the default mode only: any prefix.
    mode : {"default", "strict"}, default="default"
        "default" makes the best of every tag, as conlleval does: an entity goes on with
        I- or E- of its label, and whatever else is not "O" opens a new one. "strict" counts
        only entities that are well-formed in the scheme and ignores other words.

    Returns
    -------
    list of (start, end, label)
        In order; they never overlap.

    Raises
    ------
    ValueError
        If a tag is none of the scheme, or a strict mode has no scheme.

    Examples
    --------
    >>> from skbert.text.tags import tags_to_spans
    >>> tags = ["I-PER", "I-PER", "O", "B-LOC"]
    >>> tags_to_spans(tags)
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    >>> tags_to_spans(tags, scheme="IOB2", mode="strict")
    [(3, 4, 'LOC')]
    """
    check_mode(mode)
    if scheme is not None:
        scheme = check_scheme(scheme)
    elif mode == "strict":
        raise ValueError("mode='strict' needs a scheme, see detect_scheme.")
    (plain,) = check_tags([tags], "tags")
    check_entity_tags([plain], scheme, "tags")
    return find_spans(plain, scheme if mode == "strict" else None)


def find_spans(tags: Sequence[str], strict_in: str | None) -> list[Span]:
    """What `tags_to_spans` finds in tags already checked; strict if a scheme is given."""
    parts = [split_tag(tag) for tag in tags]
    return [
        (start, end, parts[start][1])
        for start, end in _runs(parts)
        if strict_in is None or _is_well_formed(parts, start, end, strict_in)
    ]


def _runs(parts: list[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Start and end of every run of words that belong together."""
    start, previous = 0, _OUTSIDE
    for at, part in enumerate([*parts, _OUTSIDE]):
        goes_on = part[0] in "IE" and previous[0] in "BI" and part[1] == previous[1]
        if not goes_on:
            if previous[0] != "O":
                yield start, at
            start = at
        previous = part


def _is_well_formed(
    parts: list[tuple[str, str]], start: int, end: int, scheme: str
) -> bool:
    roles = "".join(role for role, _ in parts[start:end])
    if scheme == "IOB1" and roles[0] == "B":
        before = parts[start - 1] if start else _OUTSIDE
        if before[0] == "O" or before[1] != parts[start][1]:
            return False
    return re.fullmatch(_WELL_FORMED[scheme], roles) is not None


def spans_to_tags(spans: Sequence[Span], n_words: int, scheme: str = "IOB2") -> list[str]:
    """Tags of one sentence, from its entities.

    Parameters
    ----------
    spans : sequence of (start, end, label)
        In any order; they must lie in the sentence and must not overlap.
    n_words : int
    scheme : str, default="IOB2"

    Returns
    -------
    list of str of length n_words

    Raises
    ------
    ValueError
        If a span is empty, leaves the sentence or overlaps another.

    Examples
    --------
    >>> from skbert.text.tags import spans_to_tags
    >>> spans_to_tags([(0, 2, "PER"), (3, 4, "LOC")], 5, "IOBES")
    ['B-PER', 'E-PER', 'O', 'S-LOC', 'O']
    """
    scheme = check_scheme(scheme)
    tags = ["O"] * n_words
    last_end, last_label = 0, None
    for start, end, label in sorted(spans, key=lambda span: span[:2]):
        if not 0 <= start < end <= n_words:
            raise ValueError(
                f"Spans must lie in a sentence of {n_words} words and not be empty. Got "
                f"{(start, end, label)}."
            )
        if start < last_end:
            raise ValueError(
                f"Spans must not overlap, since a word has one tag. Got "
                f"{(start, end, label)}, while another ends at {last_end}."
            )
        touches = start == last_end and label == last_label
        prefixes = _prefixes(end - start, scheme, touches)
        tags[start:end] = [f"{p}-{label}" if label else p for p in prefixes]
        last_end, last_label = end, label
    return tags


def _prefixes(n_words: int, scheme: str, touches: bool) -> str:
    """Prefixes of an entity of n_words; touches: one of the same label ends before it."""
    if scheme in ("IOB1", "IOB2"):
        first = "B" if scheme == "IOB2" or touches else "I"
        return first + "I" * (n_words - 1)
    last, single = _PREFIXES[scheme][2], _PREFIXES[scheme][3]
    return single if n_words == 1 else "B" + "I" * (n_words - 2) + last


# Transitions -------------------------------------------------------------------------


def allowed_transitions(
    tags: Sequence[str], scheme: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tag may follow which, open a sentence, and end one.

    Parameters
    ----------
    tags : sequence of str of length n_tags
        The tags that a model knows, each once, in its order.
    scheme : str
        IOB2 forbids I-X but after B-X or I-X; IOB1 forbids B-X but there; IOBES and
        BILOU also want every entity ended before another begins.

    Returns
    -------
    transitions : ndarray of shape (n_tags, n_tags), bool
        ``transitions[i, j]``: tag j may stand directly after tag i.
    start : ndarray of shape (n_tags,), bool
    end : ndarray of shape (n_tags,), bool

    Examples
    --------
    >>> from skbert.text.tags import allowed_transitions
    >>> transitions, start, end = allowed_transitions(["O", "B-X", "I-X"], "IOB2")
    >>> transitions.astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [1, 1, 1]])
    >>> start.astype(int), end.astype(int)
    (array([1, 1, 0]), array([1, 1, 1]))
    """
    scheme = check_scheme(scheme)
    (plain,) = check_tags([tags], "tags")
    check_entity_tags([plain], scheme, "tags")
    # a sentence opens and ends as if "O" stood around it
    parts = [*map(split_tag, plain), _OUTSIDE]
    pairs = [_may_follow(before, after, scheme) for before in parts for after in parts]
    allowed = np.array(pairs, dtype=bool).reshape(len(parts), len(parts))
    return allowed[:-1, :-1].copy(), allowed[-1, :-1].copy(), allowed[:-1, -1].copy()


def _may_follow(before: tuple[str, str], after: tuple[str, str], scheme: str) -> bool:
    inside = before[0] in "BI" and before[1] == after[1]
    if scheme == "IOB1":
        return after[0] != "B" or inside
    if scheme == "IOB2":
        return after[0] != "I" or inside
    if after[0] in "IE":
        return inside
    return before[0] not in "BI"
