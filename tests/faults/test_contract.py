"""Faults of comparable libraries, kind H: caches, clones, meta-estimators."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import Memory
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, learning_curve
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_random_state
from tiny_models import make_tiny_model

from skbert import BertVectorizer

GOOD = ["a good film", "I loved the music", "very good story", "Great service", "the best"]
BAD = ["a bad film", "I hated the music", "the worst book", "Slow service", "cold food"]
TEXTS = [text for pair in zip(GOOD, BAD, strict=True) for text in pair] * 2
LABELS = np.array(["pos", "neg"] * 10)


# ---- H2: caches


def test_h2_no_stale_vectors_and_no_files_by_default(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: texts of equal count get vectors of their own; the working folder stays empty."""
    monkeypatch.chdir(tmp_path)
    vectorizer = BertVectorizer(bert_folder).fit(["good"])
    good, bad = (vectorizer.transform([text])[0] for text in ("good", "bad"))
    assert np.abs(good - bad).max() > 1e-3
    assert list(tmp_path.iterdir()) == []


OTHER_SETTINGS: list[dict[str, Any]] = [
    {"pooling": "max"},
    {"pooling": "cls"},
    {"normalize": True},
    {"layers": 1},
    {"layers": [1, 2]},
    {"layers": [1, 2], "layer_pooling": "sum"},
    {"layers": [1, 2], "layer_pooling": "concat"},
    {"layers": [2, 1], "layer_pooling": "concat"},
    {"max_length": 6},
    {"max_length": 6, "long_text": "head_tail"},
    {"max_length": 6, "long_text": "windows"},
    {"max_length": 6, "long_text": "windows", "stride": 2},
    {"precision": "bfloat16"},
]


@pytest.mark.filterwarnings("ignore::skbert.exceptions.TruncationWarning")
def test_h2_one_folder_for_all_settings(bert_folder: Path, tmp_path: Path) -> None:
    """H2: what one estimator kept is never another's, in any order of their coming."""
    X = ["I loved the music and the pictures and the ending", "good"]
    for params in [{}, *OTHER_SETTINGS, {}, *OTHER_SETTINGS[::-1]]:
        expected = BertVectorizer(bert_folder, **params).fit_transform(X)
        kept = BertVectorizer(bert_folder, memory=tmp_path / "kept", **params)
        np.testing.assert_array_equal(kept.fit_transform(X), expected, str(params))
        np.testing.assert_array_equal(kept.transform(X), expected, str(params))


def test_h2_settings_changed_after_fit(bert_folder: Path, tmp_path: Path) -> None:
    """H2: set_params without a new fit may be ignored or used, but never mixed."""
    X = [" ".join(TEXTS[:3]), "good"]
    kept = BertVectorizer(bert_folder, memory=tmp_path / "kept").fit(X)
    free = BertVectorizer(bert_folder).fit(X)
    for params in [{"layer_pooling": "sum"}, {"normalize": True}, {"stride": 2}]:
        for vectorizer in (kept, free):
            vectorizer.set_params(**params)
        np.testing.assert_array_equal(kept.transform(X), free.transform(X), str(params))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"model": "another"}, "model"),
        ({"pooling": "max"}, "pooling"),
        ({"layers": [1, 2], "layer_pooling": "concat"}, "layers, n_features_out"),
        ({"max_length": 8}, "max_length"),
        ({"output": "words"}, "long_text"),
        ({"word_pooling": "median"}, "'word_pooling'"),
        ({"precision": "float8"}, "'precision'"),
    ],
)
def test_h2_what_acts_by_fit_is_not_ignored(
    bert_folder: Path, params: dict[str, Any], named: str
) -> None:
    """H2: set_params without a new fit is used, or refused, never silently left out."""
    vectorizer = BertVectorizer(bert_folder).fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    old = {name: getattr(vectorizer, name) for name in params}
    with pytest.raises(ValueError, match=named):
        vectorizer.set_params(**params).transform(TEXTS)
    vectorizer.set_params(**old, batch_size=3, device="cpu")
    np.testing.assert_allclose(vectorizer.transform(TEXTS), expected, atol=1e-5)


def test_h2_a_fit_that_failed_leaves_nothing_mixed(bert_folder: Path) -> None:
    """H2: other parameters were set, fit refused them, and so does transform."""
    vectorizer = BertVectorizer(bert_folder).fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    vectorizer.set_params(pooling="max", max_length=10, stride=20)
    for method in (vectorizer.fit, vectorizer.transform):
        with pytest.raises(ValueError, match="'stride'"):
            method(TEXTS)
    vectorizer.set_params(pooling="auto", max_length=None, stride=0)
    np.testing.assert_array_equal(vectorizer.fit(TEXTS).transform(TEXTS), expected)


@pytest.mark.filterwarnings("ignore::skbert.exceptions.TruncationWarning")
def test_h2_numbers_of_numpy_in_a_memory(bert_folder: Path, tmp_path: Path) -> None:
    """H2: a grid may hold np.arange; np.int64(6) is 6."""
    plain = BertVectorizer(bert_folder, memory=tmp_path, max_length=6, normalize=True)
    numpy = clone(plain).set_params(max_length=np.int64(6), normalize=np.bool_(True))
    expected = plain.fit_transform(TEXTS)
    np.testing.assert_array_equal(numpy.fit_transform(TEXTS), expected)


def test_h2_another_version_computes_anew(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: what an older version kept may be what a newer one has mended."""
    vectorizer = BertVectorizer(bert_folder, memory=tmp_path).fit(TEXTS)
    vectorizer.transform(TEXTS)
    reads: list[int] = []
    encode = type(vectorizer.encoder_).encode

    def counting(self: Any, rows: list[Any], **options: Any) -> Any:
        reads.append(len(rows))
        return encode(self, rows, **options)

    monkeypatch.setattr(type(vectorizer.encoder_), "encode", counting)
    vectorizer.transform(TEXTS)
    assert reads == []
    monkeypatch.setattr("skbert.estimators.base.__version__", "99.0")
    vectorizer.transform(TEXTS)
    assert reads == [len(set(TEXTS))]


class OsPath:
    """A path that is no pathlib.Path, such as pytest's tmpdir or a path to a cloud."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_h2_all_paths_are_understood_alike(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: "~" is the home for model, memory, save and load; no folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    expected = BertVectorizer(bert_folder).fit_transform(TEXTS)
    vectorizer = BertVectorizer(OsPath(bert_folder), memory="~/kept").fit(TEXTS)
    np.testing.assert_array_equal(vectorizer.transform(TEXTS), expected)
    vectorizer.set_params(memory=OsPath(tmp_path / "kept")).save("~/saved")
    loaded = BertVectorizer.load("~/saved")
    np.testing.assert_array_equal(loaded.transform(TEXTS), expected)
    assert loaded.model == str(bert_folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "saved"]


def test_h2_words_documents_and_pairs_in_one_folder(
    bert_folder: Path, tmp_path: Path
) -> None:
    """H2: rows that look alike in a file are told apart."""
    rows: list[Any] = [("good", "film"), ["good", "film"], '["good", "film"]', "good film"]
    kept = BertVectorizer(bert_folder, memory=tmp_path / "kept")
    plain = BertVectorizer(bert_folder)
    for row in rows * 2:
        expected = plain.fit_transform([row])
        np.testing.assert_array_equal(kept.fit_transform([row]), expected)
    words = clone(kept).set_params(output="words")
    for word_pooling in ("mean", "first", "last", "max"):
        words.set_params(word_pooling=word_pooling)
        expected = BertVectorizer(bert_folder, output="words", word_pooling=word_pooling)
        for row in ([["goodness", "film"]], [["goodness film"]]) * 2:
            (out,), (wanted,) = words.fit_transform(row), expected.fit_transform(row)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("memory", [None, "kept"])
def test_h2_other_weights_under_the_same_name(tmp_path: Path, memory: str | None) -> None:
    """H2: a folder that was trained on gives new vectors to whoever fits again."""
    folder = tmp_path / "model"
    memory = memory and str(tmp_path / memory)
    vectors = []
    for seed in (0, 1):
        make_tiny_model("bert", folder, seed=seed)
        vectorizer = BertVectorizer(folder, memory=memory)
        vectors.append(vectorizer.fit_transform(["good"]))
        np.testing.assert_array_equal(vectorizer.transform(["good"]), vectors[-1])
        shutil.rmtree(folder)  # the fitted estimator needs no more of it
        np.testing.assert_array_equal(vectorizer.transform(["good"]), vectors[-1])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2


def test_h2_other_vocabulary_under_the_same_name(tmp_path: Path) -> None:
    """H2: the same weights behind another tokenizer are another model."""
    folder = make_tiny_model("bert", tmp_path / "model")
    memory = tmp_path / "kept"
    before = BertVectorizer(folder, memory=memory).fit_transform(["good film"])
    path = folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    swapped = text.replace('"good":', '"#":').replace('"bad":', '"good":')
    path.write_text(swapped.replace('"#":', '"bad":'), encoding="utf-8")
    after = BertVectorizer(folder, memory=memory).fit_transform(["bad film"])
    np.testing.assert_array_equal(before, after)
    after = BertVectorizer(folder, memory=memory).fit_transform(["good film"])
    assert np.abs(before - after).max() > 1e-3


def test_h2_the_users_autocast_does_not_reach_the_memory(
    bert_folder: Path, tmp_path: Path
) -> None:
    """H2: kept as float32, a vector is one, whatever surrounded the call that made it."""
    expected = BertVectorizer(bert_folder).fit_transform(TEXTS)
    kept = BertVectorizer(bert_folder, memory=tmp_path / "kept").fit(TEXTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(kept.transform(TEXTS), expected)
    np.testing.assert_array_equal(kept.transform(TEXTS), expected)


def test_h2_a_memory_without_a_place_is_none(bert_folder: Path) -> None:
    """H2: joblib.Memory(None) is scikit-learn's way to say that nothing is kept."""
    vectorizer = BertVectorizer(bert_folder, memory=Memory(None))
    expected = BertVectorizer(bert_folder).fit_transform(TEXTS)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS), expected)


# ---- H3: clones


@pytest.mark.parametrize("layers", [(1, 2), [1, 2], "all", -1])
def test_h3_clone_and_parameters(bert_folder: Path, layers: Any) -> None:
    """H3: the constructor keeps the very objects, fit changes none and names its own."""
    params = {**BertVectorizer().get_params(), "model": bert_folder, "layers": layers}
    vectorizer = BertVectorizer(**params)
    assert all(getattr(vectorizer, name) is value for name, value in params.items())
    assert set(vars(vectorizer)) == set(params)
    before = copy.deepcopy(params)
    vectorizer.set_params(**vectorizer.get_params()).fit(TEXTS).transform(TEXTS)
    assert vectorizer.get_params() == before
    assert all(getattr(vectorizer, name) is value for name, value in params.items())
    found = set(vars(vectorizer)) - set(params)
    assert all(name.endswith("_") or name.startswith("_") for name in found)
    copied = clone(vectorizer)
    assert copied.get_params() == before
    assert not hasattr(copied, "encoder_")
    np.testing.assert_array_equal(copied.fit_transform(TEXTS), vectorizer.transform(TEXTS))


def test_h3_deepcopy_of_a_fitted_vectorizer(bert_folder: Path) -> None:
    """H3: a tokenizer that cannot be copied stands in nobody's way."""
    vectorizer = BertVectorizer(bert_folder).fit(TEXTS)
    for copied in (copy.deepcopy(vectorizer), copy.copy(vectorizer)):
        np.testing.assert_array_equal(copied.transform(TEXTS), vectorizer.transform(TEXTS))


def test_h3_grid_search_over_its_parameters(bert_folder: Path) -> None:
    """H3: layers and pooling are searched, and the vectorizer is not fitted in place."""
    vectorizer = BertVectorizer(bert_folder)
    pipeline = make_pipeline(vectorizer, LogisticRegression())
    grid = {
        "bertvectorizer__layers": [1, (2, 3), "all"],
        "bertvectorizer__pooling": ["mean", "cls"],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert not hasattr(vectorizer, "encoder_")


# ---- H4: meta-estimators

CONTAINERS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "object array": lambda texts: np.array(texts, dtype=object),
    "series": lambda texts: pd.Series(texts, index=check_random_state(0).permutation(20)),
    "frame": lambda texts: pd.DataFrame({"text": texts}, index=range(20, 0, -1)),
    "column": lambda texts: np.array(texts, dtype=object)[:, None],
}


def pipeline(model: Path) -> Pipeline:
    return make_pipeline(BertVectorizer(model), LogisticRegression(max_iter=1000))


def ensembles(model: Path) -> dict[str, BaseEstimator]:
    one, two = pipeline(model), pipeline(model).set_params(bertvectorizer__pooling="max")
    pair = [("one", one), ("two", two)]
    return {
        "calibrated": CalibratedClassifierCV(one, cv=2),
        "voting": VotingClassifier(pair, voting="soft"),
        "stacking": StackingClassifier(pair, cv=2),
        "one vs rest": OneVsRestClassifier(one),
        "grid search": GridSearchCV(one, {"logisticregression__C": [0.1, 1]}, cv=2),
    }


@pytest.mark.parametrize("name", ensembles(Path()))
def test_h4_meta_estimators_pass_texts_through(bert_folder: Path, name: str) -> None:
    """H4: every container gives the same predictions, named by the user's labels."""
    expected = None
    for container in CONTAINERS.values():
        X = container(TEXTS)
        model = ensembles(bert_folder)[name]
        P = model.fit(X, LABELS).predict_proba(X)
        expected = P if expected is None else expected
        np.testing.assert_allclose(P, expected, atol=1e-6)
        assert set(model.predict(X)) <= {"pos", "neg"}
        assert model.classes_.tolist() == ["neg", "pos"]


def test_h4_learning_curve_and_cross_validation(bert_folder: Path) -> None:
    """H4: tools that cut X to pieces."""
    results = []
    for container in CONTAINERS.values():
        X, model = container(TEXTS), pipeline(bert_folder)
        _, _, scores = learning_curve(
            model, X, LABELS, cv=2, train_sizes=[0.5, 1.0], error_score="raise"
        )
        P = cross_val_predict(model, X, LABELS, cv=2, method="predict_proba")
        results.append(np.r_[scores.ravel(), P.ravel()])
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-6)


@pytest.mark.parametrize("container", ["frame", "column"])
def test_h4_bagging_takes_a_column(bert_folder: Path, container: str) -> None:
    """H4: BaggingClassifier refuses one dimension by itself, so it gets (n, 1)."""
    X = CONTAINERS[container](TEXTS)
    bagging = BaggingClassifier(pipeline(bert_folder), n_estimators=2, random_state=0)
    P = bagging.fit(X, LABELS).predict_proba(X)
    assert P.shape == (20, 2)
    assert np.isfinite(P).all()


def test_h4_inside_a_bagged_search_with_its_own_memory(
    bert_folder: Path, tmp_path: Path
) -> None:
    """H4: Pipeline(memory=) and the vectorizer's own memory give what none gives."""
    steps = [("t", BertVectorizer(bert_folder)), ("c", LogisticRegression())]
    expected = Pipeline(steps).fit(TEXTS, LABELS).predict_proba(TEXTS)
    kept = Pipeline(
        [
            ("lower", FunctionTransformer(lower)),
            ("t", BertVectorizer(bert_folder, memory=tmp_path / "vectors")),
            ("c", LogisticRegression()),
        ],
        memory=str(tmp_path / "steps"),
    )
    for _ in range(2):
        P = clone(kept).fit(TEXTS, LABELS).predict_proba(TEXTS)
        np.testing.assert_allclose(P, expected, atol=1e-6)


def lower(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]
