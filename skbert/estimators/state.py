"""Fitted state as plain values: what pickles, copies and saved folders hold."""

from __future__ import annotations

import inspect
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import BaseEstimator

from skbert._version import __version__
from skbert.exceptions import VersionWarning

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder

Self = TypeVar("Self", bound="SavedEstimator")

VERSION_KEY = "_skbert_version"
ENCODER_KEY = "_encoder_state"


class SavedEstimator(BaseEstimator):
    """An estimator whose state is arrays, strings and numbers.

    Fitted encoders leave and enter a pickle as numpy arrays and JSON strings, so that a
    saved estimator needs neither its folder nor a network nor one version of a library,
    and can be memory-mapped.
    """

    # scikit-learn shows descriptions of parameters in notebooks only beside a link.
    _doc_link_module = "skbert"
    _doc_link_template = "#{estimator_module}.{estimator_name}"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if (encoder := state.pop("encoder_", None)) is not None:
            state[ENCODER_KEY] = encoder.state()
        state[VERSION_KEY] = __version__
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        version = state.pop(VERSION_KEY, None)
        if version != __version__:
            warnings.warn(
                f"This {type(self).__name__} was saved by skbert {version} and is read by "
                f"skbert {__version__}; results may differ. Fit and save it again to be "
                "sure.",
                VersionWarning,
                stacklevel=2,
            )
        if (encoder := state.pop(ENCODER_KEY, None)) is not None:
            state["encoder_"] = _restore(encoder)
        # A parameter that is younger than the saved estimator has its default, or repr
        # and clone would miss it.
        parameters = inspect.signature(type(self).__init__).parameters
        for name in type(self)._get_param_names():
            state.setdefault(name, parameters[name].default)
        super().__setstate__(state)

    def __copy__(self: Self) -> Self:
        # copy.copy would otherwise go through the state and build the network anew.
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a folder, without pickle.

        Parameters
        ----------
        folder : str or path
            Made if it is not there. Holds ``model.safetensors``, ``skbert.json`` and, for
            estimators with an encoder, ``tokenizer.json`` afterwards.

        Raises
        ------
        NotFittedError
            If there is nothing to save.
        TypeError
            If a parameter is not a plain value and so has no place in JSON.
        """
        from skbert.estimators.persistence import save

        save(self, Path(os.path.expanduser(folder)))

    @classmethod
    def load(cls: type[Self], folder: str | os.PathLike[str]) -> Self:
        """Read an estimator that ``save`` wrote. Runs no code from the folder.

        Parameters
        ----------
        folder : str or path

        Returns
        -------
        estimator

        Raises
        ------
        FileNotFoundError
            If the folder lacks one of the files.
        ValueError
            If it holds an estimator of another class.
        """
        from skbert.estimators.persistence import load

        return load(cls, Path(os.path.expanduser(folder)))


def _restore(state: dict[str, Any]) -> Encoder:
    """The encoder of what its ``state`` gave."""
    if state.get("kind") == "elmo":
        from skbert.encoders.elmo import ElmoEncoder

        return ElmoEncoder.from_state(state)

    from skbert.encoders.transformer import TransformerEncoder

    return TransformerEncoder.from_state(state)
