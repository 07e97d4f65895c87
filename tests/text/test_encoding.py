"""From pieces to windows and batches; truncation as Hugging Face's own tokenizers do it."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from tiny_models import CORPUS

from skbert.text.encoding import (
    Encoding,
    Frame,
    Pieces,
    Special,
    collate,
    shorten,
    window_texts,
)

CLS, SEP, MID = 1, 2, 3
ONE = Frame((Special((CLS,), (0,)), Special((SEP,), (0,))), (0,))
PAIR = Frame(
    (Special((CLS,), (0,)), Special((SEP, MID), (0, 0)), Special((SEP,), (1,))), (0, 1)
)
BARE = Frame((Special(), Special()), (0,))


def pieces(n, first=10, sizes=None):
    """n pieces with ids from `first` on, one word each unless sizes are given."""
    words = np.repeat(np.arange(len(sizes)), sizes) if sizes else np.arange(n)
    return Pieces(np.arange(first, first + n, dtype=np.int32), words.astype(np.int32))


def windows_of(texts, frame, max_length, long_text="truncate", stride=0, **options):
    return window_texts(
        texts,
        frame,
        sample=7,
        max_length=max_length,
        long_text=long_text,
        stride=stride,
        **options,
    )


def ids_of(encodings):
    return [encoding.input_ids.tolist() for encoding in encodings]


# Frames ------------------------------------------------------------------------------


def test_one_text_in_its_frame():
    (encoding,), cut = windows_of([pieces(3, sizes=[2, 1])], ONE, 16)
    assert not cut and encoding.sample_index == 7 and len(encoding) == 5
    assert encoding.input_ids.tolist() == [CLS, 10, 11, 12, SEP]
    assert encoding.type_ids.tolist() == [0] * 5
    assert encoding.word_index.tolist() == [-1, 0, 0, 1, -1]
    assert encoding.owned.all()


def test_a_pair_in_its_frame_counts_words_on():
    (encoding,), cut = windows_of([pieces(2, sizes=[2]), pieces(2, 20)], PAIR, 16)
    assert not cut
    assert encoding.input_ids.tolist() == [CLS, 10, 11, SEP, MID, 20, 21, SEP]
    assert encoding.type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert encoding.word_index.tolist() == [-1, 0, 0, -1, -1, 1, 2, -1]


@pytest.mark.parametrize(("n_first", "n_second"), [(0, 2), (2, 0), (0, 0)])
def test_an_empty_side_of_a_pair_keeps_the_frame(n_first, n_second):
    (encoding,), cut = windows_of([pieces(n_first), pieces(n_second, 20)], PAIR, 16)
    assert not cut and len(encoding) == 4 + n_first + n_second
    assert encoding.input_ids[1 + n_first : 3 + n_first].tolist() == [SEP, MID]


def test_nothing_at_all_without_a_frame():
    (encoding,), cut = windows_of([pieces(0)], BARE, 16)
    assert len(encoding) == 0 and not cut


def test_dtypes_do_not_depend_on_what_is_empty():
    for frame, n in [(BARE, 0), (BARE, 2), (ONE, 0), (ONE, 2)]:
        (encoding,), _ = windows_of([pieces(n)], frame, 16)
        assert encoding.input_ids.dtype == encoding.word_index.dtype == np.int32
        assert encoding.owned.dtype == bool


# Long texts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("long_text", "expected", "cut"),
    [
        ("truncate", [[1, 10, 11, 12, 13, 2]], True),
        ("head_tail", [[1, 10, 17, 18, 19, 2]], True),
        (
            "windows",
            [[1, 10, 11, 12, 13, 2], [1, 14, 15, 16, 17, 2], [1, 18, 19, 2]],
            False,
        ),
    ],
)
def test_a_long_text(long_text, expected, cut):
    encodings, was_cut = windows_of([pieces(10)], ONE, 6, long_text)
    assert ids_of(encodings) == expected and was_cut == cut


@pytest.mark.parametrize("long_text", ["truncate", "head_tail", "windows"])
def test_a_text_that_just_fits_is_left_alone(long_text):
    encodings, cut = windows_of([pieces(10)], ONE, 12, long_text)
    assert ids_of(encodings) == [[1, *range(10, 20), 2]] and not cut


def test_windows_own_each_piece_once_and_all_special_ones():
    encodings, _ = windows_of([pieces(10)], ONE, 8, "windows", stride=2)
    owned = np.concatenate([e.input_ids[e.owned] for e in encodings])
    assert sorted(owned[owned >= 10]) == list(range(10, 20))
    assert (owned == CLS).sum() == (owned == SEP).sum() == len(encodings)


@pytest.mark.parametrize(
    ("sizes", "room", "kept"),
    [
        ([2, 3, 4], 4, 2),  # the second word does not fit whole
        ([2, 3, 4], 5, 5),
        ([7, 2], 4, 4),  # the first word fills the room: better its beginning than nothing
    ],
)
def test_whole_words_are_not_cut_inside(sizes, room, kept):
    text = pieces(sum(sizes), sizes=sizes)
    (encoding,), cut = windows_of([text], BARE, room, whole_words=True)
    assert len(encoding) == kept and cut


# Pairs too long ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((20, 3), (7, 3)),  # room for 10: the longer side is cut
        ((3, 20), (3, 7)),
        ((20, 8), (5, 5)),  # the shorter keeps up to half of the room
        ((0, 20), (0, 10)),
        ((20, 0), (10, 0)),
        ((20, 20), (5, 5)),
    ],
)
@pytest.mark.parametrize("long_text", ["truncate", "head_tail"])
def test_the_longer_side_of_a_pair_is_cut(lengths, kept, long_text):
    sides = [pieces(lengths[0], 100), pieces(lengths[1], 200)]
    (encoding,), cut = windows_of(sides, PAIR, 14, long_text)
    ids = encoding.input_ids
    counts = ((ids >= 100) & (ids < 200)).sum(), (ids >= 200).sum()
    assert counts == kept and cut
    for side, n, first in zip(sides, kept, (100, 200), strict=True):
        there = ids[(ids >= first) & (ids < first + 100)]
        assert (there == shorten(side, n, long_text).ids).all()


@pytest.mark.parametrize("swapped", [False, True])
def test_windows_of_a_pair_repeat_the_shorter_side(swapped):
    sides = [pieces(9, 100), pieces(3, 200)][:: -1 if swapped else 1]
    encodings, cut = windows_of(sides, PAIR, 11, "windows")
    assert len(encodings) == 3 and not cut
    longer = [e.input_ids[(e.input_ids >= 100) & (e.input_ids < 200)] for e in encodings]
    assert np.concatenate(longer).tolist() == list(range(100, 109))
    for encoding in encodings:
        assert encoding.input_ids[encoding.input_ids >= 200].tolist() == [200, 201, 202]


def test_windows_of_a_pair_tell_when_the_shorter_side_lost_pieces():
    encodings, cut = windows_of([pieces(9, 100), pieces(6, 200)], PAIR, 12, "windows")
    assert cut
    assert all((e.input_ids >= 200).sum() == 4 for e in encodings)


# As Hugging Face truncates -----------------------------------------------------------


@cache
def tokenizers(folder):
    from transformers import AutoTokenizer

    from skbert.encoders.tokenizer import PieceTokenizer

    return PieceTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def random_texts(n, seed):
    words = " ".join(CORPUS).split()
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(0, 30))) for _ in range(n)]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("max_length", [6, 9, 16, 33, 64])
def test_truncate_is_that_of_hugging_face(tiny_models, family, max_length):
    ours, theirs = tokenizers(tiny_models(family))
    for text in random_texts(40, max_length):
        expected = theirs(text, truncation=True, max_length=max_length)["input_ids"]
        texts = ours.texts([text], parallel=False)
        encodings, _ = windows_of(texts, ours.frames[1], max_length)
        assert ids_of(encodings) == [expected]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("max_length", [6, 9, 16, 33, 64])
def test_truncate_of_pairs_is_that_of_hugging_face(tiny_models, family, max_length):
    ours, theirs = tokenizers(tiny_models(family))
    texts = random_texts(60, max_length)
    for pair in [*zip(texts[::2], texts[1::2], strict=True), (texts[0], texts[0])]:
        # As lists: a single call with an empty second text would frame the first alone.
        reference = theirs(
            *([side] for side in pair), truncation=True, max_length=max_length
        )
        sides = ours.texts(pair, parallel=False)
        encodings, _ = windows_of(sides, ours.frames[2], max_length)
        assert ids_of(encodings) == reference["input_ids"]
        if "token_type_ids" in reference:
            assert [encodings[0].type_ids.tolist()] == reference["token_type_ids"]


# Batches -----------------------------------------------------------------------------


def test_collate_pads_on_the_right():
    batch = collate(
        [*windows_of([pieces(3)], ONE, 9)[0], *windows_of([pieces(1)], ONE, 9)[0]], 99
    )
    assert batch.input_ids.tolist() == [[1, 10, 11, 12, 2], [1, 10, 2, 99, 99]]
    assert batch.word_index.tolist() == [[-1, 0, 1, 2, -1], [-1, 0, -1, -1, -1]]
    assert batch.mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.owned.tolist() == batch.mask.tolist()
    assert batch.lengths.tolist() == [5, 3]
    assert batch.type_ids.tolist() == [[0] * 5] * 2


def test_collate_gives_what_torch_indexes_with():
    batch = collate(windows_of([pieces(3)], ONE, 9)[0], 0)
    for name in ("input_ids", "type_ids", "word_index"):
        assert getattr(batch, name).dtype == np.int64


def test_collate_keeps_what_is_not_owned_real():
    encoding = Encoding(
        np.array([5, 6]), np.zeros(2), np.zeros(2), np.array([False, True]), 0
    )
    batch = collate([encoding], 0)
    assert batch.mask.all() and batch.owned.tolist() == [[False, True]]
