"""Controls of fine-tuning that change how it is computed, and may not change the result."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from estimators.test_finetuning import (
    LABELS,
    TEXTS,
    assert_close,
    assert_same_bytes,
    quick,  # noqa: F401
    weights_of,
)

from skbert import BertClassifier, BertRegressor
from skbert.encoders import vocabulary
from skbert.nn import network

pytestmark = pytest.mark.filterwarnings("ignore:BertClassifier gave all:UserWarning")

# Tiny vocabularies know little, and windows are short.
IGNORE_READING = pytest.mark.filterwarnings(
    "ignore::skbert.exceptions.VocabularyWarning",
    "ignore::skbert.exceptions.TruncationWarning",
)


# Windows -----------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "last"])
@pytest.mark.parametrize("frozen_layers", [0, 2])
def test_training_and_prediction_pool_windows_alike(
    quick,  # noqa: F811
    pooling,
    frozen_layers,
    monkeypatch,
):
    """D4: the vectors that the head is trained on are those that it is asked with."""
    trained_on = []
    pool = network.pool_windows

    def spy(*args):
        trained_on.append(pool(*args))
        return trained_on[-1]

    monkeypatch.setattr(network, "pool_windows", spy)
    texts = ["good " * 40 + "film", "bad " * 30, "a good day", ""]
    classifier = BertClassifier(
        **quick | {"batch_size": 4, "learning_rate": 0.0, "head_learning_rate": 0.0},
        pooling=pooling,
        max_length=12,
        stride=3,
        long_text="windows",
        frozen_layers=frozen_layers,
    ).fit(texts, [0, 1, 0, 1])
    vectors = classifier.transform(texts)
    for batch in trained_on:
        got = batch.detach().numpy()
        assert sorted(map(tuple, got.round(4))) == sorted(map(tuple, vectors.round(4)))


@IGNORE_READING
def test_a_batch_of_texts_without_pieces(tiny_models, quick):  # noqa: F811
    """GPT-2 adds no special pieces, so an empty text has none at all."""
    settings = quick | {"model": tiny_models("gpt2"), "batch_size": 1}
    classifier = BertClassifier(**settings).fit(["good", "", "bad", ""], [0, 1, 1, 0])
    assert np.isfinite(classifier.predict_proba(["", "good"])).all()


# The word table ----------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["bert", "roberta", "albert", "xlnet", "t5"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_rows_out_of_use_change_nothing(
    tiny_models,
    quick,  # noqa: F811
    monkeypatch,
    architecture,
    early_stopping,
):
    """Weight decay reaches every row of the word table, in use or not."""
    settings = quick | {"model": tiny_models(architecture), "weight_decay": 0.5}
    settings |= {"early_stopping": early_stopping, "validation_fraction": 0.4}
    restricted = BertClassifier(**settings).fit(TEXTS, LABELS)
    monkeypatch.setattr(
        "skbert.encoders.vocabulary.restrict_vocabulary", lambda model, ids: None
    )
    plain = BertClassifier(**settings).fit(TEXTS, LABELS)
    assert_close(restricted, plain, 1e-6)
    assert restricted.n_trainable_parameters_ == plain.n_trainable_parameters_


def test_decay_of_rows_out_of_use():
    table = torch.nn.Embedding(9, 4, padding_idx=2)
    before = table.weight.detach().clone()
    part = vocabulary.RowsInUse(table, np.array([2, 5, 7, 5]))
    optimizer = torch.optim.AdamW([part.weight], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (part(torch.tensor([[5, 2]])) ** 2).sum().backward()
        optimizer.step()
    after = part.whole().weight
    for row in (0, 1, 2, 7, 8):  # a pad learns nothing
        assert torch.allclose(after[row], before[row] * 0.95**3)
    assert not torch.allclose(after[5], before[5] * 0.95**3)
    assert torch.equal(table.weight, before)


# Memory and time ---------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "t5"])
def test_checkpointing_changes_nothing(tiny_models, quick, architecture, monkeypatch):  # noqa: F811
    """With dropout: layers that run again draw the same numbers again."""
    runs = []
    import torch.utils.checkpoint as module

    whole = module.checkpoint
    for place in ("skbert.encoders.packed.checkpoint", "torch.utils.checkpoint.checkpoint"):
        monkeypatch.setattr(place, lambda *a, **k: (runs.append(1), whole(*a, **k))[1])
    settings = quick | {"model": tiny_models(architecture), "dropout": 0.2}
    plain = BertClassifier(**settings).fit(TEXTS, LABELS)
    assert not runs
    again = BertClassifier(**settings, gradient_checkpointing=True).fit(TEXTS, LABELS)
    if architecture == "bert":
        assert runs
    assert_close(plain, again, 1e-6)
    again.partial_fit(TEXTS, LABELS)
    assert np.isfinite(again.predict_proba(TEXTS)).all()


@pytest.mark.parametrize("frozen_layers", [2, "all"])
@pytest.mark.parametrize("long_text", ["truncate", "windows"])
def test_memory_spares_frozen_layers(
    quick,  # noqa: F811
    tmp_path,
    monkeypatch,
    frozen_layers,
    long_text,
):
    settings = quick | {"frozen_layers": frozen_layers, "long_text": long_text}
    settings |= {"max_length": 12}
    texts = [*TEXTS, "good film " * 20]
    labels = [*LABELS, "yes"]
    with pytest.warns() if long_text == "truncate" else _nothing():
        plain = BertClassifier(**settings).fit(texts, labels)
        first = BertClassifier(**settings, memory=tmp_path).fit(texts, labels)
    assert_same_bytes(plain, first)

    def fail(*args, **kwargs):
        raise AssertionError("computed again")

    monkeypatch.setattr("skbert.encoders.prefix.plan_batches", fail_unless_empty(fail))
    monkeypatch.setattr("skbert.training.vectors.run_rows", fail)
    second = BertClassifier(**settings, memory=tmp_path)
    with pytest.warns() if long_text == "truncate" else _nothing():
        second.fit(texts, labels)
        assert_same_bytes(plain, second)
        if frozen_layers == "all":
            second.predict(texts)


def fail_unless_empty(fail):
    return lambda encodings, **kwargs: fail() if encodings else []


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


def test_memory_knows_one_model_from_another(tiny_models, quick, tmp_path):  # noqa: F811
    """No stale hit: other weights, another layer, other windows."""
    settings = quick | {"frozen_layers": 2}
    BertClassifier(**settings, memory=tmp_path).fit(TEXTS, LABELS)
    for change in (
        {"model": tiny_models("bert", seed=5)},
        {"frozen_layers": 1},
        {"max_length": 4},
    ):
        changed = settings | change
        with pytest.warns() if "max_length" in change else _nothing():
            kept = BertClassifier(**changed, memory=tmp_path).fit(TEXTS, LABELS)
            assert_same_bytes(kept, BertClassifier(**changed).fit(TEXTS, LABELS))


def test_memory_after_warm_start(quick, tmp_path):  # noqa: F811
    settings = quick | {"frozen_layers": 2, "warm_start": True}
    kept, plain = BertClassifier(**settings, memory=tmp_path), BertClassifier(**settings)
    for _ in range(2):
        kept.fit(TEXTS, LABELS)
        plain.fit(TEXTS, LABELS)
    assert_same_bytes(kept, plain)


# After fit ---------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"pooling": "max"}, {"max_length": 5}])
def test_parameters_changed_after_fit(quick, change):  # noqa: F811
    classifier = BertClassifier(**quick).fit(TEXTS, LABELS).set_params(**change)
    with pytest.raises(ValueError, match=r"changed after fit.*Call fit again"):
        classifier.predict(TEXTS)


# Export ------------------------------------------------------------------------------


def exported(estimator, folder):
    from transformers import pipeline

    estimator.export_transformers(folder)
    opened = pipeline("text-classification", str(folder), device="cpu", top_k=None)
    inputs = [
        {"text": x[0], "text_pair": x[1]} if isinstance(x, tuple) else x
        for x in estimator_rows(estimator)
    ]
    rows = [opened(x, truncation=True) for x in inputs]
    return [
        {p["label"]: p["score"] for p in (r[0] if isinstance(r[0], list) else r)}
        for r in rows
    ]


def estimator_rows(estimator):
    if estimator.input_kind_ == "pairs":
        return list(zip(TEXTS, TEXTS[::-1], strict=True))
    return [*TEXTS, "Good BAD 好 " * 60]


@IGNORE_READING
@pytest.mark.parametrize("hidden_layer_sizes", [[], [7]])
@pytest.mark.parametrize(
    "architecture",
    ["bert", "roberta", "xlm-roberta", "albert", "mobilebert", "deberta-v2", "mpnet"],
)
def test_exported_classifiers_give_the_same(
    tiny_models,
    quick,  # noqa: F811
    tmp_path,
    architecture,
    hidden_layer_sizes,
):
    settings = quick | {"model": tiny_models(architecture), "pooling": "cls"}
    classifier = BertClassifier(**settings, hidden_layer_sizes=hidden_layer_sizes)
    classifier.fit(TEXTS, ["x", "y z", "ü", "ü", "x"] * 2)
    got = exported(classifier, tmp_path)
    for row, wanted in zip(
        got, classifier.predict_proba(estimator_rows(classifier)), strict=True
    ):
        assert row == pytest.approx(
            dict(zip(classifier.classes_, wanted, strict=True)), abs=1e-5
        )


@pytest.mark.parametrize("architecture", ["bert", "albert", "deberta-v2", "roberta"])
def test_exported_pairs_and_several_labels(
    tiny_models,
    quick,  # noqa: F811
    tmp_path,
    architecture,
):
    """Token types are those of training: of ALBERT's transformers sends none by itself."""
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    labels = [["a"], ["b", "a"], [], ["b"], ["a"]] * 2
    settings = quick | {"model": tiny_models(architecture), "pooling": "cls"}
    classifier = BertClassifier(**settings).fit(pairs, labels)
    got = exported(classifier, tmp_path)
    for row, wanted in zip(got, classifier.predict_proba(pairs), strict=True):
        assert row == pytest.approx({"a": wanted[0], "b": wanted[1]}, abs=1e-5)


@IGNORE_READING
@pytest.mark.parametrize("n_targets", [1, 2])
def test_exported_numbers(quick, tmp_path, n_targets):  # noqa: F811
    y = np.arange(10 * n_targets).reshape(10, n_targets) * 100.0
    regressor = BertRegressor(**quick, pooling="cls")
    regressor.fit(TEXTS, y if n_targets > 1 else y[:, 0])
    got = exported(regressor, tmp_path)
    wanted = regressor.predict(estimator_rows(regressor)).reshape(len(got), -1)
    for row, numbers in zip(got, wanted, strict=True):
        values = [row[f"target_{i}"] for i in range(n_targets)]
        assert values == pytest.approx(numbers.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "architecture", "words"),
    [
        ({"pooling": "mean"}, "bert", "pooling='cls'"),
        ({"hidden_layer_sizes": [5, 5]}, "bert", "something else"),
        ({"hidden_layer_sizes": [500]}, "bert", "something else"),
        ({"long_text": "windows"}, "bert", "long_text"),
        ({}, "electra", "something else"),
        ({}, "longformer", "something else"),
    ],
)
def test_what_cannot_be_exported(
    tiny_models,
    quick,  # noqa: F811
    tmp_path,
    settings,
    architecture,
    words,
):
    settings = quick | {"model": tiny_models(architecture), "pooling": "cls"} | settings
    classifier = BertClassifier(**settings | {"max_epochs": 1}).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=words):
        classifier.export_transformers(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_exporting_changes_nothing(quick, tmp_path):  # noqa: F811
    classifier = BertClassifier(**quick, pooling="cls").fit(TEXTS, LABELS)
    before = [weight.copy() for weight in weights_of(classifier)]
    classifier.export_transformers(tmp_path)
    for weight, kept in zip(weights_of(classifier), before, strict=True):
        assert np.array_equal(weight, kept)
