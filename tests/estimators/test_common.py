"""All estimators under scikit-learn's checks, and under their twins for texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from estimators.rows_as_text import (
    BIN_VECTORS,
    TEXT_MODEL,
    TEXT_VECTORS,
    RowsAsText,
    build_models,
)
from estimators.text_checks import check_id, check_second_process, text_checks_generator
from sklearn.utils import estimator_checks

from skbert import (
    BertClassifier,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    BiLSTMClassifier,
    BiLSTMTagger,
    WordVectorizer,
)


@pytest.fixture(autouse=True, scope="session")
def checkpoints() -> None:
    build_models()


# Much is asked of the scores, and little of the model: it learns fast, from words alone.
LEARNS_FAST = {
    "max_epochs": 4,
    "learning_rate": 5e-3,
    "head_learning_rate": 2e-2,
    "dropout": 0.0,
    "device": "cpu",
    "random_state": 0,
}


class VectorizerRows(RowsAsText, BertVectorizer):
    pass


class WordVectorizerRows(RowsAsText, WordVectorizer, model=BIN_VECTORS):
    pass


class ClassifierRows(RowsAsText, BertClassifier, **LEARNS_FAST):
    pass


class RegressorRows(RowsAsText, BertRegressor, **LEARNS_FAST | {"max_epochs": 8}):
    pass


BATCHES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "repeated rows make other batches; passes with one batch of all rows"
    )
}
# Estimators that scikit-learn's checks run on, and the checks that each cannot pass, with
# the reason. A vectorizer learns nothing from its data, so it has none.
EXPECTED_FAILURES: dict[type, dict[str, str]] = {
    VectorizerRows: {},
    WordVectorizerRows: {},
    ClassifierRows: BATCHES,
    RegressorRows: BATCHES,
}

# What parametrize_with_checks does, but for pytest 9 the list that scikit-learn 1.6 does
# not make. Our pytest is strict: a check that passes against expectation fails.
SKLEARN_CHECKS = [
    case
    for kind, failures in EXPECTED_FAILURES.items()
    for case in estimator_checks.estimator_checks_generator(
        kind(), expected_failed_checks=failures, mark="xfail"
    )
]


def _sklearn_id(value: Any) -> str:
    if not isinstance(value, partial):
        return type(value).__name__
    return "-".join([value.func.__name__, *map(str, value.keywords)])


# One class for all is what some checks are out for.
@pytest.mark.filterwarnings("ignore:ClassifierRows gave all")
@pytest.mark.parametrize(("estimator", "check"), SKLEARN_CHECKS, ids=_sklearn_id)
def test_sklearn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_sklearn_checks_are_run() -> None:
    """The gate that closes for texts is open for the adaptor."""
    assert len(SKLEARN_CHECKS) > 40 * len(EXPECTED_FAILURES)


def _known(names: str) -> list[str]:
    """Those that this version of scikit-learn has."""
    return [name for name in names.split() if hasattr(estimator_checks, name)]


DATA_FREE = _known(
    """check_estimator_cloneable check_estimator_tags_renamed check_valid_tag_types
    check_estimator_repr check_no_attributes_set_in_init
    check_do_not_raise_errors_in_init_or_set_params check_mixin_order
    check_parameters_default_constructible check_get_params_invariance check_set_params
    check_get_feature_names_out_error"""
)

# What scikit-learn asks of its own estimators only.
NOT_IN_THE_SUITE = _known(
    """check_dataframe_column_names_consistency check_get_feature_names_out_error
    check_transformer_get_feature_names_out check_transformer_get_feature_names_out_pandas
    check_set_output_transform check_set_output_transform_pandas
    check_set_output_transform_polars check_global_output_transform_pandas
    check_global_set_output_transform_polars check_inplace_ensure_writeable"""
)

ORDER = "check_methods_sample_order_invariance"


def _run(name: str, estimator: Any) -> None:
    getattr(estimator_checks, name)(type(estimator).__name__, estimator)


@pytest.mark.parametrize(
    "kind",
    [
        BertVectorizer,
        BertClassifier,
        BertRegressor,
        BertTagger,
        BiLSTMClassifier,
        BiLSTMTagger,
        WordVectorizer,
    ],
)
@pytest.mark.parametrize("name", DATA_FREE)
def test_data_free_checks(name: str, kind: type) -> None:
    """On the class that users have, not on the adaptor."""
    if "feature_names" in name and not hasattr(kind, "get_feature_names_out"):
        pytest.skip("gives no table of features")
    _run(name, kind())


@pytest.mark.filterwarnings("ignore:ClassifierRows gave all")
@pytest.mark.parametrize("kind", [ClassifierRows, RegressorRows])
def test_weights_are_repeated_rows_in_one_batch(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scikit-learn's check, at the precision of float32; the loop's own test has more.

    Without Adam, which makes a step of full size out of a gradient that is only rounding.
    """
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, fused: torch.optim.SGD(groups))
    # Rows of weight 0 may not decide how the others are spelled.
    monkeypatch.setattr(kind, "scale", (np.array(-3.0), np.array(3.0)))
    compare = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(
        estimator_checks,
        "assert_allclose_dense_sparse",
        lambda x, y, err_msg="": compare(x, y, err_msg=err_msg),
    )
    _run(
        "check_sample_weight_equivalence_on_dense_data",
        kind(batch_size=1000, learning_rate=0.02, head_learning_rate=0.5),
    )


# scikit-learn 1.6 asks polars for what it has deprecated since.
@pytest.mark.filterwarnings("ignore:Support for the dataframe interchange")
# They fit to a frame and transform an array. Texts may do so; the adaptor's validation,
# scikit-learn's own, warns.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
@pytest.mark.parametrize("kind", [VectorizerRows, WordVectorizerRows])
@pytest.mark.parametrize("name", NOT_IN_THE_SUITE)
def test_checks_not_in_the_suite(name: str, kind: type) -> None:
    _run(name, kind())


@pytest.mark.parametrize("seed", range(10))
def test_order_invariance(seed: int) -> None:
    """The check draws its permutation from numpy's global generator."""
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        _run(ORDER, VectorizerRows(batch_size=3))
    finally:
        np.random.set_state(state)


def _labels(rows: list[Any]) -> list[str]:
    """One of two classes for each row, by its content."""
    return ["yes" if len(str(row)) % 2 else "no" for row in rows[:-2]] + ["yes", "no"]


def _numbers(rows: list[Any]) -> list[float]:
    return [float(len(str(row))) for row in rows]


def _tags(rows: list[Any]) -> list[list[str]]:
    """An entity of one or more words where they are long, by their content."""
    kinds = {3: "O", 4: "B-PER", 5: "I-PER", 6: "B-LOC", 7: "I-LOC"}
    return [[kinds.get(len(word), "O") for word in row] for row in rows]


QUICK = {"max_epochs": 1, "batch_size": 4, "device": "cpu", "random_state": 0}
TEXT_CHECKS = [
    # So small a batch that rows have changing neighbours.
    *text_checks_generator(BertVectorizer(TEXT_MODEL, batch_size=4)),
    *text_checks_generator(
        BertVectorizer(TEXT_MODEL, output="words", layers=[-2, -1], batch_size=4),
        kinds=("words",),
    ),
    *text_checks_generator(WordVectorizer(TEXT_VECTORS), kinds=("texts", "words")),
    *text_checks_generator(
        WordVectorizer(TEXT_VECTORS, output="words", vocabulary="all"),
        kinds=("words",),
    ),
    *text_checks_generator(
        BertClassifier(TEXT_MODEL, frozen_layers=1, **QUICK), _labels, ("texts", "pairs")
    ),
    *text_checks_generator(
        BertRegressor(TEXT_MODEL, hidden_layer_sizes=[5], **QUICK),
        _numbers,
        ("pairs",),
    ),
    *text_checks_generator(
        BertTagger(TEXT_MODEL, head="crf", frozen_layers=1, stride=2, **QUICK),
        _tags,
        ("words",),
    ),
]


@pytest.mark.filterwarnings("ignore:Bert(Classifier|Tagger) gave all")
@pytest.mark.parametrize("check", TEXT_CHECKS, ids=check_id)
def test_text_checks(check: Callable[[], None]) -> None:
    check()


@pytest.mark.filterwarnings("ignore:Bert(Classifier|Tagger) gave all")
def test_a_second_process() -> None:
    check_second_process(list(dict.fromkeys(check.args[0] for check in TEXT_CHECKS)))
