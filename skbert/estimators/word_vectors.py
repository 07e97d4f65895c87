"""Estimators over arrays of vectors of words: what they read and how they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from scipy.special import softmax

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
    """Base of estimators whose rows are arrays of vectors of words.

    Where a word has a vector of each layer, the head begins with a ``ScalarMix``.
    """

    head_: dict[str, np.ndarray]
    n_features_in_: int
    n_layers_in_: int

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

    @property
    def layer_weights_(self) -> np.ndarray:
        """Shares of the layers in the mix."""
        return softmax(self._mixed_by("weights").astype(np.float64))

    @property
    def gamma_(self) -> float:
        """What the mix is multiplied by."""
        return float(self._mixed_by("gamma")[0])

    def _mixed_by(self, part: str) -> np.ndarray:
        head = getattr(self, "head_", {})
        if f"mix.{part}" not in head:
            raise AttributeError(
                f"{type(self).__name__} has layer_weights_ and gamma_ only after a fit to "
                "arrays of shape (n_words, n_layers, n_features)."
            )
        return head[f"mix.{part}"]

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
        name = type(self).__name__
        rows = check_vectors(X, name)
        at = next((at for at, row in enumerate(rows) if len(row)), None)
        if reset:
            if at is None:
                raise ValueError(
                    f"X of {name} holds no word at all, so there is nothing to learn from."
                )
            *n_layers, self.n_features_in_ = rows[at].shape[1:]
            self.__dict__.pop("n_layers_in_", None)
            if n_layers:
                (self.n_layers_in_,) = n_layers
        wanted: tuple[int, ...] = (self.n_features_in_,)
        if hasattr(self, "n_layers_in_"):
            wanted = (self.n_layers_in_, self.n_features_in_)
        if at is not None and (came := rows[at].shape[1:]) != wanted:
            if came[-1] != wanted[-1]:
                raise ValueError(
                    f"X has {came[-1]} features, but {name} is expecting {wanted[-1]} "
                    "features as input. Use the vectorizer of fit."
                )
            shape = ", ".join(map(str, ("n_words", *wanted)))
            raise ValueError(
                f"X of {name} must hold arrays of shape ({shape}), as in fit. Got an array "
                f"of shape {rows[at].shape} at position {at}. Use the vectorizer of fit."
            )
        return [row if len(row) else row.reshape(0, *wanted) for row in rows]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags


def check_vectors(X: Any, caller: str) -> list[np.ndarray]:
    """One array of vectors of words for each row, none of them copied.

    A row without words has the width of the others.

    Raises
    ------
    ValueError
        If X holds texts, words, one vector for each row or anything else, or numbers that
        are not finite; the positions are named.
    """
    must = (
        f"X of {caller} must hold one array of shape (n_words, n_features) or (n_words, "
        "n_layers, n_features) for each row."
    )
    if issparse(X):
        raise TypeError(f"{must} Got sparse data of one vector for each row. {_ADVICE}")
    if isinstance(X, str) or not hasattr(X, "__len__"):
        raise ValueError(f"{must} Got an object of type {type(X).__name__}. {_ADVICE}")
    if isinstance(X, np.ndarray) and X.ndim not in (1, 3, 4):
        raise ValueError(
            f"{must} Got an array of shape {X.shape}: one vector for each row. {_ADVICE}"
        )
    rows = list(X) if isinstance(X, np.ndarray) else list(to_builtin(X))
    if not rows:
        raise ValueError(f"{must} Got 0 rows, while at least 1 is required.")
    arrays = [_check_row(row, must, at) for at, row in enumerate(rows)]
    first: dict[tuple[int, ...], int] = {}  # where each shape of a word comes first
    for at, row in enumerate(arrays):
        if len(row):
            first.setdefault(row.shape[1:], at)
    if len(first) > 1:
        seen = ", ".join(f"{arrays[at].shape} at position {at}" for at in first.values())
        raise ValueError(f"{must} Rows may differ in n_words only. Got shapes {seen}.")
    # Numbers are read as float32, in which large ones are infinite.
    with np.errstate(over="ignore"):
        read = (row.astype(np.float32, copy=False) for row in arrays)
        bad = [at for at, row in enumerate(read) if not np.isfinite(row).all()]
    if bad:
        raise ValueError(
            f"{must} Input X contains NaN, infinity or numbers too large for float32 at "
            f"positions {bad[:5]}, {len(bad)} in all."
        )
    (shape,) = first or [(0,)]
    return [row if len(row) else np.empty((0, *shape), np.float32) for row in arrays]


def _check_row(row: Any, must: str, at: int) -> np.ndarray:
    try:
        array = np.asarray(row)
    except ValueError:
        raise ValueError(
            f"{must} Got vectors of several lengths at position {at}. {_ADVICE}"
        ) from None
    if array.ndim in (1, 2, 3) and not len(array):
        return np.empty((0, 0), np.float32)
    if array.dtype.kind not in "fiu" or array.ndim not in (2, 3) or not array.size:
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
