"""Faults of comparable libraries, kind J and what else needs a second process (E5, I2, H2).

The backend "multiprocessing" of joblib is left out: a fork after torch has run hangs, which
is documented.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tiny_models import make_tiny_model

import skbert
from skbert import BertVectorizer
from skbert.training import device, inference
from skbert.training.store import VectorStore

X = ["a good film", "a bad film", "The worst book: nobody should buy it!", ""]
MEGABYTE = 2**20


def run_script(script: str, folder: Path) -> str:
    """Run Python elsewhere: no network, no models of this process.

    Twenty seconds on two idle CPUs; the limit is there for a hang, on a busy machine too.
    With every CPU there is, as on a user's machine, so that joblib has some to share out.
    """
    root = Path(skbert.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    env["LOKY_MAX_CPU_COUNT"] = "2"
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        env.pop(name, None)
    (folder / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        # Some library leaves a temporary folder to the end of the process on Python 3.10.
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "script.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# ---- A fresh process and its workers

# Worker processes import torch anew, for seconds: one run serves all tests.
SCRIPT = """
import os, pickle, socket
import numpy as np
import psutil, torch
from joblib import Parallel, delayed, parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from skbert import BertVectorizer

def read(name):
    with open(name, "rb") as file:
        return pickle.load(file)

def refuse(*args, **kwargs):
    raise AssertionError("someone asked for the network")

def work(fitted, texts):
    threads = psutil.Process().num_threads()
    vectors = fitted.transform(texts)
    return vectors, torch.get_num_threads(), psutil.Process().num_threads() - threads

torch.set_num_threads(2)
environment = dict(os.environ)
connect, socket.socket.connect = socket.socket.connect, refuse
socket.getaddrinfo = socket.create_connection = refuse
X = read("texts.pickle")
out = {}
for family in ("bert", "roberta", "t5", "xlnet"):
    out[f"pickle-{family}"] = read(f"{family}.pickle").transform(X)
    out[f"save-{family}"] = BertVectorizer.load(f"saved-{family}").transform(X)
out["mlm"] = BertVectorizer("mlm", pooling="cls").fit_transform(X)
for pooling in ("mean", "max"):
    kept = BertVectorizer("mlm", pooling=pooling, memory="kept")
    out[f"kept-{pooling}"] = kept.fit_transform(X[::-1])
np.savez("out.npz", **out)
socket.socket.connect = connect

texts = [f"a good film of {number}" for number in range(400)]
labels = [number % 2 for number in range(400)]
fitted = BertVectorizer("mlm", batch_size=8).fit(texts)
expected = fitted.transform(texts)
model = make_pipeline(BertVectorizer("mlm"), LogisticRegression(max_iter=1000))
scores = []
for backend in ("loky", "threading"):
    with parallel_config(backend=backend):
        results = Parallel(n_jobs=2)(delayed(work)(fitted, texts) for _ in range(2))
        for vectors, threads, grown in results:
            np.testing.assert_allclose(vectors, expected, atol=1e-6)
            if backend == "loky":
                print("worker", threads, grown)
        grid = {"logisticregression__C": [0.1, 1]}
        search = GridSearchCV(model, grid, cv=2, n_jobs=2, error_score="raise")
        search.fit(texts[:40], labels[:40])
        scores.append(search.cv_results_["mean_test_score"])
    print(backend, "leaves", torch.get_num_threads())
np.testing.assert_array_equal(*scores)
print("environment", sorted(set(os.environ.items()) ^ set(environment.items())))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Vectors of this process ("here") and of a fresh one, by name, and its "lines"."""
    folder = tmp_path_factory.mktemp("elsewhere")
    here: dict[str, Any] = {}
    for family in ("bert", "roberta", "t5", "xlnet"):
        model = make_tiny_model(family, folder / f"model-{family}")
        vectorizer = BertVectorizer(model).fit(X)
        here[f"pickle-{family}"] = here[f"save-{family}"] = vectorizer.transform(X)
        (folder / f"{family}.pickle").write_bytes(pickle.dumps(vectorizer))
        vectorizer.save(folder / f"saved-{family}")
        shutil.rmtree(model)
    mlm = make_tiny_model("bert", folder / "mlm", architectures=["BertForMaskedLM"])
    here["mlm"] = BertVectorizer(mlm, pooling="cls").fit_transform(X)
    BertVectorizer(mlm, memory=folder / "kept").fit_transform(X[::-1])
    for pooling in ("mean", "max"):
        free = BertVectorizer(mlm, pooling=pooling)
        here[f"kept-{pooling}"] = free.fit_transform(X[::-1])
    (folder / "texts.pickle").write_bytes(pickle.dumps(X))
    lines = run_script(SCRIPT, folder).splitlines()
    with np.load(folder / "out.npz") as there:
        return {"here": here, "there": dict(there), "lines": lines}


@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "xlnet"])
@pytest.mark.parametrize("way", ["pickle", "save"])
def test_i2_neither_hub_nor_folder_is_needed_again(
    elsewhere: dict[str, Any], way: str, family: str
) -> None:
    """I2: folder deleted, no network, fresh process: the same bits."""
    name = f"{way}-{family}"
    np.testing.assert_array_equal(elsewhere["there"][name], elsewhere["here"][name])


def test_e5_cls_is_equal_in_two_processes(elsewhere: dict[str, Any]) -> None:
    """E5: a checkpoint without a pooler, pooling="cls"."""
    np.testing.assert_array_equal(elsewhere["there"]["mlm"], elsewhere["here"]["mlm"])


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_h2_two_processes_share_a_memory(elsewhere: dict[str, Any], pooling: str) -> None:
    """H2: with other settings than the first one the second finds nothing stale."""
    name = f"kept-{pooling}"
    np.testing.assert_array_equal(elsewhere["there"][name], elsewhere["here"][name])


# ---- J1, J2: workers


def test_j1_workers_finish_and_say_nothing(elsewhere: dict[str, Any]) -> None:
    """J1: used in the parent, then in workers of loky and threading; nothing on stderr."""
    assert elsewhere["lines"][-1] == "environment []"


@pytest.mark.parametrize("place", ["store", "progress"])
def test_j1_no_hang_after_an_interruption(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """J1: Ctrl-C while vectors are written or counted leaves no lock behind.

    The error is kept, as an interactive session keeps the last one.
    """

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    texts = [f"a good film of {number}" for number in range(600)]
    vectorizer = BertVectorizer(bert_folder, batch_size=4, memory=tmp_path).fit(texts)
    owner: Any = VectorStore if place == "store" else inference._Chunk
    try:
        torch.set_num_threads(2)
        with monkeypatch.context() as patch:
            patch.setattr(owner, "add" if place == "store" else "accept", interrupt)
            with pytest.raises(KeyboardInterrupt) as kept:
                vectorizer.transform(texts)
        assert not device._threads_lock.locked(), kept
        assert torch.get_num_threads() == 2
        assert np.isfinite(vectorizer.transform(texts)).all()
    finally:
        torch.set_num_threads(before)


def test_j2_workers_keep_to_their_share_of_threads(elsewhere: dict[str, Any]) -> None:
    """J2: 2 workers of 1 thread each on 2 CPUs, and no pool of the tokenizer's own.

    One thread torch starts itself; the tokenizer would start one for each CPU besides.
    """
    for line in elsewhere["lines"][:2]:
        _, threads, grown = line.split()
        assert int(threads) == 1
        assert int(grown) <= 1
    assert elsewhere["lines"][2:4] == ["loky leaves 2", "threading leaves 2"]


def threads_here_and_in_a_new_thread() -> list[int]:
    found = [torch.get_num_threads()]
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found


def test_j2_threads_of_the_caller_are_left_alone(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J2: also when batches run side by side, and when one of them fails."""
    before = torch.get_num_threads()
    texts = [f"a good film of {number}" for number in range(100)]
    try:
        torch.set_num_threads(3)
        vectorizer = BertVectorizer(bert_folder, batch_size=4).fit(texts)
        vectorizer.transform(texts)
        assert threads_here_and_in_a_new_thread() == [3, 3]
        with monkeypatch.context() as patch:
            patch.setattr(type(vectorizer.encoder_), "forward", None)
            with pytest.raises(TypeError):
                vectorizer.transform(texts)
        assert threads_here_and_in_a_new_thread() == [3, 3]
        assert np.isfinite(vectorizer.transform(texts)).all()
    finally:
        torch.set_num_threads(before)


# ---- J3: memory


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def test_j3_memory_is_flat_over_fits(tmp_path: Path) -> None:
    """J3: 17 further fits of a model that is loaded anew each time, in a few MB."""
    model = make_tiny_model("bert", tmp_path / "model")

    def fit(n_fits: int) -> None:
        for _ in range(n_fits):
            (model / "config.json").touch()  # else the one in memory is used again
            vectorizer = BertVectorizer(model).fit(X)
            assert not any(p.requires_grad for p in vectorizer.encoder_.model.parameters())
            vectorizer.transform(X)
            pickle.loads(pickle.dumps(vectorizer)).transform(X)

    fit(3)
    before = resident()
    fit(17)
    assert resident() - before < 4 * MEGABYTE


def test_j3_memory_does_not_grow_with_texts(bert_folder: Path) -> None:
    """J3: ten times the texts cost the output, and no record of each batch or text."""
    vectorizer = BertVectorizer(bert_folder).fit(X)

    def grown(n_texts: int) -> int:
        texts = [f"a {number} good film" for number in range(n_texts)]
        before = resident()
        out = vectorizer.transform(texts)
        return resident() - before - out.nbytes

    grown(20_000)  # what malloc keeps for the next call
    # A record of 500 bytes for each text would be 10 MB.
    assert any(grown(20_000) < 9 * MEGABYTE for _ in range(3))


def test_j3_other_placements_die_with_their_estimator(bert_folder: Path) -> None:
    """J3: after del and gc no copy on a device or in a precision is left."""
    vectorizer = BertVectorizer(bert_folder, precision="bfloat16").fit(X)
    vectorizer.transform(X)
    loaded = pickle.loads(pickle.dumps(vectorizer))
    loaded.transform(X)
    placed = loaded.encoder_.placed(torch.device("cpu"), torch.bfloat16)
    reference = weakref.ref(placed.model)
    del placed, loaded
    gc.collect()
    assert reference() is None
