"""biLMs in the files of AllenNLP and bilm-tf, and in a folder of our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skbert.encoders.elmo import ElmoEncoder, bilm_of
from skbert.nn.bilm import BilmConfig
from skbert.nn.token_encoder import ACTIVATIONS
from skbert.text.characters import N_BYTES_TABLE, ByteRows, VocabularyRows

OWN_FILE = "elmo.json"
OWN_WEIGHTS = "model.safetensors"
OWN_FORMAT = 1

# Blocks of a gate matrix, input, forget, output and candidate, in the order of TensorFlow:
# input, candidate, forget, output.
FROM_TENSORFLOW = [0, 2, 3, 1]
TO_TENSORFLOW = [0, 3, 1, 2]
# What TensorFlow adds to the forget gate when it runs, and does not store.
FORGET_BIAS = 1.0


# From the name of a dataset and the shape that it must have.
Read = Callable[[str, tuple[int, ...]], np.ndarray]


# ---- our own


def write_own(encoder: ElmoEncoder, folder: Path, dtype: str = "float32") -> None:
    """Write safetensors and JSON; "float16" takes half of the space."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = dict(encoder.state())
    weights = {
        name: np.ascontiguousarray(array, dtype=dtype)
        for name, array in state.pop("weights").items()
    }
    (folder / OWN_FILE).unlink(missing_ok=True)
    save_file(weights, folder / OWN_WEIGHTS)
    content = {"format": OWN_FORMAT} | {
        key: json.loads(value) if key != "kind" else value for key, value in state.items()
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (folder / OWN_FILE).write_text(text, encoding="utf-8")


def read_own(folder: Path) -> ElmoEncoder:
    """Read what ``write_own`` wrote."""
    from safetensors.numpy import load_file

    content = json.loads((folder / OWN_FILE).read_text(encoding="utf-8"))
    if content.pop("format") > OWN_FORMAT:
        raise ValueError(
            f"{folder / OWN_FILE} was written by a later skbert. Install that release."
        )
    weights = load_file(folder / OWN_WEIGHTS)
    state = {
        key: json.dumps(value) if key != "kind" else value for key, value in content.items()
    }
    state["weights"] = {key: array.astype(np.float32) for key, array in weights.items()}
    return ElmoEncoder.from_state(state)


# ---- AllenNLP and bilm-tf


def read_allennlp(
    options_file: Path, weights_file: Path, vocabulary_file: Path | None = None
) -> ElmoEncoder:
    """Read ``options.json`` and HDF5 weights.

    ``vocabulary_file``, one token to a line, is only looked at where the model has no
    characters.
    """
    options = json.loads(options_file.read_text(encoding="utf-8"))
    with _hdf5(weights_file) as read:
        config = _config(options, options_file)
        weights: dict[str, np.ndarray] = {}
        alphabet: ByteRows | VocabularyRows
        if config.n_characters:
            alphabet = ByteRows(config.max_characters_per_token)
            weights |= _read_token_encoder(config, read)
        else:
            words = _read_vocabulary(vocabulary_file, options_file)
            alphabet = VocabularyRows(words)
            config = _with_words(config, len(words))
            weights["token_encoder.words"] = read(
                "embedding", (len(words), config.word_dim)
            )
        for direction, side in enumerate(("onward", "backward_")):
            for number in range(config.n_layers):
                cell = _read_cell(config, read, direction, number)
                weights |= {f"{side}.{number}.{name}": part for name, part in cell.items()}
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        for name, array in weights.items()
    }
    return ElmoEncoder(bilm_of(config, tensors), alphabet)


def write_allennlp(encoder: ElmoEncoder, folder: Path) -> None:
    """Write ``options.json`` and ``weights.hdf5``, and ``vocab.txt`` without characters."""
    config, alphabet = encoder.bilm.config, encoder.alphabet
    if not isinstance(alphabet, ByteRows | VocabularyRows):
        raise ValueError(
            "The format of AllenNLP has no place for dictionaries of characters and words, "
            "as the models of ELMoForManyLangs have them. Use format='skbert'."
        )
    options: dict[str, Any] = {
        "lstm": {
            "projection_dim": config.projection_dim,
            "dim": config.lstm_dim,
            "n_layers": config.n_layers,
            "cell_clip": config.cell_clip,
            "proj_clip": config.proj_clip,
            "use_skip_connections": config.use_skip_connections,
        }
    }
    if isinstance(alphabet, ByteRows):
        options["char_cnn"] = {
            "activation": config.activation,
            "embedding": {"dim": config.character_dim},
            "filters": [list(pair) for pair in config.filters],
            "max_characters_per_token": config.max_characters_per_token,
            "n_characters": N_BYTES_TABLE,
            "n_highway": config.n_highway,
        }
    folder.mkdir(parents=True, exist_ok=True)
    _write_hdf5(folder / "weights.hdf5", _to_datasets(encoder))
    (folder / "options.json").write_text(json.dumps(options, indent=1), encoding="utf-8")
    if isinstance(alphabet, VocabularyRows):
        text = "".join(f"{word}\n" for word in alphabet.vocabulary)
        (folder / "vocab.txt").write_text(text, encoding="utf-8")


@contextmanager
def _hdf5(path: Path) -> Iterator[Read]:
    h5py = _import_h5py()
    with h5py.File(path, "r") as file:

        def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
            # One layer is written without its number.
            short = name.replace("MultiRNNCell/Cell0/", "")
            found = next((n for n in (name, short) if n in file), None)
            if found is None:
                raise ValueError(f"{str(path)!r} has no dataset {name!r}.")
            if file[found].shape != shape:
                raise ValueError(
                    f"The dataset {found!r} of {str(path)!r} has the shape "
                    f"{file[found].shape}, but its options want {shape}. Options and "
                    "weights do not belong together."
                )
            return np.asarray(file[found], dtype=np.float32)

        yield read


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "Weights of AllenNLP are HDF5 files, which h5py reads: "
            "pip install 'skbert[elmo]'."
        ) from error
    return h5py


def _config(options: Mapping[str, Any], path: Path) -> BilmConfig:
    """Sizes as the options say; a table of words is sized later."""

    def want(part: Mapping[str, Any], *names: str) -> Any:
        value: Any = part
        for name in names:
            if not isinstance(value, Mapping) or name not in value:
                raise ValueError(
                    f"{str(path)!r} lacks {'.'.join(names)!r}: it is not the options.json "
                    "of an ELMo."
                )
            value = value[name]
        return value

    lstm = want(options, "lstm")
    sizes: dict[str, Any] = {
        "projection_dim": want(options, "lstm", "projection_dim"),
        "lstm_dim": want(options, "lstm", "dim"),
        "n_layers": lstm.get("n_layers", 1),
        "cell_clip": lstm.get("cell_clip"),
        "proj_clip": lstm.get("proj_clip"),
        "use_skip_connections": lstm.get("use_skip_connections", False),
    }
    for name in ("cell_clip", "proj_clip"):
        if sizes[name] is not None and not sizes[name] > 0:
            raise ValueError(
                f"'lstm.{name}' of {str(path)!r} must be greater than 0. Got "
                f"{sizes[name]!r}. Leave it out for no bound."
            )
    if sizes["projection_dim"] > sizes["lstm_dim"]:
        raise ValueError(
            f"'lstm.projection_dim' of {str(path)!r} must be at most 'lstm.dim', "
            f"{sizes['lstm_dim']}. Got {sizes['projection_dim']}."
        )
    if "char_cnn" not in options:
        return BilmConfig(**sizes)
    filters = tuple(
        (int(width), int(n)) for width, n in want(options, "char_cnn", "filters")
    )
    activation = want(options, "char_cnn", "activation")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"'char_cnn.activation' of {str(path)!r} must be 'relu' or 'tanh'. Got "
            f"{activation!r}."
        )
    return BilmConfig(
        **sizes,
        n_characters=N_BYTES_TABLE,
        character_dim=want(options, "char_cnn", "embedding", "dim"),
        max_characters_per_token=want(options, "char_cnn", "max_characters_per_token"),
        filters=filters,
        activation=activation,
        n_highway=options["char_cnn"].get("n_highway", 0),
        projected=sum(n for _, n in filters) != sizes["projection_dim"],
    )


def _with_words(config: BilmConfig, n_words: int) -> BilmConfig:
    values = config.to_dict() | {"n_words": n_words, "word_dim": config.projection_dim}
    return BilmConfig.from_dict(values)


def _read_vocabulary(path: Path | None, options_file: Path) -> list[str]:
    if path is None:
        raise ValueError(
            f"{str(options_file)!r} has no 'char_cnn': a model that reads whole words, "
            "which needs its vocabulary. Put vocab.txt into the folder, or give three "
            "paths: options, weights, vocabulary."
        )
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line.strip() for line in lines if line.strip() not in ("", "!!!MAXTERMID")]


def _read_token_encoder(config: BilmConfig, read: Read) -> dict[str, np.ndarray]:
    size, width = config.character_dim, sum(n for _, n in config.filters)
    # Row 0 is that of masked words.
    table = read("char_embed", (N_BYTES_TABLE - 1, size))
    weights = {"characters": np.concatenate([np.zeros((1, size), table.dtype), table])}
    for number, (length, n) in enumerate(config.filters):
        kernel = read(f"CNN/W_cnn_{number}", (1, length, size, n))
        weights[f"convolutions.{number}.weight"] = kernel[0].transpose(2, 1, 0)
        weights[f"convolutions.{number}.bias"] = read(f"CNN/b_cnn_{number}", (n,))
    for number in range(config.n_highway):
        name = f"CNN_high_{number}"
        matrices = [read(f"{name}/W_{p}", (width, width)) for p in ("carry", "transform")]
        biases = [read(f"{name}/b_{part}", (width,)) for part in ("carry", "transform")]
        weights[f"highways.{number}.weight"] = np.concatenate(matrices, axis=1).T
        weights[f"highways.{number}.bias"] = np.concatenate(biases)
    if config.projected:
        shape = (width, config.projection_dim)
        weights["projection.weight"] = read("CNN_proj/W_proj", shape).T
        weights["projection.bias"] = read("CNN_proj/b_proj", shape[1:])
    return {f"token_encoder.{name}": array for name, array in weights.items()}


def _cell_name(direction: int, number: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"


def _read_cell(
    config: BilmConfig, read: Read, direction: int, number: int
) -> dict[str, np.ndarray]:
    width, cells = config.projection_dim, config.lstm_dim
    name = _cell_name(direction, number)
    matrix = reorder(read(f"{name}/W_0", (2 * width, 4 * cells)).T, FROM_TENSORFLOW)
    bias = reorder(read(f"{name}/B", (4 * cells,)), FROM_TENSORFLOW)
    bias[cells : 2 * cells] += FORGET_BIAS
    weights = {
        "input_weight": matrix[:, :width],
        "output_weight": matrix[:, width:],
        "bias": bias,
    }
    if width != cells:
        weights["projection"] = read(f"{name}/W_P_0", (cells, width)).T
    return weights


def reorder(array: np.ndarray, order: list[int]) -> np.ndarray:
    """Rows whose four blocks stand in another order."""
    blocks = np.split(array, 4)
    return np.concatenate([blocks[number] for number in order])


def _to_datasets(encoder: ElmoEncoder) -> dict[str, np.ndarray]:
    """The inverse of reading."""
    config = encoder.bilm.config
    weights = {name: part.numpy() for name, part in encoder.bilm.state_dict().items()}
    out: dict[str, np.ndarray] = {}
    if config.n_words:
        out["embedding"] = weights["token_encoder.words"]
    else:
        out["char_embed"] = weights["token_encoder.characters"][1:]
        for number in range(len(config.filters)):
            name = f"token_encoder.convolutions.{number}"
            out[f"CNN/W_cnn_{number}"] = weights[f"{name}.weight"].transpose(2, 1, 0)[None]
            out[f"CNN/b_cnn_{number}"] = weights[f"{name}.bias"]
        for number in range(config.n_highway):
            name = f"token_encoder.highways.{number}"
            matrices = np.split(weights[f"{name}.weight"], 2)
            biases = np.split(weights[f"{name}.bias"], 2)
            for part, matrix, bias in zip(
                ("carry", "transform"), matrices, biases, strict=True
            ):
                out[f"CNN_high_{number}/W_{part}"] = matrix.T
                out[f"CNN_high_{number}/b_{part}"] = bias
        if config.projected:
            out["CNN_proj/W_proj"] = weights["token_encoder.projection.weight"].T
            out["CNN_proj/b_proj"] = weights["token_encoder.projection.bias"]
    for direction, side in enumerate(("onward", "backward_")):
        for number in range(config.n_layers):
            cell, name = f"{side}.{number}", _cell_name(direction, number)
            parts = (weights[f"{cell}.input_weight"], weights[f"{cell}.output_weight"])
            out[f"{name}/W_0"] = reorder(np.concatenate(parts, axis=1), TO_TENSORFLOW).T
            bias = weights[f"{cell}.bias"].copy()
            bias[config.lstm_dim : 2 * config.lstm_dim] -= FORGET_BIAS
            out[f"{name}/B"] = reorder(bias, TO_TENSORFLOW)
            if config.projection_dim != config.lstm_dim:
                out[f"{name}/W_P_0"] = weights[f"{cell}.projection"].T
    return out


def _write_hdf5(path: Path, datasets: Mapping[str, np.ndarray]) -> None:
    h5py = _import_h5py()
    with h5py.File(path, "w") as file:
        for name, array in datasets.items():
            file.create_dataset(name, data=np.ascontiguousarray(array, dtype=np.float32))
