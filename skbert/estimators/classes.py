"""What the classifiers share: labels as targets, and outputs as labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from scipy.special import expit, log_expit, log_softmax, logit, softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.params import Rule, a, check_params, option, real
from skbert.estimators.training import Places, all_or_nothing

if TYPE_CHECKING:
    from sklearn.utils import Tags


Self = TypeVar("Self", bound="ClassesMixin")


class ClassesMixin(ClassifierMixin):
    """Labels, probabilities and scores of estimators that train a network for classes."""

    classes_: np.ndarray
    multilabel_: str | None
    class_weight: dict[Any, float] | str | None
    label_smoothing: float
    threshold: float
    early_stopping: bool
    validation_fraction: float
    max_epochs: int
    random_state: Any
    _rules: ClassVar[dict[str, Rule]]

    _classes_rules: ClassVar[dict[str, Rule]] = {
        "class_weight": a(dict, "a dict from labels to weights") | option("balanced", None),
        "label_smoothing": real(0, 1),
        "threshold": real(0, 1),
    }

    @with_callbacks
    @all_or_nothing
    def partial_fit(
        self: Self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """One more epoch on these rows, from the weights as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,) or None
            All labels that any call will bring; needed in the first.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the rows.

        Returns
        -------
        self
        """
        check_params(self, self._rules)
        proceed = self._begin_partial_fit(classes)
        known = self.classes_ if proceed else np.unique(np.asarray(classes))
        return self._fit(X, y, sample_weight, (None, None), known, proceed, max_epochs=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, in the order of ``classes_``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float64
            Rows sum to 1; for multi-label each column is a probability of its own.
        """
        outputs = self._predict_outputs(X)
        return softmax(outputs, axis=1) if self.multilabel_ is None else expit(outputs)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float64
        """
        outputs = self._predict_outputs(X)
        if self.multilabel_ is None:
            return log_softmax(outputs, axis=1)
        return log_expit(outputs)

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores whose sign or maximum decides.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes), float64
            For two classes the log-odds of the second. For multi-label the log-odds less
            those of ``threshold``.
        """
        outputs = self._predict_outputs(X)
        if self.multilabel_ is not None:
            return outputs - logit(self.threshold)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """Classes of the texts.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
            Labels as in y. For multi-label an indicator matrix, or an object array of
            lists of labels, as y was.
        """
        outputs = self._predict_outputs(X)
        if self.multilabel_ is None:
            return self.classes_[outputs.argmax(axis=1)]
        chosen = expit(outputs) >= self.threshold
        if self.multilabel_ != "lists":
            return chosen.astype(np.dtype(self.multilabel_))
        lists = np.empty(len(chosen), dtype=object)
        for row, labels in enumerate(chosen):
            lists[row] = self.classes_[labels].tolist()
        return lists

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; for multi-label the share of rows with exactly the right labels.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            True labels.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the rows.

        Returns
        -------
        float
        """
        from skbert.training.targets import read_labels

        predicted = self.predict(X)
        if self.multilabel_ == "lists":
            kind, y = read_labels(y, len(predicted), type(self).__name__)
            self._check_kind(kind, self.multilabel_, "y")
            right = [set(a) == set(b) for a, b in zip(y, predicted, strict=True)]
            return float(np.average(right, weights=sample_weight))
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    # ---- y

    def _fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: tuple[Any, Any],
        classes: np.ndarray | None,
        proceed: bool,
        max_epochs: int | None = None,
    ) -> Self:
        name = type(self).__name__
        rows = self._read_rows(X, reset=not proceed)

        from skbert.training.objectives import binary_cross_entropy, cross_entropy
        from skbert.training.targets import (
            check_class_weight,
            check_weights,
            encode_labels,
            read_labels,
        )

        weights = check_weights(sample_weight, len(rows), name)
        kind, labels = read_labels(y, len(rows), name)
        if proceed:
            self._check_kind(kind, self.multilabel_, "y")
        kept = np.flatnonzero(weights)
        places = Places(kept, None, len(rows))
        rows, labels, weights = [rows[i] for i in kept], labels[kept], weights[kept]
        seen = self._classes_of(kind, labels)
        if proceed and classes is None and not np.array_equal(seen, self.classes_):
            raise ValueError(
                f"{name} with warm_start=True was fitted with the classes "
                f"{self.classes_.tolist()} and cannot go on with {seen.tolist()}. Set "
                "warm_start=False to start afresh."
            )
        known = seen if classes is None else classes
        if kind not in (None, "lists") and not np.array_equal(known, seen):
            raise ValueError(
                f"y of {name} has {len(seen)} columns, one for each of the labels "
                f"{seen.tolist()}, while the classes are {known.tolist()}."
            )
        if len(known) < 2 and kind is None:
            raise ValueError(
                f"{name} needs at least two classes in y, among rows with a weight above "
                f"zero. Got one class: {known.tolist()}."
            )
        targets = encode_labels(kind, labels, known, name)
        if kind is None:
            by_class = check_class_weight(self.class_weight, targets, weights, known, name)
            weights = weights * by_class[targets]
            if not weights.any():
                raise ValueError(
                    f"The 'class_weight' parameter of {name} gives every row of y the "
                    "weight 0."
                )
            objective = cross_entropy(self.label_smoothing)
        else:
            if self.class_weight is not None:
                raise ValueError(
                    f"The 'class_weight' parameter of {name} must be None for several "
                    "labels per row. Weigh rows by sample_weight, or set threshold."
                )
            objective = binary_cross_entropy(self.label_smoothing)
        rng = check_random_state(self.random_state)
        X_val, y_val = validation
        self._check_validation(X_val, y_val)
        held = None
        if X_val is not None:
            held_rows = self._read_rows(X_val, reset=False)
            held_kind, held_labels = read_labels(y_val, len(held_rows), name)
            self._check_kind(held_kind, kind, "y_val")
            held = held_rows, self._scorer(encode_labels(kind, held_labels, known, name))
        elif self.early_stopping and max_epochs is None:
            n_held = math.ceil(len(rows) * self.validation_fraction)
            if kind is None and not len(known) <= n_held <= len(rows) - len(known):
                raise ValueError(
                    f"{name} with early_stopping=True holds out validation_fraction="
                    f"{self.validation_fraction} of {len(rows)} rows, which is {n_held}, "
                    f"while both parts need one of each of the {len(known)} classes. "
                    "Change it, or give X_val and y_val."
                )
            train, test = train_test_split(
                np.arange(len(rows)),
                test_size=self.validation_fraction,
                random_state=rng.randint(2**31 - 1),
                stratify=targets if kind is None else None,
            )
            held = [rows[i] for i in test], self._scorer(targets[test], weights[test])
            places = Places(kept[train], kept[test], places.n_rows)
            rows = [rows[i] for i in train]
            targets, weights = targets[train], weights[train]
        self.classes_, self.multilabel_ = known, kind
        outcome = self._fit_rows(
            rows,
            targets,
            weights,
            len(known),
            objective,
            held,
            rng=rng,
            proceed=proceed,
            max_epochs=max_epochs or self.max_epochs,
            given=(X, y),
            places=places,
        )
        if kind is None:
            n_classes = len(np.unique(targets))
            self._warn_if_collapsed(outcome, n_classes, "rows the same class")
        return self

    def _check_kind(self, came: str | None, wanted: str | None, name: str) -> None:
        """Whether labels are of the same form as those of ``fit``."""

        def form(kind: str | None) -> str:
            if kind is None:
                return "one label for each row"
            return "a list of labels" if kind == "lists" else "an indicator matrix"

        if form(came) != form(wanted):
            raise ValueError(
                f"{name} of {type(self).__name__} must hold {form(wanted)}, as in fit. Got "
                f"{form(came)}."
            )

    @staticmethod
    def _classes_of(kind: str | None, labels: np.ndarray) -> np.ndarray:
        if kind is None:
            return np.unique(labels)
        if kind == "lists":
            return np.unique([label for row in labels for label in row])
        return np.arange(labels.shape[1])

    def _scorer(self, truth: np.ndarray, weights: np.ndarray | None = None) -> Any:
        def score(outputs: np.ndarray) -> float:
            if truth.ndim == 1:
                return accuracy_score(truth, outputs.argmax(axis=1), sample_weight=weights)
            # Subset accuracy is 0 for long: the likelihood shows progress from the start.
            signed = np.where(truth > 0, outputs, -outputs)
            return float(np.average(log_expit(signed).mean(axis=1), weights=weights))

        return score

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
