"""From a name, a folder or paths to an ELMo, whichever of its formats it is in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from skbert.encoders.loading import load_once
from skbert.exceptions import ModelNotFoundError

if TYPE_CHECKING:
    from skbert.encoders.elmo import ElmoEncoder

PathLike: TypeAlias = str | os.PathLike[str]

# Models that are part of skbert: the folder beside this package that holds them.
SHIPPED = {"elmo-small-english": "elmo_small_english"}


def load_elmo(model: PathLike | Sequence[PathLike]) -> ElmoEncoder:
    """Load an ELMo, once per process.

    Parameters
    ----------
    model : str, path or sequence of two or three paths
        "elmo-small-english"; or a folder as ``ElmoPretrainer.export`` writes it, as
        AllenNLP, bilm-tf and the NLPL repository have it, or of ELMoForManyLangs; or the
        paths of options, HDF5 weights and, for models without characters, vocabulary.

    Returns
    -------
    ElmoEncoder

    Raises
    ------
    ModelNotFoundError
        If there is no such folder or file, or it is none of these formats.
    ValueError
        If the files do not belong together, or are damaged.
    """
    if isinstance(model, str | os.PathLike):
        files, read = _in_folder(_folder(os.fspath(model)))
    else:
        files = [Path(os.path.expanduser(path)) for path in model]
        read = _read_paths
        _check_files(files)
    key = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return load_once(tuple(key), str(files[0].parent), lambda: read(files))


def _folder(name: str) -> Path:
    if name in SHIPPED:
        return Path(__file__).resolve().parents[1] / "models" / SHIPPED[name]
    folder = Path(os.path.expanduser(name))
    if folder.suffix == ".zip" and folder.is_file():
        raise ModelNotFoundError(f"model={name!r} is an archive. Unpack it into a folder.")
    if not folder.is_dir():
        shipped = " or ".join(repr(known) for known in SHIPPED)
        raise ModelNotFoundError(
            f"There is no folder {name!r} (looked for {str(folder.absolute())!r}). Give "
            f"the folder of an ELMo, the paths of options and weights, or {shipped}."
        )
    return folder


Read: TypeAlias = "Callable[[list[Path]], ElmoEncoder]"


def _in_folder(folder: Path) -> tuple[list[Path], Read]:
    """The files of the model in a folder, and what reads them."""
    from skbert.encoders.elmo_formats import OWN_FILE, OWN_WEIGHTS, read_own
    from skbert.encoders.elmo_many_langs import read_many_langs

    present = sorted(path.name for path in folder.iterdir() if path.is_file())
    if OWN_FILE in present:
        files = [folder / OWN_FILE, folder / OWN_WEIGHTS]
        _check_files(files)
        return files, lambda files: read_own(folder)
    if "token_embedder.pkl" in present or "encoder.pkl" in present:
        return [folder / name for name in present], lambda files: read_many_langs(folder)
    if "skbert.json" in present:
        raise ModelNotFoundError(
            f"The folder {str(folder)!r} holds an estimator that was saved by skbert. Read "
            "it with the load method of its class: a fitted ElmoPretrainer may be model=."
        )
    options = [name for name in present if name.endswith("options.json")]
    weights = [name for name in present if name.endswith((".hdf5", ".h5"))]
    if len(weights) > 1:  # others may be vectors that were kept
        weights = [name for name in weights if Path(name).stem.endswith("weights")]
    if len(options) == len(weights) == 1:
        names = [*options, *weights, *(n for n in present if n == "vocab.txt")]
        return [folder / name for name in names], _read_paths
    shown = ", ".join(present[:10]) or "nothing"
    hint = " This is a Hugging Face checkpoint: use BertVectorizer."
    raise ModelNotFoundError(
        f"The folder {str(folder)!r} is no ELMo: it must hold elmo.json (as skbert writes "
        "it), or one file *options.json and one *.hdf5 (AllenNLP; of several give the two "
        "paths), or config.json, encoder.pkl and token_embedder.pkl (ELMoForManyLangs). "
        f"It holds {shown}.{hint if 'config.json' in present else ''}"
    )


def _check_files(files: Sequence[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise ModelNotFoundError(
                f"There is no file {str(file)!r}, which an ELMo needs."
            )


def _read_paths(files: list[Path]) -> ElmoEncoder:
    from skbert.encoders.elmo_formats import read_allennlp

    return read_allennlp(*files)
