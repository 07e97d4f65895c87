"""BertVectorizer inside scikit-learn: pipelines, searches, columns, caches, workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from estimators.text_checks import PAIRS, TEXTS, WORDS, assert_same, pandas, run_python
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
    learning_curve,
    train_test_split,
)
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from skbert import BertVectorizer

# scikit-learn 1.6 asks polars for what it has deprecated since.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for the dataframe interchange"),
    pytest.mark.filterwarnings("ignore:the default behavior of .how"),
]

SIZE = 32  # of the tiny model
X = [*TEXTS, *(f"{text} Again?" for text in TEXTS)]
Y = ["good" if "good" in text.split() else "other" for text in TEXTS] * 2
WEIGHTS = np.arange(1.0, len(X) + 1)
NUMBERS = np.arange(len(TEXTS), dtype=float)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in workers of loky: the last bit of a sum depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def vectorizer(bert_folder: Path) -> BertVectorizer:
    return BertVectorizer(str(bert_folder))


@pytest.fixture
def vectors(vectorizer: BertVectorizer) -> np.ndarray:
    """Of TEXTS."""
    return clone(vectorizer).fit_transform(TEXTS)


@pytest.fixture
def pipeline(vectorizer: BertVectorizer) -> Pipeline:
    return make_pipeline(vectorizer, LogisticRegression(max_iter=1000))


# Pipelines, searches, ensembles ------------------------------------------------------


def test_pipeline(pipeline: Pipeline, vectors: np.ndarray) -> None:
    pipeline.fit(TEXTS, Y[: len(TEXTS)])
    assert_same(pipeline.predict_proba(TEXTS), pipeline[-1].predict_proba(vectors))
    names = pipeline[:-1].get_feature_names_out().tolist()
    assert names == [f"bertvectorizer{i}" for i in range(SIZE)]
    assert "BertVectorizer" in pipeline._repr_html_()


def test_pipeline_takes_parameters(pipeline: Pipeline) -> None:
    pipeline.set_params(bertvectorizer__pooling="cls", bertvectorizer__normalize=True)
    assert pipeline.fit(X, Y)[0].pooling_ == "cls"
    np.testing.assert_allclose(np.linalg.norm(pipeline[:-1].transform(X), axis=1), 1, 1e-6)


def test_frozen_in_pipeline(vectorizer: BertVectorizer, vectors: np.ndarray) -> None:
    frozen = FrozenEstimator(vectorizer.fit(TEXTS))
    pipeline = make_pipeline(frozen, LogisticRegression()).fit(TEXTS, Y[: len(TEXTS)])
    assert_same(pipeline[:-1].transform(TEXTS), vectors)
    assert pipeline[0].estimator is vectorizer


def test_grid_search_in_workers(pipeline: Pipeline) -> None:
    grid = {
        "bertvectorizer__pooling": ["mean", "cls"],
        "bertvectorizer__layers": [-1, [0, 3], "all"],
    }
    search, alone = (
        GridSearchCV(pipeline, grid, cv=2, n_jobs=n, error_score="raise").fit(X, Y)
        for n in (2, None)
    )
    assert search.best_params_ == alone.best_params_
    for key in ("split0_test_score", "split1_test_score"):
        assert_same(search.cv_results_[key], alone.cv_results_[key])
    assert_same(search.predict_proba(X), alone.predict_proba(X))


def test_failed_fits_of_a_search_say_why(pipeline: Pipeline) -> None:
    search = GridSearchCV(pipeline, {"bertvectorizer__pooling": ["median"]}, cv=2)
    with pytest.raises(ValueError, match=r"(?s)2 fits failed.*'pooling' parameter"):
        search.fit(X, Y)


def test_cross_validate_with_metrics(pipeline: Pipeline) -> None:
    scores = cross_validate(pipeline, X, Y, cv=3, scoring=["accuracy", "f1_macro"])
    assert scores["test_accuracy"].shape == scores["test_f1_macro"].shape == (3,)
    assert np.isfinite(scores["test_f1_macro"]).all()


@pytest.mark.parametrize(
    "container", [list, np.array, pd.Series, pl.Series], ids=lambda kind: kind.__name__
)
def test_splits_of_containers(
    vectorizer: BertVectorizer, container: Callable[[list[str]], Any]
) -> None:
    """Rows go where the split says, whatever holds them."""
    head, tail = train_test_split(container(TEXTS), random_state=0)
    known = dict(zip(TEXTS, vectorizer.fit_transform(TEXTS), strict=True))
    for part in (head, tail):
        wanted = np.array([known[text] for text in list(part)])
        np.testing.assert_allclose(vectorizer.transform(part), wanted, rtol=0, atol=1e-5)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "calibrated": lambda e: CalibratedClassifierCV(e, cv=2),
    "frozen": lambda e: CalibratedClassifierCV(FrozenEstimator(e.fit(X, Y)), cv=2),
    "stacking": lambda e: StackingClassifier([("a", e), ("b", clone(e))], cv=2),
    "voting": lambda e: VotingClassifier([("a", e), ("b", clone(e))], voting="soft"),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_ensembles(pipeline: Pipeline, name: str) -> None:
    wrapped = WRAPPERS[name](pipeline).fit(X, Y)
    probabilities = wrapped.predict_proba(X)
    assert probabilities.shape == (len(X), 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert wrapped.classes_.tolist() == ["good", "other"]


def test_columns_for_what_wants_two_dimensions(pipeline: Pipeline) -> None:
    """Bagging and permutation_importance index columns: (n, 1) is welcome."""
    column = np.array(X, dtype=object).reshape(-1, 1)
    bagging = BaggingClassifier(pipeline, n_estimators=2, random_state=0).fit(column, Y)
    assert bagging.predict(column).shape == (len(X),)
    pairs = np.array([*PAIRS, *PAIRS], dtype=object)
    importance = permutation_importance(pipeline.fit(pairs, Y), pairs, Y, n_repeats=2)
    assert importance.importances.shape == (2, 2)


HEADS = {
    "self-training": SelfTrainingClassifier(LogisticRegression()),
    "one against one": OneVsOneClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("name", HEADS)
def test_before_what_wants_numbers(vectorizer: BertVectorizer, name: str) -> None:
    labels = [-1 if i % 5 == 4 else int(label == "good") for i, label in enumerate(Y)]
    assert make_pipeline(vectorizer, HEADS[name]).fit(X, labels).predict(X).shape == (24,)


def test_learning_curve(pipeline: Pipeline) -> None:
    cv = StratifiedKFold(2, shuffle=True, random_state=0)
    _, train, test = learning_curve(pipeline, X, Y, cv=cv, train_sizes=[11, 12])
    assert train.shape == test.shape == (2, 2)


# Columns of frames -------------------------------------------------------------------

FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas(TEXTS).to_frame("txt").assign(number=NUMBERS),
    "polars": lambda: pl.DataFrame({"txt": TEXTS, "number": NUMBERS}),
}


def columns(vectorizer: BertVectorizer, column: Any, number: Any = "number") -> Any:
    steps = [("text", vectorizer, column), ("number", "passthrough", [number])]
    return ColumnTransformer(steps)


@pytest.mark.parametrize("column", ["txt", ["txt"], 0, [0]], ids=repr)
@pytest.mark.parametrize("frame", FRAMES)
def test_column_transformer(
    vectorizer: BertVectorizer, vectors: np.ndarray, frame: str, column: Any
) -> None:
    number = 1 if column in (0, [0]) else "number"
    got = columns(vectorizer, column, number).fit_transform(FRAMES[frame]())
    assert_same(got[:, :SIZE].astype(np.float32), vectors)
    assert_same(got[:, SIZE], NUMBERS)


@pytest.mark.parametrize("column", ["txt", ["txt"]], ids=repr)
@pytest.mark.parametrize("frame", FRAMES)
def test_column_transformer_to_frames(
    vectorizer: BertVectorizer, vectors: np.ndarray, frame: str, column: Any
) -> None:
    """Rows of a shuffled index stay beside their numbers."""
    data = FRAMES[frame]()
    if frame == "pandas":
        data = data.set_axis(list("hdalbckiegfj"))
    transformer = columns(vectorizer, column).set_output(transform=frame)
    for got in (transformer.fit_transform(data), transformer.transform(data)):
        assert type(got) is type(data)
        assert got.columns[0] == "text__bertvectorizer0"
        assert_same(np.asarray(got)[:, :SIZE].astype(np.float32), vectors)
        assert got["number__number"].to_list() == NUMBERS.tolist()
        if frame == "pandas":
            assert got.index.equals(data.index)


def test_pairs_of_columns(vectorizer: BertVectorizer) -> None:
    frame = pd.DataFrame(PAIRS, columns=["first", "second"]).assign(number=NUMBERS)
    got = columns(vectorizer, ["first", "second"]).fit_transform(frame)
    assert_same(got[:, :SIZE].astype(np.float32), clone(vectorizer).fit_transform(PAIRS))


def test_feature_union(vectorizer: BertVectorizer, vectors: np.ndarray) -> None:
    union = FeatureUnion([("bert", vectorizer), ("tfidf", TfidfVectorizer())])
    got = union.fit_transform(TEXTS)
    assert_same(got[:, :SIZE].toarray().astype(np.float32), vectors)
    assert union.get_feature_names_out()[0] == "bert__bertvectorizer0"
    assert len(union.get_feature_names_out()) == got.shape[1]


# Output containers -------------------------------------------------------------------

INDEXED: dict[str, Callable[[], Any]] = {
    "Series": lambda: pandas(TEXTS),
    "category": lambda: pandas(TEXTS, "category"),
    "frame": lambda: pandas(TEXTS).to_frame("txt"),
}


@pytest.mark.parametrize("name", INDEXED)
def test_pandas_output_keeps_the_index(
    vectorizer: BertVectorizer, vectors: np.ndarray, name: str
) -> None:
    texts = INDEXED[name]()
    vectorizer.set_output(transform="pandas")
    for got in (vectorizer.fit_transform(texts), vectorizer.transform(texts)):
        assert isinstance(got, pd.DataFrame)
        assert got.index.equals(texts.index)
        assert got.columns.tolist() == vectorizer.get_feature_names_out().tolist()
        assert set(got.dtypes) == {np.dtype(np.float32)}
        assert_same(got.to_numpy(), vectors)


def test_pandas_output_of_a_list(vectorizer: BertVectorizer, vectors: np.ndarray) -> None:
    got = vectorizer.set_output(transform="pandas").fit_transform(TEXTS)
    assert got.index.equals(pd.RangeIndex(len(TEXTS)))
    assert_same(got.to_numpy(), vectors)


@pytest.mark.parametrize("make", [list, pl.Series, pd.Series], ids=lambda m: m.__name__)
def test_polars_output(
    vectorizer: BertVectorizer, vectors: np.ndarray, make: Callable[[list[str]], Any]
) -> None:
    got = vectorizer.set_output(transform="polars").fit_transform(make(TEXTS))
    assert isinstance(got, pl.DataFrame)
    assert set(got.dtypes) == {pl.Float32}
    assert_same(got.to_numpy().copy(order="C"), vectors)


def test_frames_flow_through_a_pipeline(vectorizer: BertVectorizer) -> None:
    pipeline = make_pipeline(vectorizer, StandardScaler()).set_output(transform="pandas")
    got = pipeline.fit_transform(texts := pandas(TEXTS))
    assert got.index.equals(texts.index)
    assert got.columns[0] == "bertvectorizer0"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_words_stay_arrays(vectorizer: BertVectorizer, library: str) -> None:
    """They have no columns that a frame could hold, and so no names."""
    wanted = vectorizer.set_params(output="words").fit_transform(WORDS)
    with config_context(transform_output=library):
        assert_same(clone(vectorizer).fit_transform(WORDS), wanted)
        assert_same(vectorizer.transform(pandas(WORDS)), wanted)
    assert not hasattr(vectorizer, "get_feature_names_out")
    with pytest.raises(AttributeError, match="get_feature_names_out"):
        vectorizer.get_feature_names_out()


def test_words_into_numbers(vectorizer: BertVectorizer) -> None:
    """What comes after word vectors must take ragged rows; the rest says so."""
    vectorizer.set_params(output="words")
    means = FunctionTransformer(lambda rows: np.array([row.sum(axis=0) for row in rows]))
    pipeline = make_pipeline(vectorizer, means, LogisticRegression())
    assert pipeline.fit(WORDS, Y[: len(WORDS)]).predict(WORDS).shape == (len(WORDS),)
    with pytest.raises(ValueError, match="should be 2D"):
        ColumnTransformer([("text", vectorizer, "w")]).fit_transform(
            pd.DataFrame({"w": WORDS})
        )


# Metadata ----------------------------------------------------------------------------


def test_weights_without_routing(pipeline: Pipeline) -> None:
    params = {"logisticregression__sample_weight": WEIGHTS}
    scores = cross_validate(pipeline, X, Y, cv=2, params=params, error_score="raise")
    assert np.isfinite(scores["test_score"]).all()


def test_weights_with_routing(vectorizer: BertVectorizer) -> None:
    """The vectorizer asks for nothing and is in nobody's way."""
    with config_context(enable_metadata_routing=True):
        head, accuracy = LogisticRegression(), make_scorer(accuracy_score)
        run = partial(
            cross_validate, X=X, y=Y, cv=2, scoring=accuracy, return_estimator=True,
            error_score="raise",
        )  # fmt: skip
        weights = {"sample_weight": WEIGHTS}
        with pytest.raises(UnsetMetadataPassedError):
            run(make_pipeline(vectorizer, head), params=weights)
        head.set_fit_request(sample_weight=True)
        accuracy.set_score_request(sample_weight=True)
        weighted, plain = (
            run(make_pipeline(vectorizer, head), params=params)["estimator"][0]
            for params in (weights, {})
        )
    assert not np.array_equal(weighted[-1].coef_, plain[-1].coef_)


# Workers and caches ------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["loky", "threading"])
@pytest.mark.parametrize("fitted", [False, True], ids=["unfitted", "fitted"])
def test_backends(
    vectorizer: BertVectorizer, vectors: np.ndarray, backend: str, fitted: bool
) -> None:
    """Workers give the same bits, with what they load and with what is sent to them."""
    estimator = vectorizer.fit(TEXTS) if fitted else vectorizer
    method = "transform" if fitted else "fit_transform"
    parts = [TEXTS, TEXTS[::-1], TEXTS, TEXTS[::-1]]
    with joblib.parallel_config(backend=backend):
        # The time limit turns a deadlock into a failure.
        got = joblib.Parallel(n_jobs=2, timeout=120)(
            joblib.delayed(getattr(estimator, method))(part) for part in parts
        )
    for part, rows in zip(parts, got, strict=True):
        assert_same(np.asarray(rows), vectors if part is TEXTS else vectors[::-1])


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_cross_val_predict_in_workers(pipeline: Pipeline, backend: str) -> None:
    predict = partial(cross_val_predict, pipeline, X, Y, cv=4, method="predict_proba")
    with joblib.parallel_config(backend=backend):
        got = predict(n_jobs=2)
    assert_same(got, predict())


_CACHED = """
import json, sys
import joblib
from skbert.encoders import loading
from skbert.encoders.transformer import TransformerEncoder

calls = {"forward": 0, "load": 0}

def count(owner, name, key):
    function = getattr(owner, name)
    def counting(*args, **kwargs):
        calls[key] += 1
        return function(*args, **kwargs)
    setattr(owner, name, counting)

count(TransformerEncoder, "forward", "forward")
count(loading, "load_encoder", "load")
report = {}
for name in ("pipeline", "frozen"):
    pipeline, X, y = joblib.load(f"{sys.argv[1]}/{name}")
    calls.update(forward=0, load=0)
    pipeline.fit(X, y)
    report[name] = dict(calls)
    report[name]["probabilities"] = pipeline.predict_proba(X).tolist()
    report[name]["forward later"] = calls["forward"]
print(json.dumps(report))
"""


def test_pipeline_memory_in_a_second_process(pipeline: Pipeline, tmp_path: Path) -> None:
    """The cache is hit there: no text is read again and no checkpoint is loaded."""
    pipeline.set_params(memory=str(tmp_path / "memory"))
    frozen = clone(pipeline)
    frozen.steps[0] = ("frozen", FrozenEstimator(clone(pipeline[0]).fit(X)))
    wanted = {}
    for name, estimator in {"pipeline": pipeline, "frozen": frozen}.items():
        joblib.dump((clone(estimator), X, Y), tmp_path / name)
        wanted[name] = estimator.fit(X, Y).predict_proba(X)
    report = json.loads(run_python(_CACHED, str(tmp_path)))
    for name, found in report.items():
        assert (found["forward"], found["load"]) == (0, 0), name
        assert found["forward later"] > 0  # what was counted is what is called
        got = np.array(found["probabilities"], dtype=wanted[name].dtype)
        assert_same(got, wanted[name])


def test_pipeline_memory_sees_changes(pipeline: Pipeline, tmp_path: Path) -> None:
    """Other texts and other parameters are other entries."""
    pipeline.set_params(memory=str(tmp_path))
    for params in ({}, {"bertvectorizer__pooling": "cls"}):
        for texts in (X, X[::-1]):
            plain = clone(pipeline).set_params(memory=None, **params).fit(texts, Y)
            cached = clone(pipeline).set_params(**params).fit(texts, Y)
            assert_same(cached.predict_proba(X), plain.predict_proba(X))
