"""WordVectorizer: which vector a word has, and what becomes of them in a document."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skbert
from skbert import WordVectorizer
from skbert.exceptions import ModelNotFoundError, VocabularyWarning

TABLE = {
    "good": [1, 0, 2],
    "bad": [-1, 0, 1],
    "film": [0, 1, 0],
    "Film": [0, 3, 0],
    "the": [0, 0.5, 0.5],
    "story": [2, 2, 0],
    "New York": [5, 5, 5],
}
TEXTS = ["the good film", "the bad film", "the good good story"]


def vector(*words: str) -> np.ndarray:
    return np.array([TABLE[word] for word in words], dtype=np.float64)


@pytest.fixture
def path(tmp_path: Path) -> str:
    rows = (" ".join([word, *map(str, row)]) for word, row in TABLE.items())
    (tmp_path / "vectors.txt").write_text("\n".join(rows), encoding="utf-8")
    return str(tmp_path / "vectors.txt")


def one(vectorizer: WordVectorizer, row: Any) -> Any:
    return vectorizer.transform([row])[0]


# Words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lowercase", "found"),
    [
        ("fallback", ["Film", "good"]),
        (True, ["film", "good"]),
        (np.True_, ["film", "good"]),  # of a grid
        (False, ["Film"]),
    ],
)
def test_forms_of_words(path: str, lowercase: bool | str, found: list[str]) -> None:
    """Also of words that fit saw in another form only, and of words from the file."""
    for seen in ("good film", "nothing"):
        vectorizer = WordVectorizer(path, lowercase=lowercase).fit([seen])
        np.testing.assert_allclose(
            one(vectorizer, "Film GOOD"), vector(*found).mean(axis=0)
        )


def test_tokenizer(path: str) -> None:
    vectorizer = WordVectorizer(path, tokenizer=lambda text: text.split("|")).fit(["a"])
    np.testing.assert_array_equal(one(vectorizer, "New York"), TABLE["New York"])
    np.testing.assert_array_equal(one(vectorizer, "good|a"), TABLE["good"])
    for wrong in (lambda text: text, lambda text: [1], iter):
        with pytest.raises(ValueError, match=r"'tokenizer' parameter of .*position 0"):
            WordVectorizer(path, tokenizer=wrong).fit(["a"])


def test_word_output_is_one_vector_for_each_word(path: str) -> None:
    vectorizer = WordVectorizer(path, output="words").fit([["good"]])
    (row, empty) = vectorizer.transform([["Good", "xyz", "New York"], []])
    np.testing.assert_array_equal(row, [TABLE["good"], [0, 0, 0], TABLE["New York"]])
    assert row.dtype == np.float32
    assert empty.shape == (0, 3)
    assert not hasattr(vectorizer, "get_feature_names_out")
    with pytest.raises(ValueError, match=r"lists of words.*Split first"):
        vectorizer.transform(["a text"])


@pytest.mark.parametrize("output", ["words", "document"])
def test_normalize(path: str, output: str) -> None:
    vectorizer = WordVectorizer(path, output=output, normalize=True, oov="zeros")
    out = vectorizer.fit([["good", "xyz"]]).transform([["good", "xyz"], []])
    expected = vector("good") / np.sqrt(5)
    if output == "words":
        np.testing.assert_allclose(out[0], np.vstack([expected, np.zeros(3)]), rtol=1e-6)
    else:
        np.testing.assert_allclose(out, np.vstack([expected, np.zeros(3)]), rtol=1e-6)


# Unknown words -----------------------------------------------------------------------


def test_unknown_words_in_documents(path: str) -> None:
    row = "good xyz film"
    means = {
        "skip": vector("good", "film").mean(axis=0),
        "zeros": vector("good", "film").sum(axis=0) / 3,
        # Of the words of fit: good, bad, film, the.
        "mean": np.vstack(
            [vector("good", "film"), vector("good", "bad", "film", "the").mean(axis=0)]
        ).mean(axis=0),
    }
    for oov, expected in means.items():
        vectorizer = WordVectorizer(path, oov=oov).fit(TEXTS[:2])
        np.testing.assert_allclose(one(vectorizer, row), expected, rtol=1e-6)
    assert WordVectorizer(path).fit(TEXTS).oov_ == "skip"


def test_unknown_words_in_words(path: str) -> None:
    X = [["good", "xyz"], ["bad"]]
    vectorizer = WordVectorizer(path, output="words", oov="mean").fit(X)
    np.testing.assert_allclose(
        one(vectorizer, ["xyz", "bad"]), [vector("good", "bad").mean(axis=0), TABLE["bad"]]
    )
    with pytest.raises(ValueError, match=r"'oov' parameter of .* every word has a vector"):
        WordVectorizer(path, output="words", oov="skip").fit(X)


def test_unknown_words_as_errors(path: str) -> None:
    vectorizer = WordVectorizer(path, oov="error").fit(TEXTS)
    vectorizer.transform(TEXTS)
    with pytest.raises(ValueError, match=r"2 words .*\['xyz', 'abc'\].*positions \[1, 2\]"):
        vectorizer.transform(["good", "good xyz", "abc"])


def test_unknown_words_are_counted(path: str) -> None:
    vectorizer = WordVectorizer(path).fit(TEXTS)
    with pytest.warns(VocabularyWarning, match=r"no word of 1 of 3 rows .*: \[1\]") as told:
        out = vectorizer.transform(["good bad film", "xyz", ""])
    assert len(told) == 1
    assert told[0].filename == __file__
    assert not out[1:].any()
    with pytest.warns(VocabularyWarning, match=r"found 2 of 3 words without a vector"):
        vectorizer.transform(["good xyz abc"])


# Documents ---------------------------------------------------------------------------


def test_mean_and_max(path: str) -> None:
    for pooling in ("mean", "max"):
        vectorizer = WordVectorizer(path, pooling=pooling).fit(TEXTS)
        expected = getattr(vector("the", "good", "good", "story"), pooling)(axis=0)
        np.testing.assert_allclose(vectorizer.transform(TEXTS)[2], expected, rtol=1e-6)


def test_tfidf(path: str) -> None:
    """The same weights as scikit-learn's, and those of a new word for words of the file."""
    vectorizer = WordVectorizer(path, pooling="tfidf").fit(TEXTS)
    idf = {"the": 4 / 4, "good": 4 / 3, "bad": 4 / 2, "film": 4 / 3, "Film": 4 / 1}
    weights = {word: np.log(ratio) + 1 for word, ratio in idf.items()}
    for row in (["the", "bad", "film"], ["good", "good", "Film"]):
        w = np.array([weights[word] for word in row])
        np.testing.assert_allclose(
            one(vectorizer, " ".join(row)), w @ vector(*row) / w.sum(), rtol=1e-6
        )


def test_sif(path: str, tmp_path: Path) -> None:
    """Algorithm 1 of the paper, written out."""
    vectorizer = WordVectorizer(path, pooling="sif", sif_a=0.1).fit([*TEXTS, "xyz", ""])
    share = {"the": 3 / 10, "good": 3 / 10, "bad": 1 / 10, "film": 2 / 10, "story": 1 / 10}

    def before(text: str) -> np.ndarray:
        words = text.split()
        weights = [0.1 / (0.1 + share.get(word, 0)) for word in words]
        return np.array(weights) @ vector(*words) / len(words)

    first = np.linalg.svd([before(text) for text in TEXTS])[2][0]
    for text in (*TEXTS, "good Film"):
        v = before(text)
        np.testing.assert_allclose(
            one(vectorizer, text), v - v @ first * first, rtol=1e-5, atol=1e-6
        )
    assert not vectorizer.transform(["", "good"])[0].any()
    alone = WordVectorizer(path, pooling="sif", normalize=True).fit(["story"])
    assert not alone.transform(["story story"]).any()
    vectorizer.save(tmp_path / "saved")
    back = WordVectorizer.load(tmp_path / "saved")
    np.testing.assert_array_equal(back.transform(TEXTS), vectorizer.transform(TEXTS))
    # Nothing is left of it in a fit that needs it no more.
    assert not hasattr(vectorizer.set_params(pooling="mean").fit(TEXTS), "component_")


# Where words come from ---------------------------------------------------------------


def test_the_file_is_needed_for_new_words_only(path: str) -> None:
    known = WordVectorizer(path).fit([*TEXTS, "xyz Good"])
    everything = WordVectorizer(path, vocabulary="all").fit(TEXTS)
    expected = known.transform(TEXTS)
    assert sorted(known.vocabulary_) == ["bad", "film", "good", "story", "the"]
    assert list(everything.vocabulary_) == list(TABLE)
    os.remove(path)
    np.testing.assert_array_equal(known.transform(TEXTS), expected)
    np.testing.assert_array_equal(one(known, "xyz Good"), TABLE["good"])  # not asked again
    np.testing.assert_array_equal(one(everything, "Film"), TABLE["Film"])
    with pytest.raises(ModelNotFoundError, match=r"1 words .*\['Film'\].*vocabulary='all'"):
        known.transform(["good Film"])
    known.set_params(vocabulary="fit")
    np.testing.assert_array_equal(one(known, "Film"), TABLE["film"])


def test_words_of_fit_alone(path: str) -> None:
    vectorizer = WordVectorizer(path, vocabulary="fit").fit(TEXTS)
    np.testing.assert_array_equal(one(vectorizer, "good Film"), [0.5, 0.5, 1])


def test_another_file_in_its_place(path: str) -> None:
    vectorizer = WordVectorizer(path).fit(TEXTS)
    Path(path).write_text("Film 1 2 3\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"has 11 now.*call fit again"):
        vectorizer.transform(["Film"])


def test_duplicates(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\ngood 9 9 9\n")
    with pytest.raises(ValueError, match=rf"(?s){path}.*line 8 .*'good'.*line 1 .*'first'"):
        WordVectorizer(path).fit(TEXTS)
    vectorizer = WordVectorizer(path, duplicates="first").fit(TEXTS)
    np.testing.assert_array_equal(one(vectorizer, "good"), TABLE["good"])


def test_words_that_are_no_utf8_are_counted(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"\n\xff 9 9 9\n")
    WordVectorizer(path).fit(TEXTS)
    with pytest.warns(VocabularyWarning, match=r"left out 1 words .* no UTF-8.*line 8"):
        WordVectorizer(path, vocabulary="all").fit(TEXTS)


def test_other_vectorizers_as_model(path: str, tmp_path: Path) -> None:
    """Fitted, frozen or saved; one that reads on in its file, and one that does not."""
    expected = WordVectorizer(path).fit(TEXTS).transform(["the Film"])
    for vocabulary in ("model", "all"):
        inner = WordVectorizer(path, vocabulary=vocabulary).fit(TEXTS)
        inner.save(tmp_path / vocabulary)
        for model in (inner, FrozenEstimator(inner), tmp_path / vocabulary):
            outer = WordVectorizer(model, pooling="mean").fit(TEXTS)
            np.testing.assert_array_equal(outer.transform(["the Film"]), expected)
    inner = WordVectorizer(path, vocabulary="fit").fit(["the film"])
    outer = WordVectorizer(inner).fit(TEXTS)
    np.testing.assert_array_equal(one(outer, "the good Film"), [0, 0.75, 0.25])
    for unfitted in (clone(outer), WordVectorizer(FrozenEstimator(WordVectorizer()))):
        with pytest.raises(NotFittedError, match=r"model=FrozenEstimator\(vectorizer\)"):
            unfitted.fit(TEXTS)


def test_keyed_vectors_as_model(path: str) -> None:
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(3)
    keyed.add_vectors(list(TABLE), np.array(list(TABLE.values()), np.float32))
    expected = WordVectorizer(path).fit(TEXTS).transform(["the Film", "good"])
    vectorizer = WordVectorizer(keyed).fit(TEXTS)
    np.testing.assert_array_equal(vectorizer.transform(["the Film", "good"]), expected)
    assert list(WordVectorizer(keyed, vocabulary="fit").fit(["Film"]).vocabulary_) == [
        "film",
        "Film",
    ]
    with pytest.raises(ValueError, match=r"'model' parameter of .*model\.wv of a Word2Vec"):
        WordVectorizer(models.Word2Vec(TEXTS, min_count=1, vector_size=3)).fit(TEXTS)
    with pytest.raises(TypeError, match="KeyedVectors, which save cannot write"):
        vectorizer.save("nowhere")


def test_progress_is_shown_while_a_file_is_read(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    vectorizer = WordVectorizer(path, verbose=1).fit(TEXTS)
    assert "vectors.txt" in capsys.readouterr().err
    vectorizer.transform(["Film"])
    assert capsys.readouterr().err == ""


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no file of word vectors"):
        WordVectorizer(tmp_path / "missing").fit(TEXTS)


def test_parameters_changed_after_fit(path: str) -> None:
    vectorizer = WordVectorizer(path).fit(TEXTS)
    for name, value in {"pooling": "sif", "vocabulary": "all", "lowercase": True}.items():
        with pytest.raises(ValueError, match=f"parameters {name} of .*Call fit again"):
            clone(vectorizer).fit(TEXTS).set_params(**{name: value}).transform(TEXTS)


# Training ----------------------------------------------------------------------------

CORPUS = ["the cat sat on the mat", "the dog sat on the rug", "A cat and a dog"] * 10
TRAIN = """
import hashlib
from skbert import WordVectorizer
texts = ["the cat sat on the mat", "the dog sat on the rug", "A cat and a dog"] * 10
vectorizer = WordVectorizer(vector_size=8, random_state=0).fit(texts)
digest = hashlib.sha256(vectorizer.vectors_.tobytes()).hexdigest()
print(list(vectorizer.vocabulary_), digest)
"""


def test_training_gives_the_same_bytes_in_every_process() -> None:
    pytest.importorskip("gensim")
    printed = {
        subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", TRAIN],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(Path(skbert.__file__).parents[1]),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_trained_vectors(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    before = np.random.get_state()[1].tolist()
    vectorizer = WordVectorizer(vector_size=8, min_count=11, random_state=0).fit(CORPUS)
    assert np.random.get_state()[1].tolist() == before
    assert set(vectorizer.vocabulary_) == {"the", "cat", "sat", "on", "dog"}
    assert vectorizer.transform(CORPUS).shape == (30, 8)
    vectorizer.save(tmp_path)
    back = WordVectorizer.load(tmp_path)
    np.testing.assert_array_equal(back.transform(CORPUS), vectorizer.transform(CORPUS))
    lower = WordVectorizer(vector_size=8, lowercase=True, random_state=0).fit(CORPUS)
    assert "a" in lower.vocabulary_
    assert "A" not in lower.vocabulary_
    other = WordVectorizer(vector_size=8, sg=1, random_state=0).fit(CORPUS)
    assert not np.array_equal(other.vectors_[0], lower.vectors_[0])
    with pytest.raises(ValueError, match="no word that occurs min_count=99 times"):
        WordVectorizer(min_count=99).fit(CORPUS)


def test_long_texts_are_trained_on_whole() -> None:
    pytest.importorskip("gensim")
    text = " ".join(f"w{at}" for at in range(11_000))  # gensim reads 10,000
    vectorizer = WordVectorizer(vector_size=2, min_count=1, max_epochs=1, random_state=0)
    moved, still = (
        vectorizer.fit(texts).vectors_[vectorizer.vocabulary_["d"]]
        for texts in ([f"{text} c d"], [text, "c", "d"])
    )
    assert not np.array_equal(moved, still)


def test_without_gensim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ImportError, match=r"skbert\[word2vec\].*model= to a file"):
        WordVectorizer().fit(CORPUS)


def test_grid_search(path: str) -> None:
    pipeline = make_pipeline(WordVectorizer(path), LogisticRegression())
    search = GridSearchCV(
        pipeline, {"wordvectorizer__pooling": ["mean", "max", "tfidf", "sif"]}, cv=2
    )
    search.fit(TEXTS[:2] * 3, ["yes", "no"] * 3)
    assert search.predict(TEXTS[:2]).tolist() == ["yes", "no"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
