"""A BiLSTM over vectors of words, which some vectorizer made, for tags and for classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.classes import ClassesMixin
from skbert.estimators.params import Rule, check_params, integer, option
from skbert.estimators.tagging import TaggingMixin, grouped
from skbert.estimators.training import all_or_nothing
from skbert.estimators.word_vectors import WordVectorEstimator, longest_first

if TYPE_CHECKING:
    from skbert.nn.bilstm_pooling import PooledBiLSTM


class BiLSTMTagger(TaggingMixin, WordVectorEstimator):
    """Give each word a tag, from vectors of the words, by a BiLSTM and a softmax or CRF.

    Stands behind a vectorizer with ``output="words"`` in a pipeline. The vectors do not
    change: where the labelled data allow to train the encoder too, ``BertTagger`` does. A
    word of which the vectorizer's tokenizer leaves nothing is a vector of zeros like any
    other here.

    Rows may have a vector of each layer, as with ``layer_pooling="stack"``. The sum of
    ``gamma_ * layer_weights_[l]`` times layer l then takes their place, where ``gamma_``
    and ``layer_weights_``, a softmax, are learned with the rest, as in ELMo [3]_.

    Parameters
    ----------
    head : {"softmax", "crf"}, default="crf"
        "softmax" gives each word its own probabilities; "crf" learns which tags follow
        each other and reads the sentence as a whole [1]_.
    lstm_hidden_size : int, default=200
        Units of each direction; 0 is no LSTM, so that each word stands for itself.
    n_lstm_layers : int, default=1
        Layers of the LSTM.
    dropout : float, default=0.5
        Before the LSTM, between its layers and before the head, as in [2]_.
    constrain_tags : bool, default=True
        Give only tags that may stand together in their scheme: no "I-PER" without its
        "B-PER". Acts on predictions, and needs no new fit.
    max_epochs : int, default=20
        Passes over the data.
    learning_rate : float, default=5e-3
        Highest rate.
    weight_decay : float, default=0.01
        Of AdamW; not on biases, nor on the mix of layers.
    warmup : float, default=0.1
        Share of the steps in which the rate rises.
    schedule : {"linear", "cosine", "constant"}, default="linear"
        How the rate goes on after the warm-up: down to 0, or not at all.
    max_grad_norm : float or None, default=5.0
        Longest gradient, as in [2]_; longer ones are scaled down.
    batch_size : int, default=16
        Sentences in a step. The loss of a step is the mean over its words.
    micro_batch_size : int, "auto" or None, default="auto"
        Sentences that are held in memory at once. The step is the same for any value.
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
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps".
    precision : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Number format of the computation; weights stay in float32. "auto" is mixed
        precision on GPUs and float32 on a CPU.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last weights.
    random_state : int, RandomState or None, default=None
        Draws the weights, the order of the rows and dropout.
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
        "O", or the most frequent tag if there is no "O".
    head_ : dict of ndarray
        All weights.
    architecture_ : dict
        The parameters that these weights were made for.
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
    n_features_in_ : int
        Width of the vectors.
    n_layers_in_ : int
        Layers of each word. This and the next two are only there for vectors of each layer.
    layer_weights_ : ndarray of shape (n_layers,)
        What each layer is worth: shares that were learned and sum to 1.
    gamma_ : float
        Learned factor of the mix.

    See Also
    --------
    BertTagger : Trains the encoder too.
    BiLSTMClassifier : One label for each row.

    References
    ----------
    .. [1] Huang, Xu and Yu (2015), Bidirectional LSTM-CRF models for sequence tagging.
    .. [2] Lample et al. (2016), Neural architectures for named entity recognition.
    .. [3] Peters et al. (2018), Deep contextualized word representations, equation 1.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skbert import BertVectorizer, BiLSTMTagger
    >>> X = [["Ada", "lives", "in", "London"], ["Bob", "left", "Paris"]] * 8
    >>> y = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC"]] * 8
    >>> vectorizer = BertVectorizer(output="words")
    >>> tagger = make_pipeline(vectorizer, BiLSTMTagger(random_state=0)).fit(X, y)
    >>> tagger.predict([["Bob", "lives", "in", "Paris"]])[0]
    ['B-PER', 'O', 'O', 'B-LOC']
    """

    _rules: ClassVar[dict[str, Rule]] = {
        **WordVectorEstimator._rules,
        **TaggingMixin._tagging_rules,
        "lstm_hidden_size": integer(0),
    }
    _architecture = ("head", "lstm_hidden_size", "n_lstm_layers")

    def __init__(
        self,
        *,
        head: str = "crf",
        lstm_hidden_size: int = 200,
        n_lstm_layers: int = 1,
        dropout: float = 0.5,
        constrain_tags: bool = True,
        max_epochs: int = 20,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: str = "linear",
        max_grad_norm: float | None = 5.0,
        batch_size: int = 16,
        micro_batch_size: int | str | None = "auto",
        class_weight: dict[Any, float] | str | None = None,
        label_smoothing: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        device: str = "auto",
        precision: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            lstm_hidden_size=lstm_hidden_size,
            n_lstm_layers=n_lstm_layers,
            dropout=dropout,
            max_epochs=max_epochs,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup=warmup,
            schedule=schedule,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            device=device,
            precision=precision,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.head = head
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
    ) -> BiLSTMTagger:
        """Train from random weights, or go on with ``warm_start``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Holds an array of shape (n_words, n_features) for each sentence, or of shape
            (n_words, n_layers, n_features). May be memory maps.
        y : array-like of shape (n_samples,)
            A list of as many tags for each sentence.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the sentences; only their ratios matter. Rows of weight 0 are left
            out.
        X_val : array-like of shape (n_validation,) or None
            Sentences to stop early on, in place of a part of X.
        y_val : array-like or None
            Their tags.

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
        proceed = self.warm_start and hasattr(self, "head_")
        return self._fit(X, y, sample_weight, (X_val, y_val), None, proceed)

    def predict(self, X: Any) -> np.ndarray:
        """Tags of the words.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Vectors of words, as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), object
            Holds a list of as many tags as words for each row.
        """
        return self._collect(
            X, lambda tagged: self.classes_[tagged.numbers].tolist(), probabilities=False
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the tags of each word, in the order of ``classes_``.

        Those of a CRF are marginals over all paths that ``constrain_tags`` allows; those
        of a softmax know nothing of neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Vectors of words, as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), object
            Holds one float64 array of shape (n_words, n_tags) for each row; its rows sum
            to 1.
        """
        return self._collect(X, lambda tagged: tagged.probabilities, probabilities=True)

    def predict_spans(self, X: Any) -> np.ndarray:
        """Entities, with the words they cover and their scores.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Vectors of words, as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), object
            Holds a list of dicts for each row: "start" and "end" in words, with the end
            excluded, "label" and "score", the mean probability of the tags.
        """
        check_is_fitted(self)
        self._check_entities()
        return self._collect(X, self._spans, probabilities=True)

    def score(self, X: Any, y: Any) -> float:
        """Entity F1, or word accuracy where tags are no entities; ``scoring_`` says which.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Vectors of words, as in ``fit``.
        y : array-like of shape (n_samples,)
            True tags.

        Returns
        -------
        float
        """
        return self._score_tags(y, self.predict(X))

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: tuple[Any, Any],
        classes: Any,
        proceed: bool,
        max_epochs: int | None = None,
    ) -> BiLSTMTagger:
        from skbert.training.targets import read_tags

        name = type(self).__name__
        self._check_head()
        self._check_validation(*validation)
        rows = self._read_rows(X, reset=not proceed)
        tags = read_tags(y, [len(row) for row in rows], name)
        held = None
        if validation[0] is not None:
            held_rows = self._read_rows(validation[0], reset=False)
            lengths = [len(row) for row in held_rows]
            held = held_rows, read_tags(validation[1], lengths, name, "y_val")
        self._fit_tags(
            rows, tags, sample_weight, held, classes, proceed, max_epochs, given=(X, y)
        )
        return self

    def _collect(
        self, X: Any, convert: Callable[[Any], Any], *, probabilities: bool
    ) -> np.ndarray:
        from skbert.training.device import resolve_device

        check_is_fitted(self)
        self._check_architecture()
        rows = self._read_rows(X, reset=False)
        device = resolve_device(self.device, type(self).__name__)
        out = np.empty(len(rows), dtype=object)
        for (at,), tagged in self._decode(
            longest_first(rows), device, probabilities=probabilities
        ):
            out[at] = convert(tagged)
        return out


class BiLSTMClassifier(ClassesMixin, WordVectorEstimator):
    """Sort texts into classes, from vectors of their words, by a BiLSTM.

    Stands behind a vectorizer with ``output="words"`` in a pipeline. The vectors do not
    change: where the labelled data allow to train the encoder too, ``BertClassifier`` does.

    Rows may have a vector of each layer, as with ``layer_pooling="stack"``. The sum of
    ``gamma_ * layer_weights_[l]`` times layer l then takes their place, where ``gamma_``
    and ``layer_weights_``, a softmax, are learned with the rest, as in ELMo [3]_.

    Parameters
    ----------
    pooling : {"max", "mean", "attention"}, default="max"
        From the states of the words to a text: their maximum [1]_, their mean, or a mean
        whose weights are learned [2]_.
    lstm_hidden_size : int, default=200
        Units of each direction.
    n_lstm_layers : int, default=1
        Layers of the LSTM.
    dropout : float, default=0.5
        Before the LSTM, between its layers and before the last layer.
    max_epochs : int, default=20
        Passes over the data.
    learning_rate : float, default=5e-3
        Highest rate.
    weight_decay : float, default=0.01
        Of AdamW; not on biases, nor on the mix of layers.
    warmup : float, default=0.1
        Share of the steps in which the rate rises.
    schedule : {"linear", "cosine", "constant"}, default="linear"
        How the rate goes on after the warm-up: down to 0, or not at all.
    max_grad_norm : float or None, default=5.0
        Longest gradient; longer ones are scaled down.
    batch_size : int, default=16
        Texts in a step.
    micro_batch_size : int, "auto" or None, default="auto"
        Texts that are held in memory at once. The step is the same for any value.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes by label; "balanced" is as in scikit-learn. Multiplies
        ``sample_weight``.
    label_smoothing : float, default=0.0
        Share of the target that is spread over all classes.
    threshold : float, default=0.5
        Probability from which a label is given, for multi-label only.
    early_stopping : bool, default=False
        Hold out a part of X, stop when the score on it no longer rises, and take the best
        epoch's weights.
    validation_fraction : float, default=0.1
        Share of X that ``early_stopping`` holds out.
    n_iter_no_change : int, default=3
        Epochs without a better score after which training stops.
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps".
    precision : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Number format of the computation; weights stay in float32. "auto" is mixed
        precision on GPUs and float32 on a CPU.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last weights.
    random_state : int, RandomState or None, default=None
        Draws the weights, the order of the rows and dropout.
    verbose : int, default=0
        Show a progress bar if greater than 0.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; the order of all columns.
    multilabel_ : str or None
        None for one label per row, "lists" for lists of labels, else the type of the
        indicator matrix.
    head_ : dict of ndarray
        All weights.
    architecture_ : dict
        The parameters that these weights were made for.
    history_ : list of dict
        One record per epoch: "epoch", "loss", "learning_rate", "seconds" and, with a
        validation set, "validation_score".
    n_iter_ : int
        Epochs run.
    best_epoch_ : int
        Epoch whose weights were kept, from 1.
    n_trainable_parameters_ : int
        Weights that were trained.
    n_halved_ : int
        How often ``micro_batch_size="auto"`` was halved for lack of GPU memory.
    n_features_in_ : int
        Width of the vectors.
    n_layers_in_ : int
        Layers of each word. This and the next two are only there for vectors of each layer.
    layer_weights_ : ndarray of shape (n_layers,)
        What each layer is worth: shares that were learned and sum to 1.
    gamma_ : float
        Learned factor of the mix.

    See Also
    --------
    BertClassifier : Trains the encoder too.
    BiLSTMTagger : One tag for each word.

    References
    ----------
    .. [1] Conneau et al. (2017), Supervised learning of universal sentence
       representations from natural language inference data, section 3.2.
    .. [2] Yang et al. (2016), Hierarchical attention networks for document
       classification, section 2.2.
    .. [3] Peters et al. (2018), Deep contextualized word representations, equation 1.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skbert import BertVectorizer, BiLSTMClassifier
    >>> X = [["late", "parcel"], ["lost", "order"], ["forgot", "password"]] * 4
    >>> y = ["delivery", "delivery", "account"] * 4
    >>> classifier = BiLSTMClassifier(random_state=0)
    >>> pipeline = make_pipeline(BertVectorizer(output="words"), classifier).fit(X, y)
    >>> pipeline.predict([["no", "parcel", "yet"]]).tolist()
    ['delivery']
    """

    _rules: ClassVar[dict[str, Rule]] = {
        **WordVectorEstimator._rules,
        **ClassesMixin._classes_rules,
        "lstm_hidden_size": integer(1),
        "pooling": option("max", "mean", "attention"),
    }
    _architecture = ("pooling", "lstm_hidden_size", "n_lstm_layers")

    def __init__(
        self,
        *,
        pooling: str = "max",
        lstm_hidden_size: int = 200,
        n_lstm_layers: int = 1,
        dropout: float = 0.5,
        max_epochs: int = 20,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: str = "linear",
        max_grad_norm: float | None = 5.0,
        batch_size: int = 16,
        micro_batch_size: int | str | None = "auto",
        class_weight: dict[Any, float] | str | None = None,
        label_smoothing: float = 0.0,
        threshold: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        device: str = "auto",
        precision: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            lstm_hidden_size=lstm_hidden_size,
            n_lstm_layers=n_lstm_layers,
            dropout=dropout,
            max_epochs=max_epochs,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup=warmup,
            schedule=schedule,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            device=device,
            precision=precision,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.pooling = pooling
        self.class_weight = class_weight
        self.label_smoothing = label_smoothing
        self.threshold = threshold

    @with_callbacks
    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> BiLSTMClassifier:
        """Train from random weights, or go on with ``warm_start``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Holds an array of shape (n_words, n_features) for each text, or of shape
            (n_words, n_layers, n_features). May be memory maps.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels of any type; for multi-label an indicator matrix of zeros and ones, or
            one list of strings per row.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the rows; only their ratios matter. Rows of weight 0 are left out.
        X_val : array-like of shape (n_validation,) or None
            Rows to stop early on, in place of a part of X.
        y_val : array-like or None
            Their labels.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter, X, y or the weights are invalid, or y has one class only.
        """
        check_params(self, self._rules)
        proceed = self.warm_start and hasattr(self, "head_")
        return self._fit(X, y, sample_weight, (X_val, y_val), None, proceed)

    def _new_row_head(self, n_inputs: int, n_outputs: int, dropout: float) -> PooledBiLSTM:
        from skbert.nn.bilstm_pooling import PooledBiLSTM

        return PooledBiLSTM(
            n_inputs,
            n_outputs,
            lstm_hidden_size=self.lstm_hidden_size,
            n_lstm_layers=self.n_lstm_layers,
            dropout=dropout,
            pooling=self.pooling,
            n_layers=getattr(self, "n_layers_in_", None),
        )

    def _predict_outputs(self, X: Any) -> np.ndarray:
        import torch

        from skbert.training.device import resolve_device
        from skbert.training.source import WordVectorSource

        check_is_fitted(self)
        self._check_architecture()
        rows = self._read_rows(X, reset=False)
        device = resolve_device(self.device, type(self).__name__)
        head = self._new_row_head(self.n_features_in_, len(self.head_["linear.bias"]), 0.0)
        head.set_arrays(self.head_)
        head.to(device).eval()
        source = WordVectorSource(rows, device)
        out = np.empty((len(rows), len(self.head_["linear.bias"])))
        with torch.inference_mode():
            for group in grouped(longest_first(rows)):
                places = np.array([at for (at,), _ in group])
                batch = source.batch(places)
                out[places] = head(batch.vectors, batch.lengths).double().cpu().numpy()
        return out
