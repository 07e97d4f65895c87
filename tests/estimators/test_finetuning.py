"""BertClassifier and BertRegressor: exact training, honest outputs, state."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

from skbert import BertClassifier, BertRegressor

# Trainings of a few steps on ten texts may well end with one class for all.
pytestmark = pytest.mark.filterwarnings("ignore:BertClassifier gave all:UserWarning")

GOOD = ["good film", "a good day", "nice and good", "so good", "good"]
BAD = ["bad dog", "the bad man sat", "bad, bad", "a bad thing", "bad"]
TEXTS = [text for pair in zip(GOOD, BAD, strict=True) for text in pair]
LABELS = ["yes", "no"] * 5


@pytest.fixture
def quick(bert_folder):
    """Parameters of a short training without dropout."""
    return {
        "model": bert_folder,
        "max_epochs": 4,
        "batch_size": 4,
        "learning_rate": 1e-3,
        "dropout": 0.0,
        "random_state": 0,
        "device": "cpu",
    }


def weights_of(estimator):
    head = [array for pair in estimator.head_ for array in pair]
    return [*estimator.encoder_.state()["weights"].values(), *head]


def assert_same_bytes(a, b):
    for one, other in zip(weights_of(a), weights_of(b), strict=True):
        assert np.array_equal(one, other)


def assert_close(a, b, tolerance):
    for one, other in zip(weights_of(a), weights_of(b), strict=True):
        assert np.allclose(one, other, rtol=0, atol=tolerance)


# Learning ----------------------------------------------------------------------------


def test_it_learns(quick):
    classifier = BertClassifier(**quick | {"max_epochs": 15}).fit(TEXTS, LABELS)
    assert classifier.score(TEXTS, LABELS) == 1
    losses = [record["loss"] for record in classifier.history_]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("architecture", ["distilbert", "gpt2", "t5", "albert", "xlnet"])
def test_every_kind_of_stack_learns(tiny_models, quick, architecture):
    """E2, E4: no pad token, no token types, no summary piece, shared layers."""
    settings = quick | {"model": tiny_models(architecture), "max_epochs": 20}
    classifier = BertClassifier(**settings).fit(TEXTS, LABELS)
    assert classifier.score(TEXTS, LABELS) >= 0.9
    one_by_one = np.concatenate([classifier.predict_proba([text]) for text in TEXTS])
    assert np.allclose(one_by_one, classifier.predict_proba(TEXTS), atol=1e-5)


@pytest.mark.parametrize("n_rows", [1, 5])
def test_the_last_batch_of_one_row_is_used(quick, n_rows):
    """G5: a regressor even of one row."""
    regressor = BertRegressor(**quick).fit(TEXTS[:n_rows], np.arange(n_rows))
    assert regressor.predict(TEXTS[:1]).shape == (1,)


# The same result by other ways -------------------------------------------------------


@pytest.mark.parametrize("frozen_layers", [1, 2, "all"])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "albert"])
def test_frozen_weights_stay_to_the_bit(tiny_models, quick, architecture, frozen_layers):
    """G3: with weight decay, over several epochs."""
    settings = quick | {"model": tiny_models(architecture), "weight_decay": 0.5}
    classifier = BertClassifier(**settings, frozen_layers=frozen_layers)
    classifier.fit(TEXTS, LABELS)
    before = BertClassifier(**settings, frozen_layers="all").fit(TEXTS[:4], LABELS[:4])
    from skbert.encoders.freezing import parameter_depths

    n_frozen = 3 if frozen_layers == "all" else frozen_layers
    depths = parameter_depths(classifier.encoder_)
    pretrained = before.encoder_.state()["weights"]
    for name, weight in classifier.encoder_.state()["weights"].items():
        if name in depths:
            frozen = depths[name] <= n_frozen
            assert np.array_equal(weight, pretrained[name]) == frozen, name


@pytest.mark.parametrize("frozen_layers", [1, 2])
def test_kept_states_change_nothing(quick, frozen_layers, monkeypatch):
    """With dropout above the frozen layers: both ways draw the same numbers."""
    settings = quick | {"dropout": 0.2, "frozen_layers": frozen_layers}
    kept = BertClassifier(**settings).fit(TEXTS, LABELS)
    monkeypatch.setattr("skbert.encoders.prefix.Prefix.can_resume", lambda self: False)
    recomputed = BertClassifier(**settings).fit(TEXTS, LABELS)
    assert_close(kept, recomputed, 1e-6)


def test_kept_states_in_a_mapped_file_change_nothing(quick, monkeypatch):
    settings = quick | {"frozen_layers": 2}
    in_memory = BertClassifier(**settings).fit(TEXTS, LABELS)
    monkeypatch.setattr("skbert.encoders.prefix.MEMORY_BYTES", 0)
    assert_same_bytes(in_memory, BertClassifier(**settings).fit(TEXTS, LABELS))


def test_micro_batches_change_little(quick):
    """The exact test is that of the loop: Adam blows rounding up where gradients are 0."""
    weights = np.arange(1, len(TEXTS) + 1)
    whole = BertClassifier(**quick).fit(TEXTS, LABELS, weights)
    split = BertClassifier(**quick, micro_batch_size=3).fit(TEXTS, LABELS, weights)
    apart = abs(whole.predict_proba(TEXTS) - split.predict_proba(TEXTS)).max()
    assert apart < 1e-3


def test_weight_zero_is_leaving_out(quick):
    """C6."""
    weights = np.array([1] * 8 + [0, 0])
    with_zeros = BertClassifier(**quick).fit(TEXTS, LABELS, weights)
    assert_same_bytes(with_zeros, BertClassifier(**quick).fit(TEXTS[:8], LABELS[:8]))


def test_class_weight_multiplies_sample_weight(quick):
    """C6: by label, once for the whole y."""
    by_class = BertClassifier(**quick, class_weight={"yes": 3.0, "no": 1.0})
    by_row = np.where(np.array(LABELS) == "yes", 3.0, 1.0)
    assert_same_bytes(
        by_class.fit(TEXTS, LABELS), BertClassifier(**quick).fit(TEXTS, LABELS, by_row)
    )


def test_windows_join_before_the_head(quick):
    """D4: one row per text, one rule for label and probability."""
    settings = quick | {"max_length": 8, "long_text": "windows"}
    texts = [*TEXTS[:6], "good " * 40, "bad " * 40]
    classifier = BertClassifier(**settings).fit(texts, LABELS[:8])
    probabilities = classifier.predict_proba(texts)
    assert probabilities.shape == (8, 2)
    decided = classifier.classes_[probabilities.argmax(axis=1)]
    assert (decided == classifier.predict(texts)).all()
    short = BertClassifier(**quick | {"max_length": 8}).fit(TEXTS, LABELS)
    in_windows = BertClassifier(**settings).fit(TEXTS, LABELS)
    if all(len(text.split()) <= 6 for text in TEXTS):
        assert_close(short, in_windows, 1e-6)


# Determinism -------------------------------------------------------------------------


def test_same_seed_same_bytes(quick):
    """G6, H1: dropout too, and whatever was fitted before."""
    settings = quick | {"dropout": 0.3}
    once = BertClassifier(**settings).fit(TEXTS, LABELS)
    again = clone(once).fit(["x", "y"], [0, 1])
    assert_same_bytes(once, again.fit(TEXTS, LABELS))
    other = BertClassifier(**settings | {"random_state": 1}).fit(TEXTS, LABELS)
    assert not np.array_equal(other.head_[0][0], once.head_[0][0])


def test_global_generators_are_left_alone(quick):
    import torch

    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    BertClassifier(**quick | {"random_state": 0, "dropout": 0.5}).fit(TEXTS, LABELS)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_grid_search_is_the_same_in_parallel(quick, backend):
    from joblib import parallel_config

    grid = {"frozen_layers": [0, 2], "learning_rate": [1e-4, 1e-3]}
    settings = quick | {"dropout": 0.2, "max_epochs": 2}
    searches = []
    for n_jobs in (1, 2):
        search = GridSearchCV(
            BertClassifier(**settings), grid, cv=2, n_jobs=n_jobs, scoring="neg_log_loss"
        )
        with parallel_config(backend=backend if n_jobs == 2 else "sequential"):
            searches.append(search.fit(TEXTS, LABELS).cv_results_["mean_test_score"])
    assert np.allclose(*searches, rtol=0, atol=1e-6)


# Labels ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        [10, 20],
        [-1, 1],
        [True, False],
        ["b", "a"],
        np.array(["b", "a"], object),
        [1.0, 2.0],
    ],
)
def test_labels_come_back_as_they_were(quick, labels):
    """C1, C4: gaps, signs, booleans, strings."""
    y = np.array([labels[i % 2] for i in range(len(TEXTS))])
    classifier = BertClassifier(**quick).fit(TEXTS, y)
    assert np.array_equal(classifier.classes_, np.unique(y))
    predicted = classifier.predict(TEXTS)
    assert set(predicted.tolist()) <= set(y.tolist())
    probabilities = classifier.predict_proba(TEXTS)
    assert probabilities.dtype == np.float64
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert (classifier.classes_[probabilities.argmax(axis=1)] == predicted).all()


@pytest.mark.parametrize("kind", ["category", "string", "object", "str"])
def test_pandas_labels_train_the_same(quick, kind):
    """B2, C4: positions, not index labels."""
    pd = pytest.importorskip("pandas")
    y = pd.Series(LABELS, dtype=kind, index=range(len(LABELS))[::-1])
    plain = BertClassifier(**quick).fit(TEXTS, LABELS)
    assert_same_bytes(plain, BertClassifier(**quick).fit(pd.Series(TEXTS), y))


def test_a_class_absent_from_a_fold(quick):
    """C3."""
    y = ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    settings = quick | {"max_epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probabilities = cross_val_predict(
            BertClassifier(**settings), TEXTS[:9], y, cv=KFold(3), method="predict_proba"
        )
    assert probabilities.shape == (9, 3)
    assert (probabilities[:3, 0] == 0).all()


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y to be passed"),
        ([0.5] * 10, "Unknown label type"),
        (["a"] * 10, "class"),
        (["a", None] * 5, r"positions \[1, 3, 5, 7, 9\]"),
        (["a", 1] * 5, "mixes labels"),
        (["a", "b"], "inconsistent"),
    ],
)
def test_bad_labels(quick, y, words):
    with pytest.raises(ValueError, match=words):
        BertClassifier(**quick).fit(TEXTS, np.array(y, dtype=object) if y else y)


def test_several_labels_as_a_matrix(quick):
    y = np.array([[1, 0, 1], [0, 1, 0]] * 5)
    classifier = BertClassifier(**quick | {"max_epochs": 20}).fit(TEXTS, y)
    predicted = classifier.predict(TEXTS)
    assert predicted.dtype == y.dtype and predicted.shape == y.shape
    assert classifier.score(TEXTS, y) == 1
    probabilities = classifier.predict_proba(TEXTS)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    loose = clone(classifier).set_params(threshold=0.0).fit(TEXTS, y)
    assert (loose.predict(TEXTS) == 1).all()


def test_several_labels_as_lists(quick):
    y = [["good", "short"], ["bad"]] * 5
    classifier = BertClassifier(**quick | {"max_epochs": 20}).fit(TEXTS, y)
    assert classifier.classes_.tolist() == ["bad", "good", "short"]
    assert classifier.predict(TEXTS[:2]).tolist() == y[:2]
    assert classifier.score(TEXTS, y) == 1


def test_pairs(quick):
    pairs = [(a, b) for a, b in zip(GOOD, BAD, strict=True)]
    pairs += [(b, a) for a, b in pairs]
    y = [1] * 5 + [0] * 5
    classifier = BertClassifier(**quick | {"max_epochs": 25}).fit(pairs, y)
    assert classifier.score(pairs, y) == 1


# Numbers -----------------------------------------------------------------------------


def test_a_regressor_learns_the_numbers(quick):
    """G4: no broadcasting; the units of y."""
    y = np.array([100.0, 900.0] * 5)
    regressor = BertRegressor(**quick | {"max_epochs": 30}).fit(TEXTS, y)
    predicted = regressor.predict(TEXTS)
    assert predicted.shape == (10,) and predicted.dtype == np.float64
    assert np.corrcoef(predicted, y)[0, 1] > 0.95
    assert abs(predicted.mean() - 500) < 100


def test_shapes_of_numbers(quick):
    y = np.arange(10.0)
    with pytest.warns(UserWarning, match="column-vector"):
        column = BertRegressor(**quick).fit(TEXTS, y[:, None])
    assert column.predict(TEXTS).shape == (10,)
    several = BertRegressor(**quick).fit(TEXTS, np.stack([y, -y], axis=1))
    assert several.predict(TEXTS).shape == (10, 2)
    with pytest.raises(ValueError, match=r"positions \[3\]"):
        BertRegressor(**quick).fit(TEXTS, np.where(y == 3, np.nan, y))


# Stopping and faults -----------------------------------------------------------------


def test_early_stopping_hands_back_the_best_epoch(quick, monkeypatch):
    """G2: not the last."""
    scores = iter([0.9, 0.5, 0.4, 0.3])
    monkeypatch.setattr(BertClassifier, "_scorer", lambda *a: lambda outputs: next(scores))
    settings = quick | {"early_stopping": True, "n_iter_no_change": 2, "max_epochs": 10}
    settings |= {"validation_fraction": 0.2, "schedule": "constant", "warmup": 0.0}
    stopped = BertClassifier(**settings).fit(TEXTS, LABELS)
    assert (stopped.best_epoch_, stopped.n_iter_) == (1, 3)
    monkeypatch.setattr(BertClassifier, "_scorer", lambda *a: lambda outputs: 0.5)
    once = BertClassifier(**settings | {"max_epochs": 1}).fit(TEXTS, LABELS)
    assert_same_bytes(stopped, once)


def test_a_validation_set_of_the_users_own(quick):
    classifier = BertClassifier(**quick).fit(TEXTS, LABELS, X_val=GOOD, y_val=["yes"] * 5)
    scores = [record["validation_score"] for record in classifier.history_]
    assert classifier.best_epoch_ == int(np.argmax(scores)) + 1


def test_a_collapsed_run_is_reported(quick):
    with pytest.warns(ConvergenceWarning, match="same class"):
        BertClassifier(**quick | {"learning_rate": 0.0, "head_learning_rate": 1e-9}).fit(
            TEXTS, ["yes"] * 8 + ["no"] * 2
        )


def test_a_run_that_is_not_finite_is_reported(quick):
    settings = quick | {"learning_rate": 1e30, "head_learning_rate": 1e30}
    with pytest.warns(ConvergenceWarning, match="not finite"):
        BertClassifier(**settings, max_grad_norm=None).fit(TEXTS, LABELS)


def test_warm_start_and_partial_fit_go_on(quick):
    warm = BertClassifier(**quick, warm_start=True).fit(TEXTS, LABELS)
    first = warm.history_[0]["loss"]
    assert warm.fit(TEXTS, LABELS).history_[0]["loss"] < first
    with pytest.raises(ValueError, match="cannot go on"):
        warm.fit(TEXTS, ["other"] * 5 + ["no"] * 5)
    part = BertClassifier(**quick)
    with pytest.raises(ValueError, match="first call"):
        part.partial_fit(TEXTS, LABELS)
    part.partial_fit(TEXTS[:2], LABELS[:2], classes=["maybe", "no", "yes"])
    part.partial_fit(["perhaps"], ["maybe"])
    assert part.predict_proba(TEXTS).shape == (10, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"frozen_layers": 4}, "at most 3"),
        ({"frozen_layers": -1}, "frozen_layers"),
        ({"schedule": "step"}, "'linear', 'cosine' or 'constant'"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"class_weight": {"maybe": 1}}, "keyed by the labels"),
    ],
)
def test_bad_parameters(quick, settings, words):
    with pytest.raises(ValueError, match=words):
        BertClassifier(**quick | settings).fit(TEXTS, LABELS)


# State -------------------------------------------------------------------------------


def test_state_survives(quick, tmp_path):
    fitted = BertClassifier(**quick, hidden_layer_sizes=(8,)).fit(TEXTS, LABELS)
    expected = fitted.predict_proba(TEXTS)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(TEXTS), expected)
    fitted.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(TEXTS), expected)
    assert loaded.get_params() == fitted.get_params() | {"model": str(quick["model"])}


# Forms of y --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [None, object])
def test_a_column_of_labels_is_one_label_per_row(quick, dtype):
    plain = BertClassifier(**quick).fit(TEXTS, LABELS)
    with pytest.warns(UserWarning, match="column-vector"):
        column = BertClassifier(**quick).fit(TEXTS, np.array(LABELS, dtype).reshape(-1, 1))
    assert_same_bytes(plain, column)
    assert column.multilabel_ is None


def test_labels_of_another_form_than_in_fit(quick):
    """Strings are not read as lists of letters."""
    lists = [[label] for label in LABELS]
    classifier = BertClassifier(**quick | {"max_epochs": 1}).fit(TEXTS, lists)
    for y in (LABELS, np.eye(2, dtype=int)[[0, 1] * 5]):
        with pytest.raises(
            ValueError, match="y of BertClassifier must hold a list of labels"
        ):
            classifier.score(TEXTS, y)
        with pytest.raises(ValueError, match="y_val of BertClassifier must hold a list"):
            BertClassifier(**quick).fit(TEXTS, lists, X_val=TEXTS, y_val=y)
    with pytest.raises(ValueError, match=r"y_val .* must hold one label for each row"):
        BertClassifier(**quick).fit(TEXTS, LABELS, X_val=TEXTS, y_val=lists)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([np.nan, *LABELS[1:]], r"missing labels .* positions \[0\]"),
        ([1, *LABELS[1:]], "mixes labels"),
        (np.array([np.nan, *range(9)]), r"NaN or infinity at positions \[0\]"),
    ],
)
def test_lists_are_not_made_strings(quick, y, message):
    with pytest.raises(ValueError, match=message):
        BertClassifier(**quick).fit(TEXTS, y)


def test_too_few_rows_to_hold_out(quick):
    settings = quick | {"early_stopping": True, "validation_fraction": 0.1}
    with pytest.raises(ValueError, match=r"validation_fraction=0.1 of 10 rows"):
        BertClassifier(**settings).fit(TEXTS, LABELS)


def test_a_failed_fit_leaves_the_old_classes(quick):
    classifier = BertClassifier(**quick).fit(TEXTS, LABELS)
    before = dict(classifier.__dict__)
    with pytest.raises(ValueError, match="class_weight"):
        classifier.set_params(class_weight={"no such": 1}).fit(TEXTS, [*"ab"] * 5)
    assert classifier.set_params(class_weight=None).__dict__ == before


@pytest.mark.parametrize("values", [(-1, 1), (1, 2), (0, 2), (-1.0, 1.0)])
def test_an_indicator_holds_zeros_and_ones(quick, values):
    y = np.array(values)[np.arange(20).reshape(10, 2) % 2]
    with pytest.raises(ValueError, match="zeros and ones"):
        BertClassifier(**quick).fit(TEXTS, y)


def test_going_on_keeps_the_kind_and_the_classes(quick):
    classifier = BertClassifier(**quick | {"max_epochs": 1}).fit(TEXTS, LABELS)
    indicator = np.eye(2, dtype=int)[[0, 1] * 5]
    with pytest.raises(ValueError, match="one label for each row, as in fit"):
        classifier.partial_fit(TEXTS, indicator)
    with pytest.raises(ValueError, match="not the same as on the first call"):
        classifier.partial_fit(TEXTS, LABELS, classes=["no", "yes", "perhaps"])
    with pytest.raises(ValueError, match="'balanced' in partial_fit"):
        classifier.set_params(class_weight="balanced").partial_fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="y of BertClassifier has 2 columns"):
        BertClassifier(**quick).partial_fit(TEXTS, indicator, classes=["a", "z"])


def test_balanced_counts_rows_by_their_weights(quick, monkeypatch):
    """As scikit-learn does: a weight of 2 is a row twice."""
    import torch

    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, fused: torch.optim.SGD(groups))
    settings = quick | {"class_weight": "balanced", "batch_size": 64, "max_epochs": 2}
    settings |= {"learning_rate": 0.05, "head_learning_rate": 0.5}
    weights = np.array([2, 1, 1, 1, 3, 1, 1, 1, 1, 1])
    weighted = BertClassifier(**settings).fit(TEXTS, LABELS, sample_weight=weights)
    rows = np.repeat(np.arange(10), weights)
    repeated = BertClassifier(**settings).fit(
        [TEXTS[i] for i in rows], [LABELS[i] for i in rows]
    )
    assert_close(weighted, repeated, 1e-5)


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor])
def test_outputs_for_frames_do_not_reach_predict(quick, kind):
    from sklearn import config_context

    pytest.importorskip("pandas")
    y = LABELS if kind is BertClassifier else np.arange(10)
    fitted = kind(**quick | {"max_epochs": 1}).fit(TEXTS, y)
    expected = fitted.predict(TEXTS)
    assert np.array_equal(fitted.set_output(transform="pandas").predict(TEXTS), expected)
    assert fitted.transform(TEXTS).shape[0] == 10
    with config_context(transform_output="pandas"):
        assert np.array_equal(clone(fitted).fit(TEXTS, y).predict(TEXTS), expected)


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor])
def test_the_last_step_may_diverge_too(quick, kind):
    y = LABELS if kind is BertClassifier else np.arange(10.0)
    settings = {"max_epochs": 1, "batch_size": 16, "learning_rate": 1e25}
    for more in ({}, {"early_stopping": True, "validation_fraction": 0.4}):
        with pytest.warns(ConvergenceWarning, match="not finite"):
            kind(**quick | settings | more).fit(TEXTS, y)


def test_a_regressor_stops_early_on_one_row(quick):
    settings = quick | {"early_stopping": True, "max_epochs": 6, "n_iter_no_change": 6}
    regressor = BertRegressor(**settings).fit(TEXTS, np.arange(10))
    scores = [record["validation_score"] for record in regressor.history_]
    assert np.isfinite(scores).all()
    assert regressor.best_epoch_ == 1 + int(np.argmax(scores))


def test_validation_targets_have_the_shape_of_y(quick):
    y = np.arange(20).reshape(10, 2)
    for wrong in (np.arange(10), np.zeros((10, 3))):
        with pytest.raises(ValueError, match=r"y_val of BertRegressor must be of shape"):
            BertRegressor(**quick).fit(TEXTS, y, X_val=TEXTS, y_val=wrong)


@pytest.mark.parametrize("frozen_layers", [0, 1, "all"])
def test_modes_of_the_caller_do_not_reach_training(quick, frozen_layers, tmp_path):
    import torch

    settings = quick | {"frozen_layers": frozen_layers, "max_epochs": 1}
    plain = BertClassifier(**settings).fit(TEXTS, LABELS)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        inside = BertClassifier(memory=tmp_path, **settings).fit(TEXTS, LABELS)
    assert_close(plain, inside, 1e-6)
    assert_close(
        plain, BertClassifier(memory=tmp_path, **settings).fit(TEXTS, LABELS), 1e-6
    )


@pytest.mark.parametrize("fraction", [None, 0.4])
def test_warnings_name_positions_of_x(quick, fraction):
    """Whatever was held out, shuffled, or left out for its weight."""
    rows = [*TEXTS[:7], "good " * 40, TEXTS[8], "bad " * 40]
    weights = np.ones(10)
    weights[:2] = 0
    settings = quick | {"max_length": 16, "early_stopping": fraction is not None}
    settings |= {"validation_fraction": fraction or 0.1, "max_epochs": 1}
    with pytest.warns(UserWarning, match=r"2 of 10 rows.*first positions: \[7, 9\]"):
        BertClassifier(**settings).fit(rows, LABELS, sample_weight=weights)


def test_hidden_layers_have_units(quick):
    for sizes in ([0], [-1]):
        with pytest.raises(ValueError, match="hidden_layer_sizes"):
            BertClassifier(**quick | {"hidden_layer_sizes": sizes}).fit(TEXTS, LABELS)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_learn_the_same(quick, precision):
    """Every step computes with the weights as they are, not as they were."""
    exact = BertClassifier(**quick).fit(TEXTS, LABELS)
    mixed = BertClassifier(precision=precision, **quick).fit(TEXTS, LABELS)
    losses, ours = ([r["loss"] for r in model.history_] for model in (exact, mixed))
    np.testing.assert_allclose(ours, losses, atol=0.02)
    assert losses[0] - losses[-1] > 0.05
