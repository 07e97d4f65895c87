"""What ``model=`` of the estimators over an ELMo may be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator

from skbert.estimators.params import Rule

if TYPE_CHECKING:
    from skbert.encoders.elmo import ElmoEncoder


def _may_be_elmo(value: Any) -> bool:
    if isinstance(value, str | os.PathLike | BaseEstimator):
        return True
    paths = isinstance(value, list | tuple) and len(value) in (2, 3)
    return paths and all(isinstance(path, str | os.PathLike) for path in value)


ELMO_RULE = Rule(
    _may_be_elmo,
    "a folder, a sequence of two or three paths (options, weights, vocabulary), "
    "'elmo-small-english' or a fitted ElmoPretrainer",
)


def resolve_elmo(model: Any, caller: str) -> ElmoEncoder:
    """The network of a model that is a path, a name or a fitted estimator.

    Raises
    ------
    ValueError
        If it is an estimator that is not fitted, or holds no ELMo.
    """
    if not isinstance(model, BaseEstimator):
        from skbert.encoders.elmo_loading import load_elmo

        return load_elmo(model)
    inner = model.estimator if type(model).__name__ == "FrozenEstimator" else model

    from skbert.encoders.elmo import ElmoEncoder

    encoder = getattr(inner, "encoder_", None)
    if not isinstance(encoder, ElmoEncoder):
        raise ValueError(
            f"The 'model' parameter of {caller} is a {type(inner).__name__} that is not "
            "fitted or holds no ELMo. Fit an ElmoPretrainer first. Pipelines and searches "
            "work on unfitted copies of what they get: wrap the fitted one in "
            "sklearn.frozen.FrozenEstimator, or export it and give the folder."
        )
    return encoder
