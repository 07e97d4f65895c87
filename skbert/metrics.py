"""Scores of taggers: entities found, and words tagged right.

All take one list of tags for each sentence, in any ragged container, as ``y_true`` and
``y_pred``. The scorers serve scikit-learn's tools, which have none for ragged targets:
``GridSearchCV(tagger, grid, scoring=entity_f1_scorer)``.

An entity is right if its first word, its last word and its label are. What counts as an
entity depends on the mode: "default" is lenient, as in conlleval and in seqeval's default,
"strict" wants entities that are well-formed in their scheme. A scorer in another mode is
``make_scorer(entity_f1_score, mode="strict", scheme="IOB2")``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import make_scorer

from skbert.text.tags import (
    Span,
    check_entity_tags,
    check_mode,
    check_scheme,
    check_tags,
    detect_scheme,
    find_spans,
)
from skbert.text.words import check_spans

__all__ = [
    "entity_f1_score",
    "entity_f1_scorer",
    "entity_precision_score",
    "entity_precision_scorer",
    "entity_recall_score",
    "entity_recall_scorer",
    "entity_report",
    "span_f1_score",
    "span_f1_scorer",
    "word_accuracy_score",
    "word_accuracy_scorer",
]

_AVERAGES = ("micro", "macro", "weighted")
_NAMES = ("precision", "recall", "f1-score", "support")
_N_NAMED = 5  # positions written out in a message


def entity_f1_score(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str | None = None,
    mode: str = "default",
    average: str | None = "micro",
    zero_division: float = 0.0,
    labels: Sequence[str] | None = None,
) -> float | np.ndarray:
    """Harmonic mean of precision and recall of entities.

    Parameters
    ----------
    y_true, y_pred : ragged array of tags
        One list of tags a sentence, as many tags in one as in the other.
    scheme : {"IOB1", "IOB2", "BIO", "IOBES", "BILOU"} or None, default=None
        None: in the default mode any prefix; in the strict mode the scheme of y_true,
        together with the prefixes in y_pred.
    mode : {"default", "strict"}, default="default"
        "default" makes the best of every tag: an entity goes on with I- (or E-, L-) of its
        label, and whatever else is not "O" opens a new one. "strict" counts only entities
        that are well-formed in the scheme: under IOB2 no I- without its B-.
    average : {"micro", "macro", "weighted"} or None, default="micro"
        Over all entities; the mean over labels; that weighted by true entities; or None,
        an array with one score for each label.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where nothing is to be found and nothing was. Labels whose score is nan
        are left out of means.
    labels : sequence of str or None, default=None
        Labels that count, without prefix, in the order of the array. None: all that occur,
        sorted.

    Returns
    -------
    float, or ndarray of shape (n_labels,)

    Raises
    ------
    ValueError
        If lengths differ, or tags are no entity tags, or not of the scheme.

    See Also
    --------
    entity_report : All of it by label.
    word_accuracy_score : For tags that are no entities.

    Examples
    --------
    >>> from skbert.metrics import entity_f1_score
    >>> y_true = [["B-PER", "I-PER", "O"], ["B-LOC"]]
    >>> y_pred = [["I-PER", "I-PER", "O"], ["O"]]
    >>> round(entity_f1_score(y_true, y_pred), 3)
    0.667
    >>> entity_f1_score(y_true, y_pred, mode="strict")
    0.0
    >>> entity_f1_score(y_true, y_pred, average=None, labels=["LOC", "PER"])
    array([0., 1.])
    """
    counts = _count(y_true, y_pred, scheme, mode, labels)
    return _average(counts, average, zero_division)[2]


def entity_precision_score(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str | None = None,
    mode: str = "default",
    average: str | None = "micro",
    zero_division: float = 0.0,
    labels: Sequence[str] | None = None,
) -> float | np.ndarray:
    """Share of the predicted entities that are right.

    Parameters
    ----------
    y_true, y_pred : ragged array of tags
    scheme : str or None, default=None
    mode : {"default", "strict"}, default="default"
    average : {"micro", "macro", "weighted"} or None, default="micro"
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where no entity was predicted.
    labels : sequence of str or None, default=None
        As in `entity_f1_score`, all of them.

    Returns
    -------
    float, or ndarray of shape (n_labels,)

    Examples
    --------
    >>> from skbert.metrics import entity_precision_score
    >>> entity_precision_score([["B-PER", "O", "O"]], [["B-PER", "O", "B-LOC"]])
    0.5
    """
    counts = _count(y_true, y_pred, scheme, mode, labels)
    return _average(counts, average, zero_division)[0]


def entity_recall_score(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str | None = None,
    mode: str = "default",
    average: str | None = "micro",
    zero_division: float = 0.0,
    labels: Sequence[str] | None = None,
) -> float | np.ndarray:
    """Share of the true entities that were found.

    Parameters
    ----------
    y_true, y_pred : ragged array of tags
    scheme : str or None, default=None
    mode : {"default", "strict"}, default="default"
    average : {"micro", "macro", "weighted"} or None, default="micro"
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where there is no true entity.
    labels : sequence of str or None, default=None
        As in `entity_f1_score`, all of them.

    Returns
    -------
    float, or ndarray of shape (n_labels,)

    Examples
    --------
    >>> from skbert.metrics import entity_recall_score
    >>> entity_recall_score([["B-PER", "O", "O"]], [["B-PER", "O", "B-LOC"]])
    1.0
    """
    counts = _count(y_true, y_pred, scheme, mode, labels)
    return _average(counts, average, zero_division)[1]


def entity_report(
    y_true: Any,
    y_pred: Any,
    *,
    scheme: str | None = None,
    mode: str = "default",
    zero_division: float = 0.0,
    labels: Sequence[str] | None = None,
    digits: int = 2,
    output_dict: bool = False,
) -> str | dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of true entities, by label and on average.

    Parameters
    ----------
    y_true, y_pred : ragged array of tags
    scheme : str or None, default=None
    mode : {"default", "strict"}, default="default"
    zero_division : {0.0, 1.0, nan}, default=0.0
    labels : sequence of str or None, default=None
        As in `entity_f1_score`, all of them.
    digits : int, default=2
        Digits after the point in the text.
    output_dict : bool, default=False
        Give a dict.

    Returns
    -------
    str, or dict of dict
        The text ends with the mode and the scheme. The dict has the labels and "micro
        avg", "macro avg" and "weighted avg" as keys, and in each "precision", "recall",
        "f1-score" and "support": ``pandas.DataFrame(report).T`` is a table.

    Examples
    --------
    >>> from skbert.metrics import entity_report
    >>> y_true = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
    >>> y_pred = [["B-PER", "I-PER", "O"], ["O", "O"]]
    >>> print(entity_report(y_true, y_pred))
                  precision    recall  f1-score   support
    <BLANKLINE>
             LOC       0.00      0.00      0.00         1
             PER       1.00      1.00      1.00         1
    <BLANKLINE>
       micro avg       1.00      0.50      0.67         2
       macro avg       0.50      0.50      0.50         2
    weighted avg       0.50      0.50      0.50         2
    <BLANKLINE>
    mode: default
    >>> entity_report(y_true, y_pred, output_dict=True)["PER"]["f1-score"]
    1.0
    """
    y_true, y_pred, scheme = _check(y_true, y_pred, scheme, mode)
    counts = _count_tags(y_true, y_pred, scheme if mode == "strict" else None, labels)
    by_label = np.transpose(_average(counts, None, zero_division))
    rows = dict(zip(counts, map(_row, by_label), strict=True))
    averages = {
        f"{average} avg": _row(_average(counts, average, zero_division))
        for average in _AVERAGES
    }
    if output_dict:
        return rows | averages
    note = f"mode: {mode}" + (f", scheme: {scheme}" if scheme else "")
    return f"{_to_text(rows, averages, digits)}\n{note}"


def span_f1_score(
    y_true: Any,
    y_pred: Any,
    *,
    average: str | None = "micro",
    zero_division: float = 0.0,
    labels: Sequence[str] | None = None,
) -> float | np.ndarray:
    """Harmonic mean of precision and recall of entities given by start and end.

    For taggers that were fitted with texts and spans. It does not matter what start and
    end count, as long as both sides count the same. Spans are compared as they are, while
    ``BertTagger.score`` widens those of y to whole words, as ``fit`` does.

    Parameters
    ----------
    y_true, y_pred : ragged array of (start, end, label)
        One list for each text; tuples, or mappings with these keys.
    average, zero_division, labels
        As in `entity_f1_score`.

    Returns
    -------
    float, or ndarray of shape (n_labels,)

    Raises
    ------
    ValueError
        If there are not as many lists, or a span is none.

    Examples
    --------
    >>> from skbert.metrics import span_f1_score
    >>> y_true = [[(0, 3, "PER"), (13, 19, "LOC")], []]
    >>> y_pred = [[(0, 3, "PER")], [(4, 9, "LOC")]]
    >>> span_f1_score(y_true, y_pred)
    0.5
    """
    true, pred = check_spans(y_true, None, "y_true"), check_spans(y_pred, None, "y_pred")
    if len(true) != len(pred):
        raise ValueError(
            "y_true and y_pred must hold as many lists of spans. Got "
            f"{len(true)} and {len(pred)}."
        )
    return _average(_count_spans(true, pred, labels), average, zero_division)[2]


def word_accuracy_score(y_true: Any, y_pred: Any, *, zero_division: float = 0.0) -> float:
    """Share of all words whose tag is right.

    For parts of speech and other tags that are no entities. Where "O" is most frequent, a
    tagger that finds nothing scores high; see `entity_f1_score`.

    Parameters
    ----------
    y_true, y_pred : ragged array of tags
        One list of tags a sentence; numbers will do too.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score of no words at all.

    Returns
    -------
    float

    Examples
    --------
    >>> from skbert.metrics import word_accuracy_score
    >>> word_accuracy_score([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    0.6666666666666666
    """
    y_true = check_tags(y_true, "y_true", only_str=False)
    y_pred = check_tags(y_pred, "y_pred", only_str=False)
    _check_lengths(y_true, y_pred)
    _check_zero_division(zero_division)
    right = [
        true == pred
        for pair in zip(y_true, y_pred, strict=True)
        for true, pred in zip(*pair, strict=True)
    ]
    return sum(right) / len(right) if right else float(zero_division)


entity_f1_scorer = make_scorer(entity_f1_score)
entity_precision_scorer = make_scorer(entity_precision_score)
entity_recall_scorer = make_scorer(entity_recall_score)
word_accuracy_scorer = make_scorer(word_accuracy_score)
span_f1_scorer = make_scorer(span_f1_score)

# Checks ------------------------------------------------------------------------------


def _check(
    y_true: Any, y_pred: Any, scheme: str | None, mode: str
) -> tuple[list[list[str]], list[list[str]], str | None]:
    """Plain lists, and the scheme: None in the default mode if none was given."""
    check_mode(mode)
    scheme = None if scheme is None else check_scheme(scheme)
    y_true = check_tags(y_true, "y_true")
    y_pred = check_tags(y_pred, "y_pred")
    _check_lengths(y_true, y_pred)
    check_entity_tags(y_true, scheme, "y_true")
    check_entity_tags(y_pred, scheme, "y_pred")
    if mode == "strict" and scheme is None:
        scheme = _find_scheme(y_true, y_pred)
    return y_true, y_pred, scheme


def _check_lengths(y_true: list[list[Any]], y_pred: list[list[Any]]) -> None:
    if len(y_true) != len(y_pred):
        raise ValueError(
            "y_true and y_pred must have as many sentences. Got "
            f"{len(y_true)} and {len(y_pred)}."
        )
    wrong = [
        f"{len(true)} and {len(pred)} at position {at}"
        for at, (true, pred) in enumerate(zip(y_true, y_pred, strict=True))
        if len(true) != len(pred)
    ]
    if wrong:
        raise ValueError(
            "Every sentence must have as many tags in y_true as in y_pred. Got "
            f"{', '.join(wrong[:_N_NAMED])}; {len(wrong)} of {len(y_true)} sentences."
        )


def _check_zero_division(value: float) -> None:
    if not isinstance(value, int | float) or not (value in (0, 1) or math.isnan(value)):
        raise ValueError(f"zero_division must be 0.0, 1.0 or nan. Got {value!r}.")


def _find_scheme(y_true: list[list[str]], y_pred: list[list[str]]) -> str:
    """Scheme of the truth; predictions add prefixes only, since their order is no rule."""
    true_tags, pred_tags = set().union(*y_true), set().union(*y_pred)
    own = detect_scheme(y_true)
    extra = {tag for tag in pred_tags if tag != "O" and tag[0] not in "BI"}
    entities = sorted((true_tags | pred_tags) - {"O"})
    if not entities:
        return "IOB2"
    if own is None or extra:
        found = detect_scheme([*y_true, *([tag] for tag in entities)])
    else:
        found = own if true_tags != {"O"} else detect_scheme(y_pred)
    if found is None:
        raise ValueError(
            "mode='strict' could not tell the scheme from y_true and y_pred: give scheme."
        )
    return found


# Counts ------------------------------------------------------------------------------

# By label: entities that are right, predicted and true.
Counts = dict[str, tuple[int, int, int]]


def _count(
    y_true: Any, y_pred: Any, scheme: str | None, mode: str, labels: Sequence[str] | None
) -> Counts:
    y_true, y_pred, scheme = _check(y_true, y_pred, scheme, mode)
    strict_in = scheme if mode == "strict" else None
    return _count_tags(y_true, y_pred, strict_in, labels)


def _count_tags(
    y_true: list[list[str]],
    y_pred: list[list[str]],
    strict_in: str | None,
    labels: Sequence[str] | None,
) -> Counts:
    true = [find_spans(tags, strict_in) for tags in y_true]
    pred = [find_spans(tags, strict_in) for tags in y_pred]
    return _count_spans(true, pred, labels)


def _count_spans(
    y_true: Sequence[Sequence[Span]],
    y_pred: Sequence[Sequence[Span]],
    labels: Sequence[str] | None,
) -> Counts:
    right: Counter[str] = Counter()
    n_pred: Counter[str] = Counter()
    n_true: Counter[str] = Counter()
    for true, pred in zip(y_true, y_pred, strict=True):
        n_true.update(label for *_, label in true)
        n_pred.update(label for *_, label in pred)
        found = Counter(true) & Counter(pred)
        right.update(label for *_, label in found.elements())
    if labels is None:
        labels = sorted(n_true | n_pred)
    elif isinstance(labels, str):
        raise ValueError(f"labels must be a list of labels. Got the string {labels!r}.")
    return {str(label): (right[label], n_pred[label], n_true[label]) for label in labels}


def _average(counts: Counts, average: str | None, zero_division: float) -> list[Any]:
    """Precision, recall, F1 and number of true entities: floats, or arrays by label."""
    _check_zero_division(zero_division)
    if average is not None and average not in _AVERAGES:
        raise ValueError(
            f"average must be 'micro', 'macro', 'weighted' or None. Got {average!r}."
        )
    table = np.array(list(counts.values()), dtype=np.int64).reshape(-1, 3)
    if average == "micro":
        table = table.sum(axis=0, keepdims=True)
    right, n_pred, n_true = table.T
    scores = [
        _divide(right, n_pred, zero_division),
        _divide(right, n_true, zero_division),
        _divide(2 * right, n_pred + n_true, zero_division),
    ]
    if average is None:
        return [*scores, n_true]
    if average == "weighted" and not n_true.any():
        # no true entity has a weight: what a single label without one would score
        return _average({"": tuple(table.sum(axis=0))}, "micro", zero_division)
    weights = n_true if average == "weighted" else np.ones(len(table))
    means = [_mean(score, weights, zero_division) for score in scores]
    return [*means, int(n_true.sum())]


def _divide(part: np.ndarray, whole: np.ndarray, zero_division: float) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), float(zero_division))


def _mean(scores: np.ndarray, weights: np.ndarray, zero_division: float) -> float:
    known = ~np.isnan(scores)
    if not weights[known].any():
        return float(zero_division)
    return float(np.average(scores[known], weights=weights[known]))


# Reports -----------------------------------------------------------------------------


def _row(values: Sequence[float]) -> dict[str, float]:
    *scores, support = values
    named = dict(zip(_NAMES, map(float, scores), strict=False))
    return named | {_NAMES[-1]: int(support)}


def _to_text(
    rows: dict[str, dict[str, float]], averages: dict[str, dict[str, float]], digits: int
) -> str:
    """Table in the manner of scikit-learn's ``classification_report``."""
    width = max(map(len, [*rows, *averages]))

    def line(name: str, row: dict[str, float]) -> str:
        *scores, support = row.values()
        cells = "".join(f" {score:>9.{digits}f}" for score in scores)
        return f"{name:>{width}} {cells} {support:>9}\n"

    head = " " * width + " " + "".join(f" {name:>9}" for name in _NAMES) + "\n"
    blocks = [
        "".join(line(name, row) for name, row in part.items())
        for part in (rows, averages)
        if part
    ]
    return "\n".join([head, *blocks])
