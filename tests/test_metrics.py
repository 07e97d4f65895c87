"""Scores of taggers against seqeval and nervaluate, and inside scikit-learn's tools."""

from __future__ import annotations

import random
import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import classification_report, get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_validate, learning_curve

from skbert.metrics import (
    entity_f1_score,
    entity_f1_scorer,
    entity_precision_score,
    entity_precision_scorer,
    entity_recall_score,
    entity_recall_scorer,
    entity_report,
    span_f1_score,
    word_accuracy_score,
    word_accuracy_scorer,
)
from skbert.text.tags import SCHEMES, spans_to_tags, split_tag, tags_to_spans

PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
LABELS = ("LOC", "PER", "per-son")
SCORES = (entity_precision_score, entity_recall_score, entity_f1_score)


def draw_pair(rng, scheme, noise=0.25):
    """A few sentences with well-formed entities, and the same with slips of any kind."""
    tags = ["O", *(f"{p}-{label}" for label in LABELS for p in PREFIXES[scheme])]
    y_true, y_pred = [], []
    for _ in range(rng.randint(1, 2)):
        n_words, at, spans = rng.randint(0, 10), 0, []
        while at < n_words:
            end = min(n_words, at + rng.randint(1, 3))
            if rng.random() < 0.5:
                spans.append((at, end, rng.choice(LABELS)))
            at = end
        y_true.append(spans_to_tags(spans, n_words, scheme))
        y_pred.append([rng.choice(tags) if rng.random() < noise else t for t in y_true[-1]])
    return y_true, y_pred


def without_stray_b(sentences):
    """IOB1 with I- for every B- that touches no entity of its label; see SEQEVAL_FAULTS."""
    mended = []
    for tags in sentences:
        previous, row = ("O", ""), []
        for tag in tags:
            role, label = split_tag(tag)
            if role == "B" and (previous[0] == "O" or previous[1] != label):
                tag = f"I-{label}"
            row.append(tag)
            previous = split_tag(tag)
        mended.append(row)
    return mended


def seqeval_scores(y_true, y_pred, mode=None, **options):
    from seqeval.metrics import sequence_labeling, v1

    module = v1 if mode == "strict" else sequence_labeling
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return module.precision_recall_fscore_support(y_true, y_pred, **options)[:3]


def our_scores(y_true, y_pred, **options):
    return [score(y_true, y_pred, **options) for score in SCORES]


def has_entities(*sides, **options):
    return any(tags_to_spans(tags, **options) for side in sides for tags in side)


# Peers -------------------------------------------------------------------------------

AVERAGES = ["micro", "macro", "weighted", None]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_mode_is_that_of_seqeval(scheme):
    seqeval_scheme = getattr(pytest.importorskip("seqeval.scheme"), scheme)
    rng = random.Random(0)
    n_different_modes = 0
    for case in range(1000):
        y_true, y_pred = draw_pair(rng, scheme)
        if scheme == "IOB1":
            y_pred = without_stray_b(y_pred)
        strict = {"mode": "strict", "scheme": scheme}
        n_different_modes += our_scores(y_true, y_pred) != our_scores(
            y_true, y_pred, **strict
        )
        options = {"average": AVERAGES[case % 4], "zero_division": case // 4 % 2}
        if options["average"] == "macro" and not has_entities(y_true, y_pred, **strict):
            continue  # see test_where_seqeval_fails
        found = our_scores(y_true, y_pred, **strict, **options)
        strict["scheme"] = seqeval_scheme
        assert_same(found, seqeval_scores(y_true, y_pred, **strict, **options))
    # without stray B- nothing can be ill-formed in IOB1
    assert (n_different_modes > 100) == (scheme != "IOB1")


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


# BILOU is missing: seqeval's default mode does not know L- and U-, see SEQEVAL_FAULTS.
@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES"])
def test_default_mode_is_that_of_seqeval(scheme):
    pytest.importorskip("seqeval")
    rng = random.Random(1)
    for case in range(1000):
        y_true, y_pred = draw_pair(rng, scheme, noise=0.5)
        options = {"average": AVERAGES[case % 4], "zero_division": case // 4 % 2}
        if options["average"] == "macro" and not has_entities(y_true, y_pred):
            continue  # see test_where_seqeval_fails
        expected = seqeval_scores(y_true, y_pred, **options)
        assert_same(our_scores(y_true, y_pred, **options), expected)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2"])
def test_same_as_nervaluate(scheme):
    """Its `strict` wants label and borders, as we do; its `exact` borders only."""
    nervaluate = pytest.importorskip("nervaluate")
    rng = random.Random(2)
    for _ in range(1000):
        y_true, y_pred = draw_pair(rng, scheme)
        evaluator = nervaluate.Evaluator(y_true, y_pred, tags=list(LABELS), loader="list")
        results = evaluator.evaluate()
        strict = results["overall"]["strict"]
        assert_same(
            our_scores(y_true, y_pred), [strict.precision, strict.recall, strict.f1]
        )
        for label, by_strategy in results["entities"].items():
            strict = by_strategy["strict"]
            assert_same([entity_f1_score(y_true, y_pred, labels=[label])], [strict.f1])
        exact = results["overall"]["exact"]
        n_exact = sum(
            len({s[:2] for s in tags_to_spans(t)} & {s[:2] for s in tags_to_spans(p)})
            for t, p in zip(y_true, y_pred, strict=True)
        )
        assert exact.correct == n_exact


# Where seqeval is wrong: tags of one sentence, the scheme (None for the default mode), the
# entities there are, and those that seqeval finds.
SEQEVAL_FAULTS = {
    "IOB1: the I- after a misplaced B- is taken for an entity of its own": (
        "O B-X I-X",
        "IOB1",
        [],
        [(2, 3, "X")],
    ),
    "IOB1: an entity before a misplaced B- of another label is lost if it opened with B-": (
        "I-X B-X B-Y",
        "IOB1",
        [(0, 1, "X"), (1, 2, "X")],
        [(0, 1, "X")],
    ),
    "default: U- and L- are unknown, neighbours run together": (
        "U-X U-X",
        None,
        [(0, 1, "X"), (1, 2, "X")],
        [(0, 2, "X")],
    ),
    "default: L- ends nothing": (
        "B-X L-X I-X",
        None,
        [(0, 2, "X"), (2, 3, "X")],
        [(0, 3, "X")],
    ),
    "strict: hyphens at the ends of labels are stripped": (
        "B--x- I--x-",
        "IOB2",
        [(0, 2, "-x-")],
        [(0, 2, "x")],
    ),
}


@pytest.mark.parametrize(
    "tags, scheme, right, theirs", SEQEVAL_FAULTS.values(), ids=SEQEVAL_FAULTS
)
def test_where_seqeval_is_wrong(tags, scheme, right, theirs):
    module = pytest.importorskip("seqeval.scheme")
    labelling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    tags = tags.split()
    if scheme is None:
        assert tags_to_spans(tags) == right
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [(s, e + 1, label) for label, s, e in labelling.get_entities(tags)]
        assert found == theirs
    else:
        assert tags_to_spans(tags, scheme=scheme, mode="strict") == right
        entities = module.Tokens(tags, getattr(module, scheme)).entities
        assert [(e.start, e.end, e.tag) for e in entities] == theirs


def test_where_seqeval_fails():
    """No entity at all: its macro average is nan, its report an error."""
    seqeval = pytest.importorskip("seqeval.metrics")
    y = [["O", "O"]]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        assert np.isnan(seqeval.f1_score(y, y, average="macro"))
        with pytest.raises(ValueError):
            seqeval.classification_report(y, y)
    assert entity_f1_score(y, y, average="macro") == 0.0
    assert "micro avg" in entity_report(y, y)


# Nothing to find ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "strict"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("zero_division", [0.0, 1.0, np.nan])
@pytest.mark.parametrize("y", [[["O", "O"], ["O"]], [[]], []])
def test_no_entity_at_all(mode, average, zero_division, y):
    options = {"mode": mode, "average": average, "zero_division": zero_division}
    for score in our_scores(y, y, **options):
        assert isinstance(score, float)
        assert np.array_equal(score, zero_division, equal_nan=True)
    report = entity_report(y, y, mode=mode, zero_division=zero_division)
    assert "weighted avg" in report
    assert entity_f1_score(y, y, mode=mode, average=None).shape == (0,)


@pytest.mark.parametrize("mode", ["default", "strict"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_entities_on_one_side_only(mode, average):
    empty, full = [["O", "O"]], [["B-X", "O"]]
    options = {"mode": mode, "average": average}
    assert our_scores(full, empty, **options, zero_division=1.0) == [1, 0, 0]
    assert our_scores(empty, full, **options, zero_division=1.0) == [0, 1, 0]
    assert (
        our_scores(full, empty, **options) == our_scores(empty, full, **options) == [0] * 3
    )


def test_nan_is_left_out_of_means():
    y_true, y_pred = [["B-X", "O"]], [["B-X", "B-Y"]]
    options = {"average": "macro", "zero_division": np.nan}
    assert entity_recall_score(y_true, y_pred, **options) == 1.0
    assert entity_f1_score(y_true, y_pred, **options) == 0.5


# Options -----------------------------------------------------------------------------


def test_lenient_or_strict():
    y_true, y_pred = [["B-X", "I-X"]], [["I-X", "I-X"]]
    assert entity_f1_score(y_true, y_pred) == 1.0
    assert entity_f1_score(y_true, y_pred, mode="strict") == 0.0
    assert entity_f1_score(y_true, y_pred, mode="strict", scheme="IOB1") == 0.0
    report = entity_report(y_true, y_pred, mode="strict")
    assert report.endswith("mode: strict, scheme: IOB2")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_mode_finds_the_scheme(scheme):
    rng = random.Random(3)
    y_true, y_pred = [], []
    while len(y_true) < 30:
        pair = draw_pair(rng, scheme)
        y_true += pair[0]
        y_pred += pair[1]
    expected = our_scores(y_true, y_pred, mode="strict", scheme=scheme)
    assert our_scores(y_true, y_pred, mode="strict") == expected


def test_strict_mode_with_a_truth_that_shows_little():
    # no E- nor S- among the true tags, which are no sign of IOB2 then
    assert entity_f1_score([["O"]], [["S-X"]], mode="strict") == 0.0
    assert entity_f1_score([["O", "O"]], [["B-X", "I-X"]], mode="strict") == 0.0
    report = entity_report([["U-X", "O"]], [["B-X", "L-X"]], mode="strict")
    assert report.endswith("scheme: BILOU")


def test_strict_mode_without_a_scheme():
    with pytest.raises(ValueError, match="could not tell the scheme"):
        entity_f1_score([["S-X"]], [["U-X"]], mode="strict")
    assert entity_f1_score([["S-X"]], [["U-X"]]) == 1.0


def test_labels_choose_and_order():
    y_true = [["B-X", "B-Y", "B-Z"]]
    y_pred = [["B-X", "B-Y", "O"]]
    f1 = entity_f1_score(y_true, y_pred, average=None)
    assert f1.tolist() == [1.0, 1.0, 0.0]
    f1 = entity_f1_score(y_true, y_pred, average=None, labels=["Z", "none", "X"])
    assert f1.tolist() == [0.0, 0.0, 1.0]
    assert entity_f1_score(y_true, y_pred, labels=["X", "Y"]) == 1.0
    report = entity_report(y_true, y_pred, labels=np.array(["Z"]), output_dict=True)
    assert list(report) == ["Z", "micro avg", "macro avg", "weighted avg"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "lenient"}, "mode must be 'default' or 'strict'. Got 'lenient'"),
        ({"scheme": "IOE2"}, "scheme must be one of"),
        ({"average": "samples"}, "average must be"),
        ({"zero_division": "warn"}, "zero_division must be"),
        ({"zero_division": 0.5}, "zero_division must be"),
        ({"labels": "PER"}, "labels must be a list of labels"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        entity_f1_score([["B-X"]], [["B-X"]], **options)


@pytest.mark.parametrize("score", [*SCORES, entity_report, word_accuracy_score])
def test_lengths_must_agree(score):
    y_true = [["O"], ["O", "O"], ["O"], []]
    y_pred = [["O"], ["O"], ["O"], ["O"]]
    message = r"Got 2 and 1 at position 1, 0 and 1 at position 3; 2 of 4 sentences\."
    with pytest.raises(ValueError, match=message):
        score(y_true, y_pred)
    with pytest.raises(ValueError, match=r"as many sentences\. Got 4 and 1\."):
        score(y_true, [["O"]])


@pytest.mark.parametrize("score", [*SCORES, entity_report])
def test_tags_must_be_of_entities(score):
    message = r"y_pred must hold entity tags.*'NOUN' at position 1, word 1; 1 in all"
    with pytest.raises(ValueError, match=message):
        score([["O"], ["O", "O"]], [["O"], ["O", "NOUN"]])
    with pytest.raises(ValueError, match=r"y_true.*of IOB2: .*'S-X' at position 0, word 0"):
        score([["S-X"]], [["O"]], scheme="IOB2")
    with pytest.raises(ValueError, match=r"y_true at position 0, word 1, must be a tag"):
        score([["O", None]], [["O", "O"]])


def test_word_accuracy():
    assert word_accuracy_score([["A", "B"], ["C"]], [["A", "C"], ["C"]]) == 2 / 3
    assert word_accuracy_score([[1, 2], [3]], [np.array([1, 3]), [3]]) == 2 / 3
    assert word_accuracy_score([[], []], [[], []]) == 0.0
    assert word_accuracy_score([], [], zero_division=1.0) == 1.0
    assert type(word_accuracy_score([["A"]], np.array([["A"]]))) is float


# Reports -----------------------------------------------------------------------------


def test_report_is_laid_out_as_that_of_sklearn():
    """One-word entities are labels of words, which scikit-learn's report can count."""
    rng = random.Random(4)
    labels = ["LOC", "PER", "a-rather-long-label"]
    words = [rng.choice(labels) for _ in range(200)]
    found = [rng.choice([*labels, word, word]) for word in words]
    report = entity_report([[f"B-{w}" for w in words]], [[f"B-{w}" for w in found]])
    expected = classification_report(words, found, labels=labels).splitlines()
    expected = [line.replace("accuracy     ", "micro avg") for line in expected]
    lines = report.splitlines()
    assert lines[0] == expected[0]
    assert lines[2:5] == expected[2:5]
    assert lines[-4:-2] == expected[-2:]


def test_report_as_a_dict():
    y_true = [["B-X", "I-X", "B-Y", "O"]]
    y_pred = [["B-X", "I-X", "O", "B-Y"]]
    report = entity_report(y_true, y_pred, output_dict=True)
    assert list(report) == ["X", "Y", "micro avg", "macro avg", "weighted avg"]
    assert report["X"] == {"precision": 1, "recall": 1, "f1-score": 1, "support": 1}
    for average in ("micro", "macro", "weighted"):
        row = report[f"{average} avg"]
        scores = our_scores(y_true, y_pred, average=average)
        assert list(row.values()) == [*scores, 2]
        assert [type(value) for value in row.values()] == [float, float, float, int]


def test_report_of_a_lone_prefix():
    report = entity_report([["B", "I", "O"]], [["B", "I", "O"]])
    assert report.splitlines()[2].split() == ["1.00", "1.00", "1.00", "1"]


# Containers --------------------------------------------------------------------------

Y_TRUE = [["B-X", "I-X"], ["O", "B-Y"], ["B-X", "O"], ["B-Y", "I-X"]]
Y_PRED = [["B-X", "I-X"], ["B-Y", "O"], ["B-X", "O"], ["O", "I-X"]]
RAGGED = [row[: 1 + at % 2] for at, row in enumerate(Y_TRUE)]


def as_objects(y):
    array = np.empty(len(y), object)
    for at, row in enumerate(y):
        array[at] = row
    return array


def with_pandas(make):
    return lambda y: make(pytest.importorskip("pandas"), y)


def with_arrow(make):
    return lambda y: make(pytest.importorskip("pyarrow"), y)


def with_polars(make):
    return lambda y: make(pytest.importorskip("polars"), y)


CONTAINERS = {
    "tuples": lambda y: tuple(map(tuple, y)),
    "objects": as_objects,
    "objects of arrays": lambda y: as_objects([np.array(row) for row in y]),
    "arrays": lambda y: [np.array(row) for row in y],
    "numpy str": lambda y: [[np.str_(tag) for tag in row] for row in y],
    "series": with_pandas(lambda pd, y: pd.Series(y, index=range(9, 9 - len(y), -1))),
    "series of arrow": with_pandas(
        lambda pd, y: pd.Series(
            y,
            dtype=pd.ArrowDtype(pytest.importorskip("pyarrow").list_(_arrow_string())),
        )
    ),
    "arrow": with_arrow(lambda pa, y: pa.array(y)),
    "arrow chunks": with_arrow(lambda pa, y: pa.chunked_array([y[:1], y[1:]])),
    "arrow scalars": with_arrow(lambda pa, y: list(pa.array(y))),
    "polars": with_polars(lambda pl, y: pl.Series(y)),
}


def _arrow_string():
    return pytest.importorskip("pyarrow").string()


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("y", [Y_TRUE, RAGGED], ids=["same lengths", "ragged"])
def test_containers(make, y):
    y_pred = [pred[: len(row)] for pred, row in zip(Y_PRED, y, strict=True)]
    expected = our_scores(y, y_pred), word_accuracy_score(y, y_pred)
    assert 0 < expected[0][2] < 1
    for given in [(make(y), y_pred), (y, make(y_pred)), (make(y), make(y_pred))]:
        assert (our_scores(*given), word_accuracy_score(*given)) == expected


def test_two_dimensional_array():
    assert entity_f1_score(np.array(Y_TRUE), np.array(Y_PRED)) == entity_f1_score(
        Y_TRUE, Y_PRED
    )
    column = np.array([["B-X"], ["O"]])  # two sentences of one word
    assert entity_f1_score(column, [["B-X"], ["O"]]) == 1.0


# Scorers -----------------------------------------------------------------------------


class MostFrequentTag(BaseEstimator):
    """Tags a word as it mostly was; no ClassifierMixin, as BertTagger."""

    def __init__(self, min_count=1):
        self.min_count = min_count

    def fit(self, X, y):
        counts = {}
        for words, tags in zip(X, y, strict=True):
            for word, tag in zip(words, tags, strict=True):
                counts.setdefault(word, Counter())[tag] += 1
        self.tags_ = {
            word: tags.most_common(1)[0][0]
            for word, tags in counts.items()
            if tags.total() >= self.min_count
        }
        return self

    def predict(self, X):
        return as_objects([[self.tags_.get(word, "O") for word in words] for words in X])


def draw_corpus(n=60, ragged=True):
    rng = random.Random(5)
    y = [
        rng.choices(["B-X", "O", "B-Y"], k=rng.randint(1, 6) if ragged else 4)
        for _ in range(n)
    ]
    X = [[f"{tag[-1]}{rng.randint(0, 9)}" for tag in tags] for tags in y]
    return X, y


SCORERS = {
    "f1": entity_f1_scorer,
    "precision": entity_precision_scorer,
    "recall": entity_recall_scorer,
    "accuracy": word_accuracy_scorer,
    "strict": make_scorer(entity_f1_score, mode="strict", scheme="IOB2"),
}


@pytest.mark.parametrize("make", [list, as_objects, CONTAINERS["series"]])
@pytest.mark.parametrize("ragged", [True, False])
def test_scorers_in_cross_validate(make, ragged):
    X, y = draw_corpus(ragged=ragged)
    scores = cross_validate(
        MostFrequentTag(), make(X), make(y), cv=3, scoring=SCORERS, error_score="raise"
    )
    for name in SCORERS:
        values = scores[f"test_{name}"]
        assert ((values > 0.5) & (values <= 1)).all()
    folds = list(KFold(3).split(X))
    for (train, test), found in zip(folds, scores["test_f1"], strict=True):
        fitted = MostFrequentTag().fit([X[i] for i in train], [y[i] for i in train])
        true = [y[i] for i in test]
        assert found == entity_f1_score(true, fitted.predict([X[i] for i in test]))


@pytest.mark.parametrize("make", [list, as_objects, CONTAINERS["arrow"]])
@pytest.mark.parametrize("ragged", [True, False])
def test_scorers_in_a_grid_search(make, ragged):
    X, y = draw_corpus(ragged=ragged)
    search = GridSearchCV(
        MostFrequentTag(),
        {"min_count": [1, 1000]},
        scoring=SCORERS,
        refit="f1",
        error_score="raise",
    )
    search.fit(X, make(y))
    assert search.best_params_ == {"min_count": 1}
    assert search.cv_results_["mean_test_f1"][1] == 0.0
    assert search.score(X, make(y)) > 0.9


def test_scorers_in_a_grid_search_where_a_fold_has_no_entity():
    X, y = [["a"]] * 8 + [["b"]] * 2, [["O"]] * 8 + [["B-X"]] * 2
    search = GridSearchCV(
        MostFrequentTag(), {"min_count": [1, 2]}, scoring=entity_f1_scorer, cv=5
    )
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_scorers_in_a_learning_curve():
    X, y = draw_corpus()
    _, train, test = learning_curve(
        MostFrequentTag(), X, y, scoring=entity_f1_scorer, error_score="raise", n_jobs=2
    )
    assert np.isfinite(train).all()
    assert test[-1].mean() >= test[0].mean()


def test_scorers_are_scorers():
    assert get_scorer(entity_f1_scorer) is entity_f1_scorer
    assert "entity_f1_score" in repr(entity_f1_scorer)


def test_spans_listed_twice_are_two():
    spans = [[(0, 3, "A"), (0, 3, "A")]]
    assert span_f1_score(spans, spans) == 1
    assert span_f1_score(spans, [[(0, 3, "A")]]) == pytest.approx(2 / 3)


def test_spans_are_no_tags():
    with pytest.raises(ValueError, match="scored by span_f1_score"):
        entity_f1_score([[(0, 3, "A")]], [[(0, 3, "A")]])


def test_modules_are_within_reach():
    import skbert

    assert skbert.metrics.span_f1_score is span_f1_score
    assert "StratifiedTagKFold" in skbert.model_selection.__all__


def test_spans_of_texts():
    true = [[(0, 3, "A"), (5, 9, "B")], [], [(1, 2, "A")]]
    pred = [[{"start": 0, "end": 3, "label": "A"}], [(0, 1, "A")], [(1, 2, "B")]]
    assert span_f1_score(true, pred) == pytest.approx(1 / 3)
    by_label = span_f1_score(true, pred, average=None, labels=["A", "B"])
    np.testing.assert_allclose(by_label, [0.5, 0])
    with pytest.raises(ValueError, match="as many lists"):
        span_f1_score(true, pred[:2])
    with pytest.raises(ValueError, match="position 0"):
        span_f1_score([[(3, 0, "A")]], [[]])
