"""What the taggers share: tags as targets, and emissions as tags, spans and scores."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skbert.estimators.callbacks import with_callbacks
from skbert.estimators.params import Rule, a, boolean, check_params, option, real
from skbert.estimators.training import Places, all_or_nothing
from skbert.metrics import entity_f1_score, word_accuracy_score
from skbert.text.report import users_stacklevel
from skbert.text.tags import (
    Span,
    allowed_transitions,
    detect_scheme,
    find_spans,
    split_tag,
)

if TYPE_CHECKING:
    import torch

    from skbert.nn.tagging import TaggingHead

# Words, or vectors of words where each has several, that are decoded at a time.
DECODE_WORDS = 4096


class Tagged(NamedTuple):
    """Tags of one sentence.

    Attributes
    ----------
    numbers : ndarray of shape (n_words,), int64
        Places in ``classes_``.
    probabilities : ndarray of shape (n_words, n_tags), float64, or None
        None where they were not asked for.
    """

    numbers: np.ndarray
    probabilities: Any


class TaggingMixin:
    """Targets, decoding and scores of estimators that give each word a tag.

    Vectors of the words of a sentence are an array of shape (n_words, n_features), or
    (n_words, n_layers_in_, n_features) where there is such an attribute. A word that
    could not be read is marked in it (``training.source.UNREAD``): it has no part in
    training, and gets ``default_tag_`` or, where the scheme forbids that, the tag that an
    entity around it goes on with.
    """

    head: str
    constrain_tags: bool
    class_weight: dict[Any, float] | str | None
    label_smoothing: float
    lstm_hidden_size: int
    n_lstm_layers: int
    head_: dict[str, np.ndarray]
    classes_: np.ndarray
    scheme_: str | None
    default_tag_: Any

    _tagging_rules: ClassVar[dict[str, Rule]] = {
        "head": option("softmax", "crf"),
        "constrain_tags": boolean(),
        "class_weight": a(dict, "a dict from tags to weights") | option("balanced", None),
        "label_smoothing": real(0, 1),
    }

    # ---- targets

    def _check_head(self) -> None:
        if self.head == "crf" and self.label_smoothing:
            raise ValueError(
                f"The 'label_smoothing' parameter of {type(self).__name__} must be 0 with "
                "head='crf', which learns whole sentences. Got "
                f"{self.label_smoothing}. Use head='softmax' to smooth."
            )

    def _learn_tags(self, tags: Sequence[Sequence[Any]], classes: Any = None) -> None:
        """What is known of the tags from y alone."""
        name = type(self).__name__
        seen = [tag for row in tags for tag in row]
        if not seen:
            raise ValueError(f"{name} needs words to learn from, but all rows are empty.")
        known = np.unique(seen if classes is None else np.asarray(classes))
        self.classes_ = known
        # Tags that no row has yet have their say, but only whole sentences tell IOB1.
        self.scheme_ = detect_scheme([known.tolist()])
        if self.scheme_ in ("IOB1", "IOB2"):
            self.scheme_ = detect_scheme(tags)
        self.scoring_ = "word_accuracy" if self.scheme_ is None else "entity_f1"
        self.default_tag_ = self._default_tag(seen)

    def _default_tag(self, seen: Sequence[Any]) -> Any:
        """The tag "O", or the most frequent one, of entities one that may stand alone."""
        tags = self.classes_.tolist()
        if "O" in tags:
            return "O"
        counts = Counter(seen)
        if self.scheme_ is not None:
            _, start, end = allowed_transitions(tags, self.scheme_)
            alone = [tag for tag, ok in zip(tags, start & end, strict=True) if ok]
            counts = Counter({tag: counts[tag] for tag in alone}) or counts
        return max(tags, key=lambda tag: counts[tag])

    def _new_head(self, n_inputs: int, dropout: float) -> TaggingHead:
        from skbert.nn.tagging import TaggingHead

        allowed = None
        if self.constrain_tags and self.scheme_ is not None:
            allowed = allowed_transitions(self.classes_.tolist(), self.scheme_)
        return TaggingHead(
            n_inputs,
            len(self.classes_),
            lstm_hidden_size=self.lstm_hidden_size,
            n_lstm_layers=self.n_lstm_layers,
            dropout=dropout,
            crf=self.head == "crf",
            allowed=allowed,
            n_layers=getattr(self, "n_layers_in_", None),
        )

    @with_callbacks
    @all_or_nothing
    def partial_fit(
        self: Any, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Any:
        """One more epoch on these rows, from the weights as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            As in ``fit``.
        y : array-like of shape (n_samples,)
            As in ``fit``.
        classes : array-like of shape (n_tags,) or None
            All tags that any call will bring; needed in the first. For texts with spans
            those of IOB2: "O", and "B-" and "I-" with each label.
        sample_weight : array-like of shape (n_samples,) or None
            Weights of the sentences.

        Returns
        -------
        self
        """
        check_params(self, self._rules)
        proceed = self._begin_partial_fit(classes)
        return self._fit(X, y, sample_weight, (None, None), classes, proceed, max_epochs=1)

    def _fit_tags(
        self: Any,
        rows: list[Any],
        tags: list[list[Any]],
        sample_weight: Any,
        validation: tuple[list[Any], list[list[Any]]] | None,
        classes: Any,
        proceed: bool,
        max_epochs: int | None,
        given: tuple[Any, Any],
    ) -> None:
        """Train on sentences and their tags, as many as words."""
        from skbert.training.objectives import TagObjective
        from skbert.training.targets import (
            check_class_weight,
            check_weights,
            encode_tags,
        )

        name = type(self).__name__
        weights = check_weights(sample_weight, len(rows), name)
        kept = np.flatnonzero(weights)
        places = Places(kept, None, len(rows))
        rows, tags = [rows[i] for i in kept], [tags[i] for i in kept]
        weights = weights[kept]
        if not proceed:
            self._learn_tags(tags, classes)
        elif self.scheme_ == "IOB1" and _shows_iob2(tags):
            # Few sentences may look like IOB1 by chance; this one cannot.
            self.scheme_ = "IOB2"
        targets = encode_tags(tags, self.classes_, name)
        by_tag = check_class_weight(
            self.class_weight,
            np.concatenate(targets),
            np.repeat(weights, [len(row) for row in targets]),
            self.classes_,
            name,
        )
        rng = check_random_state(self.random_state)
        held: Any = None
        if validation is not None:
            held = validation[0], encode_tags(validation[1], self.classes_, name)
        elif self.early_stopping and max_epochs is None:
            train, test = train_test_split(
                np.arange(len(rows)),
                test_size=self.validation_fraction,
                random_state=rng.randint(2**31 - 1),
            )
            held = [rows[i] for i in test], [targets[i] for i in test]
            rows, targets = [rows[i] for i in train], [targets[i] for i in train]
            weights = weights[train]
            places = Places(kept[train], kept[test], places.n_rows)

        def make_objective(head: Any, source: Any, device: torch.device) -> Any:
            if not any(map(len, source.words)):
                raise ValueError(
                    f"X of {name} holds no word of which the tokenizer leaves a piece, so "
                    "there is nothing to learn from."
                )
            read = zip(targets, source.words, strict=True)
            return TagObjective(
                [row[seen] for row, seen in read],
                weights,
                by_tag,
                self.label_smoothing,
                head.crf,
                device,
            )

        def score(head: Any, source: Any, outputs: np.ndarray) -> float:
            return self._score_emissions(head, outputs, source.words, held[1])

        def make_head(n_inputs: int, dropout: float) -> TaggingHead:
            head = self._new_head(n_inputs, dropout)
            head.draw_weights()
            return head

        n_seen = len(np.unique(np.concatenate(targets)))
        if n_seen < 2:
            warnings.warn(
                f"{name} found one tag only in y, {tags[0][:1] or tags}: it can learn "
                "nothing else.",
                UserWarning,
                stacklevel=users_stacklevel(),
            )
        outcome = self._fit_network(
            rows,
            make_head,
            make_objective,
            None if held is None else (held[0], score),
            rng=rng,
            proceed=proceed,
            max_epochs=max_epochs or self.max_epochs,
            given=given,
            places=places,
        )
        self._warn_if_collapsed(outcome, n_seen, "words the same tag")

    # ---- tags

    def _decode(
        self,
        rows: Iterable[tuple[list[int], np.ndarray]],
        device: torch.device,
        *,
        probabilities: bool,
    ) -> Iterator[tuple[list[int], Tagged]]:
        """Tags of sentences, from their positions and the vectors of their words."""
        import torch

        from skbert.training.source import WordVectorSource

        head: Any = None
        for group in grouped(rows):
            vectors = [row for _, row in group]
            if head is None:
                head = self._fitted_head(vectors[0].shape[-1], device)
            source = WordVectorSource(vectors, device)
            batch, words = source.batch(np.arange(len(vectors))), source.words
            lengths = batch.lengths
            tables: Any = [None] * len(words)
            with torch.inference_mode():
                # In float64, which not every device has, probabilities sum to 1.
                emissions = head(batch.vectors, lengths).cpu().double()
                if not emissions.isfinite().all():
                    raise ValueError(
                        f"{type(self).__name__} gives scores that are not finite: its "
                        "training diverged, as fit warned. Lower learning_rate and fit "
                        "again."
                    )
                numbers = head.decode(emissions, lengths).numpy()
                if probabilities:
                    tables = _split(head.probabilities(emissions, lengths).numpy(), words)
            decoded = zip(group, words, _split(numbers, words), tables, strict=True)
            for (positions, row), seen, given, table in decoded:
                full = self._with_unread(given, seen, len(row))
                if table is not None:
                    # A word that was not read has the tag that it gets for certain.
                    certain = np.eye(len(self.classes_))[full]
                    certain[seen] = table
                    table = certain
                yield positions, Tagged(full, table)

    def _fitted_head(self, n_inputs: int, device: torch.device) -> TaggingHead:
        head = self._new_head(n_inputs, 0.0).eval()
        head.set_arrays(self.head_)
        head.to(device)
        if head.crf is not None:
            head.crf.cpu()
        return head

    def _with_unread(self, given: np.ndarray, seen: np.ndarray, n_words: int) -> np.ndarray:
        """Tags of all words, from those of the words that could be read."""
        if len(given) == n_words:
            return given
        tags = self.classes_.tolist()
        full = np.full(n_words, tags.index(self.default_tag_))
        full[seen] = given
        if self.scheme_ is None:
            return full
        may, start, end = _allowed(tuple(tags), self.scheme_)
        for left, right in pairwise([-1, *seen.tolist(), n_words]):
            if right - left == 1:
                continue
            # What may stand here, where the words around are what they are.
            fits = start.copy() if left < 0 else may[full[left]].copy()
            fits &= end if right == n_words else may[:, full[right]]
            if right - left > 2:
                fits &= may.diagonal()
            inside = [] if left < 0 else [f"I-{split_tag(tags[full[left]])[1]}".rstrip("-")]
            wanted = [tag for tag in (self.default_tag_, *inside) if tag in tags]
            ordered = [tags.index(tag) for tag in wanted] + np.flatnonzero(fits).tolist()
            full[left + 1 : right] = next((at for at in ordered if fits[at]), ordered[0])
        return full

    def _score_emissions(
        self,
        head: TaggingHead,
        emissions: np.ndarray,
        words: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
    ) -> float:
        """What early stopping looks at: the score that ``scoring_`` names.

        While no entity is right, the log-likelihood of the tags, which is below 0 and
        shows progress from the start.
        """
        import torch

        lengths = torch.tensor([len(seen) for seen in words])
        device = head.linear.weight.device
        scores = torch.from_numpy(emissions).float().to(device)
        numbers = head.decode(scores, lengths).cpu().numpy()
        predicted = [
            self._with_unread(given, seen, len(row))
            for given, seen, row in zip(_split(numbers, words), words, targets, strict=True)
        ]
        score = self._score_tags(
            [self.classes_[row].tolist() for row in targets],
            [self.classes_[row].tolist() for row in predicted],
        )
        if score > 0:
            return score
        table = head.probabilities(scores, lengths).cpu().numpy()
        read = np.concatenate([row[seen] for row, seen in zip(targets, words, strict=True)])
        chances = table[np.arange(len(read)), read]
        return float(np.log(np.maximum(chances, 1e-30)).mean()) if len(read) else 0.0

    def _score_tags(self, y_true: Any, y_pred: Any) -> float:
        if self.scheme_ is None:
            return float(word_accuracy_score(y_true, y_pred))
        return float(entity_f1_score(y_true, y_pred))

    def _entities(self, numbers: np.ndarray) -> list[Span]:
        """Entities of one sentence, in words."""
        return find_spans(self.classes_[numbers].tolist(), None)

    def _spans(self, tagged: Tagged) -> list[dict[str, Any]]:
        """Entities as dicts, with the mean probability of their tags."""
        numbers, table = tagged
        chances = table[np.arange(len(numbers)), numbers]
        return [
            {
                "start": start,
                "end": end,
                "label": label,
                "score": float(chances[start:end].mean()),
            }
            for start, end, label in self._entities(numbers)
        ]

    def _check_entities(self) -> None:
        if self.scheme_ is None:
            raise ValueError(
                f"{type(self).__name__} was fitted with tags that are no entities, such as "
                f"{self.classes_.tolist()[0]!r}, so there are no spans. Use predict, or "
                "fit with tags such as 'B-PER' and 'I-PER'."
            )


@lru_cache(maxsize=8)
def _allowed(tags: tuple[str, ...], scheme: str) -> tuple[np.ndarray, ...]:
    """What may stand together; worked out once, not for each sentence."""
    return allowed_transitions(tags, scheme)


def grouped(
    rows: Iterable[tuple[list[int], np.ndarray]],
) -> Iterator[list[tuple[list[int], np.ndarray]]]:
    """Rows of about `DECODE_WORDS` vectors together."""
    group: list[tuple[list[int], np.ndarray]] = []
    n_vectors = 0
    for row in rows:
        group.append(row)
        n_vectors += math.prod(row[1].shape[:-1]) + 1
        if n_vectors >= DECODE_WORDS:
            yield group
            group, n_vectors = [], 0
    if group:
        yield group


def _split(values: np.ndarray, words: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Values of joined words, sentence by sentence."""
    return np.split(values, np.cumsum([len(seen) for seen in words])[:-1])


def _shows_iob2(sentences: Sequence[Sequence[Any]]) -> bool:
    """Whether some B- stands where IOB1 has none."""
    opened = any(str(tag).startswith("B") for row in sentences for tag in row)
    return opened and detect_scheme(sentences) == "IOB2"
