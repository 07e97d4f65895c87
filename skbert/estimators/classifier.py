"""Fine-tuning for classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from joblib import Memory

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.classes import ClassesMixin
from skbert.estimators.documents import DocumentFineTuner
from skbert.estimators.params import Rule, check_params
from skbert.estimators.training import all_or_nothing


class BertClassifier(ClassesMixin, DocumentFineTuner):
    """Fine-tune an encoder to sort texts, or pairs of texts, into classes.

    Trains all of a pretrained encoder, or its upper layers, together with a new head.
    ``BertVectorizer`` with logistic regression is the quick alternative: it reads each
    text once and trains no part of the encoder.

    Parameters
    ----------
    model : str or path, default="sentence-transformers/all-MiniLM-L6-v2"
        A folder with a checkpoint, or a name on the Hugging Face hub. A head that the
        checkpoint brings is not used.
    frozen_layers : int, float or "all", default=0
        Layers that keep their pretrained weights: a number from the bottom, a share, or
        the whole encoder; the embeddings freeze with the first. Frozen layers run without
        dropout, and BERT-like models compute their output only once.
    max_epochs : int, default=5
        Passes over the data. The BERT paper [1]_ uses 2 to 4 on large data; small data
        wants more [2]_.
    learning_rate : float, default=5e-5
        Highest rate of the encoder, the largest that the BERT paper tries.
    head_learning_rate : float or None, default=1e-3
        Highest rate of the head, which starts from random weights. None is
        ``learning_rate``.
    layer_decay : float, default=1.0
        Each layer learns at this share of the rate of the layer above [3]_.
    weight_decay : float, default=0.01
        Of AdamW, as in the BERT paper; not on biases and norms.
    warmup : float, default=0.1
        Share of the steps in which the rates rise, as in the BERT paper.
    schedule : {"linear", "cosine", "constant"}, default="linear"
        How the rates go on after the warm-up: down to 0, or not at all.
    max_grad_norm : float or None, default=1.0
        Longest gradient, as in BERT's code; longer ones are scaled down.
    batch_size : int, default=16
        Texts in a step, the smaller size of the BERT paper.
    micro_batch_size : int, "auto" or None, default="auto"
        Texts that are held in memory at once. The step is the same for any value. "auto"
        starts with all of a step and halves when a GPU runs out of memory.
    pooling : {"auto", "mean", "cls", "max", "last", "pooler"}, default="auto"
        From pieces to a text, as in ``BertVectorizer``. "pooler" is "cls", and a first
        layer of the head that is not new but the checkpoint's own: the linear layer with
        tanh that BERT was pretrained with. It helps with pairs of texts and few rows, if
        the checkpoint learnt to tell whether one text follows another. It is trained at
        ``learning_rate``, also where ``frozen_layers`` freezes the whole encoder.
    hidden_layer_sizes : list of int, default=()
        Hidden layers of the head, with tanh as in BERT's pooler.
    dropout : float or None, default=None
        Dropout in the trained layers and the head. None keeps that of the checkpoint.
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
    max_length : int or None, default=None
        Pieces that the encoder reads at once. None is the limit that the model states.
    long_text : {"truncate", "head_tail", "windows"}, default="truncate"
        What happens to longer texts, as in ``BertVectorizer``. With "windows" the vectors
        of a text's windows are pooled before the head, so a text has one loss and one row
        of probabilities however long it is.
    stride : int, default=0
        Pieces that neighbouring windows share.
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
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; the order of all columns.
    multilabel_ : str or None
        None for one label per row, "lists" for lists of labels, else the type of the
        indicator matrix.
    encoder_ : Encoder
        The fine-tuned encoder.
    head_ : list of tuple of ndarray
        Weight and bias of each linear layer of the head.
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
    n_frozen_layers_ : int
        Layers that were frozen.
    pooling_ : str
        Pooling in use.
    max_length_ : int
        Longest window, in pieces.
    input_kind_ : str
        What ``fit`` saw: "texts" or "pairs".
    n_features_in_ : int
        Columns of X, if it had any.
    feature_names_in_ : ndarray of str
        Names of these columns.

    See Also
    --------
    BertVectorizer : Features from the encoder as it is.

    Notes
    -----
    On a CPU the same data and ``random_state`` give the same model, to the bit.

    References
    ----------
    .. [1] Devlin et al. (2019), BERT: Pre-training of deep bidirectional transformers for
       language understanding, appendix A.3.
    .. [2] Mosbach et al. (2021), On the stability of fine-tuning BERT.
    .. [3] Howard and Ruder (2018), Universal language model fine-tuning for text
       classification, section 3.2.

    Examples
    --------
    >>> from skbert import BertClassifier
    >>> texts = ["My parcel is late", "Where is my order?", "I forgot my password"] * 4
    >>> labels = ["delivery", "delivery", "account"] * 4
    >>> classifier = BertClassifier(frozen_layers=4, random_state=0).fit(texts, labels)
    >>> classifier.predict(["The courier never came"]).tolist()
    ['delivery']
    """

    _rules: ClassVar[dict[str, Rule]] = {
        **DocumentFineTuner._rules,
        **ClassesMixin._classes_rules,
    }

    def __init__(
        self,
        model: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        frozen_layers: int | float | str = 0,
        max_epochs: int = 5,
        learning_rate: float = 5e-5,
        head_learning_rate: float | None = 1e-3,
        layer_decay: float = 1.0,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: str = "linear",
        max_grad_norm: float | None = 1.0,
        batch_size: int = 16,
        micro_batch_size: int | str | None = "auto",
        pooling: str = "auto",
        hidden_layer_sizes: Sequence[int] = (),
        dropout: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        label_smoothing: float = 0.0,
        threshold: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        max_length: int | None = None,
        long_text: str = "truncate",
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
            pooling=pooling,
            hidden_layer_sizes=hidden_layer_sizes,
            dropout=dropout,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            max_length=max_length,
            long_text=long_text,
            stride=stride,
            gradient_checkpointing=gradient_checkpointing,
            memory=memory,
            device=device,
            precision=precision,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
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
    ) -> BertClassifier:
        """Train from the pretrained weights, or go on with ``warm_start``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or pairs of texts.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels of any type; for multi-label an indicator matrix of zeros and ones, or
            one list of strings per row.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the rows; only their ratios matter. Rows of weight 0 are left out.
        X_val : array-like of shape (n_validation,) or None
            Texts to stop early on, in place of a part of X.
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
        proceed = self.warm_start and hasattr(self, "encoder_")
        return self._fit(X, y, sample_weight, (X_val, y_val), None, proceed)

    def _exported(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], dict[str, Any]]:
        names = [str(label) for label in self.classes_.tolist()]
        if len(set(names)) < len(names):
            raise ValueError(
                f"{type(self).__name__} cannot be exported: as strings, which transformers "
                f"wants, some labels are the same: {names}."
            )
        one = self.multilabel_ is None
        kind = "single_label_classification" if one else "multi_label_classification"
        return self.head_, {
            "problem_type": kind,
            "id2label": dict(enumerate(names)),
            "label2id": {name: i for i, name in enumerate(names)},
        }
