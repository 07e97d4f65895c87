"""BiLSTMTagger and BiLSTMClassifier: over vectors of words from anywhere."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from skbert import BertVectorizer, BiLSTMClassifier, BiLSTMTagger
from skbert.metrics import entity_f1_scorer

pytestmark = pytest.mark.filterwarnings("ignore:BiLSTM.* gave all:UserWarning")

RNG = np.random.RandomState(0)
WORDS = {word: RNG.normal(size=6).astype(np.float32) for word in "abcdefgh"}
ROWS = ["abc", "bcdea", "h", "", "gghab", "cab", "deadbeef", "fa"]
X = [np.array([WORDS[w] for w in row], np.float32).reshape(-1, 6) for row in ROWS]
# An entity is an a or b with all c to e behind it.
Y = []
for row in ROWS:
    tags = []
    for word in row:
        inside = word in "cde" and tags and tags[-1] != "O"
        tags.append("I-X" if inside else "B-X" if word in "ab" else "O")
    Y.append(tags)
LABELS = ["yes" if "d" in row or "h" in row else "no" for row in ROWS]
QUICK = {"lstm_hidden_size": 8, "dropout": 0.0, "batch_size": 3, "random_state": 0,
         "learning_rate": 1e-2, "max_epochs": 40, "device": "cpu"}  # fmt: skip


def assert_close(a, b, tolerance=0.0):
    for name, array in a.head_.items():
        np.testing.assert_allclose(array, b.head_[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_tagger_learns(head):
    tagger = BiLSTMTagger(head=head, **QUICK).fit(X, Y)
    assert tagger.predict(X).tolist() == Y
    assert tagger.score(X, Y) == 1
    for tags, table in zip(Y, tagger.predict_proba(X), strict=True):
        assert table.shape == (len(tags), 3)
        np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-12)
    span = tagger.predict_spans(X)[1][0]
    assert (span["start"], span["end"], span["label"]) == (0, 4, "X")


def test_the_lstm_reads_the_sentence():
    """Without it no word knows what stood before it."""
    plain = BiLSTMTagger(**QUICK | {"lstm_hidden_size": 0, "head": "softmax"}).fit(X, Y)
    assert plain.score(X, Y) < 1


@pytest.mark.parametrize("pooling", ["max", "mean", "attention"])
@pytest.mark.parametrize("n_lstm_layers", [1, 2])
def test_classifier_learns(pooling, n_lstm_layers):
    settings = QUICK | {"pooling": pooling, "n_lstm_layers": n_lstm_layers}
    classifier = BiLSTMClassifier(**settings).fit(X, LABELS)
    assert classifier.score(X, LABELS) == 1
    table = classifier.predict_proba(X)
    assert classifier.classes_[table.argmax(1)].tolist() == LABELS
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-12)
    alone = np.concatenate([classifier.predict_proba([row]) for row in X])
    np.testing.assert_allclose(alone, table, atol=1e-6)


def test_several_labels_per_row():
    names = [sorted(set(row) & {"a", "d"}) for row in ROWS]
    classifier = BiLSTMClassifier(**QUICK | {"max_epochs": 80}).fit(X, names)
    assert classifier.score(X, names) == 1
    indicator = np.array([["a" in row, "d" in row] for row in ROWS]).astype(int)
    again = clone(classifier).fit(X, indicator)
    assert_close(again, classifier)
    assert np.array_equal(again.predict(X), indicator)


def test_early_stopping_and_validation_rows():
    classifier = BiLSTMClassifier(**QUICK).fit(X, LABELS, X_val=X[:4], y_val=LABELS[:4])
    scores = [record["validation_score"] for record in classifier.history_]
    assert classifier.best_epoch_ == 1 + int(np.argmax(scores))
    tagger = BiLSTMTagger(early_stopping=True, validation_fraction=0.3, **QUICK).fit(X, Y)
    assert tagger.n_iter_ < QUICK["max_epochs"]


def test_weights_are_shares():
    """Weight 0 leaves a row out, and only ratios count."""
    weights = np.array([1, 1, 1, 1, 1, 1, 0, 0])
    settings = QUICK | {"max_epochs": 3}
    for kind, y in ((BiLSTMTagger, Y), (BiLSTMClassifier, LABELS)):
        out = kind(**settings).fit(X[:6], y[:6])
        assert_close(kind(**settings).fit(X, y, sample_weight=weights), out)
        assert_close(kind(**settings).fit(X, y, sample_weight=4 * weights), out)


def test_micro_batches_are_one_step():
    for kind, y in ((BiLSTMTagger, Y), (BiLSTMClassifier, LABELS)):
        settings = QUICK | {"batch_size": 8, "max_epochs": 2, "class_weight": "balanced"}
        whole = kind(**settings).fit(X, y)
        for size in (1, 3):
            parts = kind(micro_batch_size=size, **settings).fit(X, y)
            assert_close(whole, parts, 1e-5)


@pytest.mark.parametrize(
    "kind", ["list", "array", "memmap", "float64", "float16", "pandas"]
)
def test_vectors_may_come_in_any_form(kind, tmp_path):
    settings = QUICK | {"max_epochs": 3}
    expected = BiLSTMTagger(**settings).fit(X, Y)
    flat = np.concatenate(X)
    borders = np.cumsum([len(row) for row in X])[:-1]
    if kind == "list":
        rows = [row.tolist() for row in X]
    elif kind == "array":
        rows = np.empty(len(X), object)
        rows[:] = X
    elif kind == "memmap":
        np.save(tmp_path / "x.npy", flat)
        rows = np.split(np.load(tmp_path / "x.npy", mmap_mode="r"), borders)
        assert isinstance(rows[0], np.memmap)
    elif kind == "pandas":
        pytest.importorskip("pandas")
        import pandas as pd

        rows = pd.Series(X, index=range(8, 0, -1))
    else:
        rows = [row.astype(kind) for row in X]
    tagger = BiLSTMTagger(**settings).fit(rows, Y)
    assert_close(tagger, expected, 1e-2 if kind == "float16" else 0)
    assert tagger.predict(rows).tolist() == expected.predict(X).tolist()


def test_rows_of_one_length_may_be_one_array():
    rows = np.stack([row[:2] for row in X if len(row) > 1])
    y = [tags[:2] for tags in Y if len(tags) > 1]
    tagger = BiLSTMTagger(**QUICK).fit(rows, y)
    assert tagger.predict(rows).tolist() == y


@pytest.mark.parametrize("kind", [BiLSTMTagger, BiLSTMClassifier])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((8, 6)), r"shape \(8, 6\): one vector for each row.*output='words'"),
        (csr_array(np.zeros((8, 6))), "sparse"),
        (list(np.zeros((8, 6))), r"shape \(6,\) at position 0.*output='words'"),
        (["some text"] * 8, "a text .* at position 0"),
        ([["a", "b"]] * 8, "position 0"),
        (
            [*X[:7], np.zeros((2, 5))],
            r"shapes \(3, 6\) at position 0, \(2, 5\) at position 7",
        ),
        ([*X[:7], np.full((2, 6), np.nan)], r"NaN, infinity .* at positions \[7\]"),
        ([*X[:7], np.full((2, 6), 1e39)], r"too large for float32 at positions \[7\]"),
        ([], "0 rows"),
        ([np.zeros((0, 6))] * 8, "no word at all"),
        ("text", "type str"),
        (None, "type NoneType"),
    ],
)
def test_what_is_no_vector_of_words(kind, rows, message):
    y = Y if kind is BiLSTMTagger else LABELS
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**QUICK).fit(rows, y)


def test_going_on_from_fitted_weights():
    tagger = BiLSTMTagger(**QUICK | {"max_epochs": 2, "warm_start": True}).fit(X, Y)
    losses = [tagger.history_[-1]["loss"]]
    for _ in range(4):
        losses.append(tagger.fit(X, Y).history_[-1]["loss"])
    assert losses == sorted(losses, reverse=True)
    with pytest.raises(ValueError, match="changed after fit, which changes head"):
        tagger.set_params(head="softmax").fit(X, Y)
    with pytest.raises(ValueError, match="not among the classes"):
        BiLSTMTagger(**QUICK | {"warm_start": True}).fit(X, Y).fit(X[:1], [["B-N"] * 3])


@pytest.mark.parametrize(
    ("kind", "settings", "change"),
    [
        (BiLSTMTagger, {"n_lstm_layers": 2}, {"n_lstm_layers": 1}),
        (BiLSTMTagger, {}, {"head": "softmax"}),
        (BiLSTMTagger, {}, {"lstm_hidden_size": 0}),
        (BiLSTMClassifier, {"pooling": "max"}, {"pooling": "mean"}),
    ],
)
def test_weights_are_not_read_as_others(kind, settings, change):
    y = Y if kind is BiLSTMTagger else LABELS
    fitted = kind(**QUICK | {"max_epochs": 1} | settings).fit(X, y).set_params(**change)
    for call in (lambda: fitted.predict(X), lambda: fitted.partial_fit(X, y)):
        with pytest.raises(ValueError, match=f"changes {next(iter(change))}"):
            call()


@pytest.mark.parametrize("kind", [BiLSTMTagger, BiLSTMClassifier])
def test_partial_fit(kind):
    """The first call is one epoch of a fit; later ones go on."""
    y = Y if kind is BiLSTMTagger else LABELS
    classes = ["B-X", "I-X", "O"] if kind is BiLSTMTagger else ["no", "yes"]
    with pytest.raises(ValueError, match="classes must be passed"):
        kind(**QUICK).partial_fit(X, y)
    model = kind(**QUICK).partial_fit(X, y, classes)
    assert_close(model, kind(**QUICK | {"max_epochs": 1}).fit(X, y))
    first = model.history_[-1]["loss"]
    for _ in range(20):
        model.partial_fit(X, y)
    assert model.history_[-1]["loss"] < first


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "model", [BiLSTMTagger(), *(BiLSTMClassifier(pooling=p) for p in ("max", "attention"))]
)
def test_sixteen_bits(model, precision):
    y = Y if isinstance(model, BiLSTMTagger) else LABELS
    fitted = clone(model).set_params(**QUICK | {"precision": precision}).fit(X, y)
    assert fitted.score(X, y) == 1


def test_other_vectors_than_in_fit():
    tagger = BiLSTMTagger(**QUICK | {"max_epochs": 1}).fit(X, Y)
    with pytest.raises(
        ValueError, match="X has 5 features, but BiLSTMTagger is expecting 6"
    ):
        tagger.predict([np.zeros((2, 5))])
    assert tagger.predict([np.zeros((0, 6)), []]).tolist() == [[], []]


@pytest.mark.parametrize("kind", [BiLSTMTagger, BiLSTMClassifier])
def test_state(kind, tmp_path):
    y = Y if kind is BiLSTMTagger else LABELS
    fitted = kind(**QUICK).fit(X, y)
    assert_close(fitted, clone(fitted).fit(X, y))
    fitted.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.safetensors",
        "skbert.json",
    ]
    for other in (pickle.loads(pickle.dumps(fitted)), kind.load(tmp_path)):
        for one, two in zip(fitted.predict_proba(X), other.predict_proba(X), strict=True):
            assert np.array_equal(one, two)
        assert other.get_params() == fitted.get_params()


def test_pipeline_and_search(bert_folder):
    """From words to tags: grids reach both steps, in two processes."""
    sentences = [list(row) for row in ROWS if row]
    tags = [row for row in Y if row]
    vectorizer = BertVectorizer(bert_folder, output="words", device="cpu")
    pipeline = make_pipeline(vectorizer, BiLSTMTagger(**QUICK | {"max_epochs": 10}))
    grid = {"bilstmtagger__head": ["crf", "softmax"], "bertvectorizer__layers": [-1, "all"]}
    search = GridSearchCV(pipeline, grid, scoring=entity_f1_scorer, cv=KFold(2), n_jobs=2)
    search.fit(sentences, tags)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    predicted = cross_val_predict(pipeline, sentences, tags, cv=KFold(2))
    assert [len(row) for row in predicted] == [len(row) for row in sentences]
    labels = [label for row, label in zip(ROWS, LABELS, strict=True) if row]
    classifier = make_pipeline(vectorizer, BiLSTMClassifier(**QUICK)).fit(sentences, labels)
    assert classifier.score(sentences, labels) == 1
