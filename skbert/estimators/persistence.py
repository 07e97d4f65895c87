"""Fitted estimators as a folder of safetensors and JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.state import ENCODER_KEY

FORMAT = 1
STATE_FILE = "skbert.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"

Estimator = TypeVar("Estimator", bound=Any)


def save(estimator: Any, folder: Path) -> None:
    """Write parameters and fitted attributes; arrays go to the weights file."""
    from safetensors.numpy import save_file

    check_is_fitted(estimator)
    state = estimator.__getstate__()
    state.pop("_skl_callbacks", None)  # objects with code of their own
    encoder = dict(state.pop(ENCODER_KEY))
    arrays = encoder.pop("weights")
    tokenizer = encoder.pop("tokenizer")
    content = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "encoder": encoder,
        "state": {name: _to_json(name, value) for name, value in state.items()},
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    # Gone first and back last, so that a folder that was left half written does not load.
    (folder / STATE_FILE).unlink(missing_ok=True)
    (folder / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
    save_file(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()},
        folder / WEIGHTS_FILE,
    )
    (folder / STATE_FILE).write_text(text, encoding="utf-8")


def load(cls: type[Estimator], folder: Path) -> Estimator:
    """Read what ``save`` wrote."""
    from safetensors.numpy import load_file

    for name in (STATE_FILE, WEIGHTS_FILE, TOKENIZER_FILE):
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{str(folder)!r} is not a saved {cls.__name__}: it has no {name}. Give "
                "the folder that its save method wrote."
            )
    content = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    if content["class"] != cls.__name__ or content["format"] > FORMAT:
        raise ValueError(
            f"{str(folder)!r} holds a {content['class']} in format {content['format']}; "
            f"{cls.__name__} reads its own kind up to format {FORMAT}."
        )
    state = {name: _from_json(value) for name, value in content["state"].items()}
    state[ENCODER_KEY] = {
        **content["encoder"],
        "weights": load_file(folder / WEIGHTS_FILE),
        "tokenizer": (folder / TOKENIZER_FILE).read_text(encoding="utf-8"),
    }
    estimator = object.__new__(cls)
    estimator.__setstate__(state)
    return estimator


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(name, item) for item in value]}
    if isinstance(value, list):
        return [_to_json(name, item) for item in value]
    if isinstance(value, dict):  # as pairs, since keys need not be strings
        return {"dict": [[_to_json(name, k), _to_json(name, v)] for k, v in value.items()]}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(
        f"{name}={value!r} is a {type(value).__name__}, which save cannot write as JSON. "
        "Give a plain value (a string or a number), or use pickle."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict) and "array" in value:
        return np.array(value["array"], dtype=np.dtype(value["dtype"]))
    if isinstance(value, dict) and "dict" in value:
        return {_from_json(key): _from_json(item) for key, item in value["dict"]}
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_from_json(item) for item in value["tuple"])
    return value
