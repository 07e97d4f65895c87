"""A BiLSTM over vectors of words, which some vectorizer made, for tags and for classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.classes import ClassesMixin
from skbert.estimators.params import Rule, check_params, integer, option, real
from skbert.estimators.state import SavedEstimator
from skbert.estimators.tagging import TaggingMixin, grouped
from skbert.estimators.training import (
    TRAINING_RULES,
    Places,
    TrainingMixin,
    all_or_nothing,
    count_trainable,
)
from skbert.text.validation import to_builtin

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags

    from skbert.nn.bilstm_pooling import PooledBiLSTM
    from skbert.training.loop import Outcome
    from skbert.training.objectives import Objective

_ADVICE = "Put a vectorizer with output='words' before it, such as BertVectorizer."


class WordVectorEstimator(TrainingMixin, SavedEstimator):
    """Base of estimators whose rows are arrays of vectors of words."""

    head_: dict[str, np.ndarray]

    _rules: ClassVar[dict[str, Rule]] = {
        **TRAINING_RULES,
        "n_lstm_layers": integer(1),
        "dropout": real(0, 1),
    }

    def __init__(
        self,
        *,
        lstm_hidden_size: int,
        n_lstm_layers: int,
        dropout: float,
        max_epochs: int,
        learning_rate: float,
        weight_decay: float,
        warmup: float,
        schedule: str,
        max_grad_norm: float | None,
        batch_size: int,
        micro_batch_size: int | str | None,
        early_stopping: bool,
        validation_fraction: float,
        n_iter_no_change: int,
        device: str,
        precision: str,
        warm_start: bool,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
        self.lstm_hidden_size = lstm_hidden_size
        self.n_lstm_layers = n_lstm_layers
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.precision = precision
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _fit_network(
        self,
        rows: list[Any],
        make_head: Callable[[int, float], Any],
        make_objective: Callable[[Any, Any, torch.device], Objective],
        validation: tuple[list[Any], Callable[[Any, Any, np.ndarray], float]] | None,
        *,
        rng: np.random.RandomState,
        proceed: bool,
        max_epochs: int,
        given: tuple[Any, Any],
        places: Places,
    ) -> Outcome:
        """Train a head on vectors that do not change."""
        from skbert.nn.network import WordNetwork
        from skbert.training.device import resolve_device, resolve_precision
        from skbert.training.loop import undisturbed
        from skbert.training.schedule import parameter_groups
        from skbert.training.source import WordVectorSource

        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        source = WordVectorSource(rows, device)
        held = None
        with undisturbed(int(rng.randint(2**31 - 1)), device):
            head = make_head(self.n_features_in_, self.dropout)
            if proceed:
                self._go_on_from_fitted(head)
            head.to(device)
            self.n_trainable_parameters_ = count_trainable(head)
            if validation is not None:
                held_out, score = WordVectorSource(validation[0], device), validation[1]
                held = held_out, lambda outputs: score(head, held_out, outputs)
            outcome = self._train(
                WordNetwork(None, None, "first", head),
                source,
                make_objective(head, source, device),
                parameter_groups(
                    (),
                    head.parameters(),
                    n_layers=0,
                    learning_rate=self.learning_rate,
                    head_learning_rate=self.learning_rate,
                    layer_decay=1.0,
                    weight_decay=self.weight_decay,
                ),
                validation=held,
                set_mode=head.train,
                snapshot=lambda: {"head_": head.arrays()},
                max_epochs=max_epochs,
                given=given,
                rng=rng,
                device=device,
                dtype=dtype,
            )
        self.head_ = head.arrays()
        return outcome

    def _read_rows(self, X: Any, *, reset: bool) -> list[Any]:
        rows = check_vectors(X, type(self).__name__)
        n_features = max(row.shape[1] for row in rows)
        if reset:
            if not any(map(len, rows)):
                raise ValueError(
                    f"X of {type(self).__name__} holds no word at all, so there is nothing "
                    "to learn from."
                )
            self.n_features_in_ = n_features
        rows = [row if len(row) else row.reshape(0, self.n_features_in_) for row in rows]
        if any(len(row) and row.shape[1] != self.n_features_in_ for row in rows):
            raise ValueError(
                f"X has {n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input. Use the vectorizer of fit."
            )
        return rows

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags


class BiLSTMTagger(TaggingMixin, WordVectorEstimator):
    """Give each word a tag, from vectors of the words, by a BiLSTM and a softmax or CRF.

    Stands behind a vectorizer with ``output="words"`` in a pipeline. The vectors do not
    change: where the labelled data allow to train the encoder too, ``BertTagger`` does. A
    word of which the vectorizer's tokenizer leaves nothing is a vector of zeros like any
    other here.

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
        Of AdamW; not on biases.
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

    See Also
    --------
    BertTagger : Trains the encoder too.
    BiLSTMClassifier : One label for each row.

    References
    ----------
    .. [1] Huang, Xu and Yu (2015), Bidirectional LSTM-CRF models for sequence tagging.
    .. [2] Lample et al. (2016), Neural architectures for named entity recognition.

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
            Holds an array of shape (n_words, n_features) for each sentence. May be memory
            maps.
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
            _longest_first(rows), device, probabilities=probabilities
        ):
            out[at] = convert(tagged)
        return out


class BiLSTMClassifier(ClassesMixin, WordVectorEstimator):
    """Sort texts into classes, from vectors of their words, by a BiLSTM.

    Stands behind a vectorizer with ``output="words"`` in a pipeline. The vectors do not
    change: where the labelled data allow to train the encoder too, ``BertClassifier`` does.

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
        Of AdamW; not on biases.
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
            Holds an array of shape (n_words, n_features) for each text. May be memory
            maps.
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
            for group in grouped(_longest_first(rows)):
                places = np.array([at for (at,), _ in group])
                batch = source.batch(places)
                out[places] = head(batch.vectors, batch.lengths).double().cpu().numpy()
        return out


def check_vectors(X: Any, caller: str) -> list[np.ndarray]:
    """One array of vectors of words for each row, none of them copied.

    Raises
    ------
    ValueError
        If X holds texts, words, one vector for each row or anything else, or numbers that
        are not finite; the positions are named.
    """
    must = f"X of {caller} must hold one array of shape (n_words, n_features) for each row."
    if issparse(X):
        raise TypeError(f"{must} Got sparse data of one vector for each row. {_ADVICE}")
    if isinstance(X, str) or not hasattr(X, "__len__"):
        raise ValueError(f"{must} Got an object of type {type(X).__name__}. {_ADVICE}")
    if isinstance(X, np.ndarray) and X.ndim not in (1, 3):
        raise ValueError(
            f"{must} Got an array of shape {X.shape}: one vector for each row. {_ADVICE}"
        )
    rows = list(X) if isinstance(X, np.ndarray) else list(to_builtin(X))
    if not rows:
        raise ValueError(f"{must} Got 0 rows, while at least 1 is required.")
    arrays = [_check_row(row, must, at) for at, row in enumerate(rows)]
    widths = {row.shape[1] for row in arrays if len(row)}
    if len(widths) > 1:
        raise ValueError(f"{must} Got vectors of several widths {sorted(widths)}.")
    # Numbers are read as float32, in which large ones are infinite.
    with np.errstate(over="ignore"):
        read = (row.astype(np.float32, copy=False) for row in arrays)
        bad = [at for at, row in enumerate(read) if not np.isfinite(row).all()]
    if bad:
        raise ValueError(
            f"{must} Input X contains NaN, infinity or numbers too large for float32 at "
            f"positions {bad[:5]}, {len(bad)} in all."
        )
    return arrays


def _check_row(row: Any, must: str, at: int) -> np.ndarray:
    try:
        array = np.asarray(row)
    except ValueError:
        array = np.empty(0, dtype=object)
    if not array.size and array.ndim in (1, 2):
        return np.empty((0, array.shape[1] if array.ndim == 2 else 0), np.float32)
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        what = "a text" if isinstance(row, str) else f"an array of shape {array.shape}"
        kind = "" if array.dtype.kind in "fiu" else f" and dtype {array.dtype}"
        raise ValueError(f"{must} Got {what}{kind} at position {at}. {_ADVICE}")
    return array


def _longest_first(
    rows: list[np.ndarray],
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Rows and where they stand, so that neighbours are of like length."""
    for at in sorted(range(len(rows)), key=lambda at: -len(rows[at])):
        yield [at], rows[at]
