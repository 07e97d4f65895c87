"""The checkpoint's own pooler as the first layer of a head."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
import torch
from estimators.test_finetuning import (
    LABELS,
    TEXTS,
    assert_same_bytes,
    quick,  # noqa: F401
)
from estimators.test_finetuning_controls import IGNORE_READING, estimator_rows, exported

from skbert import BertClassifier, BertRegressor, BertVectorizer
from skbert.encoders.loading import load_encoder
from skbert.encoders.transformer import TransformerEncoder

pytestmark = pytest.mark.filterwarnings("ignore:BertClassifier gave all:UserWarning")

PAIRS = list(zip(TEXTS, TEXTS[::-1], strict=True))
# Families whose published checkpoints have a pooler, and a class that saves one.
WITH_POOLER = {
    "bert": None,
    "albert": None,
    "big_bird": None,
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "mpnet": "MPNetModel",
    "longformer": "LongformerModel",
    "mobilebert": None,
}


def folder_with_pooler(tiny_models, architecture):
    saved_as = WITH_POOLER[architecture]
    overrides = {"architectures": [saved_as]} if saved_as else {}
    if architecture == "mobilebert":
        overrides["classifier_activation"] = True
    return tiny_models(architecture, **overrides)


@pytest.fixture
def pooled(quick):  # noqa: F811
    return quick | {"pooling": "pooler"}


# The checkpoint ----------------------------------------------------------------------


@pytest.mark.parametrize("architecture", list(WITH_POOLER))
def test_the_encoder_brings_it(tiny_models, architecture):
    """What transformers calls the pooler's output, in every family that has one."""
    from transformers import AutoModel, AutoTokenizer

    folder = folder_with_pooler(tiny_models, architecture)
    weight, bias = load_encoder(folder).pooler
    inputs = AutoTokenizer.from_pretrained(folder)("a good film", return_tensors="pt")
    model = AutoModel.from_pretrained(folder).eval()
    if architecture == "big_bird":
        model.set_attention_type("original_full")
    with torch.inference_mode():
        wanted = model(**inputs).pooler_output[0].numpy()
    vector = BertVectorizer(folder, pooling="cls").fit_transform(["a good film"])[0]
    assert np.allclose(np.tanh(weight @ vector + bias), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "overrides"),
    [
        ("bert", {"architectures": ["BertForMaskedLM"]}),
        ("roberta", {}),
        ("albert", {"architectures": ["AlbertForMaskedLM"]}),
        ("mpnet", {}),
        ("mobilebert", {"classifier_activation": False}),
        ("distilbert", {}),
        ("electra", {}),
        ("deberta-v2", {}),
        ("gpt2", {}),
    ],
)
def test_e5_a_checkpoint_without_one_is_refused(
    tiny_models,
    pooled,
    architecture,
    overrides,
):
    """E5: never a random pooler. Before any row is read, and no fit is left half done."""
    folder = tiny_models(architecture, **overrides)
    assert load_encoder(folder).pooler is None
    advice = "Use 'auto'"
    if architecture != "gpt2":
        advice = "Use 'cls' with hidden_layer_sizes=[32]"
    for kind, y in ((BertClassifier, LABELS), (BertRegressor, range(10))):
        estimator = kind(**pooled | {"model": folder})
        wanted = f"The 'pooling' parameter of {kind.__name__} must be .*{re.escape(advice)}"
        with pytest.raises(ValueError, match=wanted):
            estimator.fit(TEXTS, list(y))
        assert not hasattr(estimator, "encoder_")


def test_a_failed_fit_leaves_the_old_one(tiny_models, quick):  # noqa: F811
    without = tiny_models("bert", architectures=["BertForMaskedLM"])
    classifier = BertClassifier(**quick | {"model": without}).fit(TEXTS, LABELS)
    before = classifier.predict_proba(TEXTS)
    with pytest.raises(ValueError, match="does not hold a pooler"):
        classifier.set_params(pooling="pooler").fit(TEXTS, LABELS)
    classifier.set_params(pooling="auto")
    assert np.array_equal(classifier.predict_proba(TEXTS), before)


def test_it_is_no_part_of_the_encoder(tiny_models, bert_folder):
    """Neither of its state nor of its fingerprint, on which kept vectors hang."""
    encoder = load_encoder(bert_folder)
    assert encoder.pooler is not None
    assert encoder.model.pooler is None
    assert not [name for name in encoder.state()["weights"] if "pooler" in name]
    again = TransformerEncoder.from_state(encoder.state())
    assert again.pooler is None
    assert again.fingerprint() == encoder.fingerprint()
    assert encoder.trainable(torch.device("cpu")).pooler is encoder.pooler


def test_not_of_vectorizers(bert_folder):
    with pytest.raises(ValueError, match=r"pooling.*must be 'auto'.*Got 'pooler' instead"):
        BertVectorizer(bert_folder, pooling="pooler").fit(TEXTS)


# The head ----------------------------------------------------------------------------


@pytest.mark.parametrize("frozen_layers", [0, 2, "all"])
@pytest.mark.parametrize("hidden_layer_sizes", [[], [5]])
def test_it_begins_the_head(bert_folder, pooled, hidden_layer_sizes, frozen_layers):
    """At a rate of 0 it stays to the bit, and the rest of the head does not."""
    settings = pooled | {"hidden_layer_sizes": hidden_layer_sizes, "weight_decay": 0.5}
    settings |= {"learning_rate": 0.0, "frozen_layers": frozen_layers, "dropout": 0.1}
    pooler = load_encoder(bert_folder).pooler
    heads = []
    for rate in (0.0, 1e-2):
        classifier = BertClassifier(**settings, head_learning_rate=rate)
        classifier.fit(PAIRS, LABELS)
        first, *rest = classifier.head_
        assert len(rest) == len(hidden_layer_sizes) + 1
        for ours, theirs in zip(first, pooler, strict=True):
            assert np.array_equal(ours, theirs)
        heads.append(rest)
    for before, after in zip(*heads, strict=True):
        assert not np.array_equal(before[0], after[0])


def test_it_is_the_computation_of_transformers(bert_folder, pooled):
    """From the same weights the same logits as AutoModelForSequenceClassification."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    settings = pooled | {"learning_rate": 0.0, "head_learning_rate": 0.0}
    classifier = BertClassifier(**settings).fit(PAIRS, ["a", "b", "c", "a", "b"] * 2)
    model = AutoModelForSequenceClassification.from_pretrained(bert_folder, num_labels=3)
    with torch.no_grad():
        weight, bias = map(torch.from_numpy, classifier.head_[-1])
        model.classifier.weight.copy_(weight)
        model.classifier.bias.copy_(bias)
        tokenizer = AutoTokenizer.from_pretrained(bert_folder)
        for pair, ours in zip(PAIRS, classifier.decision_function(PAIRS), strict=True):
            theirs = model.eval()(**tokenizer(*pair, return_tensors="pt")).logits[0]
            assert np.allclose(ours, theirs.numpy(), atol=1e-5)


@pytest.mark.parametrize("frozen_layers", [0, "all"])
def test_rates(pooled, frozen_layers, monkeypatch):
    """The pooler learns as the top layer does; there is no dropout before it."""
    from skbert.estimators import training

    seen = {}

    def spy(self, network, source, objective, groups, **kwargs):
        rates = {id(p): group["lr"] for group in groups for p in group["params"]}
        head = network.head
        seen["rates"] = {name: rates[id(p)] for name, p in head.named_parameters()}
        seen["head"] = [type(module).__name__ for module in head]
        seen["top"] = [
            rates.get(id(p))
            for name, p in network.stack.named_parameters()
            if "layer.2" in name
        ]
        return whole(self, network, source, objective, groups, **kwargs)

    whole = training.TrainingMixin._train
    monkeypatch.setattr(training.TrainingMixin, "_train", spy)
    settings = pooled | {"layer_decay": 0.5, "frozen_layers": frozen_layers}
    BertClassifier(**settings, head_learning_rate=0.01).fit(TEXTS, LABELS)
    assert seen["head"] == ["Linear", "Tanh", "Dropout", "Linear"]
    pooler = dict.fromkeys(["0.weight", "0.bias"], settings["learning_rate"])
    new = dict.fromkeys(["3.weight", "3.bias"], 0.01)
    assert seen["rates"] == {**pooler, **new}
    top = None if frozen_layers == "all" else settings["learning_rate"]
    assert set(seen["top"]) == {top}


def test_it_is_trained_over_a_frozen_encoder(bert_folder, pooled):
    settings = pooled | {"frozen_layers": "all"}
    classifier = BertClassifier(**settings).fit(TEXTS, LABELS)
    weight, bias = load_encoder(bert_folder).pooler
    assert not np.array_equal(classifier.head_[0][0], weight)
    n_outputs = sum(array.size for array in classifier.head_[-1])
    assert classifier.n_trainable_parameters_ == weight.size + bias.size + n_outputs


@pytest.mark.parametrize("long_text", ["truncate", "windows"])
@pytest.mark.filterwarnings("ignore::skbert.exceptions.TruncationWarning")
def test_training_and_prediction_agree(pooled, monkeypatch, long_text):
    """The network's outputs at the end of training are those of prediction."""
    from skbert.estimators import training

    kept = []
    whole = training.TrainingMixin._train

    def spy(self, network, source, *args, **kwargs):
        from skbert.training.loop import evaluate

        outcome = whole(self, network, source, *args, **kwargs)
        kept.append(evaluate(network, source, 4))
        return outcome

    monkeypatch.setattr(training.TrainingMixin, "_train", spy)
    settings = pooled | {"max_length": 9, "long_text": long_text}
    classifier = BertClassifier(**settings).fit([*TEXTS, "good film " * 9], [*LABELS, "so"])
    ours = classifier.decision_function([*TEXTS, "good film " * 9])
    assert np.allclose(kept[0], ours, atol=1e-5)


# After fit ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BertClassifier, BertRegressor])
def test_it_needs_no_checkpoint_after_fit(pooled, tmp_path, kind):
    y = LABELS if kind is BertClassifier else np.arange(10.0)
    estimator = kind(**pooled).fit(PAIRS, y)
    assert estimator.encoder_.pooler is None
    assert estimator.pooling_ == "pooler"
    estimator.save(tmp_path)
    for again in (pickle.loads(pickle.dumps(estimator)), kind.load(tmp_path)):
        assert np.array_equal(again.predict(PAIRS), estimator.predict(PAIRS))
        assert np.array_equal(again.transform(PAIRS), estimator.transform(PAIRS))
        assert again.transform(PAIRS).shape == (10, 32)
        assert again.encoder_.pooler is None


@pytest.mark.parametrize("before", ["cls", "pooler"])
def test_parameters_changed_after_fit(quick, before):  # noqa: F811
    classifier = BertClassifier(**quick, pooling=before).fit(TEXTS, LABELS)
    classifier.set_params(pooling="pooler" if before == "cls" else "cls")
    with pytest.raises(ValueError, match=r"changed after fit, which changes pooling"):
        classifier.predict(TEXTS)


def test_training_goes_on_from_the_head(pooled):
    classifier = BertClassifier(**pooled, warm_start=True).fit(TEXTS, LABELS)
    head = classifier.head_
    classifier = pickle.loads(pickle.dumps(classifier))
    classifier.set_params(learning_rate=0.0, head_learning_rate=0.0)
    for go_on in (classifier.fit, classifier.partial_fit):
        go_on(TEXTS, LABELS)
        for one, other in zip(classifier.head_, head, strict=True):
            assert np.array_equal(one[0], other[0])
            assert np.array_equal(one[1], other[1])
    first = BertClassifier(**pooled).partial_fit(TEXTS, LABELS, classes=["no", "yes"])
    second = BertClassifier(**pooled | {"max_epochs": 1}).fit(TEXTS, LABELS)
    assert_same_bytes(first, second)


@pytest.mark.parametrize(
    "change",
    [{"pooling": "cls"}, {"hidden_layer_sizes": [32]}, {"hidden_layer_sizes": [3]}],
)
def test_a_head_of_other_layers_does_not_go_on(pooled, change):
    classifier = BertClassifier(**pooled | {"max_epochs": 1}, warm_start=True)
    classifier.fit(TEXTS, LABELS).set_params(**change)
    for go_on in (classifier.fit, classifier.partial_fit):
        with pytest.raises(ValueError, match=r"layers of the sizes \[32, 2\].*Got"):
            go_on(TEXTS, LABELS)


def test_the_same_model_from_the_same_seed(pooled):
    settings = pooled | {"dropout": 0.1}
    assert_same_bytes(*(BertClassifier(**settings).fit(TEXTS, LABELS) for _ in range(2)))


# Export ------------------------------------------------------------------------------


@IGNORE_READING
@pytest.mark.parametrize(
    "architecture", ["bert", "albert", "roberta", "xlm-roberta", "mpnet", "mobilebert"]
)
def test_exported_classifiers_give_the_same(tiny_models, pooled, tmp_path, architecture):
    settings = pooled | {"model": folder_with_pooler(tiny_models, architecture)}
    classifier = BertClassifier(**settings).fit(TEXTS, ["x", "y z", "ü", "ü", "x"] * 2)
    got = exported(classifier, tmp_path)
    wanted = classifier.predict_proba(estimator_rows(classifier))
    for row, probabilities in zip(got, wanted, strict=True):
        named = dict(zip(classifier.classes_, probabilities, strict=True))
        assert row == pytest.approx(named, abs=1e-5)


def test_exported_and_fitted_again(pooled, tmp_path):
    """The trained pooler stands where the next fit, or anyone's, looks for it."""
    classifier = BertClassifier(**pooled).fit(TEXTS, LABELS)
    classifier.export_transformers(tmp_path)
    for ours, theirs in zip(
        classifier.head_[0], load_encoder(tmp_path).pooler, strict=True
    ):
        assert np.array_equal(ours, theirs)


@IGNORE_READING
def test_exported_numbers(pooled, tmp_path):
    regressor = BertRegressor(**pooled).fit(PAIRS, np.arange(10) * 100.0)
    got = exported(regressor, tmp_path)
    values = [row["target_0"] for row in got]
    assert values == pytest.approx(regressor.predict(PAIRS).tolist(), rel=1e-4)


def test_a_further_layer_cannot_be_exported(pooled, tmp_path):
    classifier = BertClassifier(**pooled, hidden_layer_sizes=[5]).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="something else"):
        classifier.export_transformers(tmp_path / "new")
    assert not (tmp_path / "new").exists()
