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
    encoder = state.pop(ENCODER_KEY, None)
    arrays: dict[str, np.ndarray] = {}
    content: dict[str, Any] = {"format": FORMAT, "class": type(estimator).__name__}
    if encoder is not None:
        encoder = dict(encoder)
        arrays |= {f"encoder/{key}": part for key, part in encoder.pop("weights").items()}
        tokenizer = encoder.pop("tokenizer")
        content["encoder"] = encoder
    content["state"] = {key: _to_json(key, value, arrays) for key, value in state.items()}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    # Gone first and back last, so that a folder that was left half written does not load.
    (folder / STATE_FILE).unlink(missing_ok=True)
    if encoder is not None:
        (folder / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
    save_file(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()},
        folder / WEIGHTS_FILE,
    )
    (folder / STATE_FILE).write_text(text, encoding="utf-8")


def load(cls: type[Estimator], folder: Path) -> Estimator:
    """Read what ``save`` wrote."""
    from safetensors.numpy import load_file

    _check_there(cls, folder, STATE_FILE, WEIGHTS_FILE)
    content = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    if content["class"] != cls.__name__ or content["format"] > FORMAT:
        raise ValueError(
            f"{str(folder)!r} holds a {content['class']} in format {content['format']}; "
            f"{cls.__name__} reads its own kind up to format {FORMAT}."
        )
    arrays = load_file(folder / WEIGHTS_FILE)
    state = {name: _from_json(value, arrays) for name, value in content["state"].items()}
    if "encoder" in content:
        _check_there(cls, folder, TOKENIZER_FILE)
        prefix = "encoder/"
        state[ENCODER_KEY] = {
            **content["encoder"],
            "weights": {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            },
            "tokenizer": (folder / TOKENIZER_FILE).read_text(encoding="utf-8"),
        }
    estimator = object.__new__(cls)
    estimator.__setstate__(state)
    return estimator


def _check_there(cls: type, folder: Path, *names: str) -> None:
    for name in names:
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{str(folder)!r} is not a saved {cls.__name__}: it has no {name}. Give "
                "the folder that its save method wrote."
            )


def _to_json(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; float arrays are put into ``arrays`` and named."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            key = f"state/{len(arrays)}"
            arrays[key] = value
            return {"tensor": key}
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(name, item, arrays) for item in value]}
    if isinstance(value, list):
        return [_to_json(name, item, arrays) for item in value]
    if isinstance(value, dict):  # as pairs, since keys need not be strings
        return {
            "dict": [
                [_to_json(name, key, arrays), _to_json(name, item, arrays)]
                for key, item in value.items()
            ]
        }
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(
        f"{name}={value!r} is a {type(value).__name__}, which save cannot write as JSON. "
        "Give a plain value (a string or a number), or use pickle."
    )


def _from_json(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_from_json(item, arrays) for item in value]
    if isinstance(value, dict) and "tensor" in value:
        return arrays[value["tensor"]]
    if isinstance(value, dict) and "array" in value:
        return np.array(value["array"], dtype=np.dtype(value["dtype"]))
    if isinstance(value, dict) and "dict" in value:
        return {
            _from_json(key, arrays): _from_json(item, arrays) for key, item in value["dict"]
        }
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_from_json(item, arrays) for item in value["tuple"])
    return value
