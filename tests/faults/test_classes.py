"""Faults of comparable libraries, kind C: labels, classes and their order.

The codes are those of the fault list that was gathered from the issue trackers of similar
libraries. More of C1, C3, C4 and C6 stands in ``tests/estimators/test_finetuning.py``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import get_scorer, log_loss, roc_auc_score

from skbert import BertClassifier, BertTagger

QUICK: dict[str, Any] = {
    "max_epochs": 8,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "dropout": 0.0,
    "random_state": 0,
    "device": "cpu",
}
X = ["good film", "bad dog", "so good", "a bad thing"] * 2
Y = ["yes", "no"] * 4


def with_labels(folder: Path, target: Path, names: dict[int, str]) -> Path:
    """A checkpoint whose configuration names labels."""
    shutil.copytree(folder, target)
    path = target / "config.json"
    config = json.loads(path.read_text())
    config |= {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    path.write_text(json.dumps(config))
    return target


@pytest.mark.parametrize("names", [None, {0: "yes", 1: "no"}])
def test_c2_columns_are_in_the_order_of_classes(
    bert_folder: Path, tmp_path: Path, names: Any
) -> None:
    """C2: whatever order a checkpoint has its labels in."""
    model = (
        bert_folder if names is None else with_labels(bert_folder, tmp_path / "m", names)
    )
    classifier = BertClassifier(model, **QUICK).fit(X, Y)
    assert classifier.classes_.tolist() == ["no", "yes"]
    table = classifier.predict_proba(X)
    assert (classifier.classes_[table.argmax(1)] == classifier.predict(X)).all()
    assert classifier.score(X, Y) == 1
    truth = [label == "yes" for label in Y]
    assert get_scorer("roc_auc")(classifier, X, Y) == roc_auc_score(truth, table[:, 1])
    by_scorer = -get_scorer("neg_log_loss")(classifier, X, Y)
    assert by_scorer == pytest.approx(log_loss(truth, table[:, 1]))


def test_c2_columns_of_a_tagger(bert_folder: Path) -> None:
    """C2: sorted, not in the order in which they were seen."""
    words, tags = [["see", "good", "film"]] * 4, [["O", "B-Z", "B-A"]] * 4
    tagger = BertTagger(bert_folder, **QUICK | {"head_learning_rate": 3e-2}).fit(
        words, tags
    )
    assert tagger.classes_.tolist() == ["B-A", "B-Z", "O"]
    (table,) = tagger.predict_proba(words[:1])
    assert tagger.classes_[table.argmax(1)].tolist() == tags[0]


def task_checkpoint(folder: Path, target: Path, kind: str) -> Path:
    """The same encoder below a trained head of three labels."""
    import transformers

    kinds = {
        "classifier": transformers.BertForSequenceClassification,
        "tagger": transformers.BertForTokenClassification,
    }
    model = kinds[kind].from_pretrained(folder, num_labels=3)
    model.save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return target


@pytest.mark.filterwarnings("ignore:Bert.* gave all")
@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_c5_the_head_of_a_checkpoint_is_replaced_and_told(
    bert_folder: Path, tmp_path: Path, kind: str
) -> None:
    """C5: of another size; the encoder's weights are kept."""
    folder = task_checkpoint(bert_folder, tmp_path / "three", kind)
    settings = QUICK | {"learning_rate": 0.0}
    with pytest.warns(UserWarning, match="head, trained .* is not used") as told:
        if kind == "classifier":
            fitted = BertClassifier(folder, **settings).fit(X, Y)
        else:
            fitted = BertTagger(folder, **settings).fit([["a", "b"]], [["O", "B-X"]])
    assert sum("is not used" in str(one.message) for one in told) == 1
    assert len(fitted.classes_) == 2
    plain = BertClassifier(bert_folder, **settings).fit(X, Y)
    ours, theirs = (e.encoder_.state()["weights"] for e in (fitted, plain))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
