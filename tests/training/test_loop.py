"""The loop: one step is one step, however its rows are split, and out of memory or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skbert.training.loop import TrainingOptions, seeded, train
from skbert.training.objectives import (
    RowObjective,
    binary_cross_entropy,
    cross_entropy,
    squared_error,
)
from skbert.training.source import VectorSource

N_ROWS, WIDTH = 13, 5
CPU = torch.device("cpu")


class Head(torch.nn.Module):
    """Two layers in float64, so that nothing is lost to rounding."""

    def __init__(self):
        super().__init__()
        with seeded(0, CPU):
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(WIDTH, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
            ).double()

    def forward(self, batch):
        return self.layers(batch.vectors)


def run(loss, targets, *, micro_batch_size=None, network=None, weights=None, **changes):
    network = network or Head()
    vectors = np.random.RandomState(0).normal(size=(N_ROWS, WIDTH))
    options = {
        "max_epochs": 3,
        "warmup": 0.0,
        "schedule": "constant",
        "max_grad_norm": None,
        "batch_size": 4,
        "micro_batch_size": micro_batch_size,
        "n_iter_no_change": 3,
        "dtype": torch.float32,
    }
    weights = np.arange(1.0, N_ROWS + 1) if weights is None else weights
    outcome = train(
        network,
        VectorSource(vectors, CPU),
        RowObjective(loss, targets.numpy(), np.asarray(weights), CPU),
        [{"params": list(network.parameters()), "lr": 0.1, "initial_lr": 0.1}],
        TrainingOptions(**options | changes),
        rng=np.random.RandomState(0),
        device=CPU,
        set_mode=network.train,
        validate=None,
        on_epoch=lambda record: False,
        make_optimizer=torch.optim.SGD,
    )
    return network, outcome


def apart(a, b):
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


OBJECTIVES = {
    "classes": (cross_entropy(0.1), torch.arange(N_ROWS) % 3),
    "labels": (
        binary_cross_entropy(0.1),
        (torch.arange(N_ROWS * 3).view(N_ROWS, 3) % 2).double(),
    ),
    "numbers": (squared_error(), torch.arange(N_ROWS * 3).view(N_ROWS, 3).double() / 20),
}


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("micro_batch_size", [1, 2, 3])
def test_a_step_does_not_depend_on_its_parts(kind, micro_batch_size):
    objective, targets = OBJECTIVES[kind]
    whole, _ = run(objective, targets)
    parts, _ = run(objective, targets, micro_batch_size=micro_batch_size)
    assert apart(whole, parts) < 1e-12


def test_out_of_memory_halves_and_gives_the_same_step():
    """The failing part is not counted twice."""
    objective, targets = OBJECTIVES["classes"]

    class Small(Head):
        def forward(self, batch):
            if batch.n_texts > 1:
                raise torch.cuda.OutOfMemoryError("pretended")
            return super().forward(batch)

    whole, _ = run(objective, targets)
    small, outcome = run(objective, targets, micro_batch_size="auto", network=Small())
    assert outcome.n_halved == 2
    assert apart(whole, small) < 1e-12
    with pytest.raises(torch.cuda.OutOfMemoryError):
        run(objective, targets, micro_batch_size=4, network=Small())


def test_one_full_step_is_the_gradient_of_the_weighted_mean():
    """By hand: weights of mean one make the sum over n the weighted mean."""
    objective, targets = OBJECTIVES["numbers"]
    weights = torch.linspace(0.5, 1.5, N_ROWS, dtype=torch.float64)
    stepped, _ = run(objective, targets, weights=weights, batch_size=N_ROWS, max_epochs=1)
    plain = Head()
    vectors = torch.from_numpy(np.random.RandomState(0).normal(size=(N_ROWS, WIDTH)))
    losses = ((plain.layers(vectors) - targets) ** 2).mean(dim=1)
    ((losses * weights).sum() / weights.sum()).backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter -= 0.1 * parameter.grad
    assert apart(stepped, plain) < 1e-12


def test_squared_error_refuses_to_broadcast():
    with pytest.raises(RuntimeError, match="Outputs"):
        squared_error()(torch.zeros(4, 1), torch.zeros(4))
