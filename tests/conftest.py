"""Fixtures: tiny random models, built once per session."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import ARCHITECTURES, make_tiny_model

# tiny_models imports transformers only when it builds: this comes first, and no test
# reaches for the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Workers of pytest-xdist share the CPUs: one thread each, before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

TinyModels = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """``tiny(architecture, **overrides)``: a checkpoint folder, to be read only."""
    built: dict[tuple[str, str], Path] = {}

    def tiny(architecture: str, **overrides: Any) -> Path:
        key = (architecture, repr(sorted(overrides.items())))
        if key not in built:
            folder = tmp_path_factory.mktemp(architecture)
            built[key] = make_tiny_model(architecture, folder, **overrides)
        return built[key]

    return tiny


@pytest.fixture(scope="session", params=ARCHITECTURES)
def model_folder(request: pytest.FixtureRequest, tiny_models: TinyModels) -> Path:
    """A checkpoint folder of every model family in turn."""
    return tiny_models(request.param)


@pytest.fixture(scope="session")
def bert_folder(tiny_models: TinyModels) -> Path:
    """The tiny BERT checkpoint, for tests that need just one model."""
    return tiny_models("bert")
