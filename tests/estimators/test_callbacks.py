"""scikit-learn's callbacks around and inside of fine-tuning."""

from __future__ import annotations

import pytest
import torch
from estimators.test_finetuning import (
    LABELS,
    TEXTS,
    assert_same_bytes,
    quick,  # noqa: F401
)

from skbert import BertClassifier, BertRegressor

pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
pytestmark = pytest.mark.filterwarnings("ignore:BertClassifier gave all:UserWarning")


class Recorder:
    """Asks for a fitted estimator after each epoch, draws, and may stop."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.tasks, self.scores = [], []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        torch.rand(3)
        self.tasks.append(f"end {context.task_name}")
        if context.task_name != "epoch":
            return False
        self.scores.append(fitted_estimator.score(X, y))
        return len(self.scores) == self.stop_after

    def teardown(self, estimator, context):
        self.tasks.append("teardown")


def test_callbacks_see_every_epoch(quick):  # noqa: F811
    recorder = Recorder()
    settings = quick | {"dropout": 0.2}
    watched = BertClassifier(**settings).set_callbacks(recorder).fit(TEXTS, LABELS)
    epoch = ["begin epoch", "end epoch"]
    assert recorder.tasks == ["setup", "begin fit", *4 * epoch, "end fit", "teardown"]
    assert_same_bytes(watched, BertClassifier(**settings).fit(TEXTS, LABELS))
    assert recorder.scores[-1] == watched.score(TEXTS, LABELS)


def test_a_callback_can_stop(quick, tmp_path):  # noqa: F811
    stopped = BertRegressor(**quick).set_callbacks(Recorder(stop_after=2))
    stopped.fit(TEXTS, range(10))
    assert stopped.n_iter_ == 2
    stopped.save(tmp_path)
    assert_same_bytes(stopped, BertRegressor.load(tmp_path))
