"""Fine-tuning for words: entities, slots, parts of speech."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.finetuning import FineTuner
from skbert.estimators.params import Rule, check_params, integer, option
from skbert.estimators.tagging import Tagged, TaggingMixin
from skbert.estimators.training import all_or_nothing
from skbert.exceptions import AlignmentWarning
from skbert.text.report import ReadingReport, users_stacklevel
from skbert.text.tags import spans_to_tags
from skbert.text.validation import check_rows, to_builtin
from skbert.text.words import Offsets, align_spans, check_spans, split_words

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags
    from torch import nn

    from skbert.encoders.base import Encoder
    from skbert.encoders.prefix import Prefix
    from skbert.training.loop import Source


class BertTagger(TaggingMixin, FineTuner):
    """Fine-tune an encoder to give each word a tag: entities, slots, parts of speech.

    Every word gets one tag, in order: sentences of any length are read in windows that
    part between words. ``BertVectorizer(output="words")`` with ``BiLSTMTagger`` is the
    other way of the field, which leaves the encoder as it is.

    Parameters
    ----------
    model : str or path, default="sentence-transformers/all-MiniLM-L6-v2"
        A folder with a checkpoint, or a name on the Hugging Face hub. A head that the
        checkpoint brings is not used.
    head : {"softmax", "crf"}, default="softmax"
        "softmax" gives each word its own probabilities, as in the BERT paper; "crf" learns
        which tags follow each other and reads the sentence as a whole [1]_.
    lstm_hidden_size : int, default=0
        Units of each direction of a BiLSTM between encoder and head [2]_; 0 is none.
    word_pooling : {"first", "mean", "max", "last"}, default="first"
        From the pieces of a word to its vector; the first piece as in the BERT paper,
        section 5.3.
    constrain_tags : bool, default=True
        Give only tags that may stand together in their scheme: no "I-PER" without its
        "B-PER". Acts on predictions, and needs no new fit.
    frozen_layers : int, float or "all", default=0
        Layers that keep their pretrained weights: a number from the bottom, a share, or
        the whole encoder; the embeddings freeze with the first. Frozen layers run without
        dropout, and BERT-like models compute their output only once.
    max_epochs : int, default=5
        Passes over the data.
    learning_rate : float, default=1e-4
        Highest rate of the encoder. Twice the largest that the BERT paper tries: with a
        few hundred sentences, the default model learns slots and diseases faster so;
        large encoders may want less.
    head_learning_rate : float or None, default=1e-2
        Highest rate of what stands on the encoder and starts from random weights. None is
        ``learning_rate``.
    layer_decay : float, default=1.0
        Each layer learns at this share of the rate of the layer above.
    weight_decay : float, default=0.01
        Of AdamW, as in the BERT paper; not on biases and norms.
    warmup : float, default=0.1
        Share of the steps in which the rates rise.
    schedule : {"linear", "cosine", "constant"}, default="linear"
        How the rates go on after the warm-up: down to 0, or not at all.
    max_grad_norm : float or None, default=1.0
        Longest gradient; longer ones are scaled down.
    batch_size : int, default=16
        Sentences in a step. The loss of a step is the mean over its words.
    micro_batch_size : int, "auto" or None, default="auto"
        Sentences that are held in memory at once. The step is the same for any value.
        "auto" starts with all of a step and halves when a GPU runs out of memory.
    dropout : float or None, default=None
        Dropout in the trained layers and the head. None keeps that of the checkpoint.
    class_weight : dict, "balanced" or None, default=None
        Weights of words by their tags; "balanced" is as in scikit-learn. With a CRF a
        sentence has the mean weight of its words. Multiplies ``sample_weight``.
    label_smoothing : float, default=0.0
        Share of the target that is spread over all tags; for ``head="softmax"`` only.
    early_stopping : bool, default=False
        Hold out a part of X, stop when the score on it no longer rises, and take the best
        epoch's weights. The score is that of ``scoring_``; as long as it is 0, the mean
        log-likelihood of the tags, which is below 0, stands in.
    validation_fraction : float, default=0.1
        Share of X that ``early_stopping`` holds out.
    n_iter_no_change : int, default=3
        Epochs without a better score after which training stops.
    max_length : int or None, default=None
        Pieces that the encoder reads at once. None is the limit that the model states.
        Longer sentences are read in windows.
    stride : int, default=0
        Pieces that neighbouring windows share, so that words near a border are read with
        their neighbours.
    gradient_checkpointing : bool, default=False
        Compute each layer again in the backward pass in place of keeping what is inside
        it: less memory, a third more time, the same result.
    memory : str, path, joblib.Memory or None, default=None
        A folder in which the output of frozen layers is kept, for later fits, candidates
        of a grid and worker processes. Without frozen layers it is not used.
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps".
    precision : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Number format of the computation; weights stay in float32. "auto" is mixed
        precision on GPUs and float32 on a CPU.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last weights.
    random_state : int, RandomState or None, default=None
        Draws the head, the order of the rows and dropout.
    verbose : int, default=0
        Show a progress bar if greater than 0.

    Attributes
    ----------
    classes_ : ndarray of shape (n_tags,)
        The tags, sorted; the order of the columns of probabilities.
    scheme_ : str or None
        Scheme of the tags: "IOB1", "IOB2", "IOBES" or "BILOU"; None if they are no
        entities.
    scoring_ : str
        What ``score`` gives: "entity_f1", or "word_accuracy" where tags are no entities.
    default_tag_ : str or int
        Tag of a word of which the tokenizer leaves nothing, such as a zero-width space:
        "O", or the most frequent tag if there is no "O". Inside an entity it gets the
        entity's I- instead. Such words have no part in training.
    encoder_ : Encoder
        The fine-tuned encoder.
    head_ : dict of ndarray
        Weights of what stands on the encoder.
    architecture_ : dict
        The parameters that the weights of the head were made for.
    history_ : list of dict
        One record per epoch: "epoch", "loss" (by word), "learning_rate", "seconds" and,
        with a validation set, "validation_score".
    n_iter_ : int
        Epochs run.
    best_epoch_ : int
        Epoch whose weights were kept, from 1.
    n_trainable_parameters_ : int
        Weights that were trained.
    n_halved_ : int
        How often ``micro_batch_size="auto"`` was halved for lack of GPU memory.
    n_frozen_layers_ : int
        Layers that were frozen.
    word_pooling_ : str
        Pooling in use.
    max_length_ : int
        Longest window, in pieces.
    input_kind_ : str
        What ``fit`` saw: "words" or "texts".
    n_features_in_ : int
        Columns of X, if it had any.
    feature_names_in_ : ndarray of str
        Names of these columns.

    See Also
    --------
    BiLSTMTagger : Tags from vectors of words.
    skbert.metrics : Scores for taggers, and scorers for scikit-learn's tools.

    Notes
    -----
    On a CPU the same data and ``random_state`` give the same model, to the bit. This is no
    scikit-learn classifier, since these have one label for each row of X: cross-validation
    takes plain folds, and scorers are those of ``skbert.metrics``.

    References
    ----------
    .. [1] Lafferty, McCallum and Pereira (2001), Conditional random fields.
    .. [2] Huang, Xu and Yu (2015), Bidirectional LSTM-CRF models for sequence tagging.

    Examples
    --------
    >>> from skbert import BertTagger
    >>> X = [["Ada", "lives", "in", "London"], ["Bob", "left", "Paris"]] * 8
    >>> y = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC"]] * 8
    >>> tagger = BertTagger(random_state=0).fit(X, y)
    >>> tagger.predict([["Bob", "lives", "in", "Paris"]])[0]
    ['B-PER', 'O', 'O', 'B-LOC']
    """

    # Of a body that is one of several parts here, depth is no parameter.
    n_lstm_layers = 1
    _other_kinds = " For entities, predict_spans reads texts too."
    _architecture = ("head", "lstm_hidden_size")

    _rules: ClassVar[dict[str, Rule]] = {
        **FineTuner._rules,
        **TaggingMixin._tagging_rules,
        "lstm_hidden_size": integer(0),
        "word_pooling": option("first", "mean", "max", "last"),
    }

    def __init__(
        self,
        model: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        head: str = "softmax",
        lstm_hidden_size: int = 0,
        word_pooling: str = "first",
        constrain_tags: bool = True,
        frozen_layers: int | float | str = 0,
        max_epochs: int = 5,
        learning_rate: float = 1e-4,
        head_learning_rate: float | None = 1e-2,
        layer_decay: float = 1.0,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: str = "linear",
        max_grad_norm: float | None = 1.0,
        batch_size: int = 16,
        micro_batch_size: int | str | None = "auto",
        dropout: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        label_smoothing: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        max_length: int | None = None,
        stride: int = 0,
        gradient_checkpointing: bool = False,
        memory: str | os.PathLike[str] | Memory | None = None,
        device: str = "auto",
        precision: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            model,
            frozen_layers=frozen_layers,
            max_epochs=max_epochs,
            learning_rate=learning_rate,
            head_learning_rate=head_learning_rate,
            layer_decay=layer_decay,
            weight_decay=weight_decay,
            warmup=warmup,
            schedule=schedule,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            dropout=dropout,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            max_length=max_length,
            stride=stride,
            gradient_checkpointing=gradient_checkpointing,
            memory=memory,
            device=device,
            precision=precision,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.head = head
        self.lstm_hidden_size = lstm_hidden_size
        self.word_pooling = word_pooling
        self.constrain_tags = constrain_tags
        self.class_weight = class_weight
        self.label_smoothing = label_smoothing

    @with_callbacks
    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> BertTagger:
        """Train from the pretrained weights, or go on with ``warm_start``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Lists of words; or texts, which are split into words by
            ``skbert.text.words.split_words``.
        y : array-like of shape (n_samples,)
            For lists of words as many tags in a list each. For texts lists of entities:
            (start, end, label) in characters with the end excluded, or mappings with
            these keys, as annotation tools export them. A word that an entity covers in
            part belongs to it, which a warning counts; entities may not overlap.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the sentences; only their ratios matter. Rows of weight 0 are left
            out.
        X_val : array-like of shape (n_validation,) or None
            Sentences to stop early on, in place of a part of X.
        y_val : array-like or None
            Their tags, or entities.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter, X, y or the weights are invalid, or numbers of words and tags
            differ; the positions are named.
        """
        check_params(self, self._rules)
        proceed = self.warm_start and hasattr(self, "encoder_")
        return self._fit(X, y, sample_weight, (X_val, y_val), None, proceed)

    def predict(self, X: Any) -> np.ndarray:
        """Tags of the words.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Lists of words, or texts, as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), object
            For lists of words a list of as many tags each; for texts a list of entities
            (start, end, label) in characters.
        """
        rows, words, offsets = self._read(X)
        out = np.empty(len(rows), dtype=object)
        for at, (numbers, _) in enumerate(self._tagged(words, probabilities=False)):
            if offsets is None:
                out[at] = self.classes_[numbers].tolist()
            else:
                out[at] = [
                    (offsets[at][start][0], offsets[at][end - 1][1], label)
                    for start, end, label in self._entities(numbers)
                ]
        return out

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the tags of each word, in the order of ``classes_``.

        Those of a CRF are marginals over all paths that ``constrain_tags`` allows; those
        of a softmax know nothing of neighbours, so that the tag given may be another than
        the likeliest where the scheme forbids that one.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Lists of words, or texts, as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), object
            Holds one float64 array of shape (n_words, n_tags) for each row; its rows sum
            to 1. A word of which the tokenizer leaves nothing has a 1 at its tag.
        """
        rows, words, _ = self._read(X)
        out = np.empty(len(rows), dtype=object)
        for at, tagged in enumerate(self._tagged(words, probabilities=True)):
            out[at] = tagged.probabilities.copy()
        return out

    def predict_spans(self, X: Any, offsets: Any = None) -> np.ndarray:
        """Entities, with the words they cover and their scores.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Lists of words; or texts, whatever ``fit`` saw.
        offsets : list of list of (start, end) or None, default=None
            Where the words of X stand in a text, in characters. For texts they are known.

        Returns
        -------
        ndarray of shape (n_samples,), object
            Holds a list of dicts for each row: "start" and "end" in words, with the end
            excluded, "label", "score" (the mean probability of the tags) and, where
            offsets are known, "start_char" and "end_char"; for texts also "text".

        Raises
        ------
        ValueError
            If the tagger was fitted with tags that are no entities, or there is not one
            offset for each word.
        """
        check_is_fitted(self)
        self._check_entities()
        rows, words, known = self._read(X, any_kind=True)
        if known is None and offsets is not None:
            known = self._check_offsets(offsets, words)
        out = np.empty(len(rows), dtype=object)
        for at, tagged in enumerate(self._tagged(words, probabilities=True)):
            out[at] = self._spans(tagged)
            if known is None:
                continue
            for span in out[at]:
                span["start_char"] = known[at][span["start"]][0]
                span["end_char"] = known[at][span["end"] - 1][1]
                if isinstance(rows[at], str):
                    span["text"] = rows[at][span["start_char"] : span["end_char"]]
        return out

    def score(self, X: Any, y: Any) -> float:
        """Entity F1, or word accuracy where tags are no entities; ``scoring_`` says which.

        Entities count as in ``skbert.metrics.entity_f1_score`` by default. For texts they
        are those of whole words, as in ``fit``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Lists of words, or texts, as in ``fit``.
        y : array-like of shape (n_samples,)
            True tags, or entities.

        Returns
        -------
        float
        """
        rows, words, _ = self._read(X)
        _, truth = self._read_targets(rows, y, "y")
        tagged = self._tagged(words, probabilities=False)
        return self._score_tags(truth, [self.classes_[row].tolist() for row, _ in tagged])

    def export_transformers(self, folder: str | os.PathLike[str]) -> None:
        """Write a standard checkpoint for ``transformers``.

        ``AutoModelForTokenClassification`` opens it and gives the first piece of each word
        the same probabilities. With tags of IOB2, ``pipeline("token-classification",
        folder, aggregation_strategy="first")`` gives the same entities, where its
        tokenizer splits a text into the same words; of other schemes it knows no E-, S-, L-
        and U-.

        Parameters
        ----------
        folder : str or path
            Made if it is not there.

        Raises
        ------
        NotFittedError
            If there is nothing to export.
        ValueError
            If transformers has no tagger that computes the same. Theirs have a linear
            layer on each piece and know nothing of neighbouring tags, so
            ``head="softmax"``, ``lstm_hidden_size=0``, ``word_pooling="first"`` and
            ``constrain_tags=False`` are needed; the last can be set after ``fit``.
        """
        from skbert.encoders.export import export_tagger

        check_is_fitted(self)
        self._check_architecture()
        wanted = {
            "head": "softmax",
            "lstm_hidden_size": 0,
            "word_pooling": "first",
            "constrain_tags": False,
        }
        for parameter, value in wanted.items():
            if (given := getattr(self, parameter)) != value:
                how = "Set it" if parameter == "constrain_tags" else "Fit with it"
                raise ValueError(
                    f"{type(self).__name__} cannot be exported with {parameter}={given!r}, "
                    f"which the taggers of transformers do not know; they work as with "
                    f"{parameter}={value!r}. {how}, or use save."
                )
        export_tagger(
            self.encoder_,
            (self.head_["linear.weight"], self.head_["linear.bias"]),
            [str(tag) for tag in self.classes_.tolist()],
            self.max_length_,
            Path(os.path.expanduser(folder)),
            type(self).__name__,
        )

    # ---- training

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: tuple[Any, Any],
        classes: Any,
        proceed: bool,
        max_epochs: int | None = None,
    ) -> BertTagger:
        self._check_head()
        self._check_validation(*validation)
        rows = self._rows(X, ("words", "texts"), reset=not proceed)
        words, tags = self._read_targets(rows, y, "y")
        held = None
        if validation[0] is not None:
            held_rows = self._rows(validation[0], ("words", "texts"), reset=False)
            held = self._read_targets(held_rows, validation[1], "y_val")
        self._fit_tags(
            words, tags, sample_weight, held, classes, proceed, max_epochs, given=(X, y)
        )
        return self

    def _read_targets(
        self, rows: list[Any], y: Any, name: str
    ) -> tuple[list[list[str]], list[list[Any]]]:
        """Words and tags of the rows of X, from tags or from spans in characters."""
        from skbert.training.targets import read_tags

        caller = type(self).__name__
        if not isinstance(rows[0], str):
            return rows, read_tags(y, [len(row) for row in rows], caller, name)
        spans = check_spans(y, rows, f"{name} of {caller}")
        words, offsets = _split(rows)
        tags: list[list[Any]] = []
        widened: list[int] = []
        for at, (given, places) in enumerate(zip(spans, offsets, strict=True)):
            where = f"{name} of {caller} at position {at}"
            aligned, n_widened = align_spans(given, places, where)
            tags.append(spans_to_tags(aligned, len(places), "IOB2"))
            widened += [at] * n_widened
        if widened:
            warnings.warn(
                f"{caller} widened {len(widened)} of {sum(map(len, spans))} spans to "
                f"whole words (first positions: {sorted(set(widened))[:5]}), since a word "
                "has one tag. Give lists of words to split them in another way.",
                AlignmentWarning,
                stacklevel=users_stacklevel(),
            )
        return words, tags

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        return {
            "word_pooling_": self.word_pooling,
            "max_length_": self._resolve_max_length(encoder),
        }

    def _source(
        self,
        rows: list[Any],
        prefix: Prefix,
        pretrained: Encoder,
        device: torch.device,
        report: ReadingReport,
    ) -> Source:
        import torch

        from skbert.training.source import WordSource, WordVectorSource

        encoder = prefix.encoder
        if prefix.n_frozen == encoder.n_layers:
            vectors: list[Any] = [None] * len(rows)
            for positions, row in self._word_vectors(
                rows, encoder, pretrained, device, torch.float32, report
            ):
                for at in positions:
                    vectors[at] = row
            return WordVectorSource(vectors, device)
        options = self._reading_options("windows", "auto")
        encodings, kept = self._windows(rows, prefix, pretrained, device, report, options)
        return WordSource(encodings, len(rows), encoder, device, kept)

    def _network(self, encoder: Any, prefix: Prefix, head: Any) -> nn.Module:
        from skbert.nn.network import WordNetwork

        return WordNetwork(encoder.model, prefix.forward, self.word_pooling_, head)

    # ---- reading

    def _read(
        self, X: Any, *, any_kind: bool = False
    ) -> tuple[list[Any], list[list[str]], list[Offsets] | None]:
        """Rows of X, their words and, for texts, where these stand."""
        check_is_fitted(self)
        self._check_unchanged()
        self._check_architecture()
        kinds = ("words", "texts")
        rows: list[Any]
        if any_kind:
            rows = list(check_rows(X, caller=type(self).__name__, accept=kinds))
        else:
            rows = self._rows(X, kinds, reset=False)
        if isinstance(rows[0], str):
            words, offsets = _split(rows)
            return rows, words, offsets
        return rows, rows, None

    def _check_offsets(self, offsets: Any, words: list[list[str]]) -> list[Offsets]:
        offsets = to_builtin(offsets)
        wrong = [
            at
            for at, row in enumerate(words)
            if at >= len(offsets) or len(offsets[at]) != len(row)
        ]
        if wrong or len(offsets) != len(words):
            raise ValueError(
                f"offsets of {type(self).__name__} must hold one (start, end) for each "
                f"word of X. Got {len(offsets)} rows for {len(words)}; numbers differ at "
                f"positions {wrong[:5]}."
            )
        return [[(int(a), int(b)) for a, b in row] for row in offsets]

    def _tagged(self, words: list[list[str]], *, probabilities: bool) -> list[Tagged]:
        """Tags of the rows, those of equal rows shared."""
        from skbert.training.device import resolve_device, resolve_precision

        tagged: list[Any] = [None] * len(words)
        self._check_room(self.encoder_, words)
        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        encoder = self.encoder_.placed(device, dtype)
        report = ReadingReport()
        frozen = self.n_frozen_layers_ == encoder.n_layers
        stored_as = self.encoder_ if frozen else None
        # Closed also when decoding fails: an error that is kept, as an interactive session
        # does, would else keep the workers waiting, and the next call with them.
        with closing(
            self._word_vectors(words, encoder, stored_as, device, dtype, report)
        ) as vectors:
            for positions, row in self._decode(
                vectors, device, probabilities=probabilities
            ):
                for at in positions:
                    tagged[at] = row
        self._report(report, words)
        return tagged

    def _word_vectors(
        self,
        rows: list[Any],
        encoder: Encoder,
        stored_as: Encoder | None,
        device: torch.device,
        dtype: torch.dtype,
        report: ReadingReport,
    ) -> Generator[tuple[list[int], np.ndarray], None, None]:
        """Positions and vectors of the words of each distinct row.

        ``stored_as`` is the encoder to whose vectors ``memory`` may add, with the same
        weights as ``encoder``; None where they are not pretrained ones.
        """
        from skbert.training.source import UNREAD
        from skbert.training.vectors import WordReader, read_rows

        reader = WordReader(
            encoder=encoder,
            layers=[encoder.n_layers],
            layer_pooling="mean",
            pooling=self.word_pooling_,
            normalize=False,
            size=encoder.hidden_size,
            missing=UNREAD,
        )
        options = self._reading_options("windows", "auto")
        store = None
        if stored_as is not None:
            recipe = {"vectors of words pooled by": self.word_pooling_}
            store = self._open_store(stored_as, device, dtype, options, recipe)
        yield from read_rows(
            rows,
            reader,
            options,
            device,
            report=report,
            progress=lambda n: None,
            store=store,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _split(texts: list[str]) -> tuple[list[list[str]], list[Offsets]]:
    """Words of texts, and where they stand."""
    offsets = [split_words(text) for text in texts]
    words = [
        [text[start:end] for start, end in places]
        for text, places in zip(texts, offsets, strict=True)
    ]
    return words, offsets
