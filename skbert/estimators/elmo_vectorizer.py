"""Texts and words to vectors by ELMo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from joblib import Memory

from skbert.estimators.elmo_models import ELMO_RULE, resolve_elmo
from skbert.estimators.params import (
    Rule,
    boolean,
    check_params,
    integer,
    option,
    sequence_of_ints,
)
from skbert.estimators.split import Tokenizer, split_rows
from skbert.estimators.vectorizing import READING_RULES, Vectorizer

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder
    from skbert.encoders.elmo import ElmoEncoder

# Rows of X that a warm start goes by where the model brings no sentences.
N_WARM_UP = 10


class ElmoVectorizer(Vectorizer):
    """Vectors of texts or of their words from a frozen ELMo.

    ELMo [1]_ reads a sentence word by word, each by its characters, in both directions,
    and gives every word a vector that depends on the sentence around it. Unlike in the
    original programs every sentence starts from the same state: a text has the same
    vector whatever was read before it and beside it. The numbers are those of the
    originals to 1e-5.

    Parameters
    ----------
    model : str, path, sequence of paths or estimator, default="elmo-small-english"
        The default comes with the package: small, English, trained on 4.8 million words.
        Published models are read from a folder, or from the paths of its files: of
        AllenNLP and bilm-tf (``options.json``, HDF5 weights and, for models without
        characters, ``vocab.txt``; needs ``pip install "skbert[elmo]"``), of
        ELMoForManyLangs, and of ``ElmoPretrainer.export``. Or a fitted ``ElmoPretrainer``,
        within a ``sklearn.frozen.FrozenEstimator`` where it would be cloned.
    output : {"document", "words"}, default="document"
        One vector for each row, or one for each word of each row.
    layers : "mean", "concat", "all", int or list of int, default="mean"
        0 is the token layer, the same for a word in any sentence, above it are the LSTM
        layers; negative numbers count from the top. "mean" and "concat" take all layers, a
        list joins those named. "all" keeps them apart, for ``output="words"``: the heads
        ``BiLSTMTagger`` and ``BiLSTMClassifier`` then learn what each is worth, as in the
        paper.
    pooling : {"mean", "max"}, default="mean"
        From words to a text. Not used with ``output="words"``.
    initial_state : {"zeros", "warm"}, default="zeros"
        What every sentence starts from: zeros, or the state behind some sentences that
        are read one after the other, those that the model brings or else the first ten
        rows of ``fit``. The models were trained on running text and never saw zeros: the
        first words of a sentence are read better from a warm state.
    tokenizer : callable or None, default=None
        From a text to a list of words. None is ``skbert.text.words.split_words``. Not used
        where X holds lists of words.
    sentence_markers : bool, default=True
        Whether a word that is spelled as the model spells the begin or the end of a
        sentence ("<S>", "</S>"; "<bos>", "<eos>" in ELMoForManyLangs) is read as such, as
        the original programs do.
    normalize : bool, default=False
        Scale every vector to Euclidean length 1 (a vector of zeros stays).
    max_length : int or None, default=None
        Words that are read at once, the two markers included. None is no limit.
    long_text : {"auto", "truncate", "head_tail", "windows"}, default="auto"
        What happens to a row of more words, as for ``BertVectorizer``. "auto" is
        "truncate" for documents and "windows" for words.
    stride : int, default=0
        Words that neighbouring windows share.
    batch_size : int or "auto", default="auto"
        Rows in a batch. "auto" fills batches up to a number of words that suits the
        device.
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps".
    precision : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Number format of the computation; the vectors are float32 in any case.
    memory : str, path, joblib.Memory or None, default=None
        Folder that keeps the vector of every row, to be found again by later calls, other
        processes and other runs.
    verbose : int, default=0
        Show a progress bar if greater than 0.

    Attributes
    ----------
    encoder_ : ElmoEncoder
        The network and its alphabet.
    layers_ : list of int
        Layers in use, counted from the token layer.
    long_text_ : str
        Treatment of long rows, "auto" resolved.
    max_length_ : int
        Longest window in words; 2**31 - 1 where there is no limit.
    initial_state_ : str
        As the parameter, when ``fit`` was called.
    sentence_markers_ : bool
        As the parameter, when ``fit`` was called.
    n_features_out_ : int
        Width of a vector.
    input_kind_ : str
        What ``fit`` saw: "texts" or "words".
    n_features_in_ : int
        Columns of X, if it had any.
    feature_names_in_ : ndarray of str
        Names of these columns.

    See Also
    --------
    ElmoPretrainer : Train an ELMo, or go on training one, on texts of your own.
    BertVectorizer : The same from any Hugging Face encoder.

    Notes
    -----
    A row is read as one sentence: split longer texts where that matters. A row without
    words is a vector of zeros. Words whose characters were read before are looked up in a
    table of up to 64 MB that lives as long as the model does.

    References
    ----------
    .. [1] Peters et al. (2018), Deep contextualized word representations.
    .. [2] Che et al. (2018), Towards better UD parsing: deep contextualized word
       embeddings, ensemble, and treebank concatenation (ELMoForManyLangs).

    Examples
    --------
    >>> from skbert import ElmoVectorizer
    >>> texts = ["I ate an apple", "Apple sold more phones"]
    >>> ElmoVectorizer().fit_transform(texts).shape
    (2, 256)
    >>> [row.shape for row in ElmoVectorizer(output="words").fit_transform(texts)]
    [(4, 256), (4, 256)]
    """

    _rules: ClassVar[dict[str, Rule]] = {
        "model": ELMO_RULE,
        "output": option("document", "words"),
        "layers": option("mean", "concat", "all") | integer() | sequence_of_ints(),
        "pooling": option("mean", "max"),
        "initial_state": option("zeros", "warm"),
        "tokenizer": Rule(callable, "a callable") | option(None),
        "sentence_markers": boolean(),
        **READING_RULES,
    }

    _layers_parameter = "layers"

    def __init__(
        self,
        model: Any = "elmo-small-english",
        *,
        output: str = "document",
        layers: int | Sequence[int] | str = "mean",
        pooling: str = "mean",
        initial_state: str = "zeros",
        tokenizer: Tokenizer | None = None,
        sentence_markers: bool = True,
        normalize: bool = False,
        max_length: int | None = None,
        long_text: str = "auto",
        stride: int = 0,
        batch_size: int | str = "auto",
        device: str = "auto",
        precision: str = "auto",
        memory: str | os.PathLike[str] | Memory | None = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.output = output
        self.layers = layers
        self.pooling = pooling
        self.initial_state = initial_state
        self.tokenizer = tokenizer
        self.sentence_markers = sentence_markers
        self.normalize = normalize
        self.max_length = max_length
        self.long_text = long_text
        self.stride = stride
        self.batch_size = batch_size
        self.device = device
        self.precision = precision
        self.memory = memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> ElmoVectorizer:
        """Check parameters and input, and load the model.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or lists of words. Only checked, except for a warm start from it.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is invalid or does not suit the model, the files of the model
            do not belong together, or X holds anything but texts.
        ModelNotFoundError
            If the model is not to be had.
        """
        check_params(self, self._rules)
        name = type(self).__name__
        self._check_layers()
        rows = self._check_rows(X, reset=True)

        from skbert.training.device import resolve_device

        resolve_device(self.device, name)
        encoder = resolve_elmo(self.model, name)
        self.__dict__.update(self._resolve(encoder))
        self._check_room(encoder, rows)
        self.encoder_ = encoder.with_options(
            markers=bool(self.sentence_markers), warm_up=self._warm_up(encoder, rows)
        )
        return self

    def _warm_up(
        self, encoder: ElmoEncoder, rows: list[list[str]]
    ) -> Sequence[list[str]] | None:
        if self.initial_state == "zeros":
            return None
        sentences = encoder.warm_up or [row for row in rows if row][:N_WARM_UP]
        if not sentences:
            raise ValueError(
                f"initial_state='warm' of {type(self).__name__} starts from the first rows "
                "of X, in which there are no words. Use 'zeros', or give texts."
            )
        return sentences

    # ---- resolving parameters against the model

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        layers = self._resolve_layers(encoder)
        auto = "truncate" if self.output == "document" else "windows"
        n_joined = len(layers) if self._combine_layers() == "concat" else 1
        return {
            "layers_": layers,
            "long_text_": auto if self.long_text == "auto" else self.long_text,
            "max_length_": self._resolve_max_length(encoder),
            "initial_state_": self.initial_state,
            "sentence_markers_": bool(self.sentence_markers),
            "n_features_out_": encoder.hidden_size * n_joined,
        }

    def _resolve_layers(self, encoder: Encoder) -> list[int]:
        if isinstance(self.layers, str):
            return list(range(encoder.n_layers + 1))
        return self._count_layers(self.layers, encoder, "the token layer")

    def _combine_layers(self) -> str:
        named = {"mean": "mean", "all": "stack"}
        return (
            named.get(self.layers, "concat") if isinstance(self.layers, str) else "concat"
        )

    def _combine_pieces(self) -> str:
        return "mean" if self.output == "words" else self.pooling

    def _check_rows(self, X: Any, *, reset: bool) -> list[Any]:
        rows = self._rows(X, ("texts", "words"), reset=reset)
        return split_rows(rows, self.tokenizer, type(self).__name__)
