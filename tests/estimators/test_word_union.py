"""WordFeatureUnion: word by word what FeatureUnion is row by row."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from estimators.rows_as_text import write_vectors
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from skbert import (
    BertVectorizer,
    BiLSTMClassifier,
    BiLSTMTagger,
    WordFeatureUnion,
    WordVectorizer,
)

X = [["Ada", "met", "Bob"], [], ["Bob", "left", "Paris", "again"], ["Ada"]]
TAGS = [["P", "O", "P"], [], ["P", "O", "L", "O"], ["P"]]
QUICK = {"max_epochs": 9, "learning_rate": 0.1, "device": "cpu", "random_state": 0}


class Lengths(TransformerMixin, BaseEstimator):
    """One number for each word; ``extra`` words too many in row 2, as a plain list."""

    def __init__(self, extra: int = 0, rows: int | None = None) -> None:
        self.extra = extra
        self.rows = rows

    def fit(self, X: Any, y: Any = None, offset: float = 0.0) -> Lengths:
        self.offset_ = offset
        return self

    def transform(self, X: Any) -> list[np.ndarray]:
        words = [[*row, *["x"] * (self.extra * (at == 2))] for at, row in enumerate(X)]
        return [
            np.array([[len(word) + self.offset_] for word in row]).reshape(-1, 1)
            for row in words[: self.rows]
        ]

    def get_feature_names_out(self, input_features: Any = None) -> list[str]:
        return ["length"]


@pytest.fixture
def static(tmp_path: Path) -> WordVectorizer:
    path = tmp_path / "vectors"
    write_vectors(["Ada", "Bob", "Paris", "left", "met", "again"], path, size=3)
    return WordVectorizer(path, output="words")


@pytest.fixture
def union(static: WordVectorizer) -> WordFeatureUnion:
    return WordFeatureUnion([("static", static), ("length", Lengths())])


def test_words_are_joined_one_by_one(static: WordVectorizer, bert_folder: Path) -> None:
    bert = BertVectorizer(bert_folder, output="words", device="cpu")
    parts = [clone(static).fit_transform(X), clone(bert).fit_transform(X)]
    joined = WordFeatureUnion([("s", static), ("b", bert)], n_jobs=2)
    with joblib.parallel_config("threading"):
        out = joined.fit_transform(X)
        again = joined.fit(X).transform(X)
    assert out.shape == (4,)
    for row, one, two in zip(out, *parts, strict=True):
        np.testing.assert_array_equal(row, np.hstack([one, two]))
        assert row.dtype == np.float32
    assert all(map(np.array_equal, again, out))
    assert joined.get_feature_names_out().tolist() == [
        *(f"s__wordvectorizer{at}" for at in range(3)),
        *(f"b__bertvectorizer{at}" for at in range(bert.n_features_out_)),
    ]


def test_weights(union: WordFeatureUnion) -> None:
    plain = union.fit_transform(X)
    weighted = clone(union).set_params(transformer_weights={"length": 2}).fit_transform(X)
    for one, two in zip(plain, weighted, strict=True):
        np.testing.assert_array_equal(one * [1, 1, 1, 2], two)
    with pytest.raises(ValueError, match="other"):
        union.set_params(transformer_weights={"other": 2}).fit(X)


def test_parameters_of_transformers(union: WordFeatureUnion) -> None:
    assert union.get_params()["static__oov"] == "auto"
    union.set_params(static="drop", length__extra=0)
    assert [row.tolist() for row in union.fit_transform(X)[[0, 3]]] == [
        [[3.0], [3.0], [3.0]],
        [[3.0]],
    ]
    assert union.get_feature_names_out().tolist() == ["length__length"]
    union.set_params(verbose_feature_names_out=False)
    assert union.get_feature_names_out().tolist() == ["length"]
    for method in (union.fit, union.transform):
        union.set_params(length="drop")
        with pytest.raises(ValueError, match=r"at least one transformer"):
            method(X)


def test_numbers_of_words_must_agree(union: WordFeatureUnion) -> None:
    message = r"'length' .* gives 5 vectors .*position 2, while 'static' gives 4"
    with pytest.raises(ValueError, match=message):
        union.set_params(length__extra=1).fit_transform(X)
    union.set_params(length__extra=0).fit(X).set_params(length__rows=3)
    with pytest.raises(ValueError, match=r"'static' and 'length' .* 4 and 3 rows"):
        union.transform(X)


def test_layers_are_kept_apart(static: WordVectorizer, bert_folder: Path) -> None:
    layers = {"layers": "all", "layer_pooling": "stack"}
    bert = BertVectorizer(bert_folder, output="words", device="cpu", **layers)
    once = bert.fit_transform(X)
    twice = WordFeatureUnion([("a", bert), ("b", clone(bert))]).fit_transform(X)
    for one, two in zip(once, twice, strict=True):
        np.testing.assert_array_equal(two, np.concatenate([one, one], axis=-1))
    with pytest.raises(ValueError, match=r"'s' and 'b' .*0, which differ in layers"):
        WordFeatureUnion([("s", static), ("b", bert)]).fit(X).transform(X)


def test_vectors_of_documents_are_refused(union: WordFeatureUnion) -> None:
    union.set_params(static__output="document")
    with pytest.raises(ValueError, match=r"'static' .*output='words'.*shape \(4, 3\)"):
        union.fit_transform(X)


def test_passthrough(static: WordVectorizer) -> None:
    class Half(Lengths):
        def transform(self, X: Any) -> list[np.ndarray]:
            return [row / 2 for row in X]

    inner = WordFeatureUnion(
        [("half", Half()), ("same", "passthrough")], transformer_weights={"same": 3}
    )
    pipeline = make_pipeline(static, inner)
    for row, given in zip(pipeline.fit_transform(X), static.transform(X), strict=True):
        np.testing.assert_allclose(row, np.hstack([given / 2, 3 * given]))
    assert inner.get_feature_names_out().tolist()[1:] == [f"same__x{at}" for at in range(3)]
    with pytest.raises(ValueError, match=r"2 features, but .* expecting 3"):
        inner.transform([np.ones((1, 2))])
    with pytest.raises(
        ValueError, match=r"WordFeatureUnion with 'passthrough' .*position 0"
    ):
        clone(inner).set_params(half="drop").fit(X)


def test_output_is_never_a_table(static: WordVectorizer) -> None:
    union = WordFeatureUnion([("one", static), ("two", clone(static))])
    expected = union.fit_transform(X)
    with sklearn.config_context(transform_output="pandas"):
        assert all(map(np.array_equal, union.transform(X), expected))
        given = WordFeatureUnion([("same", "passthrough")]).fit_transform(expected)
    assert all(map(np.array_equal, given, expected))
    with pytest.raises(AttributeError, match="set_output"):
        union.set_output(transform="pandas")


def test_state(union: WordFeatureUnion) -> None:
    with pytest.raises(NotFittedError):
        union.transform(X)
    expected = union.fit_transform(X)
    back = pickle.loads(pickle.dumps(union))
    assert all(map(np.array_equal, back.transform(X), expected))
    with pytest.raises(NotFittedError):
        clone(union).get_feature_names_out()


def test_metadata_is_routed(static: WordVectorizer) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        length = Lengths().set_fit_request(offset=True)
        union = WordFeatureUnion([("static", static), ("length", length)])
        assert union.fit(X, offset=10.0).transform(X)[3][0, 3] == 13


def test_pipelines_and_searches(union: WordFeatureUnion) -> None:
    tagger = Pipeline([("words", union), ("tagger", BiLSTMTagger(**QUICK))])
    grid = [{"words__static": ["drop"]}, {"words__static__oov": ["zeros", "mean"]}]
    search = GridSearchCV(tagger, grid, cv=2).fit(X * 2, TAGS * 2)
    assert [len(row) for row in search.predict(X)] == [3, 0, 4, 1]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    classifier = make_pipeline(clone(union), BiLSTMClassifier(**QUICK))
    labels = ["yes", "no", "no", "yes"]
    assert classifier.fit(X, labels).predict_proba(X).shape == (4, 2)
