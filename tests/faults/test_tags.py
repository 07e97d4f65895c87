"""Faults of comparable libraries, kinds A, G and K: words and their tags.

The codes are those of the fault list that was gathered from the issue trackers of similar
libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, KFold

from skbert import BertTagger
from skbert.metrics import entity_f1_score, entity_f1_scorer, entity_report

pytestmark = pytest.mark.filterwarnings("ignore:BertTagger gave all:UserWarning")

ODD_WORDS = ["\u200b", "", " ", "\u00ad", "\ufffd", "\x00", "\ue000"]
QUICK: dict[str, Any] = {
    "max_epochs": 30,
    "learning_rate": 1e-3,
    "head_learning_rate": 1e-2,
    "dropout": 0.0,
    "random_state": 0,
    "device": "cpu",
}


def weights_of(tagger: BertTagger) -> list[np.ndarray]:
    return [*tagger.encoder_.state()["weights"].values(), *tagger.head_.values()]


@pytest.mark.parametrize("head", ["softmax", "crf"])
@pytest.mark.parametrize("word", ODD_WORDS)
def test_a1_a_vanished_word_moves_no_tag(bert_folder: Path, word: str, head: str) -> None:
    """A1: one tag per word, that of the words behind trained on these, none on it."""
    X, y = [["The", word, "Hague", "."]], [["O", "O", "B-LOC", "O"]]
    tagger = BertTagger(bert_folder, head=head, **QUICK).fit(X, y)
    assert tagger.predict(X).tolist() == y
    without = BertTagger(bert_folder, head=head, **QUICK).fit(
        [["The", "Hague", "."]], [["O", "B-LOC", "O"]]
    )
    for one, other in zip(weights_of(tagger), weights_of(without), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    (table,) = tagger.predict_proba(X)
    assert table[1].tolist() == [0.0, 1.0]


def test_a1_a_vanished_word_parts_no_entity(bert_folder: Path) -> None:
    """A1: inside of an entity it goes on with it; else it has the commonest tag."""
    X = [["New", "\u200b", "York", "\u200b", "is", "far"]]
    y = [["B-LOC", "I-LOC", "I-LOC", "O", "O", "O"]]
    assert BertTagger(bert_folder, **QUICK).fit(X, y).predict(X).tolist() == y
    tags = [["ADJ", "X", "NOUN", "X", "VERB", "NOUN"]]
    tagger = BertTagger(bert_folder, **QUICK).fit(X, tags)
    assert tagger.default_tag_ in ("NOUN", "X")
    assert tagger.predict(X)[0][1] == tagger.default_tag_


@pytest.mark.parametrize("stride", [0, 8])
@pytest.mark.parametrize("frozen_layers", [0, "all"])
def test_a2_long_sentences_keep_all_tags(
    bert_folder: Path, stride: int, frozen_layers: Any
) -> None:
    """A2: training sees the last label too."""
    words = ["word"] * 699 + ["Berlin"]
    y = ["O"] * 699 + ["B-X"]
    settings = QUICK | {"frozen_layers": frozen_layers, "stride": stride}
    tagger = BertTagger(bert_folder, max_length=64, class_weight="balanced", **settings)
    (tags,) = tagger.fit([words], [y]).predict([words])
    assert len(tags) == 700
    assert tags[-1] == "B-X"
    assert tags.count("O") == 699


def test_a3_empty_sentences_keep_their_place(bert_folder: Path) -> None:
    """A3: in training, in prediction, and when there is nothing else."""
    X, y = [["Hi"], [], ["there", "you"]], [["O"], [], ["O", "B-X"]]
    for head in ("softmax", "crf"):
        for size in (0, 4):
            tagger = BertTagger(bert_folder, head=head, lstm_hidden_size=size, **QUICK)
            tagger.fit(X, y)
            assert tagger.predict([[], ["Hi"]]).tolist() == [[], ["O"]]
            assert tagger.set_params(batch_size=1).predict([[]]).tolist() == [[]]
            assert tagger.predict_proba([[]])[0].shape == (0, 2)
            assert tagger.predict_spans([[]]).tolist() == [[]]


def test_a4_words_are_read_as_inside_a_text(tiny_models: Any) -> None:
    """A4: byte-level vocabularies know a word by the space before it."""
    folder = tiny_models("roberta")
    tagger = BertTagger(folder, **QUICK).fit([["the", "film"]], [["O", "B-X"]])
    tokenizer = tagger.encoder_.tokenizer
    (pieces,) = tokenizer.words([["the", "film"]], parallel=False)
    assert pieces.ids.tolist() == tokenizer._ids(" the film")


def test_a5_characters_are_words(tiny_models: Any) -> None:
    """A5: Latin letters and digits among Chinese characters are not joined."""
    text = "深发展A19.5元"
    y = [["B-ORG", "I-ORG", "I-ORG", "I-ORG"] + ["O"] * 5]
    for model in (tiny_models("bert"), tiny_models("xlm-roberta")):
        tagger = BertTagger(model, **QUICK | {"max_epochs": 60}).fit([list(text)], y)
        assert tagger.predict([list(text)]).tolist() == y


def test_a6_words_beyond_all_limits(bert_folder: Path) -> None:
    """A6: one tag for a word of 500 characters; a warning, never an error."""
    X = [["see", "https://example.org/" + "a" * 480, "now"]]
    y = [["O", "B-URL", "O"]]
    tagger = BertTagger(bert_folder, max_length=16, **QUICK)
    with pytest.warns(UserWarning, match="too long for the vocabulary"):
        tagger.fit(X, y)
    with pytest.warns(UserWarning, match="too long for the vocabulary"):
        assert tagger.predict(X).tolist() == y


@pytest.mark.parametrize("head", ["softmax", "crf"])
@pytest.mark.parametrize("class_weight", [None, {"B-X": 5.0}])
@pytest.mark.parametrize("size", [1, 3])
def test_g1_parts_of_a_step_count_by_their_words(
    bert_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    head: str,
    class_weight: Any,
    size: int,
) -> None:
    """G1: sentences of 2 and of 40 words, and one without any that can be read."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, fused: torch.optim.SGD(groups))
    X = [["good", "film"], ["the", "old", "man"] * 13, ["\u200b"], ["bad", "film", "dog"]]
    y = [["O", "B-X"], ["O", "O", "B-X"] * 13, ["O"], ["O", "B-X", "O"]]
    settings = QUICK | {"max_epochs": 1, "batch_size": 4, "learning_rate": 0.1}
    settings |= {"head": head, "class_weight": class_weight, "head_learning_rate": 0.5}
    whole = BertTagger(bert_folder, micro_batch_size=None, **settings).fit(X, y)
    parts = BertTagger(bert_folder, micro_batch_size=size, **settings).fit(X, y)
    for one, other in zip(weights_of(whole), weights_of(parts), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert whole.history_[0]["loss"] == pytest.approx(parts.history_[0]["loss"], abs=1e-6)


def test_k1_lenient_or_strict_is_said() -> None:
    """K1: both values are to be had, and the report names the mode."""
    gold, predicted = [["B-X", "I-X"]], [["I-X", "I-X"]]
    assert entity_f1_score(gold, predicted) == 1
    assert entity_f1_score(gold, predicted, mode="strict", scheme="IOB2") == 0
    assert "mode: strict, scheme: IOB2" in entity_report(
        gold, predicted, mode="strict", scheme="IOB2"
    )


@pytest.mark.filterwarnings("ignore:BertTagger found one tag only")
def test_k2_no_entity_at_all(bert_folder: Path) -> None:
    """K2: a number, for the score, the report, and a search with such a fold."""
    settings = QUICK | {"max_epochs": 1}
    tagger = BertTagger(bert_folder, **settings).fit([["a", "b"]], [["O", "B-X"]])
    assert tagger.score([["a"]], [["O"]]) in (0.0, 1.0)
    assert "micro avg" in entity_report([["O"]], [["O"]])
    assert entity_report([["O"]], [["B-X"]], output_dict=True)["micro avg"]["recall"] == 0
    X, y = [["a", "b"], ["c"], ["d"], ["e"]], [["O", "B-X"], ["O"], ["O"], ["O"]]
    search = GridSearchCV(
        BertTagger(bert_folder, **settings),
        {"learning_rate": [1e-3]},
        scoring=entity_f1_scorer,
        cv=KFold(2),
        error_score="raise",
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.filterwarnings("ignore:BertTagger read words that are too long")
def test_k3_rows_stay_in_order(bert_folder: Path) -> None:
    """K3: odd, long and empty rows, permuted."""
    X = [["a"] * n + ["\u200b", "word"] for n in (0, 70, 3, 1)] + [[], [""], ["x" * 300]]
    settings = QUICK | {"max_epochs": 2, "max_length": 24}
    y = [["O"] * (len(row) - 1) + ["B-X"] if row else [] for row in X]
    tagger = BertTagger(bert_folder, **settings).fit(X, y)
    tables = tagger.predict_proba(X)
    assert [len(table) for table in tables] == [len(row) for row in X]
    order = np.random.RandomState(0).permutation(len(X))
    for at, table in zip(order, tagger.predict_proba([X[i] for i in order]), strict=True):
        np.testing.assert_allclose(table, tables[at], atol=1e-5)
