"""Fine-tuning for numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.documents import DocumentFineTuner
from skbert.estimators.params import check_params
from skbert.estimators.training import Places, all_or_nothing


class BertRegressor(RegressorMixin, DocumentFineTuner):
    """Fine-tune an encoder to give one or several numbers for a text or a pair of texts.

    Trains all of a pretrained encoder, or its upper layers, together with a new head, on
    the squared error.

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
    encoder_ : Encoder
        The fine-tuned encoder.
    head_ : list of tuple of ndarray
        Weight and bias of each linear layer of the head.
    target_mean_ : ndarray of shape (n_targets,)
        Means of the targets, which are standardised for training.
    target_scale_ : ndarray of shape (n_targets,)
        Their standard deviations.
    n_axes_ : int
        1 if y was one column of numbers, else 2.
    history_ : list of dict
        One record per epoch: "epoch", "loss", "learning_rate", "seconds" and, with a
        validation set, "validation_score": R2, against mean and spread of the training
        targets.
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
    BertClassifier : The same for classes.

    Notes
    -----
    Targets are standardised inside, so that one learning rate suits all units, and given
    back in the units of y.

    References
    ----------
    .. [1] Devlin et al. (2019), BERT: Pre-training of deep bidirectional transformers for
       language understanding, appendix A.3.
    .. [2] Mosbach et al. (2021), On the stability of fine-tuning BERT.
    .. [3] Howard and Ruder (2018), Universal language model fine-tuning for text
       classification, section 3.2.

    Examples
    --------
    >>> from skbert import BertRegressor
    >>> pairs = [("A cat sleeps", "A cat is asleep"), ("A cat sleeps", "Rain fell")] * 4
    >>> regressor = BertRegressor(frozen_layers=4, random_state=0).fit(pairs, [5, 0] * 4)
    >>> bool(regressor.predict(pairs)[0] > regressor.predict(pairs)[1])
    True
    """

    target_mean_: np.ndarray
    target_scale_: np.ndarray

    @with_callbacks
    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> BertRegressor:
        """Train from the pretrained weights, or go on with ``warm_start``.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or pairs of texts.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Numbers.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the rows; only their ratios matter. Rows of weight 0 are left out.
        X_val : array-like of shape (n_validation,) or None
            Texts to stop early on, in place of a part of X.
        y_val : array-like or None
            Their numbers.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter, X, y or the weights are invalid.
        """
        check_params(self, self._rules)
        name = type(self).__name__
        proceed = self.warm_start and hasattr(self, "encoder_")
        rows = self._read_rows(X, reset=not proceed)

        from skbert.training.objectives import squared_error
        from skbert.training.targets import check_values, check_weights

        weights = check_weights(sample_weight, len(rows), name)
        values = check_values(y, len(rows), name)
        columns = values.reshape(len(rows), -1)
        if proceed and columns.shape[1] != len(self.target_mean_):
            raise ValueError(
                f"{name} with warm_start=True was fitted with {len(self.target_mean_)} "
                f"targets and cannot go on with {columns.shape[1]}."
            )
        kept = np.flatnonzero(weights)
        places = Places(kept, None, len(rows))
        rows, columns, weights = [rows[i] for i in kept], columns[kept], weights[kept]
        if not proceed:
            mean = np.average(columns, axis=0, weights=weights)
            spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
            self.target_mean_ = mean
            self.target_scale_ = np.where(spread > 0, spread, 1.0)
            self.n_axes_ = values.ndim
        targets = ((columns - self.target_mean_) / self.target_scale_).astype(np.float32)
        rng = check_random_state(self.random_state)
        held = None
        self._check_validation(X_val, y_val)
        if X_val is not None:
            held_rows = self._read_rows(X_val, reset=False)
            held_values = check_values(y_val, len(held_rows), name)
            if held_values.ndim != values.ndim or held_values[0].size != columns.shape[1]:
                raise ValueError(
                    f"y_val of {name} must be of shape (n_validation, "
                    f"{columns.shape[1]}) or like y. Got shape {held_values.shape}."
                )
            truth = held_values.reshape(len(held_rows), -1) - self.target_mean_
            held = held_rows, _scorer(truth / self.target_scale_, None)
        elif self.early_stopping:
            train, test = train_test_split(
                np.arange(len(rows)),
                test_size=self.validation_fraction,
                random_state=rng.randint(2**31 - 1),
            )
            held = [rows[i] for i in test], _scorer(targets[test], weights[test])
            places = Places(kept[train], kept[test], places.n_rows)
            rows = [rows[i] for i in train]
            targets, weights = targets[train], weights[train]
        self._fit_rows(
            rows,
            targets,
            weights,
            targets.shape[1],
            squared_error(),
            held,
            rng=rng,
            proceed=proceed,
            max_epochs=self.max_epochs,
            given=(X, y),
            places=places,
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Numbers for the texts, in the units of y.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or pairs of texts.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets), float64
        """
        outputs = self._predict_outputs(X) * self.target_scale_ + self.target_mean_
        return outputs[:, 0] if self.n_axes_ == 1 else outputs

    def _exported(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], dict[str, Any]]:
        *hidden, (weight, bias) = self.head_
        scale, mean = self.target_scale_, self.target_mean_
        scaled = (weight * scale[:, None]).astype(np.float32)
        last = scaled, (bias * scale + mean).astype(np.float32)
        names = [f"target_{i}" for i in range(len(mean))]
        return [*hidden, last], {
            "problem_type": "regression",
            "id2label": dict(enumerate(names)),
            "label2id": {name: i for i, name in enumerate(names)},
        }


def _scorer(truth: np.ndarray, weights: np.ndarray | None) -> Any:
    # Against the spread of the training targets, which is 1: R2 is undefined for one row.
    def score(outputs: np.ndarray) -> float:
        errors = ((truth - outputs) ** 2).mean(axis=1)
        return 1.0 - float(np.average(errors, weights=weights))

    return score
