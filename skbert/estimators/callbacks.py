"""scikit-learn's callbacks, told of every epoch, where its version has them (1.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where there are no callbacks."""

    def with_callbacks(method: Any) -> Any:
        return method


class EpochTasks:
    """The epochs of a fit as scikit-learn's tasks.

    Parameters
    ----------
    estimator : estimator
        Inside a method that ``with_callbacks`` wraps.
    n_epochs : int
    X, y : array-like
        What the callbacks are told.
    snapshot : callable
        Fitted attributes as they are now, for callbacks that want a fitted estimator.
    """

    def __init__(
        self,
        estimator: Any,
        n_epochs: int,
        X: Any,
        y: Any,
        snapshot: Callable[[], dict[str, Any]],
    ) -> None:
        self._about = {"estimator": estimator, "X": X, "y": y}
        self._left = n_epochs
        self._snapshot = snapshot
        self._fit: Any = None
        if getattr(estimator, "_skl_callbacks", None):
            self._fit = estimator._init_callback_context(max_subtasks=n_epochs)
            self._fit.call_on_fit_task_begin(**self._about)
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch = self._fit.subcontext(task_name="epoch", max_subtasks=0)
        self._epoch.call_on_fit_task_begin(**self._about)

    def end_epoch(self) -> bool:
        """Whether a callback asks to stop here."""
        if self._fit is None:
            return False
        stop = self._epoch.call_on_fit_task_end(
            **self._about, reconstruction_attributes=self._snapshot
        )
        self._left -= 1
        if self._left and not stop:
            self._begin_epoch()
        return bool(stop)

    def end(self) -> None:
        if self._fit is not None:
            self._fit.call_on_fit_task_end(
                **self._about, reconstruction_attributes=self._snapshot
            )
