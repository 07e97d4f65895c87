"""ELMo from texts: the training of a bidirectional language model as an estimator."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from skbert.estimators.base import TextEstimator
from skbert.estimators.elmo_models import ELMO_RULE, resolve_elmo
from skbert.estimators.params import Rule, a, boolean, check_params, integer, option, real
from skbert.estimators.split import Tokenizer, split_rows
from skbert.estimators.training import all_or_nothing, count_trainable
from skbert.text.report import users_stacklevel

if TYPE_CHECKING:
    import torch

    from skbert.encoders.elmo import ElmoEncoder
    from skbert.nn.bilm import Bilm
    from skbert.text.characters import WordRows
    from skbert.training.pretraining import (
        Pretraining,
        PretrainingOptions,
        PretrainingOutcome,
    )
    from skbert.training.streams import Corpus

# Sentences that the state of a warm start is reached by (SPEC: one to ten are enough).
N_WARM_UP = 10
# Below this many words all scores are cheaper than clusters.
FULL_SOFTMAX = 10_000
# Words that a part of a text has at least when perplexities are computed in parts.
WORDS_PER_PART = 2_000
MOST_PARTS = 32
RATES = {"adagrad": 0.2, "adam": 1e-3}


def _is_filters(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and all(integer(1).accepts(number) for number in pair)
            for pair in value
        )
    )


class ElmoPretrainer(TextEstimator):
    """Train an ELMo on texts, without labels.

    Learns a language model in each direction over one character network [1]_. The fitted
    estimator is ``model=`` for ``ElmoVectorizer``. Works for any language: characters are
    read as the bytes of UTF-8, and where a script does not part words by spaces each
    character is a word, unless a ``tokenizer`` or lists of words say otherwise.

    Parameters
    ----------
    model : str, path, sequence of paths, fitted ElmoPretrainer or None, default=None
        Weights to go on from, as ``ElmoVectorizer`` reads them: training on texts of a
        domain adapts them to it. The parameters that give sizes are then not used. A
        fitted ElmoPretrainer brings its vocabulary too, and what it learnt about it; of
        other models a new one is drawn from the texts. None starts from random weights.
    tokenizer : callable or None, default=None
        From a text to a list of words. None is ``skbert.text.words.split_words``. Not used
        where X holds lists of words.
    projection_dim : int, default=128
        Width of a word's vector, and of a direction's output.
    lstm_dim : int, default=512
        Width of a memory cell.
    n_layers : int, default=2
        LSTM layers of each direction.
    filters : list of (int, int), default=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256))
        Width in bytes and number of the filters of each convolution.
    character_dim : int, default=16
        Width of a character's vector.
    max_characters_per_token : int, default=50
        Bytes of a word that are read, two marks of its borders among them.
    activation : {"relu", "tanh"}, default="relu"
        Of the convolutions.
    n_highway : int, default=1
        Highway layers behind the convolutions.
    cell_clip : float or None, default=3.0
        Largest absolute value in a memory cell. None is no bound.
    proj_clip : float or None, default=3.0
        Largest absolute value in the output of an LSTM layer. None is no bound.
    use_skip_connections : bool, default=True
        Whether layers above the first add their input.
    vocab_size : int or None, default=None
        Words that are predicted, the most frequent first; the others are one. All words
        are read, by their characters. None is no bound.
    min_frequency : int, default=1
        How often a word must be there to be predicted.
    softmax : {"auto", "full", "sampled", "adaptive"}, default="auto"
        How the next word is scored: against all words, against some that are drawn at
        each step [3]_, or in clusters by frequency [4]_. "auto" is "full" for up to
        10,000 words and "adaptive" for more.
    n_negative_samples : int, default=8192
        Words that "sampled" draws at each step.
    max_epochs : int, default=10
        Passes over the texts.
    optimizer : {"adagrad", "adam"}, default="adagrad"
        Adagrad starts from accumulators of 1, as in the original.
    learning_rate : float or None, default=None
        None is 0.2 for Adagrad, as in the original, and 0.001 for Adam.
    warmup : float, default=0.0
        Share of the steps in which the rate rises.
    schedule : {"constant", "linear", "cosine"}, default="constant"
        How the rate goes on.
    max_grad_norm : float or None, default=10.0
        Longest gradient of ``unroll_steps`` times the loss; longer ones are scaled down.
    dropout : float, default=0.1
        Share of what every LSTM layer and the softmax read that is put to zero.
    batch_size : int, default=128
        Streams that are read side by side. A text is seldom spread over more than
        n_words / (batch_size * unroll_steps) steps: take fewer for little text.
    unroll_steps : int, default=20
        Words of each stream in a step. Gradients end there, states go on.
    early_stopping : bool, default=False
        Hold out a part of X, stop when its perplexity no longer falls, and take the best
        epoch's weights.
    validation_fraction : float, default=0.1
        Share of X that ``early_stopping`` holds out.
    n_iter_no_change : int, default=2
        Epochs without a better perplexity after which training stops.
    checkpoint : str, path or None, default=None
        Folder in which the run is written down every ten minutes and after each epoch. The
        same ``fit`` call, after a crash, goes on from there and ends with the same weights
        as one that was not interrupted. Removed when the training is done.
    device : str, default="auto"
        "auto", "cpu", "cuda", "cuda:1", "mps".
    random_state : int, RandomState or None, default=None
        Of first weights, order, dropout and negative words.
    verbose : int, default=0
        Show a progress bar if greater than 0.

    Attributes
    ----------
    encoder_ : ElmoEncoder
        The network; with it the first sentences of X, for ``initial_state="warm"``.
    vocabulary_ : list of str
        Words that are predicted, the two markers and the unknown word first.
    softmax_ : dict
        Its kind and its weights.
    history_ : list of dict
        A record for each epoch: "epoch", "loss" (mean -log p of a word, under dropout;
        under "sampled" that of a choice among few), "learning_rate", "seconds" and, with
        early stopping, "validation_score".
    n_iter_ : int
        Epochs.
    best_epoch_ : int
        The epoch whose weights were kept.
    n_trainable_parameters_ : int
        Numbers that were learnt.

    See Also
    --------
    ElmoVectorizer : Vectors of texts and words from what was learnt.

    Notes
    -----
    Windows are cut from streams of sentences, whose states are carried on, and both
    directions read the sentences in orders of their own, as the original program does
    [2]_: its losses, gradients and weights are reproduced.

    References
    ----------
    .. [1] Peters et al. (2018), Deep contextualized word representations.
    .. [2] bilm-tf, the program that the published English models were trained with.
    .. [3] Jean et al. (2015), On using very large target vocabulary for neural machine
       translation.
    .. [4] Grave et al. (2017), Efficient softmax approximation for GPUs.

    Examples
    --------
    >>> from skbert import ElmoPretrainer
    >>> texts = ["the cat sat on the mat", "the dog sat on the rug"] * 20
    >>> pretrainer = ElmoPretrainer(
    ...     projection_dim=8, lstm_dim=16, filters=[(1, 8), (3, 8)], batch_size=2,
    ...     max_epochs=3, random_state=0,
    ... ).fit(texts)
    >>> bool(pretrainer.perplexity(texts) < len(pretrainer.vocabulary_))
    True
    """

    _rules: ClassVar[dict[str, Rule]] = {
        "model": ELMO_RULE | option(None),
        "tokenizer": Rule(callable, "a callable") | option(None),
        "projection_dim": integer(1),
        "lstm_dim": integer(1),
        "n_layers": integer(1),
        "filters": Rule(_is_filters, "a list of pairs (width, number) of ints"),
        "character_dim": integer(1),
        "max_characters_per_token": integer(3),
        "activation": option("relu", "tanh"),
        "n_highway": integer(0),
        "cell_clip": real(1e-6) | option(None),
        "proj_clip": real(1e-6) | option(None),
        "use_skip_connections": boolean(),
        "vocab_size": integer(4) | option(None),
        "min_frequency": integer(1),
        "softmax": option("auto", "full", "sampled", "adaptive"),
        "n_negative_samples": integer(1),
        "max_epochs": integer(1),
        "optimizer": option("adagrad", "adam"),
        "learning_rate": real(0) | option(None),
        "warmup": real(0, 1),
        "schedule": option("constant", "linear", "cosine"),
        "max_grad_norm": real(0) | option(None),
        "dropout": real(0, 0.99),
        "batch_size": integer(1),
        "unroll_steps": integer(1),
        "early_stopping": boolean(),
        "validation_fraction": real(0, 1),
        "n_iter_no_change": integer(1),
        "checkpoint": a((str, os.PathLike), "a folder") | option(None),
        "device": a(str, "'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'"),
        "verbose": integer(0) | boolean(),
    }

    def __init__(
        self,
        model: Any = None,
        *,
        tokenizer: Tokenizer | None = None,
        projection_dim: int = 128,
        lstm_dim: int = 512,
        n_layers: int = 2,
        filters: Sequence[tuple[int, int]] = (
            (1, 32),
            (2, 32),
            (3, 64),
            (4, 128),
            (5, 256),
        ),
        character_dim: int = 16,
        max_characters_per_token: int = 50,
        activation: str = "relu",
        n_highway: int = 1,
        cell_clip: float | None = 3.0,
        proj_clip: float | None = 3.0,
        use_skip_connections: bool = True,
        vocab_size: int | None = None,
        min_frequency: int = 1,
        softmax: str = "auto",
        n_negative_samples: int = 8192,
        max_epochs: int = 10,
        optimizer: str = "adagrad",
        learning_rate: float | None = None,
        warmup: float = 0.0,
        schedule: str = "constant",
        max_grad_norm: float | None = 10.0,
        dropout: float = 0.1,
        batch_size: int = 128,
        unroll_steps: int = 20,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.projection_dim = projection_dim
        self.lstm_dim = lstm_dim
        self.n_layers = n_layers
        self.filters = filters
        self.character_dim = character_dim
        self.max_characters_per_token = max_characters_per_token
        self.activation = activation
        self.n_highway = n_highway
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        self.use_skip_connections = use_skip_connections
        self.vocab_size = vocab_size
        self.min_frequency = min_frequency
        self.softmax = softmax
        self.n_negative_samples = n_negative_samples
        self.max_epochs = max_epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.schedule = schedule
        self.max_grad_norm = max_grad_norm
        self.dropout = dropout
        self.batch_size = batch_size
        self.unroll_steps = unroll_steps
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> ElmoPretrainer:
        """Learn from texts.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or lists of words. Each row is read as one sentence: split longer texts.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is invalid, X holds no words, or the folder of ``checkpoint``
            holds another run.
        ModelNotFoundError
            If ``model`` is not to be had.
        """
        check_params(self, self._rules)
        name = type(self).__name__
        rows = self._rows(X, ("texts", "words"), reset=True)

        from skbert.training.device import resolve_device
        from skbert.training.loop import undisturbed
        from skbert.training.pretraining import Pretraining

        device = resolve_device(self.device, name)
        source = None if self.model is None else resolve_elmo(self.model, name)
        sentences = split_rows(rows, self.tokenizer, name)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        held: list[list[str]] = []
        if self.early_stopping:
            sentences, held = self._hold_out(sentences, rng)
        if not any(sentences):
            raise ValueError(f"X of {name} must hold words. Got {len(rows)} empty rows.")
        with undisturbed(seed, device):
            bilm, alphabet = self._start(source, device)
            softmax = self._start_softmax(sentences, bilm, alphabet).to(device)
            corpus = self._corpus(sentences, alphabet)
            run = Pretraining(bilm, softmax, corpus, self._options(), seed=seed)
            self.n_trainable_parameters_ = count_trainable(bilm, softmax)
            held_corpus = self._corpus(held, alphabet) if held else None
            outcome = self._run(run, held_corpus)
        self.history_, self.best_epoch_ = outcome.history, outcome.best_epoch
        self.n_iter_ = len(outcome.history)
        self._keep(run, alphabet, sentences)
        if outcome.diverged:
            warnings.warn(
                f"{name} diverged in epoch {self.n_iter_}: its loss is not finite, and the "
                "model is of no use. Lower learning_rate, or set max_grad_norm.",
                ConvergenceWarning,
                stacklevel=users_stacklevel(),
            )
        return self

    def perplexity(self, X: Any, *, direction: str = "both") -> float:
        """Perplexity of texts: lower is better.

        exp of the mean of -log p of every word and of the end of every sentence; of both
        directions it is the geometric mean. It goes by the words of ``vocabulary_``: all
        others count as one, so that only models of one vocabulary can be compared.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or lists of words. States are carried from row to row, in up to 32 parts
            of X that have at least 2,000 words each.
        direction : {"both", "forward", "backward"}, default="both"

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if direction not in ("both", "forward", "backward"):
            raise ValueError(
                "direction must be 'both', 'forward' or 'backward'. Got "
                f"{direction!r} instead."
            )
        rows = self._rows(X, ("texts", "words"), reset=False)
        sentences = split_rows(rows, self.tokenizer, type(self).__name__)

        from skbert.training.device import resolve_device

        device = resolve_device(self.device, type(self).__name__)
        encoder = self.encoder_.placed(device, next(self.encoder_.bilm.parameters()).dtype)
        losses = _losses(
            encoder.bilm,
            self._restore_softmax(encoder.bilm.config.projection_dim).to(device),
            self._corpus(sentences, encoder.alphabet),
        )
        sides = {"both": [0, 1], "forward": [0], "backward": [1]}
        return math.exp(losses[sides[direction]].mean())

    def score(self, X: Any, y: Any = None) -> float:
        """The negative log of ``perplexity(X)``: higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
        y : ignored

        Returns
        -------
        float
        """
        return -math.log(self.perplexity(X))

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        format: str = "skbert",
        dtype: str = "float32",
    ) -> None:
        """Write the network, without what is only needed to train it.

        Parameters
        ----------
        folder : str or path
            Made if it is not there.
        format : {"skbert", "allennlp"}, default="skbert"
            "skbert" is ``elmo.json`` and ``model.safetensors``, with the sentences of a
            warm start; "allennlp" is ``options.json`` and ``weights.hdf5``, which AllenNLP
            and bilm-tf read too, and needs h5py.
        dtype : {"float32", "float16"}, default="float32"
            Number format of the file, for "skbert".
        """
        check_is_fitted(self)
        if format not in ("skbert", "allennlp") or dtype not in ("float32", "float16"):
            raise ValueError(
                "format must be 'skbert' or 'allennlp', and dtype 'float32' or 'float16'. "
                f"Got {format!r} and {dtype!r}."
            )
        if format == "allennlp" and dtype != "float32":
            raise ValueError("The format of AllenNLP is of float32. Got dtype='float16'.")

        from skbert.encoders.elmo_formats import write_allennlp, write_own

        path = Path(os.path.expanduser(folder))
        if format == "allennlp":
            write_allennlp(self.encoder_, path)
        else:
            write_own(self.encoder_, path, dtype)

    # ---- parts of fit

    def _hold_out(
        self, sentences: list[list[str]], rng: np.random.RandomState
    ) -> tuple[list[list[str]], list[list[str]]]:
        n_held = math.ceil(self.validation_fraction * len(sentences))
        if not 0 < n_held < len(sentences):
            raise ValueError(
                f"The 'validation_fraction' parameter of {type(self).__name__} holds out "
                f"{n_held} of {len(sentences)} rows. Give more rows, or another share."
            )
        chosen = set(rng.permutation(len(sentences))[:n_held].tolist())
        left = [row for place, row in enumerate(sentences) if place not in chosen]
        return left, [sentences[place] for place in sorted(chosen)]

    def _start(
        self, source: ElmoEncoder | None, device: torch.device
    ) -> tuple[Bilm, WordRows]:
        """The network that training starts from, and its alphabet."""
        if source is not None:
            return source.trainable(device).bilm, source.alphabet

        from skbert.nn.bilm import Bilm, BilmConfig
        from skbert.text.characters import N_BYTES_TABLE, ByteRows

        n_filters = sum(int(number) for _, number in self.filters)
        if self.lstm_dim < self.projection_dim:
            raise ValueError(
                f"The 'projection_dim' parameter of {type(self).__name__} must be at most "
                f"'lstm_dim', {self.lstm_dim}. Got {self.projection_dim}."
            )
        widest = max(int(width) for width, _ in self.filters)
        if widest > self.max_characters_per_token:
            raise ValueError(
                f"The 'filters' parameter of {type(self).__name__} must be at most as wide "
                f"as 'max_characters_per_token', {self.max_characters_per_token}. Got "
                f"{widest}."
            )
        config = BilmConfig(
            projection_dim=self.projection_dim,
            lstm_dim=self.lstm_dim,
            n_layers=self.n_layers,
            cell_clip=self.cell_clip,
            proj_clip=self.proj_clip,
            use_skip_connections=bool(self.use_skip_connections),
            n_characters=N_BYTES_TABLE,
            character_dim=self.character_dim,
            max_characters_per_token=self.max_characters_per_token,
            filters=tuple((int(width), int(number)) for width, number in self.filters),
            activation=self.activation,
            n_highway=self.n_highway,
            projected=n_filters != self.projection_dim,
        )
        bilm = Bilm(config)
        bilm.draw_weights()
        return bilm.to(device), ByteRows(self.max_characters_per_token)

    def _start_softmax(
        self, sentences: list[list[str]], bilm: Bilm, alphabet: WordRows
    ) -> Any:
        """What predicts words; of a fitted model that is gone on from, as it is."""
        size = bilm.config.projection_dim
        fitted = getattr(self.model, "estimator", self.model)  # within a FrozenEstimator
        if hasattr(fitted, "softmax_"):
            self.vocabulary_ = list(fitted.vocabulary_)
            self.softmax_ = dict(fitted.softmax_)
            return self._restore_softmax(size)

        from skbert.training.streams import build_vocabulary

        self.vocabulary_ = build_vocabulary(
            sentences,
            alphabet.markers,
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
        )
        n_words = len(self.vocabulary_)
        kind = self.softmax
        if kind == "auto":
            kind = "full" if n_words <= FULL_SOFTMAX else "adaptive"
        if kind == "sampled" and self.n_negative_samples >= n_words:
            raise ValueError(
                f"The 'n_negative_samples' parameter of {type(self).__name__} must be "
                f"below the number of words, {n_words}. Got {self.n_negative_samples}. "
                "Use softmax='full' for few words."
            )
        self.softmax_ = {"kind": kind, "n_samples": self.n_negative_samples}
        softmax = self._new_softmax(size)
        softmax.draw_weights()
        return softmax

    def _new_softmax(self, size: int) -> Any:
        from skbert.nn.word_softmax import AdaptiveSoftmax, WordSoftmax

        if self.softmax_["kind"] == "adaptive":
            return AdaptiveSoftmax(size, len(self.vocabulary_))
        sampled = self.softmax_["kind"] == "sampled"
        n_samples = self.softmax_["n_samples"] if sampled else None
        return WordSoftmax(size, len(self.vocabulary_), n_samples)

    def _restore_softmax(self, size: int) -> Any:
        from skbert.encoders.base import to_tensor

        softmax = self._new_softmax(size)
        weights = self.softmax_["weights"]
        softmax.load_state_dict({name: to_tensor(w) for name, w in weights.items()})
        return softmax

    def _corpus(self, sentences: list[list[str]], alphabet: WordRows) -> Corpus:
        from skbert.training.streams import Corpus

        numbers = {word: number for number, word in enumerate(self.vocabulary_)}
        return Corpus.of(sentences, alphabet, numbers)

    def _options(self) -> PretrainingOptions:
        from skbert.training.pretraining import PretrainingOptions

        rate = self.learning_rate
        return PretrainingOptions(
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            unroll_steps=self.unroll_steps,
            optimizer=self.optimizer,
            learning_rate=RATES[self.optimizer] if rate is None else rate,
            warmup=self.warmup,
            schedule=self.schedule,
            max_grad_norm=self.max_grad_norm,
            dropout=self.dropout,
            n_iter_no_change=self.n_iter_no_change,
        )

    def _run(self, run: Pretraining, held: Corpus | None) -> PretrainingOutcome:
        from skbert.training.checkpoint import Checkpoint
        from skbert.training.pretraining import pretrain

        validate = None
        if held is not None:

            def validate() -> float:
                return -float(_losses(run.bilm, run.softmax, held).mean())

        checkpoint = Checkpoint(self.checkpoint, run.recipe(), type(self).__name__)
        n_steps = run.n_steps_per_epoch * self.max_epochs
        with tqdm(total=n_steps, disable=not self.verbose, unit="step") as bar:

            def progress(loss: float) -> None:
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                bar.update()

            resumed = checkpoint.read()
            bar.update(0 if resumed is None else resumed["run"]["step"])
            outcome = pretrain(
                run,
                validate=validate,
                progress=progress,
                checkpoint=checkpoint.offer,
                resumed=resumed,
            )
        checkpoint.remove()
        return outcome

    def _keep(
        self, run: Pretraining, alphabet: WordRows, sentences: list[list[str]]
    ) -> None:
        from skbert.encoders.elmo import ElmoEncoder

        warm_up = [words for words in sentences if words][:N_WARM_UP]
        self.encoder_ = ElmoEncoder(run.bilm.cpu(), alphabet, warm_up=warm_up)
        weights = run.softmax.cpu().state_dict()
        self.softmax_["weights"] = {name: part.numpy() for name, part in weights.items()}


def _losses(bilm: Bilm, softmax: Any, corpus: Corpus) -> np.ndarray:
    from skbert.training.pretraining import word_losses

    n_parts = corpus.n_predictions // WORDS_PER_PART
    return word_losses(bilm, softmax, corpus, min(max(n_parts, 1), MOST_PARTS))
