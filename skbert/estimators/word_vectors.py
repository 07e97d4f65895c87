"""Estimators over arrays of vectors of words: what they read and how they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import issparse

from skbert.estimators.params import Rule, integer, real
from skbert.estimators.state import SavedEstimator
from skbert.estimators.training import (
    TRAINING_RULES,
    Places,
    TrainingMixin,
    count_trainable,
)
from skbert.text.validation import to_builtin

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags

    from skbert.training.loop import Outcome
    from skbert.training.objectives import Objective

_ADVICE = "Put a vectorizer with output='words' before it, such as BertVectorizer."


class WordVectorEstimator(TrainingMixin, SavedEstimator):
    """Base of estimators whose rows are arrays of vectors of words."""

    head_: dict[str, np.ndarray]

    _rules: ClassVar[dict[str, Rule]] = {
        **TRAINING_RULES,
        "n_lstm_layers": integer(1),
        "dropout": real(0, 1),
    }

    def __init__(
        self,
        *,
        lstm_hidden_size: int,
        n_lstm_layers: int,
        dropout: float,
        max_epochs: int,
        learning_rate: float,
        weight_decay: float,
        warmup: float,
        schedule: str,
        max_grad_norm: float | None,
        batch_size: int,
        micro_batch_size: int | str | None,
        early_stopping: bool,
        validation_fraction: float,
        n_iter_no_change: int,
        device: str,
        precision: str,
        warm_start: bool,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
        self.lstm_hidden_size = lstm_hidden_size
        self.n_lstm_layers = n_lstm_layers
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.precision = precision
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _fit_network(
        self,
        rows: list[Any],
        make_head: Callable[[int, float], Any],
        make_objective: Callable[[Any, Any, torch.device], Objective],
        validation: tuple[list[Any], Callable[[Any, Any, np.ndarray], float]] | None,
        *,
        rng: np.random.RandomState,
        proceed: bool,
        max_epochs: int,
        given: tuple[Any, Any],
        places: Places,
    ) -> Outcome:
        """Train a head on vectors that do not change."""
        from skbert.nn.network import WordNetwork
        from skbert.training.device import resolve_device, resolve_precision
        from skbert.training.loop import undisturbed
        from skbert.training.schedule import parameter_groups
        from skbert.training.source import WordVectorSource

        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        source = WordVectorSource(rows, device)
        held = None
        with undisturbed(int(rng.randint(2**31 - 1)), device):
            head = make_head(self.n_features_in_, self.dropout)
            if proceed:
                self._go_on_from_fitted(head)
            head.to(device)
            self.n_trainable_parameters_ = count_trainable(head)
            if validation is not None:
                held_out, score = WordVectorSource(validation[0], device), validation[1]
                held = held_out, lambda outputs: score(head, held_out, outputs)
            outcome = self._train(
                WordNetwork(None, None, "first", head),
                source,
                make_objective(head, source, device),
                parameter_groups(
                    (),
                    head.parameters(),
                    n_layers=0,
                    learning_rate=self.learning_rate,
                    head_learning_rate=self.learning_rate,
                    layer_decay=1.0,
                    weight_decay=self.weight_decay,
                ),
                validation=held,
                set_mode=head.train,
                snapshot=lambda: {"head_": head.arrays()},
                max_epochs=max_epochs,
                given=given,
                rng=rng,
                device=device,
                dtype=dtype,
            )
        self.head_ = head.arrays()
        return outcome

    def _read_rows(self, X: Any, *, reset: bool) -> list[Any]:
        rows = check_vectors(X, type(self).__name__)
        n_features = max(row.shape[1] for row in rows)
        if reset:
            if not any(map(len, rows)):
                raise ValueError(
                    f"X of {type(self).__name__} holds no word at all, so there is nothing "
                    "to learn from."
                )
            self.n_features_in_ = n_features
        rows = [row if len(row) else row.reshape(0, self.n_features_in_) for row in rows]
        if any(len(row) and row.shape[1] != self.n_features_in_ for row in rows):
            raise ValueError(
                f"X has {n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input. Use the vectorizer of fit."
            )
        return rows

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags


def check_vectors(X: Any, caller: str) -> list[np.ndarray]:
    """One array of vectors of words for each row, none of them copied.

    Raises
    ------
    ValueError
        If X holds texts, words, one vector for each row or anything else, or numbers that
        are not finite; the positions are named.
    """
    must = f"X of {caller} must hold one array of shape (n_words, n_features) for each row."
    if issparse(X):
        raise TypeError(f"{must} Got sparse data of one vector for each row. {_ADVICE}")
    if isinstance(X, str) or not hasattr(X, "__len__"):
        raise ValueError(f"{must} Got an object of type {type(X).__name__}. {_ADVICE}")
    if isinstance(X, np.ndarray) and X.ndim not in (1, 3):
        raise ValueError(
            f"{must} Got an array of shape {X.shape}: one vector for each row. {_ADVICE}"
        )
    rows = list(X) if isinstance(X, np.ndarray) else list(to_builtin(X))
    if not rows:
        raise ValueError(f"{must} Got 0 rows, while at least 1 is required.")
    arrays = [_check_row(row, must, at) for at, row in enumerate(rows)]
    widths = {row.shape[1] for row in arrays if len(row)}
    if len(widths) > 1:
        raise ValueError(f"{must} Got vectors of several widths {sorted(widths)}.")
    # Numbers are read as float32, in which large ones are infinite.
    with np.errstate(over="ignore"):
        read = (row.astype(np.float32, copy=False) for row in arrays)
        bad = [at for at, row in enumerate(read) if not np.isfinite(row).all()]
    if bad:
        raise ValueError(
            f"{must} Input X contains NaN, infinity or numbers too large for float32 at "
            f"positions {bad[:5]}, {len(bad)} in all."
        )
    return arrays


def _check_row(row: Any, must: str, at: int) -> np.ndarray:
    try:
        array = np.asarray(row)
    except ValueError:
        array = np.empty(0, dtype=object)
    if not array.size and array.ndim in (1, 2):
        return np.empty((0, array.shape[1] if array.ndim == 2 else 0), np.float32)
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        what = "a text" if isinstance(row, str) else f"an array of shape {array.shape}"
        kind = "" if array.dtype.kind in "fiu" else f" and dtype {array.dtype}"
        raise ValueError(f"{must} Got {what}{kind} at position {at}. {_ADVICE}")
    return array


def longest_first(
    rows: list[np.ndarray],
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Rows and where they stand, so that neighbours are of like length."""
    for at in sorted(range(len(rows)), key=lambda at: -len(rows[at])):
        yield [at], rows[at]
