"""Texts and words to static word vectors, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skbert.encoders.vector_files import VectorFile, Vectors, open_vectors
from skbert.estimators.base import TextEstimator
from skbert.estimators.params import (
    Rule,
    boolean,
    check_params,
    integer,
    option,
    real,
)
from skbert.estimators.vector_sources import is_source, name_of, open_source
from skbert.exceptions import ModelNotFoundError, VocabularyWarning
from skbert.text.report import users_stacklevel
from skbert.text.words import split_words
from skbert.training.word_pooling import (
    first_component,
    idf_weights,
    pool_document,
    sif_weights,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags

# Parameters that act by ``fit`` alone.
_BY_FIT = ("output", "pooling", "sif_a", "lowercase", "oov", "duplicates")
_TRAINING = (
    "vector_size",
    "window",
    "min_count",
    "sg",
    "negative",
    "learning_rate",
    "max_epochs",
)


def _has_columns(vectorizer: WordVectorizer) -> bool:
    # Word vectors are ragged: without names scikit-learn leaves them as they are.
    return vectorizer.output == "document"


class WordVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):
    """Vectors of texts or of their words from a table: word2vec, GloVe.

    A word has one vector, whatever stands beside it. The baseline for `BertVectorizer`,
    whose vectors depend on the sentence: far faster, and of use where there is much text
    or little time. Vectors come from a file, or are trained on the texts given to ``fit``.

    Parameters
    ----------
    model : str, path, WordVectorizer, KeyedVectors or None, default=None
        A file of word2vec (text or binary) or GloVe (text, with or without a first line
        of counts), each also compressed by gzip; its content tells which. Or the folder
        of a saved `WordVectorizer`, a fitted one, or ``KeyedVectors`` of gensim. None
        trains word2vec on the texts of ``fit``, which needs
        ``pip install "skbert[word2vec]"``.
    output : {"document", "words"}, default="document"
        One vector for each row, or one for each word of each row. "words" wants lists of
        words as input.
    pooling : {"mean", "max", "tfidf", "sif"}, default="mean"
        From words to a text. "tfidf" is a mean weighted by inverse document frequency,
        "sif" the sentence vector of [1]_: weights ``sif_a / (sif_a + p)``, where p is the
        share of a word among the known words of ``fit``, and then without the first
        principal component of the texts of ``fit``. Not used with ``output="words"``.
    sif_a : float, default=0.001
        Smaller ones make frequent words count less. Only used with ``pooling="sif"``.
    normalize : bool, default=False
        Scale every vector to Euclidean length 1 (a vector of zeros stays).
    tokenizer : callable or None, default=None
        From a text to the list of its words. None is ``skbert.text.words.split_words``.
        Lists of words are used as they are.
    lowercase : bool or "fallback", default="fallback"
        How a word is looked up: "fallback" as it is written and, if there is no such
        vector, in lower case; True in lower case only; False as it is written only.
        Training sees words in lower case with True alone.
    oov : {"auto", "skip", "zeros", "mean", "error"}, default="auto"
        What stands for a word without a vector: "skip" leaves it out of the document,
        "zeros" is a vector of zeros, "mean" the mean vector of the known words of
        ``fit``, each counted once; "error" refuses it. "auto" is "skip" for documents and
        "zeros" for words, of which none can be left out.
    vocabulary : {"model", "all", "fit"}, default="model"
        Which words are known, and where from. "model": all words of the model; the
        fitted estimator carries the vectors of the words of ``fit``, and reads others from
        the file, which must stay where it is. "all": the same, but it carries all vectors
        and needs no file. "fit": the words of ``fit`` alone.
    duplicates : {"error", "first"}, default="error"
        What happens if a file has a word twice.
    vector_size : int, default=100
        Width of trained vectors. This and what follows is used with ``model=None`` only.
    window : int, default=5
        Words on each side that count as neighbours.
    min_count : int, default=2
        Words that occur less often have no vector.
    sg : {0, 1}, default=0
        1 is the skip-gram of word2vec [2]_, 0 its bag of words.
    negative : int, default=5
        Noise words for each word.
    learning_rate : float, default=0.025
        Of the first step; gensim's ``alpha``.
    max_epochs : int, default=20
        Passes over the texts; gensim's ``epochs``.
    random_state : int, RandomState or None, default=None
        Seed of the training. An int gives the same bytes each time.
    verbose : int, default=0
        Show a progress bar while a file is read if greater than 0.

    Attributes
    ----------
    model_ : str
        Path of the file that is searched for more words; else the name of what the
        vectors came from.
    model_bytes_ : int or None
        Size of that file; None without one.
    vocabulary_ : dict of str to int
        Words that the estimator carries, and their places in ``vectors_``.
    vectors_ : ndarray of shape (n_words, n_features_out_), float32
        Their vectors.
    unknown_words_ : list of str
        Words of ``fit`` that the file does not have, so that no file is asked again.
    oov_ : str
        Treatment of unknown words, "auto" resolved.
    oov_vector_ : ndarray of shape (n_features_out_,), float32
        What stands for them.
    word_weights_ : ndarray of shape (n_words,), float64
        With "tfidf" and "sif": weights of the words of ``vocabulary_``.
    unseen_weight_ : float
        With "tfidf" and "sif": weight of words that were not in ``fit``, unknown ones
        among them.
    component_ : ndarray of shape (n_features_out_,), float64
        With "sif": the direction that is taken out of every document.
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
    BertVectorizer : Vectors that depend on the sentence.
    WordFeatureUnion : Several vectors for each word, one behind the other.

    Notes
    -----
    A text without known words is a vector of zeros, and so is an empty one. One warning
    for each call counts the texts of words of which none is known, another comes if more
    than half of all words are unknown.

    A file is read once in a process, when it is first used, to learn where each word
    stands; that takes some 20 bytes of memory a word. Vectors are then read from a map of
    the file. A compressed file has to be read from its beginning whenever ``transform``
    wants words that ``fit`` did not see: unpack large ones. Lines are checked for the
    number of their values; the values themselves where they are used. In a word2vec file
    a word ends where its values begin, counted from the right, so words may hold spaces.

    A search copies the ``KeyedVectors`` for each candidate, and unfits a nested
    `WordVectorizer`: give a path, or ``FrozenEstimator(vectorizer)``.

    References
    ----------
    .. [1] Arora, Liang and Ma (2017), A simple but tough-to-beat baseline for sentence
       embeddings, algorithm 1.
    .. [2] Mikolov et al. (2013), Distributed representations of words and phrases and
       their compositionality.

    Examples
    --------
    >>> import os, tempfile
    >>> from skbert import WordVectorizer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "vectors.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("good 1 0\\nbad -1 0\\nfilm 0 1\\n")
    ...     vectorizer = WordVectorizer(path).fit(["Good film", "bad film"])
    ...     vectorizer.transform(["film", "a bad film"]).tolist()
    [[0.0, 1.0], [-0.5, 0.5]]
    """

    _rules: ClassVar[dict[str, Rule]] = {
        "model": Rule(
            is_source,
            "the path of a file, a fitted WordVectorizer, KeyedVectors of gensim (model.wv "
            "of a Word2Vec) or None",
        ),
        "output": option("document", "words"),
        "pooling": option("mean", "max", "tfidf", "sif"),
        "sif_a": Rule(lambda a: real(0).accepts(a) and a > 0, "a number above 0"),
        "normalize": boolean(),
        "tokenizer": Rule(
            lambda value: callable(value) and not isinstance(value, type),
            "a function from a text to the list of its words",
        )
        | option(None),
        "lowercase": boolean() | option("fallback"),
        "oov": option("auto", "skip", "zeros", "mean", "error"),
        "vocabulary": option("model", "all", "fit"),
        "duplicates": option("error", "first"),
        "vector_size": integer(1),
        "window": integer(1),
        "min_count": integer(1),
        "sg": Rule(lambda value: integer().accepts(value) and value in (0, 1), "0 or 1"),
        "negative": integer(1),
        "learning_rate": real(0),
        "max_epochs": integer(1),
        "verbose": integer(0) | boolean(),
    }

    def __init__(
        self,
        model: Any = None,
        *,
        output: str = "document",
        pooling: str = "mean",
        sif_a: float = 1e-3,
        normalize: bool = False,
        tokenizer: Callable[[str], Sequence[str]] | None = None,
        lowercase: bool | str = "fallback",
        oov: str = "auto",
        vocabulary: str = "model",
        duplicates: str = "error",
        vector_size: int = 100,
        window: int = 5,
        min_count: int = 2,
        sg: int = 0,
        negative: int = 5,
        learning_rate: float = 0.025,
        max_epochs: int = 20,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.output = output
        self.pooling = pooling
        self.sif_a = sif_a
        self.normalize = normalize
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.oov = oov
        self.vocabulary = vocabulary
        self.duplicates = duplicates
        self.vector_size = vector_size
        self.window = window
        self.min_count = min_count
        self.sg = sg
        self.negative = negative
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> WordVectorizer:
        """Find or train vectors of the words of X, and learn how words are weighted.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or lists of words.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is invalid, X holds anything but texts, or a file is not what
            it says; the line is named.
        ModelNotFoundError
            If there is no such file.
        """
        check_params(self, self._rules)
        oov = self._resolve_oov()
        rows = self._split(self._check_rows(X, reset=True))
        for stale in ("word_weights_", "unseen_weight_", "component_"):
            self.__dict__.pop(stale, None)
        (words, vectors), file, unknown = self._carried(rows)
        self.model_ = name_of(self.model) if file is None else str(file.path)
        self.model_bytes_ = None if file is None else file.n_bytes
        self.vocabulary_ = {word: at for at, word in enumerate(words)}
        self.vectors_ = vectors
        self.n_features_out_ = vectors.shape[1]
        self.unknown_words_ = unknown
        self.oov_ = oov
        self._settings = self._settings_now()
        self._learn(rows)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Vectors of the rows of X, in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or, with ``output="words"``, lists of words.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out_), float32
            With ``output="words"`` instead an object array of shape (n_samples,) that
            holds one float32 array of shape (n_words, n_features_out_) for each row.

        Raises
        ------
        NotFittedError
            If ``fit`` was not called.
        ValueError
            If X holds anything but texts, or unknown words with ``oov="error"``; the
            positions are named. Also if a parameter was changed that acts by ``fit``.
        ModelNotFoundError
            If X has words that were not in ``fit``, and the file is gone that may have
            them.
        """
        check_is_fitted(self)
        self._check_unchanged()
        rows = self._split(self._check_rows(X, reset=False))
        words = list(dict.fromkeys(word for row in rows for word in row))
        table = _Table(self, words, self._search_file(words))
        self._report_unknown(table, rows)
        if self.output == "words":
            out = np.empty(len(rows), dtype=object)
        else:
            out = np.zeros((len(rows), self.n_features_out_), dtype=np.float32)
        for position, row in enumerate(rows):
            if self.output == "words":
                value = table.vectors[table.places(row, keep_unknown=True)]
            else:
                value = self._document(table, row)
            if self.normalize:
                norms = np.linalg.norm(value, axis=-1, keepdims=True)
                value = value / np.where(norms > 0, norms, 1)
            out[position] = value
        return out

    @available_if(_has_columns)
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns: the class name in lower case and a number.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str, of shape (n_features_out_,)
        """
        return super().get_feature_names_out(input_features)

    @property
    def _searches_file(self) -> bool:
        """Whether words that were not in ``fit`` are read from a file."""
        return self.vocabulary == "model" and self.model_bytes_ is not None

    # ---- reading rows and words

    def _check_rows(self, X: Any, *, reset: bool) -> list[Any]:
        kinds = ("words",) if self.output == "words" else ("texts", "words")
        return self._rows(X, kinds, reset=reset)

    def _split(self, rows: list[Any]) -> list[list[str]]:
        """Words of every row."""
        if not isinstance(rows[0], str):
            return rows
        if self.tokenizer is None:
            return [[text[start:end] for start, end in split_words(text)] for text in rows]
        split = [self.tokenizer(text) for text in rows]
        for position, words in enumerate(split):
            listed = isinstance(words, list | tuple)
            if not (listed and all(isinstance(word, str) for word in words)):
                raise ValueError(
                    f"The 'tokenizer' parameter of {type(self).__name__} must be a "
                    "function from a text to the list of its words. Got an object of type "
                    f"{type(words).__name__} for the text at position {position}."
                )
        return [list(words) for words in split]

    def _forms(self, word: str) -> Iterator[str]:
        """What a word is looked up as, the best first."""
        always = self._always_lowers
        if not always:
            yield word
        if self.lowercase and ((lower := word.lower()) != word or always):
            yield lower

    @property
    def _always_lowers(self) -> bool:
        return not isinstance(self.lowercase, str) and bool(self.lowercase)

    def _places(self, words: Iterable[str], known: dict[str, int]) -> dict[str, int]:
        """Where words are found, in one of their forms; without those that are not."""
        found = {}
        for word in words:
            for form in self._forms(word):
                if form in known:
                    found[word] = known[form]
                    break
        return found

    # ---- vectors

    def _carried(
        self, rows: list[list[str]]
    ) -> tuple[Vectors, VectorFile | None, list[str]]:
        """Vectors that the estimator will hold, a file with more, what it does not have."""
        if self.model is None:
            return self._train(rows), None, []
        name = type(self).__name__
        source = open_source(
            self.model, self.duplicates, bool(self.verbose), WordVectorizer
        )
        if self.vocabulary == "all" or (self.vocabulary == "model" and source.file is None):
            return source.read_all(name), None, []
        words = dict.fromkeys(word for row in rows for word in row)
        forms = dict.fromkeys(form for word in words for form in self._forms(word))
        found = source.find(forms)
        unknown = [] if source.file is None else sorted(forms.keys() - set(found[0]))
        return found, source.file, unknown

    def _train(self, rows: list[list[str]]) -> Vectors:
        from skbert.training.word2vec import train_word2vec

        if self._always_lowers:
            rows = [[word.lower() for word in row] for row in rows]
        return train_word2vec(
            rows,
            **{name: getattr(self, name) for name in _TRAINING},
            seed=check_random_state(self.random_state).randint(2**31 - 1),
            caller=type(self).__name__,
        )

    def _search_file(self, words: Iterable[str]) -> Vectors:
        """Vectors of words that were not in fit, if there is a file that may have them."""
        nothing: Vectors = [], np.empty((0, self.n_features_out_), np.float32)
        if not self._searches_file:
            return nothing
        unknown = set(self.unknown_words_)
        new: dict[str, None] = {}
        for word in words:
            for form in self._forms(word):
                if form in self.vocabulary_:
                    break
                if form not in unknown:
                    new[form] = None
        if not new:
            return nothing
        name = type(self).__name__
        try:
            file = open_vectors(self.model_, bool(self.verbose))
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"{name} was given {len(new)} words that were not in fit (first: "
                f"{list(new)[:5]}), and the file {self.model_!r} that may have them is "
                "gone. Put it back, or fit with vocabulary='all' to carry all vectors; "
                "after set_params(vocabulary='fit') such words count as unknown."
            ) from error
        if file.n_bytes != self.model_bytes_:
            raise ValueError(
                f"The file {self.model_!r} had {self.model_bytes_} bytes when {name} was "
                f"fitted, and has {file.n_bytes} now: its vectors do not belong to those "
                "of fit. Put the old file back, or call fit again."
            )
        return file.find(new)

    # ---- what is learnt

    def _learn(self, rows: list[list[str]]) -> None:
        """Vector of unknown words, weights and the component, out of the words of fit."""
        self.oov_vector_ = np.zeros(self.n_features_out_, dtype=np.float32)
        words = list(dict.fromkeys(word for row in rows for word in row))
        places = self._places(words, self.vocabulary_)
        if self.oov_ == "mean" and places:
            seen = self.vectors_[sorted(set(places.values()))]
            self.oov_vector_ = seen.mean(axis=0, dtype=np.float64).astype(np.float32)
        if self.output == "words" or self.pooling not in ("tfidf", "sif"):
            return
        counts = np.zeros(len(self.vocabulary_))
        for row in rows:
            known = [places[word] for word in row if word in places]
            np.add.at(counts, list(set(known)) if self.pooling == "tfidf" else known, 1)
        if self.pooling == "tfidf":
            self.word_weights_ = idf_weights(counts, len(rows))
            self.unseen_weight_ = float(idf_weights(np.zeros(1), len(rows))[0])
            return
        self.word_weights_ = sif_weights(counts, self.sif_a)
        self.unseen_weight_ = 1.0
        table = _Table(self, words)
        self.component_ = first_component(
            np.array([self._weighted_mean(table, row) for row in rows])
        )

    def _document(self, table: _Table, row: list[str]) -> np.ndarray:
        value = self._weighted_mean(table, row)
        if self.pooling != "sif":
            return value
        left = value - (value * self.component_).sum() * self.component_
        # Of a text in that very direction only rounding is left, which normalize would
        # blow up.
        return left if np.abs(left).max() > 1e-6 * np.abs(value).max() else 0.0 * value

    def _weighted_mean(self, table: _Table, row: list[str]) -> np.ndarray:
        places = table.places(row, keep_unknown=self.oov_ != "skip")
        if not places:
            return np.zeros(self.n_features_out_)
        return pool_document(table.vectors[places], table.weights[places], self.pooling)

    # ---- parameters, reports, tags

    def _resolve_oov(self) -> str:
        if self.output == "words" and self.oov == "skip":
            raise ValueError(
                f"The 'oov' parameter of {type(self).__name__} must be 'zeros', 'mean', "
                "'error' or 'auto' with output='words', where every word has a vector. Got "
                "'skip'."
            )
        if self.oov == "auto":
            return "skip" if self.output == "document" else "zeros"
        return self.oov

    def _settings_now(self) -> dict[str, Any]:
        names = _BY_FIT + (_TRAINING if self.model is None else ())
        settings = {name: getattr(self, name) for name in names}
        # From one of these to the other is a way on when the file is gone.
        searches = self.model_bytes_ is not None and self.vocabulary in ("model", "fit")
        vocabulary = "model or fit" if searches else self.vocabulary
        return {"model": name_of(self.model), "vocabulary": vocabulary, **settings}

    def _check_unchanged(self) -> None:
        check_params(self, self._rules)
        now = self._settings_now()
        changed = [name for name in now if self._settings.get(name, now[name]) != now[name]]
        if changed:
            raise ValueError(
                f"The parameters {', '.join(changed)} of {type(self).__name__} were "
                "changed after fit. Call fit again."
            )

    def _report_unknown(self, table: _Table, rows: list[list[str]]) -> None:
        """Tell once which words have no vector."""
        name = type(self).__name__
        n_unknown = [len(row) - len(table.places(row, keep_unknown=False)) for row in rows]
        if self.oov_ == "error" and any(n_unknown):
            bad = [at for at, n in enumerate(n_unknown) if n]
            words = [word for row in rows for word in row if not table.knows(word)]
            raise ValueError(
                f"X of {name} has {sum(n_unknown)} words without a vector (first: "
                f"{words[:5]}) at positions {bad[:5]}, {len(bad)} in all, and oov='error' "
                "refuses them. Use another oov, or other vectors."
            )
        level = users_stacklevel()
        empty = [at for at, row in enumerate(rows) if 0 < len(row) == n_unknown[at]]
        if empty and self.output == "document":
            warnings.warn(
                f"{name} knows no word of {len(empty)} of {len(rows)} rows (first "
                f"positions: {empty[:5]}), whose vectors say nothing. Drop these rows, or "
                "choose vectors made for their language.",
                VocabularyWarning,
                stacklevel=level,
            )
        if sum(n_unknown) * 2 > (n_words := sum(map(len, rows))):
            warnings.warn(
                f"{name} found {sum(n_unknown)} of {n_words} words without a vector: the "
                "vectors say little about the texts. Choose vectors made for their "
                "language or domain, or look at tokenizer and lowercase.",
                VocabularyWarning,
                stacklevel=level,
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_


class _Table:
    """The vectors and weights of the words of one call; the last is of unknown ones.

    Parameters
    ----------
    vectorizer : WordVectorizer
    words : sequence of str
        Distinct words.
    more : (list of str, ndarray) or None
        Words that the vectorizer does not carry, and their vectors.
    """

    def __init__(
        self, vectorizer: WordVectorizer, words: Sequence[str], more: Vectors | None = None
    ) -> None:
        known, n_carried = vectorizer.vocabulary_, len(vectorizer.vocabulary_)
        if more is not None and more[0]:
            known = known | {word: at for at, word in enumerate(more[0], n_carried)}
        found = vectorizer._places(words, known)
        used = sorted(set(found.values()))
        compact = {place: at for at, place in enumerate(used)}
        self._places = {word: compact[place] for word, place in found.items()}
        carried = [place for place in used if place < n_carried]
        parts = [vectorizer.vectors_[carried]]
        if more is not None:
            parts.append(more[1][[place - n_carried for place in used[len(carried) :]]])
        self.vectors = np.vstack([*parts, vectorizer.oov_vector_])
        self.weights = np.full(len(used) + 1, getattr(vectorizer, "unseen_weight_", 1.0))
        if hasattr(vectorizer, "word_weights_"):
            self.weights[: len(carried)] = vectorizer.word_weights_[carried]

    def knows(self, word: str) -> bool:
        return word in self._places

    def places(self, row: Sequence[str], *, keep_unknown: bool) -> list[int]:
        """Where the vectors of the words of a row stand."""
        if keep_unknown:
            return [self._places.get(word, len(self.vectors) - 1) for word in row]
        return [self._places[word] for word in row if word in self._places]
