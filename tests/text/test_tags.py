"""Schemes, spans and transitions, against definitions written out another way."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from skbert.text.tags import (
    SCHEMES,
    allowed_transitions,
    check_scheme,
    check_tags,
    detect_scheme,
    spans_to_tags,
    split_tag,
    tags_to_spans,
)

PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}


def all_tags(scheme, labels=("X", "Y")):
    return ["O", *(f"{p}-{label}" for label in labels for p in PREFIXES[scheme])]


def draw_spans(rng, n_words, labels=("X", "Y", "per-son")):
    spans, at = [], 0
    while at < n_words:
        end = min(n_words, at + rng.randint(1, 4))
        if rng.random() < 0.6:
            spans.append((at, end, rng.choice(labels)))
        at = end
    return spans


# Spans -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("labels", [("X", "Y", "per-son", "-x-"), ("",), ("人名",)])
def test_spans_come_back(scheme, labels):
    rng = random.Random(0)
    for _ in range(300):
        n_words = rng.randint(0, 12)
        spans = draw_spans(rng, n_words, labels)
        tags = spans_to_tags(rng.sample(spans, len(spans)), n_words, scheme)
        assert len(tags) == n_words
        for mode in ("default", "strict"):
            assert tags_to_spans(tags, scheme=scheme, mode=mode) == spans
        assert tags_to_spans(tags) == spans


# A well-formed entity in text, for the words before it and after it at hand.
PATTERNS = {
    "IOB2": r"B-(\w)(?: I-\1)*(?! I-\1)",
    "IOBES": r"S-(\w)|B-(\w)(?: I-\2)* E-\2",
    "BILOU": r"U-(\w)|B-(\w)(?: I-\2)* L-\2",
}


@pytest.mark.parametrize("scheme", PATTERNS)
def test_strict_spans_are_a_pattern(scheme):
    rng = random.Random(0)
    for _ in range(2000):
        tags = rng.choices(all_tags(scheme), k=rng.randint(1, 7))
        text = " ".join(tags)
        expected = []
        for match in re.finditer(PATTERNS[scheme], text):
            start = text[: match.start()].count(" ")
            label = next(group for group in match.groups() if group)
            expected.append((start, start + match.group().count(" ") + 1, label))
        assert tags_to_spans(tags, scheme=scheme, mode="strict") == expected, tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_spans_are_those_of_which_tags_can_be_made(scheme):
    """In a sentence that keeps all rules the modes agree; in others strict has less."""
    tags = all_tags(scheme)
    transitions, start, end = allowed_transitions(tags, scheme)
    for path in itertools.product(range(len(tags)), repeat=3):
        sentence = [tags[at] for at in path]
        valid = start[path[0]] and transitions[path[:-1], path[1:]].all() and end[path[-1]]
        strict = tags_to_spans(sentence, scheme=scheme, mode="strict")
        default = tags_to_spans(sentence)
        assert set(strict) <= set(default)
        assert valid == (spans_to_tags(strict, 3, scheme) == sentence), sentence
        if valid:
            assert strict == default


@pytest.mark.parametrize(
    "tags, default, strict, scheme",
    [
        ("I-X I-X", [(0, 2, "X")], [], "IOB2"),
        ("B-X I-Y", [(0, 1, "X"), (1, 2, "Y")], [(0, 1, "X")], "IOB2"),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")], [(0, 1, "X"), (1, 2, "X")], "IOB2"),
        ("O I-X", [(1, 2, "X")], [], "IOB2"),
        ("I-X I-X", [(0, 2, "X")], [(0, 2, "X")], "IOB1"),
        ("I-X B-X", [(0, 1, "X"), (1, 2, "X")], [(0, 1, "X"), (1, 2, "X")], "IOB1"),
        ("O B-X I-X", [(1, 3, "X")], [], "IOB1"),
        ("I-Y B-X", [(0, 1, "Y"), (1, 2, "X")], [(0, 1, "Y")], "IOB1"),
        ("B-X I-X", [(0, 2, "X")], [], "IOBES"),
        ("B-X E-X E-X", [(0, 2, "X"), (2, 3, "X")], [(0, 2, "X")], "IOBES"),
        ("S-X I-X", [(0, 1, "X"), (1, 2, "X")], [(0, 1, "X")], "IOBES"),
        ("U-X U-X", [(0, 1, "X"), (1, 2, "X")], [(0, 1, "X"), (1, 2, "X")], "BILOU"),
        ("B-X L-X I-X", [(0, 2, "X"), (2, 3, "X")], [(0, 2, "X")], "BILOU"),
        ("B I O B", [(0, 2, ""), (3, 4, "")], [(0, 2, ""), (3, 4, "")], "BIO"),
        ("B-per-son I-per-son", [(0, 2, "per-son")], [(0, 2, "per-son")], "bio"),
    ],
)
def test_both_modes(tags, default, strict, scheme):
    assert tags_to_spans(tags.split(), scheme=scheme) == default
    assert tags_to_spans(tags.split(), scheme=scheme, mode="strict") == strict


def test_no_words():
    assert tags_to_spans([]) == []
    assert tags_to_spans([], scheme="IOB2", mode="strict") == []
    assert spans_to_tags([], 0) == []


@pytest.mark.parametrize(
    "tag", ["NOUN", "", "B-", "-X", "O-X", "b-X", "X-PER", "BI-X", "o", "M-X", "PER-B"]
)
def test_what_is_no_entity_tag(tag):
    with pytest.raises(ValueError, match="Got"):
        split_tag(tag)
    with pytest.raises(ValueError, match=r"at position 0, word 1; 1 in all\."):
        tags_to_spans(["O", tag])


def test_prefixes_of_another_scheme_are_an_error():
    with pytest.raises(ValueError, match=r"of IOB2.*'E-X' at position 0, word 1"):
        tags_to_spans(["B-X", "E-X"], scheme="IOB2")


def test_strict_needs_a_scheme():
    with pytest.raises(ValueError, match="needs a scheme"):
        tags_to_spans(["O"], mode="strict")


@pytest.mark.parametrize("scheme", ["IOB", "", None, 2, "IOE1", ["IOB2"], {}])
def test_unknown_schemes(scheme):
    with pytest.raises(ValueError, match="scheme must be one of 'IOB1'"):
        check_scheme(scheme)


@pytest.mark.parametrize(
    "spans, message",
    [
        ([(0, 2, "X"), (1, 3, "Y")], "must not overlap"),
        ([(0, 1, "X"), (0, 1, "X")], "must not overlap"),
        ([(1, 1, "X")], "not be empty"),
        ([(2, 1, "X")], "not be empty"),
        ([(-1, 1, "X")], "must lie in a sentence of 3 words"),
        ([(2, 4, "X")], "must lie in a sentence of 3 words"),
    ],
)
def test_spans_that_are_no_tags(spans, message):
    with pytest.raises(ValueError, match=message):
        spans_to_tags(spans, 3)


# Schemes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sentences, scheme",
    [
        (["B-X I-X O", "O"], "IOB2"),
        (["B-X"], "IOB2"),
        (["O O"], "IOB2"),
        (["O I-X", "B-X"], "IOB2"),  # one slip makes no IOB1
        (["I-X I-X O"], "IOB1"),
        (["I-X B-X O I-Y"], "IOB1"),
        (["B-X E-X O"], "IOBES"),
        (["S-X O"], "IOBES"),
        (["O U-X"], "BILOU"),
        (["B-X L-X"], "BILOU"),
        (["B I O"], "IOB2"),
        (["B I E S"], "IOBES"),
        (["B-per-son I-per-son"], "IOB2"),
        (["B-X E-X L-X"], None),
        (["S-X U-X"], None),
        (["I-X E-X O"], None),
        (["DET NOUN VERB"], None),
        (["O V O"], None),
        (["S I"], None),
        (["B M E S"], None),
        (["B-X NOUN"], None),
        (["b-x"], None),
        (["B-"], None),
        ([], None),
        (["", ""], None),
    ],
)
def test_detect_scheme(sentences, scheme):
    assert detect_scheme([sentence.split() for sentence in sentences]) == scheme


def test_detect_scheme_of_numbers():
    assert detect_scheme([[1, 2], [0]]) is None
    assert detect_scheme(np.zeros((2, 3), dtype=int)) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_found_again(scheme):
    rng = random.Random(1)
    sentences = [spans_to_tags(draw_spans(rng, 9), 9, scheme) for _ in range(50)]
    assert detect_scheme(sentences) == scheme


# Transitions -------------------------------------------------------------------------


def test_transitions_of_iob2():
    transitions, start, end = allowed_transitions(["O", "B-X", "I-X", "B-Y", "I-Y"], "IOB2")
    assert transitions.astype(int).tolist() == [
        [1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 1, 1],
        [1, 1, 0, 1, 1],
    ]
    assert start.tolist() == [True, True, False, True, False]
    assert end.all()


def test_transitions_of_iob1():
    transitions, start, end = allowed_transitions(["O", "B-X", "I-X", "I-Y"], "IOB1")
    assert transitions.astype(int).tolist() == [
        [1, 0, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 0, 1, 1],
    ]
    assert start.tolist() == [True, False, True, True]
    assert end.all()


@pytest.mark.parametrize("scheme, last, single", [("IOBES", "E", "S"), ("BILOU", "L", "U")])
def test_transitions_with_ends(scheme, last, single):
    tags = ["O", "B-X", "I-X", f"{last}-X", f"{single}-X", f"{last}-Y"]
    transitions, start, end = allowed_transitions(tags, scheme)
    assert transitions.astype(int).tolist() == [
        [1, 1, 0, 0, 1, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 0],
    ]
    assert start.tolist() == [True, True, False, False, True, False]
    assert end.tolist() == [True, False, False, True, True, True]


def test_transitions_are_separate_arrays():
    for part in allowed_transitions(np.array(["O", "B-X"]), "BIO"):
        assert part.dtype == bool
        assert part.base is None


def test_transitions_of_no_entity_tags():
    with pytest.raises(ValueError, match="'NOUN' at position 0, word 1"):
        allowed_transitions(["O", "NOUN"], "IOB2")


# Containers --------------------------------------------------------------------------


def test_check_tags_makes_plain_lists():
    given = [np.array(["B-X", "O"]), (np.str_("O"),), []]
    found = check_tags(given)
    assert found == [["B-X", "O"], ["O"], []]
    assert {type(tag) for row in found for tag in row} == {str}
    row = ["O"]
    assert check_tags([row])[0] is not row


@pytest.mark.parametrize("y", [None, "O", 3, {"a": ["O"]}, {("O",)}, iter([["O"]]), b"O"])
def test_what_is_no_container(y):
    with pytest.raises(TypeError, match="y must hold one list of tags for each sentence"):
        check_tags(y)


@pytest.mark.parametrize(
    "row, message",
    [
        ("O", r"y at position 1 must be a list of tags.*wrap it: \[tags\]"),
        (None, "y at position 1 must be a list of tags"),
        (["O", None], "position 1, word 1, must be a tag.*Give every word a tag"),
        ([float("nan")], "position 1, word 0, must be a tag.*Give every word a tag"),
        ([np.nan, "O"], "position 1, word 0.*Give every word a tag"),
        ([3], "position 1, word 0.*Got 3 of type int. Use the names"),
        ([["O"]], "position 1, word 0.*of type list"),
        ([b"O"], "position 1, word 0.*of type bytes"),
    ],
)
def test_bad_rows_are_named(row, message):
    with pytest.raises(ValueError, match=message):
        check_tags([["O"], row])


def test_missing_values_of_pandas():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"word 0.*Give every word a tag"):
        check_tags([[pd.NA]])
    with pytest.raises(TypeError, match="DataFrame"):
        check_tags(pd.DataFrame({"tags": [["O"]]}))
