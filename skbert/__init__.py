"""Pretrained language models behind the scikit-learn contract.

Names load when they are first used, so that ``import skbert`` costs nothing; torch and
transformers load when an estimator is first fitted.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skbert._version import __version__

if TYPE_CHECKING:
    from skbert.estimators.bilstm import BiLSTMClassifier, BiLSTMTagger
    from skbert.estimators.classifier import BertClassifier
    from skbert.estimators.elmo_vectorizer import ElmoVectorizer
    from skbert.estimators.pretrainer import ElmoPretrainer
    from skbert.estimators.regressor import BertRegressor
    from skbert.estimators.static import WordVectorizer
    from skbert.estimators.tagger import BertTagger
    from skbert.estimators.vectorizers import BertVectorizer
    from skbert.estimators.word_union import WordFeatureUnion

_HOMES = {
    "BertClassifier": "skbert.estimators.classifier",
    "BertRegressor": "skbert.estimators.regressor",
    "BertTagger": "skbert.estimators.tagger",
    "BertVectorizer": "skbert.estimators.vectorizers",
    "BiLSTMClassifier": "skbert.estimators.bilstm",
    "BiLSTMTagger": "skbert.estimators.bilstm",
    "ElmoPretrainer": "skbert.estimators.pretrainer",
    "ElmoVectorizer": "skbert.estimators.elmo_vectorizer",
    "WordFeatureUnion": "skbert.estimators.word_union",
    "WordVectorizer": "skbert.estimators.static",
}

_MODULES = ("exceptions", "metrics", "model_selection")

__all__ = [
    "BertClassifier",
    "BertRegressor",
    "BertTagger",
    "BertVectorizer",
    "BiLSTMClassifier",
    "BiLSTMTagger",
    "ElmoPretrainer",
    "ElmoVectorizer",
    "WordFeatureUnion",
    "WordVectorizer",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"skbert.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
