"""A vector of each layer for each word: out of BertVectorizer, into the BiLSTM heads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skbert import BertVectorizer, BiLSTMClassifier, BiLSTMTagger

pytestmark = pytest.mark.filterwarnings("ignore:BiLSTM.* gave all:UserWarning")

SENTENCES = [["good", "film"], [], ["a", "", "bad", "unbelievably" * 4, "end"], ["film"]]


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize": True},
        {"max_length": 7, "word_pooling": "max"},  # the long word is cut in windows
        {"max_length": 7, "word_pooling": "mean", "batch_size": 1},
    ],
)
def test_a_stack_is_its_layers(bert_folder, tmp_path, settings):
    settings = {"output": "words", "device": "cpu", **settings}
    layers = [2, 0, -1]
    by_layer = [
        BertVectorizer(bert_folder, layers=layer, **settings).fit_transform(SENTENCES)
        for layer in layers
    ]
    stacked = BertVectorizer(
        bert_folder, layers=layers, layer_pooling="stack", memory=tmp_path, **settings
    )
    concat = BertVectorizer(
        bert_folder, layers=layers, layer_pooling="concat", memory=tmp_path, **settings
    ).fit(SENTENCES)
    for _ in range(2):  # the second time from memory
        out = stacked.fit_transform(SENTENCES)
        assert [row.shape for row in out] == [
            (len(words), 3, stacked.n_features_out_) for words in SENTENCES
        ]
        for row, *alone in zip(out, *by_layer, strict=True):
            assert row.dtype == np.float32
            np.testing.assert_allclose(row, np.stack(alone, axis=1), rtol=0, atol=1e-6)
        assert concat.transform(SENTENCES)[0].ndim == 2
    assert not hasattr(stacked, "get_feature_names_out")


def test_documents_have_one_vector(bert_folder):
    with pytest.raises(
        ValueError, match=r"'layer_pooling' .* for output='document'.*words"
    ):
        BertVectorizer("no/such-model", layer_pooling="stack").fit(["a text"])
    fitted = BertVectorizer(bert_folder, long_text="windows").fit(["a text"])
    with pytest.raises(ValueError, match="'layer_pooling'"):
        fitted.set_params(layer_pooling="stack").transform(["a text"])


RNG = np.random.RandomState(0)
WORDS = RNG.normal(size=(4, 6)).astype(np.float32)
LENGTHS = [3, 5, 1, 0, 6, 2, 4, 7, *RNG.randint(8, size=140)]
NUMBERS = [RNG.randint(4, size=length) for length in LENGTHS]
# Layer 1 of three says which word it is, the others are noise.
LAYERS = [RNG.normal(size=(length, 3, 6)).astype(np.float32) for length in LENGTHS]
for stacked, numbers in zip(LAYERS, NUMBERS, strict=True):
    stacked[:, 1] = WORDS[numbers]
TAGS = [["abcd"[number] for number in numbers] for numbers in NUMBERS]
CLASSES = ["yes" if 0 in numbers else "no" for numbers in NUMBERS]
X, Y, LABELS = LAYERS[:8], TAGS[:8], CLASSES[:8]
MODELS = [(BiLSTMTagger, Y), (BiLSTMClassifier, LABELS)]
QUICK = {"lstm_hidden_size": 4, "dropout": 0.0, "batch_size": 3, "random_state": 0,
         "learning_rate": 3e-2, "max_epochs": 3, "device": "cpu"}  # fmt: skip


def mixed(rows, estimator):
    """The rows by hand, as equation 1 has it."""
    shares, gamma = estimator.layer_weights_, estimator.gamma_
    return [
        sum(gamma * share * row[:, n] for n, share in enumerate(shares)) for row in rows
    ]


def arrays_equal(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)


def outputs(estimator, rows):
    return np.concatenate([np.atleast_2d(table) for table in estimator.predict_proba(rows)])


@pytest.mark.parametrize(("kind", "y"), [(BiLSTMTagger, TAGS), (BiLSTMClassifier, CLASSES)])
def test_the_layer_that_tells_is_found(kind, y):
    settings = {"dropout": 0.5, "batch_size": 16, "learning_rate": 5e-2, "max_epochs": 30}
    fitted = kind(**QUICK | settings).fit(LAYERS, y)
    assert fitted.layer_weights_.sum() == pytest.approx(1, abs=1e-12)
    assert fitted.layer_weights_[1] > 0.85
    assert fitted.gamma_ != 1
    assert fitted.score(LAYERS, y) == 1
    assert (fitted.n_layers_in_, fitted.n_features_in_) == (3, 6)


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_the_mix_is_equation_1(kind, y):
    """Mixed by hand, vectors give the same head the same outputs."""
    fitted = kind(**QUICK).fit(X, y)
    plain = kind(**QUICK).fit([row[:, 1] for row in X], y)
    assert not any(hasattr(plain, f"{name}_") for name in ("layer_weights", "gamma"))
    assert not hasattr(plain, "n_layers_in_")
    assert plain.head_.keys() == fitted.head_.keys() - {"mix.weights", "mix.gamma"}
    plain.head_ = {name: fitted.head_[name] for name in plain.head_}
    expected = outputs(plain, mixed(X, fitted))
    np.testing.assert_allclose(outputs(fitted, X), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_state_and_going_on(kind, y, tmp_path):
    fitted = kind(**QUICK).fit(X, y)
    assert arrays_equal(clone(fitted).fit(X, y).head_, fitted.head_)
    fitted.save(tmp_path)
    for other in (pickle.loads(pickle.dumps(fitted)), kind.load(tmp_path)):
        assert np.array_equal(outputs(other, X), outputs(fitted, X))
        assert np.array_equal(other.layer_weights_, fitted.layer_weights_)
        assert other.gamma_ == fitted.gamma_ and other.n_layers_in_ == 3
        other.partial_fit(X, y)
        assert other.gamma_ != fitted.gamma_
        assert not np.array_equal(other.layer_weights_, fitted.layer_weights_)
    shares, gamma = fitted.layer_weights_, fitted.gamma_
    fitted.set_params(warm_start=True, learning_rate=1e-7).fit(X, y)
    np.testing.assert_allclose(fitted.layer_weights_, shares, atol=1e-5)
    assert fitted.gamma_ == pytest.approx(gamma, abs=1e-5)
    # without warm_start the new rows decide
    fitted.set_params(warm_start=False).fit([row[:, 1] for row in X], y)
    assert not hasattr(fitted, "layer_weights_") and not hasattr(fitted, "n_layers_in_")
    assert "layer_weights_" not in fitted._repr_html_()


def test_early_stopping_takes_back_the_mix():
    """On wrong tags each epoch is worse than the one before."""
    settings = QUICK | {"schedule": "constant", "warmup": 0, "max_epochs": 4}
    wrong = [["bcda"["abcd".index(tag)] for tag in row] for row in Y]
    stopped = BiLSTMTagger(**settings).fit(X, Y, X_val=X, y_val=wrong)
    assert stopped.best_epoch_ < stopped.n_iter_
    best = BiLSTMTagger(**settings | {"max_epochs": stopped.best_epoch_}).fit(X, Y)
    assert arrays_equal(stopped.head_, best.head_)
    assert stopped.gamma_ == best.gamma_ != BiLSTMTagger(**settings).fit(X, Y).gamma_


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_rows_of_other_shapes(kind, y):
    fitted = kind(**QUICK | {"max_epochs": 1}).fit(X, y)
    plain = kind(**QUICK | {"max_epochs": 1}).fit([row[:, 1] for row in X], y)
    odd = [*X[:5], X[5][:, 1], *X[6:]]
    places = r"\(3, 3, 6\) at position 0, \(2, 6\) at position 5"
    cases = [
        (clone(fitted), odd, places),
        (fitted, odd, places),
        (fitted, [X[3], X[1][:, :2]], r"\(n_words, 3, 6\).* \(5, 2, 6\) at position 1"),
        (fitted, [X[1][:, 1]], r"\(n_words, 3, 6\).* \(5, 6\) at position 0"),
        (plain, [X[1]], r"\(n_words, 6\).* \(5, 3, 6\) at position 0"),
        (fitted, [X[1][:, :, :5]], "X has 5 features, but .* is expecting 6 features"),
        (fitted, [X[1][:, :0]], r"\(5, 0, 6\) at position 0"),
        (fitted, [X[1], X[0][None]], r"\(1, 3, 3, 6\) at position 1"),
        (fitted, [X[1], [[1.0, 2.0], [3.0]]], "several lengths at position 1"),
    ]
    for model, rows, message in cases:
        with pytest.raises(ValueError, match=message):
            if hasattr(model, "head_"):
                model.predict(rows)
            else:
                model.fit(rows, y)
    with pytest.raises(ValueError, match=r"as in fit.* \(3, 6\) at position 0"):
        fitted.set_params(warm_start=True).fit([row[:, 1] for row in X], y)


def test_rows_in_other_forms():
    """One array, lists, and rows without words of whatever shape."""
    fitted = BiLSTMClassifier(**QUICK).fit(X, LABELS)
    expected = outputs(fitted, X)
    X_list = [row.tolist() for row in X]
    np.testing.assert_array_equal(outputs(fitted, X_list), expected)
    empty = [np.zeros((0, 3, 6)), np.zeros((0, 6)), []]
    assert (outputs(fitted, empty) == outputs(fitted, X[3:4])).all()
    same = np.stack([row[:3] for row in X if len(row) > 2])
    assert same.ndim == 4
    np.testing.assert_array_equal(outputs(fitted, same), outputs(fitted, list(same)))


def test_weights_of_layers_do_not_decay():
    settings = QUICK | {"learning_rate": 1e-3, "max_epochs": 30, "weight_decay": 30.0}
    fitted = BiLSTMTagger(**settings).fit(X, Y)
    assert np.abs(fitted.head_["linear.weight"]).max() < 0.05  # as other weights do
    assert fitted.gamma_ > 0.9


def test_behind_a_vectorizer(bert_folder):
    sentences = [["good", "film"], ["bad", "end"], ["a", "good", "end"]] * 2
    tags = [["X" if word == "good" else "O" for word in row] for row in sentences]
    vectorizer = BertVectorizer(
        bert_folder, output="words", layers="all", layer_pooling="stack", device="cpu"
    )
    tagger = BiLSTMTagger(**QUICK | {"max_epochs": 30})
    pipeline = make_pipeline(vectorizer, tagger).fit(sentences, tags)
    assert pipeline.predict(sentences).tolist() == tags
    assert len(pipeline[-1].layer_weights_) == len(pipeline[0].layers_) > 1
