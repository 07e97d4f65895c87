"""Fine-tuning estimators inside scikit-learn's own tools."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    TunedThresholdClassifierCV,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import make_pipeline

from skbert import BertClassifier, BertRegressor, BertVectorizer

pytestmark = pytest.mark.filterwarnings("ignore:BertClassifier gave all")

X = [f"{word} {thing}" for thing in ("film", "day", "cast", "story") for word in
     ("good", "bad", "great", "worse")]  # fmt: skip
Y = np.array(["good", "bad"] * 8)


@pytest.fixture
def classifier(bert_folder):
    return BertClassifier(
        bert_folder,
        max_epochs=3,
        learning_rate=2e-3,
        head_learning_rate=1e-2,
        dropout=0.0,
        batch_size=4,
        random_state=0,
        device="cpu",
    )


def test_a_grid_over_freezing_and_learning_rate(classifier, tmp_path):
    grid = {"frozen_layers": [0, 2, "all"], "learning_rate": [1e-4, 2e-3]}
    alone, parallel = (
        GridSearchCV(classifier, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(X, Y)
        for n_jobs in (1, 2)
    )
    # With memory the workers share what frozen layers gave.
    classifier.set_params(memory=tmp_path)
    kept = GridSearchCV(classifier, grid, cv=2, n_jobs=2, error_score="raise").fit(X, Y)
    for search in (parallel, kept):
        for name in ("mean_test_score", "std_test_score"):
            np.testing.assert_allclose(
                search.cv_results_[name], alone.cv_results_[name], atol=1e-6
            )
    assert (tmp_path / "vectors.sqlite").exists()
    assert alone.score(X, Y) > 0.9


def test_halving_over_epochs(classifier):
    search = HalvingGridSearchCV(
        classifier,
        {"frozen_layers": [0, 2], "learning_rate": [1e-4, 2e-3]},
        resource="max_epochs",
        min_resources=1,
        max_resources=4,
        cv=2,
        random_state=0,
        n_jobs=2,
        error_score="raise",
    ).fit(X, Y)
    assert search.best_estimator_.n_iter_ == search.best_estimator_.max_epochs > 1


def test_several_metrics_and_learning_curves(classifier):
    found = cross_validate(
        classifier, X, Y, cv=2, scoring=["accuracy", "f1_macro", "neg_log_loss"]
    )
    assert np.isfinite(found["test_neg_log_loss"]).all()
    sizes, _, scores = learning_curve(
        classifier, X, Y, cv=2, train_sizes=[0.5, 1.0], shuffle=True, random_state=0
    )
    assert sizes.tolist() == [4, 8]
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", ["calibrated", "voting", "stacking", "threshold"])
def test_ensembles(classifier, bert_folder, name):
    vectors = make_pipeline(BertVectorizer(bert_folder), LogisticRegression())
    both = [("tuned", classifier), ("vectors", vectors)]
    ensemble = {
        "calibrated": CalibratedClassifierCV(classifier, cv=2),
        "voting": VotingClassifier(both, voting="soft"),
        "stacking": StackingClassifier(both, cv=2),
        "threshold": TunedThresholdClassifierCV(
            classifier, cv=2, scoring=make_scorer(f1_score, pos_label="good")
        ),
    }[name].fit(X, Y)
    assert ensemble.classes_.tolist() == ["bad", "good"]
    assert set(ensemble.predict(X)) <= {"bad", "good"}
    np.testing.assert_allclose(ensemble.predict_proba(X).sum(axis=1), 1)


def test_a_fitted_classifier_feeds_another_model(classifier):
    pipeline = make_pipeline(classifier, LogisticRegression()).fit(X, Y)
    assert pipeline.score(X, Y) > 0.9
    assert len(classifier.get_feature_names_out()) == 32
    frame = classifier.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == classifier.get_feature_names_out().tolist()


def test_weights_and_validation_set_are_routed(classifier):
    weights = np.where(Y == "good", 50.0, 1.0)
    plain = cross_validate(classifier, X, Y, cv=2, return_estimator=True)["estimator"][0]
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError):
            cross_validate(
                classifier,
                X,
                Y,
                cv=2,
                params={"sample_weight": weights},
                error_score="raise",
            )
        classifier.set_fit_request(sample_weight=True, X_val=True, y_val=True)
        classifier.set_score_request(sample_weight=True)
        found = cross_validate(
            classifier, X, Y, cv=2, params={"sample_weight": weights}, return_estimator=True
        )
        assert not np.array_equal(found["estimator"][0].head_[0][0], plain.head_[0][0])
        pipeline = make_pipeline(classifier).fit(X, Y, X_val=X[:4], y_val=Y[:4])
    assert "validation_score" in pipeline[-1].history_[0]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_same_bytes_in_workers(classifier, backend):
    """Dropout draws from the one generator of a process."""
    classifier.set_params(dropout=0.3, max_epochs=1)
    regressor = BertRegressor(**{
        name: value
        for name, value in classifier.get_params().items()
        if name in BertRegressor._get_param_names()
    })  # fmt: skip
    fits = [(classifier, Y), (regressor, np.arange(16.0))] * 2
    # Another number of threads adds up in another order.
    threads = {"inner_max_num_threads": torch.get_num_threads()}
    with joblib.parallel_config(backend=backend, **threads if backend == "loky" else {}):
        fitted = joblib.Parallel(n_jobs=2, timeout=120)(
            joblib.delayed(estimator.fit)(X, y) for estimator, y in fits
        )
    for estimator, y in fits[:2]:
        here = estimator.fit(X, y)
        for there in fitted:
            if type(there) is type(here):
                assert np.array_equal(there.head_[0][0], here.head_[0][0])
