"""BertVectorizer under scikit-learn's checks, and under their twins for texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from estimators.rows_as_text import TEXT_MODEL, RowsAsText, build_models
from estimators.text_checks import check_id, text_checks_generator
from sklearn.utils import estimator_checks

from skbert import BertVectorizer


@pytest.fixture(autouse=True, scope="session")
def checkpoints() -> None:
    build_models()


class VectorizerRows(RowsAsText, BertVectorizer):
    pass


# Estimators that scikit-learn's checks run on, and the checks that each cannot pass, with
# the reason. A vectorizer learns nothing from its data, so it has none.
EXPECTED_FAILURES: dict[type, dict[str, str]] = {VectorizerRows: {}}

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


@pytest.mark.parametrize("name", DATA_FREE)
def test_data_free_checks(name: str) -> None:
    """On the class that users have, not on the adaptor."""
    _run(name, BertVectorizer())


# scikit-learn 1.6 asks polars for what it has deprecated since.
@pytest.mark.filterwarnings("ignore:Support for the dataframe interchange")
# They fit to a frame and transform an array. Texts may do so; the adaptor's validation,
# scikit-learn's own, warns.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
@pytest.mark.parametrize("name", NOT_IN_THE_SUITE)
def test_checks_not_in_the_suite(name: str) -> None:
    _run(name, VectorizerRows())


@pytest.mark.parametrize("seed", range(10))
def test_order_invariance(seed: int) -> None:
    """The check draws its permutation from numpy's global generator."""
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        _run(ORDER, VectorizerRows(batch_size=3))
    finally:
        np.random.set_state(state)


TEXT_CHECKS = [
    # So small a batch that rows have changing neighbours.
    *text_checks_generator(BertVectorizer(TEXT_MODEL, batch_size=4)),
    *text_checks_generator(
        BertVectorizer(TEXT_MODEL, output="words", layers=[-2, -1], batch_size=4),
        kinds=("words",),
        second_process=False,  # the state is of the same kind
    ),
]


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=check_id)
def test_text_checks(check: Callable[[], None]) -> None:
    check()
