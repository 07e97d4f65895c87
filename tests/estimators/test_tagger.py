"""BertTagger: one tag for each word, exact training, spans, state."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate

from skbert import BertTagger
from skbert.exceptions import AlignmentWarning
from skbert.metrics import entity_f1_scorer, span_f1_score, word_accuracy_scorer

pytestmark = pytest.mark.filterwarnings("ignore:BertTagger gave all:UserWarning")

SENTENCES = [
    "Angela Merkel met Barack Obama in Berlin",
    "Barack Obama lived in Chicago",
    "New York is larger than Berlin",
    "Apple opened an office in Munich",
    "Siemens and Apple met in New York",
    "Angela Merkel lived in Berlin",
]
X = [sentence.split() for sentence in SENTENCES]
ENTITIES = {
    ("Angela", "Merkel"): "PER",
    ("Barack", "Obama"): "PER",
    ("New", "York"): "LOC",
    ("Berlin",): "LOC",
    ("Chicago",): "LOC",
    ("Munich",): "LOC",
    ("Apple",): "ORG",
    ("Siemens",): "ORG",
}


def tags_of(words, single="B-", last="I-"):
    tags = ["O"] * len(words)
    for entity, label in ENTITIES.items():
        for at in range(len(words) - len(entity) + 1):
            if tuple(words[at : at + len(entity)]) == entity:
                tags[at] = f"B-{label}" if len(entity) > 1 else f"{single}{label}"
                tags[at + 1 : at + len(entity)] = [f"{last}{label}"] * (len(entity) - 1)
    return tags


Y = [tags_of(words) for words in X]


@pytest.fixture
def quick(bert_folder):
    """Parameters of a short training without dropout."""
    return {
        "model": bert_folder,
        "max_epochs": 3,
        "batch_size": 4,
        "learning_rate": 1e-3,
        "head_learning_rate": 1e-2,
        "dropout": 0.0,
        "random_state": 0,
        "device": "cpu",
    }


def weights_of(tagger):
    return [*tagger.encoder_.state()["weights"].values(), *tagger.head_.values()]


def assert_close(a, b, tolerance):
    for one, other in zip(weights_of(a), weights_of(b), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


# Learning ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "lstm_hidden_size", "frozen_layers"),
    [
        ("softmax", 0, 0),
        ("crf", 8, 0),
        ("softmax", 8, 1),
        ("crf", 0, 1),
        ("crf", 0, "all"),
        ("softmax", 8, "all"),
    ],
)
def test_it_learns(quick, head, lstm_hidden_size, frozen_layers):
    settings = {
        "head": head,
        "lstm_hidden_size": lstm_hidden_size,
        "frozen_layers": frozen_layers,
        "max_epochs": 80 if lstm_hidden_size or frozen_layers == "all" else 30,
    }
    tagger = BertTagger(**quick | settings).fit(X, Y)
    assert tagger.score(X, Y) > 0.9
    assert (tagger.scheme_, tagger.scoring_) == ("IOB2", "entity_f1")
    wrong = [a != b for a, b in zip(tagger.predict(X), Y, strict=True)]
    assert sum(wrong) <= 1


def test_every_family_learns(model_folder, quick):
    """Families differ in pads, types, frames and in how words are spelled."""
    settings = {"model": model_folder, "max_epochs": 15, "head_learning_rate": 3e-2}
    tagger = BertTagger(**quick | settings).fit(X, Y)
    assert tagger.score(X, Y) > 0.5
    alone = [tagger.predict_proba([words])[0] for words in X]
    for one, other in zip(alone, tagger.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_parts_of_speech_are_scored_by_words(quick):
    tags = [[len(word) for word in words] for words in X]
    tagger = BertTagger(**quick | {"max_epochs": 40}).fit(X, tags)
    assert (tagger.scheme_, tagger.scoring_) == (None, "word_accuracy")
    assert tagger.score(X, tags) > 0.9
    assert type(tagger.predict(X)[0][0]) is int
    with pytest.raises(ValueError, match="no entities"):
        tagger.predict_spans(X)


@pytest.mark.parametrize("word_pooling", ["first", "mean", "max", "last"])
def test_training_and_prediction_read_the_same_words(quick, word_pooling):
    """What the network gives in training, without dropout, is what predict starts from.

    Windows of nine pieces cut every sentence, and a word of 30 goes over several.
    """
    import torch

    from skbert.encoders.loading import load_encoder
    from skbert.encoders.prefix import Prefix
    from skbert.text.report import ReadingReport
    from skbert.training.source import read_words

    rows = [["x" * 30, "met", "", "Angela", "y" * 40], *X, [], ["", ""]]
    settings = {"word_pooling": word_pooling, "max_length": 9, "stride": 2}
    tagger = BertTagger(**quick | settings)
    encoder = load_encoder(quick["model"])
    tagger.__dict__.update(tagger._resolve(encoder))
    cpu = torch.device("cpu")
    prefix = Prefix(encoder.trainable(cpu), 0)
    source = tagger._source(rows, prefix, encoder, cpu, ReadingReport())
    network = tagger._network(prefix.encoder, prefix, lambda vectors, lengths: vectors)
    read = tagger._word_vectors(rows, encoder, None, cpu, torch.float32, ReadingReport())
    expected = {at: row for positions, row in read for at in positions}
    with torch.no_grad():
        together = network(source.batch(np.arange(len(rows)))).numpy()
    wanted = np.concatenate([expected[at][source.words[at]] for at in range(len(rows))])
    np.testing.assert_allclose(together, wanted, atol=1e-5)
    for at, seen in enumerate(source.words):
        assert np.array_equal(read_words(expected[at]), seen)


@pytest.mark.parametrize("frozen_layers", [1, "all"])
def test_kept_frozen_layers_change_nothing(quick, frozen_layers, monkeypatch):
    from skbert.encoders.prefix import Prefix

    # Adam makes a whole step of a gradient that is but rounding: steps are small here.
    rates = {"learning_rate": 1e-5, "head_learning_rate": 1e-4}
    settings = quick | rates | {"frozen_layers": frozen_layers, "lstm_hidden_size": 4}
    kept = BertTagger(**settings).fit(X, Y)
    monkeypatch.setattr(Prefix, "can_resume", lambda self: False)
    plain = BertTagger(**settings).fit(X, Y)
    assert_close(kept, plain, 1e-6)


def test_memory_holds_what_frozen_layers_give(quick, tmp_path):
    for frozen_layers in (1, "all"):
        settings = quick | {"frozen_layers": frozen_layers, "memory": tmp_path}
        first = BertTagger(**settings).fit(X, Y)
        second = BertTagger(**settings).fit(X, Y)
        without = BertTagger(**settings | {"memory": None}).fit(X, Y)
        assert_close(first, second, 0)
        assert_close(first, without, 1e-6)
        assert second.predict(X).tolist() == without.predict(X).tolist()


def test_weights_of_rows_and_tags(quick):
    """Weight 0 is left out; 'balanced' and a dict of the same weights are one."""
    from sklearn.utils.class_weight import compute_class_weight

    weights = np.array([1.0, 1, 1, 1, 0, 0])
    left_out = BertTagger(**quick).fit(X[:4], Y[:4])
    assert_close(BertTagger(**quick).fit(X, Y, sample_weight=weights), left_out, 0)
    words = [tag for tags in Y for tag in tags]
    classes = np.unique(words)
    by_hand = dict(
        zip(
            classes, compute_class_weight("balanced", classes=classes, y=words), strict=True
        )
    )
    for head in ("softmax", "crf"):
        settings = quick | {"head": head}
        balanced = BertTagger(class_weight="balanced", **settings).fit(X, Y)
        assert_close(BertTagger(class_weight=by_hand, **settings).fit(X, Y), balanced, 1e-7)
        plain = BertTagger(**settings).fit(X, Y)
        assert not np.allclose(plain.head_["linear.bias"], balanced.head_["linear.bias"])
    with pytest.raises(ValueError, match="class_weight"):
        BertTagger(class_weight={"B-NO": 2}, **quick).fit(X, Y)


def test_early_stopping_takes_the_best_epoch(quick):
    settings = {"early_stopping": True, "validation_fraction": 0.34, "max_epochs": 12}
    tagger = BertTagger(**quick | settings).fit(X, Y)
    scores = [record["validation_score"] for record in tagger.history_]
    assert tagger.best_epoch_ == 1 + int(np.argmax(scores))
    assert scores[0] < 0  # no entity yet: the log-likelihood shows the way
    explicit = BertTagger(**quick | {"max_epochs": 30}).fit(X, Y, X_val=X, y_val=Y)
    best = max(record["validation_score"] for record in explicit.history_)
    assert explicit.score(X, Y) == best


def test_partial_fit_goes_on(quick):
    classes = sorted({tag for tags in Y for tag in tags})
    tagger = BertTagger(**quick)
    with pytest.raises(ValueError, match="classes must be passed"):
        tagger.partial_fit(X, Y)
    for _ in range(25):
        tagger.partial_fit(X[:2], Y[:2], classes)
    assert tagger.score(X[:2], Y[:2]) == 1
    assert tagger.classes_.tolist() == classes
    with pytest.raises(ValueError, match="not among the classes"):
        tagger.partial_fit([["a"]], [["B-NEW"]])


def test_collapse_is_told(quick):
    with pytest.warns(ConvergenceWarning, match="words the same tag"):
        settings = {"max_epochs": 1, "learning_rate": 0.0, "head_learning_rate": 1e-4}
        BertTagger(**quick | settings).fit([["a", "b"]] * 3, [["O", "B-X"]] * 3)


# Schemes and constraints -------------------------------------------------------------


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_constrained_tags_keep_to_their_scheme(quick, head):
    """An untrained head would break the rules in most sentences."""
    from skbert.text.tags import allowed_transitions

    settings = quick | {"head": head, "max_epochs": 1, "learning_rate": 0.0}
    y = [tags_of(words, single="S-", last="E-") for words in X]
    tagger = BertTagger(**settings | {"head_learning_rate": 0.0}).fit(X, y)
    assert tagger.scheme_ == "IOBES"
    rng = np.random.RandomState(0)
    tagger.head_["linear.weight"] = rng.normal(size=tagger.head_["linear.weight"].shape)
    tagger.head_["linear.weight"] = tagger.head_["linear.weight"].astype(np.float32)
    may, first, last = allowed_transitions(tagger.classes_.tolist(), "IOBES")

    def n_broken():
        numbers = [np.searchsorted(tagger.classes_, tags) for tags in tagger.predict(X)]
        steps = sum(int((~may[row[:-1], row[1:]]).sum()) for row in numbers)
        return steps + sum(int(not first[row[0]] or not last[row[-1]]) for row in numbers)

    assert n_broken() == 0
    tagger.set_params(constrain_tags=False)
    assert n_broken() > 0


def test_probabilities_of_a_crf_are_marginals(quick):
    tagger = BertTagger(head="crf", **quick).fit(X, Y)
    for words, table in zip(X, tagger.predict_proba(X), strict=True):
        assert table.dtype == np.float64
        assert table.shape == (len(words), len(tagger.classes_))
        np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-12)
        assert not table[0, [tag.startswith("I-") for tag in tagger.classes_]].any()


def test_a_first_batch_that_looks_like_iob1(quick):
    """What only whole sentences tell may be learnt from later ones."""
    classes = ["B-PER", "I-PER", "O"]
    tagger = BertTagger(**quick)
    tagger.partial_fit([["foo", "bar"]], [["I-PER", "O"]], classes)
    assert tagger.scheme_ == "IOB1"
    tagger.partial_fit([["foo", "Ada"]], [["O", "B-PER"]])
    assert tagger.scheme_ == "IOB2"


@pytest.mark.parametrize(
    ("tags", "single", "last", "gap"),
    [
        ("IOB2", "B-", "I-", "I-PER"),
        ("IOBES", "S-", "E-", "I-PER"),
        ("BILOU", "U-", "L-", "I-PER"),
    ],
)
def test_a_vanished_word_keeps_to_the_scheme(quick, tags, single, last, gap):
    rows = [*X, ["Bo", "x", "Ada"]]
    middle = "I-PER"
    y = [*(tags_of(words, single, last) for words in X), ["B-PER", middle, f"{last}PER"]]
    tagger = BertTagger(**quick | {"max_epochs": 40}).fit(rows, y)
    assert tagger.scheme_ == tags
    odd = ["\u200b", "Angela", "\u200b", "\u200b", "Merkel", "\u200b", "met", ""]
    wanted = tagger.predict([["Angela", "Merkel", "met"]])[0]
    assert wanted == ["B-PER", f"{last}PER", "O"]
    assert tagger.predict([odd])[0] == [
        "O", wanted[0], gap, gap, wanted[1], "O", "O", "O"
    ]  # fmt: skip


def test_without_an_outside_tag_a_vanished_word_may_stand_alone(quick):
    y = [["B-L", "I-L", "I-L", "I-L"], ["B-L", "B-L", "I-L", "I-L"]]
    tagger = BertTagger(**quick).fit([["a", "b", "c", "d"]] * 2, y)
    assert tagger.default_tag_ == "B-L"


# Texts and spans ---------------------------------------------------------------------


def spans_of(text):
    found = []
    for entity, label in ENTITIES.items():
        name = " ".join(entity)
        start = text.find(name)
        if start >= 0:
            found.append((start, start + len(name), label))
    return sorted(found)


SPANS = [spans_of(sentence) for sentence in SENTENCES]


def test_texts_with_spans(quick):
    """Annotations as tools export them; what comes back is in the same form."""
    tagger = BertTagger(**quick | {"max_epochs": 30})
    tagger.fit(SENTENCES, SPANS)
    assert tagger.predict(SENTENCES).tolist() == SPANS
    assert tagger.score(SENTENCES, SPANS) == 1
    as_dicts = [
        [{"start": a, "end": b, "label": label} for a, b, label in spans] for spans in SPANS
    ]
    again = clone(tagger).fit(SENTENCES, as_dicts)
    assert_close(tagger, again, 0)
    (spans,) = tagger.predict_spans(SENTENCES[:1])
    assert [(s["start_char"], s["end_char"], s["label"]) for s in spans] == SPANS[0]
    assert [s["text"] for s in spans] == ["Angela Merkel", "Barack Obama", "Berlin"]
    assert (spans[1]["start"], spans[1]["end"]) == (3, 5)
    table = tagger.predict_proba(SENTENCES[:1])[0]
    tags = np.searchsorted(tagger.classes_, ["B-PER", "I-PER"])
    assert spans[0]["score"] == pytest.approx(table[[0, 1], tags].mean())


def test_annotations_with_spaces_or_inside_words_count_as_whole_words(quick):
    """What was widened for training is widened for the score, and told."""
    loose = [[(a, min(b + 1, len(t)), label) for a, b, label in spans]
             for t, spans in zip(SENTENCES, SPANS, strict=True)]  # fmt: skip
    tagger = BertTagger(**quick | {"max_epochs": 30}).fit(SENTENCES, loose)
    assert tagger.score(SENTENCES, loose) == 1
    cut = [[(a, b - 1, label) for a, b, label in spans] for spans in SPANS]
    with pytest.warns(AlignmentWarning, match="widened"):
        assert tagger.score(SENTENCES, cut) == 1
    # what predict_spans gives may be learnt from, and scored
    own = tagger.predict_spans(SENTENCES)
    assert tagger.score(SENTENCES, own) == 1
    assert span_f1_score(SPANS, own) == 1
    plain = BertTagger(**quick).fit(SENTENCES, SPANS)
    assert_close(BertTagger(**quick).fit(SENTENCES, own), plain, 0)
    # spans of other tools: floats of pandas, lists of one label, twice the same
    other = [
        [{"start": float(a), "end": float(b), "labels": [label]} for a, b, label in spans]
        * 2
        for spans in SPANS
    ]
    assert_close(BertTagger(**quick).fit(SENTENCES, other), plain, 0)


def test_spans_of_words_and_offsets(quick):
    tagger = BertTagger(**quick | {"max_epochs": 30}).fit(X, Y)
    offsets = [[(10 * at, 10 * at + 5) for at in range(len(words))] for words in X]
    spans = tagger.predict_spans(X, offsets)[0]
    assert [(s["start"], s["end"], s["start_char"], s["end_char"]) for s in spans] == [
        (0, 2, 0, 15),
        (3, 5, 30, 45),
        (6, 7, 60, 65),
    ]
    assert "start_char" not in tagger.predict_spans(X)[0][0]
    # texts are read whatever fit saw
    assert tagger.predict_spans(SENTENCES[:1])[0][2]["text"] == "Berlin"
    pd = pytest.importorskip("pandas")
    as_series = pd.Series(offsets, index=[3, 0, 1, 5, 4, 2])
    assert (
        tagger.predict_spans(X, as_series).tolist()
        == tagger.predict_spans(X, offsets).tolist()
    )
    with pytest.raises(ValueError, match=r"offsets .* positions \[1\]"):
        tagger.predict_spans(X, [offsets[0], offsets[1][1:], *offsets[2:]])


def test_spans_inside_of_words_are_widened_and_told(quick):
    text = "Siemensians left Berlin"
    with pytest.warns(AlignmentWarning, match=r"widened 1 of 2 spans .* \[0\]"):
        tagger = BertTagger(**quick).fit([text], [[(0, 7, "ORG"), (17, 23, "LOC")]])
    assert tagger.classes_.tolist() == ["B-LOC", "B-ORG", "O"]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 40, "X")], "position 0 .*0 <= start < end <= 14"),
        ([(5, 5, "X")], "position 0"),
        ([(0, 5, "X"), (3, 8, "Y")], "share a word"),
        ([(5, 6, "X")], "no word"),
        ([(0, 5)], "with two ints and a str"),
        ([(0, 5, None)], "with two ints and a str"),
        (["X"], "with two ints and a str"),
        ("X", "must be a list of spans"),
    ],
)
def test_bad_spans_are_named(quick, spans, message):
    with pytest.raises(ValueError, match=message):
        BertTagger(**quick).fit(["hello my world"], [spans])


# Refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([*Y[:-1], Y[-1][1:]], r"5 words and 4 tags at position 5; 1 of 6"),
        (Y[:-1], "inconsistent numbers of samples"),
        ([*Y[:-1], [*Y[-1][1:], None]], r"position 5, word 4"),
        ([*Y[:-1], [*Y[-1][1:], 3]], "mixes tags of the types"),
        ([*Y[:-1], "O O O O O"], "must be a list of tags"),
        (None, "y is None"),
        ([*Y[:-1], [*Y[-1][:-1], ""]], r"'' or -100, .* at positions \[5\]"),
        ([[-100] * len(words) for words in X], r"6 in all"),
        ([[(0, 1, "X")] * len(words) for words in X], "Spans go with texts"),
    ],
)
def test_bad_tags_are_named(quick, y, message):
    with pytest.raises(ValueError, match=message):
        BertTagger(**quick).fit(X, y)


def test_one_tag_is_told(quick):
    with pytest.warns(UserWarning, match="one tag only"):
        BertTagger(**quick | {"max_epochs": 1}).fit(X, [["O"] * len(words) for words in X])


def test_parameters_that_contradict_each_other(quick):
    with pytest.raises(ValueError, match="label_smoothing"):
        BertTagger(head="crf", label_smoothing=0.1, **quick).fit(X, Y)
    with pytest.raises(ValueError, match="nothing to learn from"):
        BertTagger(**quick).fit([["\u200b", ""]], [["O", "B-X"]])
    with pytest.raises(ValueError, match="all rows are empty"):
        BertTagger(**quick).fit([[], []], [[], []])
    tagger = BertTagger(**quick).fit(X, Y)
    with pytest.raises(ValueError, match="changed after fit"):
        tagger.set_params(word_pooling="mean").predict(X)
    with pytest.raises(ValueError, match="must hold words, as in fit"):
        BertTagger(**quick).fit(X, Y).predict(SENTENCES)


@pytest.mark.parametrize("settings", [{"head": "crf"}, {"lstm_hidden_size": 4}])
def test_weights_are_not_read_as_others(quick, settings, tmp_path):
    """A parameter that says what the weights mean may not change under them."""
    (name,) = settings
    tagger = BertTagger(constrain_tags=False, **quick | settings).fit(X, Y)
    tagger.set_params(**{name: BertTagger().get_params()[name]})
    for call in (
        lambda: tagger.predict(X),
        lambda: tagger.export_transformers(tmp_path),
        lambda: tagger.set_params(warm_start=True).fit(X, Y),
        lambda: tagger.partial_fit(X, Y),
    ):
        with pytest.raises(ValueError, match=f"changed after fit, which changes {name}"):
            call()


def test_a_failed_fit_leaves_the_old_model(quick, monkeypatch):
    """Old weights under new names would be the worst of both."""
    tagger = BertTagger(**quick | {"max_epochs": 20}).fit(X, Y)
    before = dict(tagger.__dict__)
    other = [[tag.replace("PER", "ZZZ") for tag in tags] for tags in Y]
    with pytest.raises(ValueError, match="class_weight"):
        tagger.set_params(class_weight={"B-NO": 1}).fit(X, other)
    tagger.set_params(class_weight=None)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("skbert.training.loop.train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tagger.fit(X, other)
    assert tagger.__dict__ == before
    assert tagger.predict(X).tolist() == Y


def test_a_failure_while_decoding_stops_nobody(quick, monkeypatch):
    """The kept error would hold the workers, and every later call wait for them."""
    import threading

    import torch

    from skbert.nn.tagging import TaggingHead

    rows = [[f"w{i}", *["a"] * (i % 60)] for i in range(300)]
    tagger = BertTagger(**quick | {"max_epochs": 1}).fit(X, Y)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(TaggingHead, "decode", lambda *args: 1 / 0)
            try:
                tagger.predict(rows)
            except ZeroDivisionError as error:
                kept = error
        again = threading.Thread(target=tagger.predict, args=(rows,), daemon=True)
        again.start()
        again.join(60)
        assert not again.is_alive()
        assert kept.__traceback__ is not None
    finally:
        torch.set_num_threads(before)


def test_a_diverged_model_is_no_sure_one(quick):
    settings = quick | {"learning_rate": 1e30, "max_grad_norm": None}
    with pytest.warns(ConvergenceWarning, match="not finite"):
        tagger = BertTagger(**settings).fit(X, Y)
    with pytest.raises(ValueError, match="diverged"):
        tagger.predict(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"X_val": X}, "got X_val without y_val"),
        ({"y_val": Y}, "got y_val without X_val"),
        ({"X_val": X, "y_val": Y[:-1]}, "X of BertTagger has 6 rows and y_val 5"),
        ({"X_val": X[:1], "y_val": [["O"]]}, "y_val of BertTagger must hold one tag"),
    ],
)
def test_bad_validation_sets(quick, settings, message):
    with pytest.raises(ValueError, match=message):
        BertTagger(**quick).fit(X, Y, **settings)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_class_weights(quick, weight):
    with pytest.raises(ValueError, match="finite weights"):
        BertTagger(class_weight={"O": weight}, **quick).fit(X, Y)


# scikit-learn ------------------------------------------------------------------------


def test_predictions_are_one_column_when_all_lengths_agree(quick):
    tagger = BertTagger(**quick).fit(X, Y)
    same = [words[:4] for words in X]
    for out in (
        tagger.predict(same),
        tagger.predict_proba(same),
        tagger.predict_spans(same),
    ):
        assert out.shape == (6,)
        assert out.dtype == object
    assert isinstance(tagger.predict(same)[0], list)


def test_search_and_validation(quick):
    """Grids over freezing and rates in two processes, with scores for ragged tags."""
    grid = {"frozen_layers": [1, "all"], "learning_rate": [1e-3]}
    tagger = BertTagger(**quick | {"max_epochs": 1})
    search = GridSearchCV(tagger, grid, scoring=entity_f1_scorer, cv=KFold(2), n_jobs=2)
    search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    alone = GridSearchCV(tagger, grid, scoring=entity_f1_scorer, cv=KFold(2)).fit(X, Y)
    assert_close(search.best_estimator_, alone.best_estimator_, 0)
    scoring = {"f1": entity_f1_scorer, "words": word_accuracy_scorer}
    scores = cross_validate(tagger, X, Y, cv=2, scoring=scoring)
    assert np.isfinite(scores["test_f1"]).all()
    assert (scores["test_words"] > 0).all()
    assert np.isfinite(cross_validate(tagger, X, Y, cv=2)["test_score"]).all()
    predicted = cross_val_predict(tagger, X, Y, cv=2)
    assert [len(tags) for tags in predicted] == [len(words) for words in X]


def test_same_bytes_for_a_seed(quick):
    first = BertTagger(**quick).fit(X, Y)
    assert_close(first, clone(first).fit(X, Y), 0)
    assert_close(first, first.fit(X, Y), 0)


def test_state(quick, tmp_path):
    tagger = BertTagger(head="crf", lstm_hidden_size=4, **quick).fit(X, Y)
    expected = tagger.predict_proba(X)
    tagger.save(tmp_path)
    for other in (pickle.loads(pickle.dumps(tagger)), BertTagger.load(tmp_path)):
        for one, two in zip(expected, other.predict_proba(X), strict=True):
            assert np.array_equal(one, two)
        assert other.classes_.tolist() == tagger.classes_.tolist()
        assert other.get_params() == tagger.get_params() | {"model": other.model}


# Export ------------------------------------------------------------------------------

EXPORTED = ["bert", "distilbert", "electra", "deberta-v2", "xlm-roberta", "roberta"]


# What transformers says of vocabularies without "##".
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("architecture", EXPORTED)
def test_export_gives_the_same_entities(tiny_models, quick, tmp_path, architecture):
    from transformers import pipeline

    settings = {"model": tiny_models(architecture), "max_epochs": 40}
    tagger = BertTagger(constrain_tags=False, **quick | settings).fit(X, Y)
    tagger.export_transformers(tmp_path)
    tag = pipeline("token-classification", str(tmp_path), aggregation_strategy="first")
    spans = tagger.predict_spans(SENTENCES)
    assert sum(map(len, spans)) > 6
    for text, table, ours in zip(SENTENCES, tagger.predict_proba(X), spans, strict=True):
        (window,), _ = tagger.encoder_.encode(
            [text.split()], max_length=99, long_text="windows", stride=0, parallel=False
        )
        words, first = np.unique(window.word_index, return_index=True)
        inputs = tag.tokenizer(text, return_tensors="pt")
        scores = tag.model(**inputs).logits[0].softmax(1).detach().numpy()
        np.testing.assert_allclose(scores[first[words >= 0]], table, atol=1e-5)
        # The tiny vocabulary has a piece for the space before a word, which the pipeline
        # takes for a word of its own.
        if architecture != "roberta":
            parts = [
                (text[s["start"] : s["end"]].strip(), s["entity_group"]) for s in tag(text)
            ]
            assert [(s["text"], s["label"]) for s in ours] == parts


@pytest.mark.parametrize(
    "settings",
    [
        {"constrain_tags": True},
        {"head": "crf"},
        {"lstm_hidden_size": 4},
        {"word_pooling": "mean"},
    ],
)
def test_what_cannot_be_exported(quick, tmp_path, settings):
    tagger = BertTagger(**quick | {"constrain_tags": False, "max_epochs": 1} | settings)
    with pytest.raises(ValueError, match=f"cannot be exported with {next(iter(settings))}"):
        tagger.fit(X, Y).export_transformers(tmp_path)


def test_nothing_is_warned_of_without_need(quick):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BertTagger(**quick | {"max_epochs": 20}).fit(X, Y).predict(X)
