"""Faults of comparable libraries, kind I: pickles, folders, devices, versions.

I2, which takes a second process, is in test_processes.py.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skbert import BertVectorizer
from skbert.estimators.state import ENCODER_KEY, VERSION_KEY
from skbert.exceptions import ModelNotFoundError, VersionWarning

X = ["a good film", "a bad film", ""]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Recorder(pickle.Unpickler):
    """Notes every class and function that a pickle asks for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.asked: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.asked.add(f"{module}.{name}")
        return super().find_class(module, name)


# ---- I1


def test_i1_what_was_moved_to_a_device_stays_out_of_the_pickle(
    bert_folder: Path,
) -> None:
    """I1: after use on another device or in another precision the pickle is the same."""
    vectorizer = BertVectorizer(bert_folder, device=DEVICE, precision="bfloat16").fit(X)
    before = pickle.dumps(vectorizer)
    vectorizer.transform(X)
    assert pickle.dumps(vectorizer) == before
    text = before.decode("latin-1").replace('"cuda"', "")
    assert text.count("cuda") == (DEVICE == "cuda")  # the parameter alone
    assert "torch.storage" not in text and "_rebuild_tensor" not in text


def test_i1_a_pickle_from_a_gpu_loads_without(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: it loads, keeps the user's device and says what is missing when it is used."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for device in ("cuda", "cuda:1"):
        vectorizer = BertVectorizer(bert_folder).fit(X).set_params(device=device)
        loaded = pickle.loads(pickle.dumps(vectorizer))
        assert loaded.device == device
        wanted = f"'device' parameter of BertVectorizer is '{device}'.*does not have"
        with pytest.raises(ValueError, match=wanted):
            loaded.transform(X)
        with pytest.raises(ValueError, match=wanted):
            clone(loaded).fit(X)
        vectorizer.set_params(device="cpu")
        np.testing.assert_array_equal(
            loaded.set_params(device="auto").transform(X), vectorizer.transform(X)
        )


# ---- I3


def test_i3_a_reloaded_estimator_is_whole(bert_folder: Path, tmp_path: Path) -> None:
    """I3: repr, clone and get_params of what load gave, and of what pickle gave."""
    vectorizer = BertVectorizer(str(bert_folder), layers=[1, 2], pooling="max").fit(X)
    vectorizer.save(tmp_path / "saved")
    loaded = BertVectorizer.load(tmp_path / "saved")
    for copied in (loaded, pickle.loads(pickle.dumps(vectorizer))):
        assert copied.get_params() == vectorizer.get_params()
        assert repr(copied) == repr(vectorizer)
        assert clone(copied).get_params() == vectorizer.get_params()
        assert set(vars(copied)) == set(vars(vectorizer))
        np.testing.assert_array_equal(copied.transform(X), vectorizer.transform(X))
        assert copied._repr_html_()


def test_i3_state_of_a_version_with_fewer_parameters(bert_folder: Path) -> None:
    """I3: a parameter that came later has its default, so repr and clone work."""
    state = BertVectorizer(bert_folder).fit(X).__getstate__()
    del state["stride"]
    old = object.__new__(BertVectorizer)
    old.__setstate__(state)
    assert old.get_params()["stride"] == 0
    assert "BertVectorizer" in repr(clone(old))
    assert np.isfinite(old.transform(X)).all()


@pytest.mark.parametrize("model", ["/no/such", "./no/such", "~/no/such", "no/such/model/"])
def test_i3_a_missing_model_is_named_at_fit(model: str) -> None:
    """I3: the path and what was looked for, not a NoneType error later."""
    with pytest.raises(ModelNotFoundError, match=f"no folder '{model}'.*looked for"):
        BertVectorizer(model).fit(X)


def test_i3_a_folder_that_is_no_model(tmp_path: Path) -> None:
    """I3: what is missing in it, and what it holds."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError, match=r"lacks weights.*holds config\.json"):
        BertVectorizer(tmp_path).fit(X)


# ---- I4


def test_i4_no_library_objects_in_the_pickle(model_folder: Path) -> None:
    """I4: numpy arrays, strings, builtins and the estimator itself, nothing else."""
    vectorizer = BertVectorizer(str(model_folder)).fit(X)
    vectorizer.transform(X)
    data = pickle.dumps(vectorizer)
    recorder = Recorder(data)
    loaded = recorder.load()
    modules = {name.split(".")[0] for name in recorder.asked}
    assert modules <= {"skbert", "numpy", "builtins"}, recorder.asked
    assert "skbert.estimators.vectorizers.BertVectorizer" in recorder.asked
    # Protocol 2 writes such names in full, where pickletools finds them without loading.
    named = {
        str(argument).split(".")[0].split(" ")[0]
        for code, argument, _ in pickletools.genops(pickle.dumps(vectorizer, protocol=2))
        if code.name == "GLOBAL"
    }
    builtin = {"builtins", "__builtin__", "copy_reg", "copyreg", "_codecs"}
    assert named - builtin == {"skbert", "numpy"}
    np.testing.assert_array_equal(loaded.transform(X), vectorizer.transform(X))


@pytest.mark.parametrize("stamp", ["0.0.1", None])
def test_i4_another_version_is_told(bert_folder: Path, stamp: str | None) -> None:
    """I4: a clear message, and the estimator all the same."""
    vectorizer = BertVectorizer(bert_folder).fit(X)
    state = {**vectorizer.__getstate__(), VERSION_KEY: stamp}
    old = object.__new__(BertVectorizer)
    with pytest.warns(VersionWarning, match=f"saved by skbert {stamp} "):
        old.__setstate__(state)
    np.testing.assert_array_equal(old.transform(X), vectorizer.transform(X))


def test_i4_a_configuration_of_another_transformers(model_folder: Path) -> None:
    """I4: keys that came or went with a release of the library do not matter."""
    vectorizer = BertVectorizer(model_folder).fit(X)
    state = vectorizer.__getstate__()
    config = json.loads(state[ENCODER_KEY]["config"])
    config["from_the_future"] = {"a": [1]}
    config.pop("transformers_version", None)
    config.pop("initializer_range", None)
    state[ENCODER_KEY] = {**state[ENCODER_KEY], "config": json.dumps(config)}
    new = object.__new__(BertVectorizer)
    new.__setstate__(state)
    np.testing.assert_array_equal(new.transform(X), vectorizer.transform(X))


def test_i4_a_class_that_is_not_there_any_more(bert_folder: Path) -> None:
    """I4: the message names it, and no code outside of the library is run for a name."""
    state = BertVectorizer(bert_folder).fit(X).__getstate__()
    for name in ("transformers.models.bert.modeling_bert.BertOfOld", "this.BertModel"):
        facts = {**json.loads(state[ENCODER_KEY]["facts"]), "class": name}
        encoder = {**state[ENCODER_KEY], "facts": json.dumps(facts)}
        with pytest.raises(ValueError, match=f"'{name}' is not a model class"):
            object.__new__(BertVectorizer).__setstate__({**state, ENCODER_KEY: encoder})
    assert "this" not in sys.modules
