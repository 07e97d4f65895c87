"""biLMs in the folders of ELMoForManyLangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from skbert.encoders.elmo import ElmoEncoder, bilm_of
from skbert.nn.bilm import BilmConfig
from skbert.nn.token_encoder import ACTIVATIONS
from skbert.text.characters import WHITE_SPACE, DictionaryRows

# Folders often name a configuration by its path on the author's machine: these are what
# the two names in use stand for.
PUBLISHED = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
PUBLISHED_NAMES = (
    "cnn_50_100_512_4096_sample.json",
    "cnn_0_100_512_4096_sample.json",
)

# Blocks of a gate matrix: input, forget, candidate, output, of which ours are the first,
# the second, the last and the third.
GATES = [0, 1, 3, 2]


def read_many_langs(folder: Path) -> ElmoEncoder:
    """Read a folder with ``config.json``, dictionaries and two state dicts."""
    settings = _settings(folder)
    encoder, embedder = settings["encoder"], settings["token_embedder"]
    words = _dictionary(folder / "word.dic") if embedder["word_dim"] else None
    characters = _dictionary(folder / "char.dic") if embedder["char_dim"] else None
    tokens = _load(folder / "token_embedder.pkl")
    layers = _load(folder / "encoder.pkl")
    alphabet = DictionaryRows(embedder["max_characters_per_token"], characters, words)
    config = BilmConfig(
        projection_dim=encoder["projection_dim"],
        lstm_dim=encoder["dim"],
        n_layers=encoder["n_layers"],
        cell_clip=encoder["cell_clip"] or None,
        proj_clip=encoder["proj_clip"] or None,
        use_skip_connections=True,
        n_words=_n_rows(tokens, "word_emb_layer", words, folder),
        word_dim=embedder["word_dim"] if words else 0,
        n_characters=_n_rows(tokens, "char_emb_layer", characters, folder),
        character_dim=embedder["char_dim"],
        max_characters_per_token=embedder["max_characters_per_token"],
        filters=tuple((w, n) for w, n in embedder["filters"]) if characters else (),
        activation=embedder["activation"],
        n_highway=embedder["n_highway"] if characters else 0,
        projected=True,
    )
    weights = _token_weights(config, tokens) | _layer_weights(config, layers)
    return ElmoEncoder(_fitting(config, weights, folder), alphabet)


def _settings(folder: Path) -> dict[str, Any]:
    named = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config_path"]
    base = named.replace("\\", "/").rpartition("/")[2]
    for path in (folder / named, folder / base):
        if path.is_file():
            settings = json.loads(path.read_text(encoding="utf-8"))
            break
    else:
        if base not in PUBLISHED_NAMES:
            raise ValueError(
                f"{str(folder / 'config.json')!r} names the configuration {named!r}, which "
                f"is not there. Put {base!r} into {str(folder)!r}."
            )
        settings = PUBLISHED
    kinds = settings["encoder"]["name"].lower(), settings["token_embedder"]["name"].lower()
    if kinds != ("elmo", "cnn"):
        raise ValueError(
            f"The model in {str(folder)!r} has the encoder {kinds[0]!r} over "
            f"{kinds[1]!r}. Only 'elmo' over 'cnn' is read."
        )
    if settings["token_embedder"]["activation"] not in ACTIVATIONS:
        raise ValueError(
            f"'token_embedder.activation' of {str(folder)!r} must be 'relu' or 'tanh'. Got "
            f"{settings['token_embedder']['activation']!r}."
        )
    return settings


def _dictionary(path: Path) -> dict[str, int]:
    """Numbers of tokens, one to a line, as ``token TAB number``."""
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} lacks {path.name}.")
    table: dict[str, int] = {}
    for line in path.read_bytes().decode("utf-8").split("\n"):
        fields = line.strip().split("\t")
        if fields == [""]:
            continue
        # Stripping took the token where it was white space.
        token = fields[0] if len(fields) > 1 else WHITE_SPACE
        table.setdefault(token, int(fields[-1]))
    return table


def _load(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} lacks {path.name}.")
    state: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return {name: part.float() for name, part in state.items()}


def _n_rows(
    state: dict[str, torch.Tensor], layer: str, table: dict[str, int] | None, folder: Path
) -> int:
    """Rows of a table, which its dictionary may not go beyond."""
    if table is None:
        return 0
    n_rows = len(_take(state, f"{layer}.embedding.weight"))
    if max(table.values()) >= n_rows:
        raise ValueError(
            f"A dictionary of {str(folder)!r} goes up to {max(table.values())}, but "
            f"{layer!r} has {n_rows} rows. They do not belong together."
        )
    return n_rows


def _take(state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in state:
        raise ValueError(f"The weights of the model lack {name!r}.")
    return state[name]


def _token_weights(
    config: BilmConfig, state: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    weights = {}
    if config.n_words:
        weights["words"] = _take(state, "word_emb_layer.embedding.weight")
    if config.n_characters:
        weights["characters"] = _take(state, "char_emb_layer.embedding.weight")
    for number in range(len(config.filters)):
        for part in ("weight", "bias"):
            name = f"convolutions.{number}.{part}"
            weights[name] = _take(state, name)
    for number in range(config.n_highway):
        for part in ("weight", "bias"):
            # Their gate weighs what comes in, ours what is new: the sign turns.
            new, gate = _take(state, f"highways._layers.{number}.{part}").chunk(2)
            weights[f"highways.{number}.{part}"] = torch.cat([-gate, new])
    for part in ("weight", "bias"):
        weights[f"projection.{part}"] = _take(state, f"projection.{part}")
    return {f"token_encoder.{name}": part for name, part in weights.items()}


def _layer_weights(
    config: BilmConfig, state: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    weights = {}
    for theirs, ours in (("forward", "onward"), ("backward", "backward_")):
        for number in range(config.n_layers):
            layer = f"{theirs}_layer_{number}"
            names = {
                "input_weight": "input_linearity.weight",
                "output_weight": "state_linearity.weight",
                "bias": "state_linearity.bias",
            }
            for name, theirs_name in names.items():
                blocks = _take(state, f"{layer}.{theirs_name}").chunk(4)
                whole = torch.cat([blocks[block] for block in GATES])
                weights[f"{ours}.{number}.{name}"] = whole
            if config.projection_dim != config.lstm_dim:
                name = f"{layer}.state_projection.weight"
                weights[f"{ours}.{number}.projection"] = _take(state, name)
    return weights


def _fitting(config: BilmConfig, weights: dict[str, torch.Tensor], folder: Path) -> Any:
    try:
        return bilm_of(config, weights)
    except RuntimeError as error:
        raise ValueError(
            f"The weights in {str(folder)!r} do not have the sizes that its configuration "
            f"states: {error}"
        ) from error
