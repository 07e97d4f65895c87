"""Training of a biLM against a run of the original program (shared/elmo/train)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skbert.encoders.elmo_formats import read_allennlp
from skbert.nn.word_softmax import WordSoftmax
from skbert.training.pretraining import Pretraining, PretrainingOptions, word_losses
from skbert.training.streams import Corpus, Stream

SHARED = Path(__file__).resolve().parents[3] / "shared" / "elmo" / "train"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/elmo")
h5py = pytest.importorskip("h5py")

OPTIONS = json.loads((SHARED / "chars_skip.json").read_text()) if SHARED.is_dir() else {}


def sentences() -> list[list[str]]:
    lines = (SHARED / "data.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines]


def weights(part: str, folder: Path) -> tuple[Any, WordSoftmax]:
    """The network and the softmax as they were before ("init") or after ("final")."""
    options = {**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "n_characters": 262}}
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(SHARED / "chars_skip.hdf5") as file:
        with h5py.File(folder / "weights.hdf5", "w") as out:
            for name in file[part]:
                file.copy(f"{part}/{name}", out)
        matrix, bias = (file[part]["softmax"][name][()] for name in ("W", "b"))
    softmax = WordSoftmax(matrix.shape[1], len(matrix))
    softmax.load_state_dict(
        {"weight": torch.from_numpy(matrix), "bias": torch.from_numpy(bias)}
    )
    return read_allennlp(folder / "options.json", folder / "weights.hdf5"), softmax


def corpus(encoder: Any) -> Corpus:
    lines = (SHARED / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(lines)}
    return Corpus.of(sentences(), encoder.alphabet, vocabulary)


def test_windows(tmp_path: Path) -> None:
    encoder, _ = weights("init", tmp_path)
    data = corpus(encoder)
    with h5py.File(SHARED / "chars_skip.hdf5") as file:
        for backward, suffix in ((False, ""), (True, "_reverse")):
            order = itertools.cycle(range(len(data)))
            stream = Stream(data, backward=backward, n_rows=2, n_steps=10, order=order)
            names = ("tokens_characters", "token_ids", "next_token_id")
            characters, here, following = (file[f"batches/{n}{suffix}"][()] for n in names)
            for number in range(30):
                read, then = stream.window()
                rows = data.rows[read.T]
                np.testing.assert_array_equal(rows, characters[number] + 1)
                np.testing.assert_array_equal(data.targets[read.T], here[number])
                np.testing.assert_array_equal(data.targets[then.T], following[number])


def test_thirty_steps(tmp_path: Path) -> None:
    """Losses, gradient norms, weights and the carried state."""
    encoder, softmax = weights("init", tmp_path)
    bilm = encoder.trainable(torch.device("cpu")).bilm
    options = PretrainingOptions(
        max_epochs=5,
        batch_size=OPTIONS["batch_size"],
        unroll_steps=OPTIONS["unroll_steps"],
        optimizer="adagrad",
        learning_rate=OPTIONS.get("learning_rate", 0.2),
        warmup=0.0,
        schedule="constant",
        max_grad_norm=OPTIONS["all_clip_norm_val"],
        dropout=0.0,
        n_iter_no_change=1,
    )
    run = Pretraining(bilm, softmax, corpus(encoder), options, seed=0)
    for side in (0, 1):
        order = itertools.cycle(range(len(run.corpus)))
        run.streams[side] = Stream(
            run.corpus, backward=bool(side), n_rows=2, n_steps=10, order=order
        )
    close = {"rtol": 0, "atol": 1e-5}
    with h5py.File(SHARED / "chars_skip.hdf5") as file:
        for number in range(30):
            onward, backward = run.take_step()
            assert onward == pytest.approx(file["trace/loss_f"][number], abs=1e-5)
            assert backward == pytest.approx(file["trace/loss_b"][number], abs=1e-5)
            assert float(run.norm) == pytest.approx(file["trace/norm"][number], rel=1e-5)
        for side, layer in itertools.product((0, 1), (0, 1)):
            found, wanted = run.state[side][layer], file[f"state/{side}/{layer}"]
            np.testing.assert_allclose(found.output, wanted["h"][()], **close)
            np.testing.assert_allclose(found.cell, wanted["c"][()], **close)
        final, final_softmax = weights("final", tmp_path)
        pairs = zip(
            [*bilm.parameters(), *softmax.parameters()],
            [*final.bilm.parameters(), *final_softmax.parameters()],
            strict=True,
        )
        for found, wanted in pairs:
            np.testing.assert_allclose(found.detach(), wanted.detach(), **close)


def test_losses_of_a_text(tmp_path: Path) -> None:
    encoder, softmax = weights("final", tmp_path)
    losses = word_losses(encoder.bilm, softmax, corpus(encoder), 1)
    with h5py.File(SHARED / "chars_skip.hdf5") as file:
        wanted = [file["test/loss_f"][()], file["test/loss_b"][()]]
    np.testing.assert_allclose(losses, wanted, rtol=0, atol=1e-5)
    assert np.exp(losses.mean()) == pytest.approx(16.849, abs=1e-3)


def test_sampled_softmax() -> None:
    case = np.load(SHARED / "sampled_softmax.npz")
    softmax = WordSoftmax(6, 50, n_samples=16)
    parts = {"weight": torch.from_numpy(case["W"]), "bias": torch.from_numpy(case["b"])}
    softmax.load_state_dict(parts)
    x = torch.from_numpy(case["x"]).requires_grad_()
    y = torch.from_numpy(case["y"][:, 0])
    losses = softmax.sampled(
        x, y, torch.from_numpy(case["sampled"]), int(case["num_tries"])
    )
    np.testing.assert_allclose(losses.detach(), case["loss"], rtol=0, atol=1e-5)
    losses.mean().backward()
    np.testing.assert_allclose(x.grad, case["grad_x"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(softmax(x, y).detach(), case["full_loss"], rtol=0, atol=1e-5)
