"""Faults of comparable libraries, kind E: padding, pooling, model families.

E5, which takes a second process, is in test_processes.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from skbert import BertVectorizer

X = ["hi", "the " * 40, "a good film", "The worst book: nobody should buy it!", "hi there"]
# What the packed computation and the padded one may differ by, relative to values of 1.
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_e1_pads_do_not_count(model_folder: Path, pooling: str) -> None:
    """E1: a vector does not depend on the longest text of its batch."""
    vectorizer = BertVectorizer(model_folder, pooling=pooling, batch_size=1).fit(X)
    expected = np.concatenate([vectorizer.transform([text]) for text in X])
    for batch_size in (2, 3, "auto"):
        vectorizer.set_params(batch_size=batch_size)
        out = vectorizer.transform(X)
        np.testing.assert_allclose(out, expected, **CLOSE)
        np.testing.assert_array_equal(vectorizer.transform(X[::-1]), out[::-1])


@pytest.mark.parametrize("layers", [0, [1, -1], "all"])
def test_e1_pads_do_not_count_in_words_and_layers(model_folder: Path, layers: Any) -> None:
    """E1: nor does the vector of a word, of any layer."""
    rows = [text.split() for text in X]
    vectorizer = BertVectorizer(
        model_folder, output="words", layers=layers, layer_pooling="concat", batch_size=1
    ).fit(rows)
    expected = [vectorizer.transform([row])[0] for row in rows]
    out = vectorizer.set_params(batch_size=5).transform(rows)
    for vectors, alone in zip(out, expected, strict=True):
        np.testing.assert_allclose(vectors, alone, **CLOSE)


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_e2_a_model_without_a_padding_piece(tiny_models: Any, pooling: str) -> None:
    """E2: GPT-2 in batches gives what it gives alone, and what transformers gives."""
    folder = tiny_models("gpt2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.pad_token_id is None
    texts = X[2:]
    vectorizer = BertVectorizer(folder, pooling=pooling, batch_size=4)
    out = vectorizer.fit_transform(texts)
    one = BertVectorizer(folder, pooling=pooling, batch_size=1).fit_transform(texts)
    np.testing.assert_allclose(out, one, **CLOSE)
    model = AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(texts, out, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        pooled = {"mean": states.mean(0), "max": states.amax(0), "last": states[-1]}
        np.testing.assert_allclose(vector, pooled[pooling], **CLOSE)


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "xlnet"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_e3_the_padding_side_does_not_matter(
    tiny_models: Any, tmp_path: Path, family: str, side: str
) -> None:
    """E3: "cls" is the summary piece, not the pad before it, and "last" no pad either."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_models(family), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side=side)
    tokenizer.save_pretrained(folder)
    # Types as the XLNet of old gave them, whose summary piece is of a type of its own.
    options = {"return_tensors": "pt", "return_token_type_ids": family in ("bert", "xlnet")}
    saved = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert saved.get("padding_side", "right") == side
    model = AutoModel.from_pretrained(folder).eval()
    summary = -1 if family == "xlnet" else 0
    for pooling, place in (("cls", summary), ("last", -1)):
        vectorizer = BertVectorizer(folder, pooling=pooling, batch_size=2)
        out = vectorizer.fit_transform(X)
        for text, vector in zip(X, out, strict=True):
            with torch.no_grad():
                states = model(**tokenizer(text, **options)).last_hidden_state
            np.testing.assert_allclose(vector, states[0, place], **CLOSE)


@pytest.mark.parametrize(
    "family", ["distilbert", "bert", "roberta", "mpnet", "gpt2", "modernbert", "t5"]
)
def test_e4_models_get_only_the_inputs_they_know(tiny_models: Any, family: str) -> None:
    """E4: no token types for DistilBERT, the right ones for BERT, none read as words.

    The pair is what tells: its second text is of another type where there are types.
    """
    folder = tiny_models(family)
    vectorizer = BertVectorizer(folder, pooling="mean").fit(["a"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    model = model.get_encoder() if family == "t5" else model
    for row in ("a good film", ("a good film", "the bad story")):
        texts = (row,) if isinstance(row, str) else row
        inputs = tokenizer(*texts, return_tensors="pt")
        assert ("token_type_ids" in inputs) == (family == "bert")
        with torch.no_grad():
            states = model(**inputs).last_hidden_state[0]
        np.testing.assert_allclose(
            vectorizer.fit_transform([row])[0], states.mean(0), **CLOSE
        )
    words = BertVectorizer(folder, output="words").fit_transform([["a", "film"]])
    assert words[0].shape == (2, 32)


def test_e5_no_random_pooler(tiny_models: Any) -> None:
    """E5: two loads of a checkpoint without a pooler, whatever the generator."""
    folder = tiny_models("bert", architectures=["BertForMaskedLM"])
    vectors = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        state = BertVectorizer(folder, pooling="cls").fit(X)
        # The cache of loaded models would make this test say nothing.
        (folder / "config.json").touch()
        vectors.append(state.transform(X))
        states = state.encoder_.model.state_dict()
        assert not [name for name in states if "pooler" in name]
    np.testing.assert_array_equal(*vectors)
