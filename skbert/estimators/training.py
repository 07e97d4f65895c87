"""What every estimator that trains a network shares: its parameters and the run."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from skbert.estimators.callbacks import CallbackSupportMixin, EpochTasks
from skbert.estimators.params import Rule, a, boolean, integer, option, real
from skbert.text.report import users_stacklevel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from skbert.training.loop import Outcome, Source
    from skbert.training.objectives import Objective, RowLoss

Method = TypeVar("Method", bound=Callable[..., Any])

TRAINING_RULES: dict[str, Rule] = {
    "max_epochs": integer(1),
    "learning_rate": real(0),
    "weight_decay": real(0),
    "warmup": real(0, 1),
    "schedule": option("linear", "cosine", "constant"),
    "max_grad_norm": real(0) | option(None),
    "batch_size": integer(1),
    "micro_batch_size": integer(1) | option("auto", None),
    "early_stopping": boolean(),
    "validation_fraction": real(0, 1),
    "n_iter_no_change": integer(1),
    "warm_start": boolean(),
    "device": a(str, "'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'"),
    "precision": option("auto", "float32", "bfloat16", "float16"),
    "verbose": integer(0) | boolean(),
}


class Places(NamedTuple):
    """Where the rows that a fit trains on and holds out stand in X.

    Attributes
    ----------
    rows : ndarray of int
    held : ndarray of int or None
        None where nothing is held out of X.
    n_rows : int
        Rows of X.
    """

    rows: np.ndarray
    held: np.ndarray | None
    n_rows: int


def all_or_nothing(method: Method) -> Method:
    """A ``fit`` that, if it fails or is interrupted, leaves the estimator as it was.

    Half of it would be of the old data and half of the new: old weights under new names.
    """

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(self.__dict__)
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return wrapped  # type: ignore[return-value]


class TrainingMixin(CallbackSupportMixin):
    """Training runs with the parameters of `TRAINING_RULES`."""

    max_epochs: int
    warmup: float
    schedule: str
    max_grad_norm: float | None
    batch_size: int
    micro_batch_size: int | str | None
    n_iter_no_change: int
    verbose: int
    head_: Any
    architecture_: dict[str, Any]
    classes_: np.ndarray
    class_weight: Any

    # Parameters that say what the weights of the head mean.
    _architecture: ClassVar[tuple[str, ...]] = ()

    def _train(
        self,
        network: nn.Module,
        source: Source,
        objective: Objective,
        groups: list[dict[str, Any]],
        *,
        validation: tuple[Source, Callable[[np.ndarray], float]] | None,
        set_mode: Callable[[], None],
        snapshot: Callable[[], dict[str, Any]],
        max_epochs: int,
        given: tuple[Any, Any],
        rng: np.random.RandomState,
        device: torch.device,
        dtype: torch.dtype,
    ) -> Outcome:
        """Run the loop, tell progress and callbacks, and keep the records.

        ``validation`` holds rows and a function from their outputs to a score,
        ``snapshot`` gives the fitted attributes as they are, ``given`` is X and y as the
        user gave them, for callbacks.
        """
        import torch

        from skbert.training.loop import TrainingOptions, evaluate, train

        validate = None
        if validation is not None:
            held_out, score = validation

            def validate() -> float:
                return score(evaluate(network, held_out, self.batch_size))

        tasks = EpochTasks(self, max_epochs, *given, snapshot)
        with tqdm(total=max_epochs, disable=not self.verbose, unit="epoch") as bar:

            def on_epoch(record: dict[str, Any]) -> bool:
                bar.set_postfix(loss=f"{record['loss']:.4f}")
                bar.update()
                # A callback that draws must not change what dropout draws next.
                devices = [device] if device.type == "cuda" else []
                with torch.random.fork_rng(devices=devices):
                    return tasks.end_epoch()

            outcome = train(
                network,
                source,
                objective,
                groups,
                TrainingOptions(
                    max_epochs=max_epochs,
                    warmup=self.warmup,
                    schedule=self.schedule,
                    max_grad_norm=self.max_grad_norm,
                    batch_size=self.batch_size,
                    micro_batch_size=self.micro_batch_size,
                    n_iter_no_change=self.n_iter_no_change,
                    dtype=dtype,
                ),
                rng=rng,
                device=device,
                set_mode=set_mode,
                validate=validate,
                on_epoch=on_epoch,
            )
        tasks.end()
        if self._architecture:
            self.architecture_ = {name: getattr(self, name) for name in self._architecture}
        self.history_ = outcome.history
        self.n_iter_ = len(outcome.history)
        self.best_epoch_ = outcome.best_epoch
        self.n_halved_ = outcome.n_halved
        if outcome.diverged:
            warnings.warn(
                f"{type(self).__name__} diverged in epoch {self.n_iter_}: its loss or its "
                "outputs are not finite, and the model is of no use. Lower learning_rate, "
                "or set max_grad_norm and precision='float32'.",
                ConvergenceWarning,
                stacklevel=users_stacklevel(),
            )
        return outcome

    def _fit_rows(
        self,
        rows: list[Any],
        targets: np.ndarray,
        weights: np.ndarray,
        n_outputs: int,
        loss: RowLoss,
        validation: tuple[list[Any], Callable[[np.ndarray], float]] | None,
        **run: Any,
    ) -> Outcome:
        """Train on one row of targets for each row; only ratios of weights matter.

        ``validation`` holds rows and a function from their outputs to a score; ``run`` is
        what ``_fit_network`` takes besides.
        """
        from skbert.training.objectives import RowObjective

        weights = (weights / weights.mean()).astype(np.float32)

        def make_head(n_inputs: int, dropout: float) -> Any:
            head = self._new_row_head(n_inputs, n_outputs, dropout)
            head.draw_weights()
            return head

        def make_objective(head: Any, source: Any, device: torch.device) -> RowObjective:
            return RowObjective(loss, targets, weights, device)

        held: Any = None
        if validation is not None:
            held_rows, score = validation
            held = held_rows, lambda head, source, outputs: score(outputs)
        return self._fit_network(rows, make_head, make_objective, held, **run)

    def _new_row_head(self, n_inputs: int, n_outputs: int, dropout: float) -> Any:
        """A network from what the rows give to outputs, for estimators that train rows."""
        raise NotImplementedError

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
        """Build a network, train it and keep what was learnt.

        ``make_head`` takes the width of what it reads and the dropout, ``make_objective``
        the head and the source. ``validation`` holds rows and a function from the head,
        their source and their outputs to a score. With ``proceed`` training goes on from
        the fitted weights. ``given`` is X and y as the user gave them, for callbacks.
        """
        raise NotImplementedError

    def _go_on_from_fitted(self, head: Any) -> None:
        """Put the fitted weights into a new head of the same parts."""
        self._check_architecture("Set them as they were, or fit with warm_start=False.")
        head.set_arrays(self.head_)

    def _check_architecture(self, advice: str = "Call fit again.") -> None:
        """Refuse parameters that were set after ``fit`` and that the weights do not fit."""
        fitted = {name: self.architecture_[name] for name in self._architecture}
        changed = [name for name, value in fitted.items() if getattr(self, name) != value]
        if changed:
            raise ValueError(
                f"The parameters of {type(self).__name__} were changed after fit, which "
                f"changes {', '.join(changed)}: the weights are of {fitted}. {advice}"
            )

    def _begin_partial_fit(self, classes: Any) -> bool:
        """Check what ``partial_fit`` was given; whether there is a model to go on from."""
        name = type(self).__name__
        proceed = hasattr(self, "head_")
        if not proceed and classes is None:
            raise ValueError(
                f"classes must be passed on the first call to partial_fit of {name}: list "
                "all labels that later calls may bring."
            )
        if proceed and classes is not None:
            given = np.unique(np.asarray(classes))
            if not np.array_equal(given, self.classes_):
                raise ValueError(
                    f"classes={given.tolist()} is not the same as on the first call to "
                    f"partial_fit of {name}, {self.classes_.tolist()}."
                )
        if self.class_weight == "balanced":
            raise ValueError(
                f"The 'class_weight' parameter of {name} must not be 'balanced' in "
                "partial_fit, which sees a part of the data: give a dict of weights."
            )
        return proceed

    def _check_validation(self, X_val: Any, y_val: Any) -> None:
        if (X_val is None) != (y_val is None):
            given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
            raise ValueError(
                f"{type(self).__name__} got {given} without {missing}: give both, or "
                "neither."
            )

    def _warn_if_collapsed(self, outcome: Outcome, n_classes: int, what: str) -> None:
        """A model that gives all of its input the same class has learnt nothing."""
        if outcome.diverged or n_classes < 2:
            return
        given = outcome.outputs.argmax(axis=1)
        if len(given) and (given == given[0]).all():
            warnings.warn(
                f"{type(self).__name__} gave all {len(given)} training {what} at the end "
                "of training. Raise max_epochs or learning_rate if the loss in history_ "
                "still falls; else lower learning_rate, try another random_state, or "
                "class_weight='balanced' for rare classes.",
                ConvergenceWarning,
                stacklevel=users_stacklevel(),
            )


def count_trainable(*modules: nn.Module) -> int:
    """Weights that require gradients."""
    parameters = [p for module in modules for p in module.parameters()]
    return sum(p.numel() for p in parameters if p.requires_grad)
