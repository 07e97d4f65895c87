"""ELMo against arrays of the original programs (shared/elmo), where that folder is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skbert.encoders.elmo import ElmoEncoder
from skbert.encoders.elmo_formats import read_allennlp, read_own, write_allennlp, write_own
from skbert.encoders.elmo_many_langs import read_many_langs
from skbert.text.characters import ByteRows
from skbert.text.encoding import collate

SHARED = Path(__file__).resolve().parents[3] / "shared" / "elmo"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/elmo")
pytest.importorskip("h5py")

close = {"rtol": 0, "atol": 1e-5}


def load(name: str) -> Any:
    return json.loads((SHARED / name).read_text(encoding="utf-8"))


def model(name: str) -> ElmoEncoder:
    folder = SHARED / name
    (weights,) = folder.glob("*weights.hdf5")
    return read_allennlp(folder / "options.json", weights)


def layers_of(encoder: ElmoEncoder, sentences: list[list[str]]) -> list[np.ndarray]:
    """All layers of each sentence, (n_layers, n_words, width), read in one batch."""
    encodings, _ = encoder.encode(
        sentences,
        max_length=encoder.max_length,
        long_text="truncate",
        stride=0,
        parallel=False,
    )
    batch = collate(encodings, encoder.pad_id)
    with torch.inference_mode():
        hidden = encoder.forward(batch, range(encoder.n_layers + 1))
    empty = np.zeros((encoder.n_layers + 1, 0, encoder.hidden_size), np.float32)
    out = [empty] * len(sentences)
    for number, encoding in enumerate(encodings):
        n = len(encoding.input_ids)
        stacked = torch.stack([layer[number, 1 : n - 1] for layer in hidden.layers])
        out[encoding.sample_index] = stacked.numpy()
    return out


def test_characters_of_words() -> None:
    """F: bytes, cuts within a character, markers, the empty word."""
    alphabet = ByteRows(50)
    cases = load("cases/char_ids.json")
    rows = alphabet.rows([case["token"] for case in cases], markers=True)
    np.testing.assert_array_equal(rows, [case["ids"] for case in cases])


@pytest.mark.parametrize("name", ["skip", "noskip"])
def test_vectors_of_words(name: str) -> None:
    encoder = model(name)
    rows = encoder.alphabet.rows(load(f"{name}/token_words.json"), markers=True)
    expected = np.load(SHARED / name / "token_embeddings.npy")
    np.testing.assert_allclose(encoder._vectors(rows).numpy(), expected, **close)


@pytest.mark.parametrize("name", ["skip", "noskip"])
def test_all_layers_from_zeros(name: str) -> None:
    encoder, expected = model(name), np.load(SHARED / name / "all_layers.npz")
    for row, texts in load(f"{name}/sentences.json").items():
        outputs = layers_of(encoder, [text.split(" ") for text in texts])
        for number, found in enumerate(outputs):
            wanted = expected[f"stateless_r{row}_b{number}"]
            np.testing.assert_allclose(found, wanted, **close)


@pytest.mark.parametrize("name", ["skip", "noskip"])
def test_state_carried_from_sentence_to_sentence(name: str) -> None:
    """What the originals give, and what a warm start is made of."""
    import h5py

    encoder, expected = model(name), np.load(SHARED / name / "all_layers.npz")
    for row, texts in load(f"{name}/sentences.json").items():
        sentences = [text.split(" ") for text in texts]
        file = SHARED / name / f"lm_embeddings_{row}.hdf5"
        with h5py.File(file) as top:
            for number, sentence in enumerate(sentences):
                before = sentences[:number] or None
                reader = encoder.with_options(markers=True, warm_up=before)
                found = layers_of(reader, [sentence])[0]
                wanted = expected[f"stateful_r{row}_b{number}"]
                np.testing.assert_allclose(found, wanted, **close)
                halves = np.concatenate(list(top[str(number)]), axis=1)
                np.testing.assert_allclose(found[-1], halves, **close)


@pytest.mark.parametrize("name", ["c1", "c2"])
def test_options(name: str) -> None:
    """No highway, projection or clip; three layers, small clips, 20 characters."""
    expected = np.load(SHARED / "options" / name / "expected.npz")
    outputs = layers_of(model(f"options/{name}"), load(f"options/{name}/sentences.json"))
    for number, found in enumerate(outputs):
        np.testing.assert_allclose(found, expected[f"s{number}"], **close)


def test_odd_sentences() -> None:
    expected = np.load(SHARED / "cases" / "edge_skip.npz")
    outputs = layers_of(model("skip"), load("cases/edge_sentences.json"))
    for number, found in enumerate(outputs):
        np.testing.assert_allclose(found, expected[f"s{number}"], **close)


@pytest.mark.parametrize("name", ["char", "charword"])
def test_elmo_for_many_langs(name: str) -> None:
    """Swapped marks of words, unknown words, `<bos>` as a word, a padding row in use."""
    encoder = read_many_langs(SHARED / "efml" / name)
    expected = np.load(SHARED / "efml" / f"{name}_expected.npz")
    sentences = load("efml/sentences.json")
    outputs = layers_of(encoder, list(sentences.values()))
    for number, found in zip(sentences, outputs, strict=True):
        np.testing.assert_allclose(found, expected[f"s{number}"], **close)


@pytest.mark.parametrize("name", ["skip", "options/c1"])
def test_formats_give_back_what_they_read(name: str, tmp_path: Path) -> None:
    encoder = model(name)
    sentences = load("cases/edge_sentences.json")
    wanted = layers_of(encoder, sentences)
    write_own(encoder, tmp_path / "own")
    write_allennlp(encoder, tmp_path / "allennlp")
    again = [
        read_own(tmp_path / "own"),
        read_allennlp(
            tmp_path / "allennlp" / "options.json", tmp_path / "allennlp" / "weights.hdf5"
        ),
    ]
    for other in again:
        for found, expected in zip(layers_of(other, sentences), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
