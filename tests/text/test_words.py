"""Words of raw texts, and spans of characters as spans of words."""

from __future__ import annotations

import pytest

from skbert.text.words import align_spans, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Dr. Ada weiß: iPhone6", ["Dr", ".", "Ada", "weiß", ":", "iPhone6"]),
        ("don't a@b.de", ["don", "'", "t", "a", "@", "b", ".", "de"]),
        ("我在北京iPhone6。", ["我", "在", "北", "京", "iPhone6", "。"]),
        ("ありがとう データ", [*"ありがとうデータ"]),
        ("서울에서 왔다", ["서울에서", "왔다"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("cafe\u0301 x", ["cafe\u0301", "x"]),
        ("\u26a0\ufe0fBerlin", ["\u26a0\ufe0f", "Berlin"]),
        ("👩\u200d👩\u200d👧ok", ["👩\u200d👩\u200d👧", "ok"]),
        (" \t\n ", []),
        ("", []),
    ],
)
def test_words(text, words):
    offsets = split_words(text)
    assert [text[start:end] for start, end in offsets] == words
    # nothing but space is left out
    rest = [text[a:b] for a, b in zip(
        [0, *(end for _, end in offsets)], [*(start for start, _ in offsets), len(text)],
        strict=True,
    )]  # fmt: skip
    assert "".join(rest).strip() == ""


def test_spans_are_those_of_whole_words():
    offsets = split_words("New York  and Bonn")
    aligned = align_spans([(14, 18, "B"), (0, 9, "A")], offsets, "y")
    assert aligned.spans == [(0, 2, "A"), (3, 4, "B")]
    assert aligned.n_widened == 0  # a space at its end is no part of a word
    assert align_spans([(1, 6, "A")], offsets, "y") == ([(0, 2, "A")], 1)
