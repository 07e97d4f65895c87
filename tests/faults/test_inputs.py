"""Faults of comparable libraries: what may stand in X (B), rows lost (K3), own findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skbert import BertVectorizer

TEXTS = ["a good film", "a bad film", "the very good story"]
MISSING = [None, float("nan"), np.nan, pd.NA, pd.NaT]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize(
    "container",
    [list, pd.Series, lambda x: np.array(x, dtype=object)],
    ids=["list", "Series", "array"],
)
def test_b1_missing_values_are_named_before_loading(
    bert_folder: Path, missing: Any, container: Any
) -> None:
    """B1: position and kind of the first bad row, and no model is loaded to find it."""
    X = container(["good", missing, "bad"])
    wanted = r"Got (None|nan|<NA>|NaT) at position 1; 1 of 3 rows"
    with pytest.raises(ValueError, match=wanted):
        BertVectorizer("/no/such/model").fit(X)
    vectorizer = BertVectorizer(bert_folder).fit(["good"])
    with pytest.raises(ValueError, match=wanted):
        vectorizer.transform(X)


def test_b1_missing_value_in_a_text_series(bert_folder: Path) -> None:
    """B1: pandas makes NaN of None, and str(nan) is not a text."""
    frame = pd.DataFrame({"text": pd.Series(["good", None, "bad"], dtype="str")})
    for X in (frame["text"], frame):
        with pytest.raises(ValueError, match=r"(nan|None) at position 1"):
            BertVectorizer(bert_folder).fit(X)


def test_b2_labels_of_an_index_are_never_looked_at(bert_folder: Path) -> None:
    """B2: a Series with a shuffled index gives the bits of the list."""
    X = pd.Series(TEXTS, index=[2, 0, 1])
    vectorizer = BertVectorizer(bert_folder)
    expected = vectorizer.fit_transform(TEXTS)
    for rows in (X, X.to_frame(), X.rename("t"), X.astype("category")):
        np.testing.assert_array_equal(vectorizer.fit_transform(rows), expected)
        np.testing.assert_array_equal(vectorizer.transform(rows), expected)
    dropped = pd.Series(["gone", *TEXTS]).drop(0)  # no row is labelled 0
    np.testing.assert_array_equal(vectorizer.transform(dropped), expected)


def test_b2_after_train_test_split(bert_folder: Path) -> None:
    """B2: the parts of a split keep their labels, and the order that they are in."""
    X = pd.Series(TEXTS * 4)
    y = np.array([1, 0, 1] * 4)
    parts = train_test_split(X, y, random_state=0)
    lists = train_test_split(X.tolist(), y, random_state=0)
    predictions = []
    for X_train, X_test, y_train, _ in (parts, lists):
        model = make_pipeline(BertVectorizer(bert_folder), LogisticRegression())
        predictions.append(model.fit(X_train, y_train).predict_proba(X_test))
    np.testing.assert_array_equal(*predictions)


def test_b3_a_frame_is_read_by_rows_not_by_column_names(bert_folder: Path) -> None:
    """B3: one column is its texts, for a scalar and for a list selector."""
    frame = pd.DataFrame({"text": TEXTS, "other": ["x", "y", "z"], "n": [1, 2, 3]})
    vectorizer = BertVectorizer(bert_folder)
    expected = vectorizer.fit_transform(TEXTS)
    np.testing.assert_array_equal(vectorizer.fit_transform(frame[["text"]]), expected)
    column = np.array(TEXTS, dtype=object)[:, None]
    np.testing.assert_array_equal(vectorizer.fit_transform(column), expected)
    for selector in ("text", ["text"]):
        transformer = ColumnTransformer([("t", BertVectorizer(bert_folder), selector)])
        np.testing.assert_array_equal(transformer.fit_transform(frame), expected)
        np.testing.assert_array_equal(transformer.transform(frame[::-1]), expected[::-1])


def test_b3_two_columns_are_pairs_and_three_are_refused(bert_folder: Path) -> None:
    """B3: never a number of rows other than that of X."""
    frame = pd.DataFrame({"a": TEXTS, "b": ["x", "y", "z"], "c": TEXTS})
    vectorizer = BertVectorizer(bert_folder)
    pairs = vectorizer.fit_transform(frame[["a", "b"]])
    expected = vectorizer.fit_transform(list(zip(TEXTS, "xyz", strict=True)))
    np.testing.assert_array_equal(pairs, expected)
    for X in (frame, frame.to_numpy(dtype=object)):
        with pytest.raises(ValueError, match=r"data of shape \(3, 3\)"):
            vectorizer.fit(X)
    with pytest.raises(ValueError, match=r"data of shape \(3, 2\)"):
        BertVectorizer(bert_folder, output="words").fit(frame[["a", "b"]])


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_b4_empty_texts_have_finite_vectors(model_folder: Path, pooling: str) -> None:
    """B4: no average over nothing."""
    empty = ["", "   ", "\u200b", "\t\n"]
    vectorizer = BertVectorizer(model_folder, pooling=pooling)
    out = vectorizer.fit_transform(["good", *empty, "bad"])
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    alone = [vectorizer.transform([text])[0] for text in empty]
    np.testing.assert_allclose(out[1:-1], alone, atol=1e-5)
    normalized = BertVectorizer(model_folder, pooling=pooling, normalize=True)
    assert np.isfinite(normalized.fit_transform(["good", *empty])).all()
    assert np.isfinite(vectorizer.fit_transform([("", ""), ("good", "")])).all()


def test_b4_the_next_step_sees_no_nan(bert_folder: Path) -> None:
    """B4: probabilities are finite and sum to 1, as LIME needs it that blanks words."""
    model = make_pipeline(BertVectorizer(bert_folder, pooling="mean"), LogisticRegression())
    model.fit(["good", "", "bad"], [1, 0, 0])
    P = model.predict_proba(["", "   ", "\u200b", "good"])
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "xlnet"])
def test_k3_one_row_for_each_row_in_order(tiny_models: Any, family: str) -> None:
    """K3: empty, very long, equal and odd rows neither vanish nor move."""
    X = [
        *[
            "",
            "good",
            "word " * 300,
            "good",
            " ",
            "\x00",
            "[SEP]",
            "\ud800",
            "好",
            "a\n\nb",
        ],
        *["good film " * 100, "🙂", "\u202eabc", "e\u0301", "é", "The " * 61],
    ]
    vectorizer = BertVectorizer(tiny_models(family), long_text="windows", batch_size=3)
    out = vectorizer.fit_transform(X)
    assert len(out) == len(X)
    for row, vector in zip(X, out, strict=True):
        alone = vectorizer.transform([row, "good", "good", "good"])[0]
        np.testing.assert_allclose(vector, alone, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(X))
    permuted = vectorizer.transform([X[i] for i in order])
    np.testing.assert_array_equal(permuted, out[order])
    words = BertVectorizer(tiny_models(family), output="words", batch_size=3)
    rows = [text.split(" ") for text in X]
    assert list(map(len, words.fit_transform(rows))) == list(map(len, rows))


def test_own_lists_of_two_words_are_no_pairs(bert_folder: Path) -> None:
    """Own finding: [["good", "film"], ["bad", "film"]] is words, a tuple a pair."""
    vectorizer = BertVectorizer(bert_folder)
    words = vectorizer.fit_transform([["good", "film"], ["bad", "film"]])
    texts = vectorizer.fit_transform(["good film", "bad film"])
    pairs = vectorizer.fit_transform([("good", "film"), ("bad", "film")])
    np.testing.assert_array_equal(words, texts)
    assert np.abs(words - pairs).max() > 1e-3
    with pytest.raises(ValueError, match="All rows must be of one kind"):
        vectorizer.transform([["good", "film"], ("bad", "film")])


def test_own_special_pieces_in_a_text_are_read_as_such(bert_folder: Path) -> None:
    """Own finding: "[SEP]" in a text is the special piece, as the docstring says."""
    assert "[SEP]" in (BertVectorizer.__doc__ or "")
    vectorizer = BertVectorizer(bert_folder, output="words").fit([["a"]])
    tokenizer = vectorizer.encoder_.tokenizer
    (text,) = tokenizer.texts(["good [SEP] film"], parallel=False)
    sep_id = tokenizer.frames[1].specials[1].ids[0]
    assert text.ids[1] == sep_id and len(text.ids) == 3
    (out,) = vectorizer.transform([["[CLS]", "[MASK]", "[SEP]", "good"]])
    assert out.shape == (4, 32)
    assert out.any(axis=1).all()


def test_kinds_of_rows_are_those_of_fit(bert_folder: Path) -> None:
    """A pair as a list of two strings would be read as two words, in silence."""
    pairs = BertVectorizer(bert_folder).fit([("a good", "film"), ("a bad", "dog")])
    with pytest.raises(ValueError, match=r"must hold pairs.*Got words.*as tuples"):
        pairs.transform([["a good", "film"]])
    with pytest.raises(ValueError, match=r"must hold texts.*Got pairs"):
        pairs.fit(["a"]).transform([("a", "b")])
