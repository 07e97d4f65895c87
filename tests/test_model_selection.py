"""Folds of tagged sentences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skbert import BiLSTMTagger
from skbert.model_selection import StratifiedTagKFold


def sentences(rng, n):
    """Sentences of which few have the rare label, and some none."""
    choices = [["O"], ["B-A", "I-A", "O"], ["B-A", "O", "B-A"], ["O", "B-RARE"]]
    return [choices[i] for i in rng.choice(4, n, p=[0.3, 0.4, 0.25, 0.05])]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_splits", [2, 3, 5])
def test_folds_are_alike(seed, n_splits):
    y = sentences(np.random.RandomState(seed), 97)
    splitter = StratifiedTagKFold(n_splits, shuffle=True, random_state=seed)
    tests = []
    for train, test in splitter.split(y, y):
        assert np.array_equal(np.sort(np.r_[train, test]), np.arange(97))
        tests.append(test)
    assert np.array_equal(np.sort(np.concatenate(tests)), np.arange(97))
    sizes = [len(test) for test in tests]
    assert max(sizes) - min(sizes) <= 1
    for tag, apart in (("B-A", 2), ("B-RARE", 1)):
        counts = [sum(y[i].count(tag) for i in test) for test in tests]
        assert max(counts) - min(counts) <= apart, tag


def test_it_is_repeatable_and_draws_from_its_own_state():
    y = sentences(np.random.RandomState(0), 30)

    def folds(**options):
        return [test.tolist() for _, test in StratifiedTagKFold(3, **options).split(y, y)]

    assert folds() == folds()
    assert folds(shuffle=True, random_state=1) == folds(shuffle=True, random_state=1)
    assert folds(shuffle=True, random_state=1) != folds(shuffle=True, random_state=2)


def test_tags_that_are_no_entities():
    y = [["NOUN"]] * 6 + [["VERB", "NOUN"]] * 4 + [[3]] * 0
    for _, test in StratifiedTagKFold(2).split(y, y):
        assert sum("VERB" in y[i] for i in test) == 2
    numbers = [[1], [2]] * 4
    for _, test in StratifiedTagKFold(2).split(numbers, numbers):
        assert sum(numbers[i] == [1] for i in test) == 2


def test_spans_have_labels_too():
    y = [[(0, 1, "A")], [], [{"start": 0, "end": 2, "label": "B"}], [(3, 4, "A")], [], []]
    y[5] = [(0, 1, "B")]
    for _, test in StratifiedTagKFold(2).split(y, y):
        assert sorted(len(y[i]) for i in test) == [0, 1, 1]


def test_it_serves_a_search():
    X = [np.eye(3)[:2], np.eye(3)[1:]] * 4
    y = [["O", "B-X"], ["B-X", "O"]] * 4
    tagger = BiLSTMTagger(max_epochs=1, lstm_hidden_size=2, random_state=0)
    grid = {"head": ["crf", "softmax"]}
    search = GridSearchCV(tagger, grid, cv=StratifiedTagKFold(2)).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("n_splits", "y", "message"),
    [
        (1, [["O"]] * 3, "at least 2"),
        (4, [["O"]] * 3, "3 sentences and n_splits=4"),
        (2, ["O", "B-X"], "must be a list of tags"),
    ],
)
def test_refusals(n_splits, y, message):
    with pytest.raises(ValueError, match=message):
        list(StratifiedTagKFold(n_splits).split(y, y))
