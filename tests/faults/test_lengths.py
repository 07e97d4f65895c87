"""Faults of comparable libraries, kind D: length limits, truncation, windows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import MAX_LENGTH

from skbert import BertVectorizer
from skbert.exceptions import TruncationWarning
from skbert.text.encoding import collate


def without_limit(folder: Path, target: Path) -> Path:
    """The checkpoint with a tokenizer that names no limit, which reports 1e30."""
    shutil.copytree(folder, target)
    path = target / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    assert settings.pop("model_max_length") == MAX_LENGTH
    path.write_text(json.dumps(settings), encoding="utf-8")
    return target


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "mpnet"])
def test_d1_a_tokenizer_without_a_limit(
    tiny_models: Any, tmp_path: Path, family: str
) -> None:
    """D1: the position table is the limit if the tokenizer says 10^30."""
    model = without_limit(tiny_models(family), tmp_path / "model")
    vectorizer = BertVectorizer(model).fit(["a"])
    assert vectorizer.max_length_ == MAX_LENGTH
    with pytest.warns(TruncationWarning, match=f"max_length={MAX_LENGTH}"):
        out = vectorizer.transform(["word " * 3000])
    assert np.isfinite(out).all()


def test_d1_no_tokenizer_settings_at_all(bert_folder: Path, tmp_path: Path) -> None:
    """D1: the input of the fault list, a folder without tokenizer_config.json."""
    model = tmp_path / "model"
    shutil.copytree(bert_folder, model)
    (model / "tokenizer_config.json").unlink()
    vectorizer = BertVectorizer(model).fit(["a"])
    assert vectorizer.max_length_ == MAX_LENGTH
    with pytest.warns(TruncationWarning):
        vectorizer.transform(["word " * 3000])


def test_d1_neither_side_has_a_limit(tiny_models: Any) -> None:
    """D1: relative positions and no word of the tokenizer; 512 as documented."""
    vectorizer = BertVectorizer(tiny_models("xlnet")).fit(["a"])
    assert vectorizer.max_length_ == 512
    with pytest.warns(TruncationWarning):
        assert np.isfinite(vectorizer.transform(["word " * 3000])).all()


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "longformer", "mpnet"])
def test_d2_positions_that_start_behind_the_pad(
    tiny_models: Any, tmp_path: Path, family: str
) -> None:
    """D2: 66 positions read 64 pieces, so the default cuts there and 66 is refused."""
    model = without_limit(tiny_models(family), tmp_path / "model")
    with pytest.warns(TruncationWarning):
        default = BertVectorizer(model).fit_transform(["a " * 600])
    with pytest.warns(TruncationWarning):
        explicit = BertVectorizer(model, max_length=64).fit_transform(["a " * 600])
    np.testing.assert_array_equal(default, explicit)
    for too_long in (65, 66):
        with pytest.raises(ValueError, match=r"'max_length'.*at most 64.*Got"):
            BertVectorizer(model, max_length=too_long).fit(["a"])


@pytest.mark.parametrize("stride", [14, 15, 16, -1])
def test_d3_overlap_as_large_as_the_window(bert_folder: Path, stride: int) -> None:
    """D3: refused by fit, with the largest stride that special pieces leave."""
    wanted = "at most 13" if stride > 0 else "at least 0"
    vectorizer = BertVectorizer(bert_folder, max_length=16, stride=stride)
    with pytest.raises(ValueError, match=rf"'stride'.*{wanted}"):
        vectorizer.set_params(long_text="windows").fit(["word " * 50])


def test_d3_the_largest_overlap_works(bert_folder: Path) -> None:
    """D3: the number in the message is true, for texts and for pairs."""
    windows = {"max_length": 16, "long_text": "windows"}
    vectorizer = BertVectorizer(bert_folder, stride=13, **windows)
    assert np.isfinite(vectorizer.fit_transform(["word " * 50])).all()
    pair = [("word " * 50, "film " * 40)]
    with pytest.raises(ValueError, match=r"'stride'.*at most 5 .*3 of them special"):
        vectorizer.fit(pair)
    vectorizer.set_params(stride=5)
    with pytest.warns(TruncationWarning):  # the shorter text of the pair
        assert np.isfinite(vectorizer.fit_transform(pair)).all()


def test_d3_no_room_for_a_piece(bert_folder: Path) -> None:
    """D3: max_length=2 is [CLS] and [SEP]; pairs need a piece more on each side."""
    with pytest.raises(ValueError, match=r"'max_length'.*at least 3.*Got 2"):
        BertVectorizer(bert_folder, max_length=2).fit(["a"])
    with pytest.raises(ValueError, match=r"'max_length'.*at least 5.*Got 4"):
        BertVectorizer(bert_folder, max_length=4).fit([("a", "b")])
    smallest = BertVectorizer(bert_folder, max_length=3, long_text="windows")
    assert np.isfinite(smallest.fit_transform(["a good film", ""])).all()


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "last"])
def test_d4_windows_give_one_row_per_text(bert_folder: Path, pooling: str) -> None:
    """D4: one row for 30 windows; a short text as without windows."""
    long, short = "the good story and the bad film " * 60, "a good film"
    windows = BertVectorizer(
        bert_folder, long_text="windows", max_length=16, pooling=pooling
    )
    out = windows.fit_transform([long, short, long + "!"])
    assert out.shape == (3, 32)
    plain = BertVectorizer(bert_folder, max_length=16, pooling=pooling)
    np.testing.assert_allclose(out[1], plain.fit_transform([short])[0], atol=1e-6)
    np.testing.assert_allclose(out[0], windows.transform([long])[0], atol=1e-5)
    assert np.isfinite(out).all()


def test_d4_a_piece_counts_once_whatever_the_overlap(bert_folder: Path) -> None:
    """D4: the mean over windows is the mean over pieces, not over windows."""
    text = "the good story and the bad film " * 5 + "again"
    document = BertVectorizer(bert_folder, long_text="windows", max_length=16, stride=6)
    out = document.fit_transform([text])[0]
    reader = document.encoder_
    encodings, _ = reader.encode(
        [text], max_length=16, long_text="windows", stride=6, parallel=False
    )
    assert len(encodings) > 3
    owned = sum(int((e.owned & (e.word_index >= 0)).sum()) for e in encodings)
    assert owned == len(reader.tokenizer.texts([text], parallel=False)[0].ids)
    parts = []
    for encoding in encodings:
        states = reader.forward(collate([encoding], reader.pad_id), [3]).layers[0][0]
        parts.append(states.detach().numpy()[encoding.owned])
    np.testing.assert_allclose(out, np.concatenate(parts).mean(axis=0), atol=1e-5)
