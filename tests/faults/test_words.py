"""Faults of comparable libraries, kind A: words and their pieces, one vector per word.

The codes are those of the fault list that was gathered from the issue trackers of similar
libraries. For later estimators: the labels of A1 to A6, all of C, D4 for probabilities, F,
G, H1, K1, K2, L.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import CORPUS

from skbert import BertVectorizer
from skbert.exceptions import TruncationWarning, VocabularyWarning

# Words that a normalizer may clean away, whole.
ODD_WORDS = ["\u200b", "", " ", "\u00ad", "\ufffd", "\x00", "\ue000"]


def word_vectors(model: Path, X: Any, **params: Any) -> np.ndarray:
    return BertVectorizer(model, output="words", **params).fit_transform(X)


def n_pieces(vectorizer: BertVectorizer, word: str) -> int:
    return len(vectorizer.encoder_.tokenizer.words([[word]], parallel=False)[0].ids)


def test_a1_word_without_pieces_moves_no_other_word(model_folder: Path) -> None:
    """A1: a word that tokenises to nothing does not shift the vectors after it."""
    plain = ["The", "Hague", "."]
    odd = [["The", word, "Hague", "."] for word in ODD_WORDS]
    vectorizer = BertVectorizer(model_folder, output="words").fit([plain])
    expected, *out = vectorizer.transform([plain, *odd])
    n_empty = 0
    for word, vectors in zip(ODD_WORDS, out, strict=True):
        assert vectors.shape == (4, vectorizer.n_features_out_)
        assert np.isfinite(vectors).all()
        if n_pieces(vectorizer, word):
            assert vectors.any(axis=1).all(), ascii(word)
            continue
        n_empty += 1
        assert not vectors[1].any(), ascii(word)
        np.testing.assert_allclose(vectors[[0, 2, 3]], expected, atol=1e-5)
    assert n_empty >= 1  # the empty string at least


def test_a1_all_odd_words_are_empty_to_bert(bert_folder: Path) -> None:
    """A1: the fault list says so; else the test above would show little."""
    vectorizer = BertVectorizer(bert_folder, output="words").fit([["a"]])
    assert not any(n_pieces(vectorizer, word) for word in ODD_WORDS)


@pytest.mark.parametrize("word_pooling", ["mean", "first", "last", "max"])
@pytest.mark.parametrize("stride", [0, 8])
def test_a2_every_word_of_a_long_row_has_a_vector(
    bert_folder: Path, word_pooling: str, stride: int
) -> None:
    """A2: 700 words against 64 pieces, the last word too, and no warning."""
    row = ["word", "loved", "\u200b"] * 233 + ["bad"]
    (out,) = word_vectors(
        bert_folder, [row], max_length=64, stride=stride, word_pooling=word_pooling
    )
    assert out.shape == (700, 32)
    has_pieces = np.array([word != "\u200b" for word in row])
    np.testing.assert_array_equal(out.any(axis=1), has_pieces)


def test_a2_cut_rows_keep_their_length_with_one_warning(bert_folder: Path) -> None:
    """A2: a tail that was asked not to be read is zeros, told once with a count."""
    X = [["good"] * 700, ["bad"] * 701, ["good"]]
    with pytest.warns(TruncationWarning, match="2 of 3 rows") as caught:
        out = word_vectors(bert_folder, X, max_length=64, long_text="truncate")
    assert len(caught) == 1
    assert [len(row) for row in out] == [700, 701, 1]
    assert out[0].any(axis=1).sum() == 62
    assert not out[0][62:].any()


@pytest.mark.parametrize("batch_size", [1, "auto"])
def test_a3_empty_word_lists_keep_their_rows(
    model_folder: Path, batch_size: int | str
) -> None:
    """A3: an empty sentence, and a batch of nothing else."""
    vectorizer = BertVectorizer(model_folder, output="words", batch_size=batch_size)
    out = vectorizer.fit_transform([[], ["good"], []])
    size = vectorizer.n_features_out_
    assert [row.shape for row in out] == [(0, size), (1, size), (0, size)]
    assert out[1].any()
    assert [row.shape for row in vectorizer.transform([[]])] == [(0, size)]
    documents = BertVectorizer(model_folder, batch_size=batch_size)
    vectors = documents.fit_transform([[], ["good"]])
    assert vectors.shape == (2, size)
    assert np.isfinite(vectors).all()
    assert vectors[1].any()


def test_a4_given_words_read_as_in_running_text(model_folder: Path) -> None:
    """A4: pre-split words are not glued together by byte-level vocabularies."""
    vectorizer = BertVectorizer(model_folder)
    as_words = vectorizer.fit_transform([["good", "film", "story"]])
    byte_level = vectorizer.encoder_.tokenizer.needs_space
    as_text = vectorizer.fit_transform(
        [" good film story" if byte_level else "good film story"]
    )
    np.testing.assert_array_equal(as_words, as_text)


@pytest.mark.parametrize("family", ["roberta", "gpt2", "modernbert", "longformer"])
def test_a4_byte_level_words_begin_with_a_space(tiny_models: Any, family: str) -> None:
    """A4: ' hello', ' world', not 'hello', 'wor', 'ld'."""
    tokenizer = BertVectorizer(tiny_models(family)).fit(["a"]).encoder_.tokenizer
    (pieces,) = tokenizer.words([["hello", "world"]], parallel=False)
    decoded = tokenizer._backend.decode(pieces.ids.tolist())
    assert decoded.lower() == " hello world"


def test_a5_given_characters_are_not_merged(tiny_models: Any) -> None:
    """A5: Latin letters and digits among Chinese characters stay words of their own."""
    text = "深发展A19.5元"
    zh = tiny_models("bert", corpus=(*CORPUS, text, "A19.5 A19.5"))
    vectorizer = BertVectorizer(zh, output="words").fit([list(text)])
    tokenizer = vectorizer.encoder_.tokenizer
    (pieces,) = tokenizer.words([list(text)], parallel=False)
    np.testing.assert_array_equal(pieces.words, np.arange(9))
    merged = tokenizer.texts([text], parallel=False)[0]
    assert len(merged.ids) < 9  # the running text is read otherwise
    (out,) = vectorizer.transform([list(text)])
    assert out.shape == (9, 32)
    assert out.any(axis=1).all()


def test_a6_words_too_long_for_the_vocabulary(bert_folder: Path) -> None:
    """A6: one warning with the positions, equal vectors, never an error."""
    X = ["a" * 101, "a good film", "b" * 400]
    vectorizer = BertVectorizer(bert_folder).fit(X)
    with pytest.warns(VocabularyWarning, match=r"2 of 3 rows \(first positions: \[0, 2\]"):
        out = vectorizer.transform(X)
    np.testing.assert_array_equal(out[0], out[2])

    url = "https://example.org/" + "help/" * 26
    assert len(url) == 150
    row = ["visit", url, "for", "help"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a URL falls into pieces at its punctuation
        (words,) = word_vectors(bert_folder, [row])
    assert words.shape == (4, 32)
    with pytest.warns(VocabularyWarning, match="1 of 1 rows"):
        (words,) = word_vectors(bert_folder, [["visit", "a" * 150, "for", "help"]])
    assert words.shape == (4, 32)
    assert words.any(axis=1).all()
