"""Sort messages by topic: sentence vectors against word counts, in a minute on a CPU.

    python examples/quickstart.py
    python examples/quickstart.py --csv my.csv --text body --label topic

Reads labelled texts, cross-validates logistic regression on TF-IDF and on BERT vectors,
fine-tunes the two upper layers of BERT on the first of the folds, then pickles the fitted
pipeline, loads it again and lets it predict. Last, it learns to find names, places,
organisations and dates in sentences. Weights come from the ``minilm`` extra, so no network
is needed.
"""

import argparse
import csv
import pickle
import time
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from skbert import BertClassifier, BertTagger, BertVectorizer

ENTITIES = Path(__file__).parent / "data" / "entities.conll"
MESSAGES = Path(__file__).parent / "data" / "messages.csv"


def read(path, text_column, label_column):
    """Texts, labels and languages (all the same where the file names none)."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for column in (text_column, label_column):
        if not rows or column not in rows[0]:
            raise SystemExit(
                f"{path} has no column {column!r}; it has {list(rows[0]) if rows else []}. "
                "Name yours with --text and --label."
            )
    texts = [row[text_column] for row in rows]
    labels = np.array([row[label_column] for row in rows])
    languages = np.array([row.get("language") or "all" for row in rows])
    return texts, labels, languages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", default=MESSAGES, type=Path)
    parser.add_argument("--text", default="text", help="name of the column of texts")
    parser.add_argument("--label", default="label", help="name of the column of labels")
    parser.add_argument("--folds", default=5, type=int)
    options = parser.parse_args()

    texts, labels, languages = read(options.csv, options.text, options.label)
    classes = Counter(labels.tolist())
    print(f"{len(texts)} texts in {len(classes)} classes: {', '.join(sorted(classes))}\n")
    if min(classes.values()) < options.folds:
        raise SystemExit(
            f"The rarest class has {min(classes.values())} texts; --folds must not be more."
        )

    candidates = {
        "TF-IDF of words": make_pipeline(TfidfVectorizer(), LogisticRegression()),
        "TF-IDF of characters": make_pipeline(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)), LogisticRegression()
        ),
        "BertVectorizer": make_pipeline(
            BertVectorizer(), LogisticRegression(max_iter=1000)
        ),
    }
    groups = sorted(set(languages.tolist()))
    folds = StratifiedKFold(options.folds, shuffle=True, random_state=0)
    heads = (f"{g} ({(languages == g).sum()})".rjust(9) for g in groups)
    print("accuracy, cross-validated, on     ", *heads, "   time")
    for name, pipeline in candidates.items():
        start = time.perf_counter()
        predicted = cross_val_predict(pipeline, texts, labels, cv=folds)
        seconds = time.perf_counter() - start
        scores = [
            accuracy_score(labels[languages == g], predicted[languages == g])
            for g in groups
        ]
        columns = " ".join(f"{score:9.3f}" for score in scores)
        print(f"{name:34} {columns} {seconds:6.1f}s")
    start = time.perf_counter()
    train, test = next(folds.split(texts, labels))
    tuned = BertClassifier(frozen_layers=4, random_state=0)
    tuned.fit([texts[i] for i in train], labels[train])
    right = tuned.predict([texts[i] for i in test]) == labels[test]
    columns = " ".join(f"{right[languages[test] == g].mean():9.3f}" for g in groups)
    seconds = time.perf_counter() - start
    print(f"{'BertClassifier, first fold only':34} {columns} {seconds:6.1f}s")
    if options.csv == MESSAGES:
        print(
            "The default model knows English and hardly any Chinese; so does TF-IDF, which"
        )
        print("finds no words between spaces there.")
    print()

    fitted = candidates["BertVectorizer"].fit(texts, labels)
    saved = pickle.dumps(fitted)
    loaded = pickle.loads(saved)
    print(f"pickled and loaded again ({len(saved) / 1e6:.0f} MB); it predicts:")
    sample = (
        texts[:4]
        if options.csv != MESSAGES
        else [
            "Why did twelve pounds leave my card twice?",
            "The courier left the box with a neighbour I do not know",
            "The screen stays black after the update",
            "How long should the dough rest in the fridge?",
        ]
    )
    for text, label in zip(sample, loaded.predict(sample), strict=True):
        print(f"  {label:12} {text[:70]}")
    if options.csv == MESSAGES:
        tag_entities()


def tag_entities():
    """Entities in English sentences: 90 to learn from, 30 to judge by."""
    blocks = ENTITIES.read_text(encoding="utf-8").strip().split("\n\n")[:120]
    rows = [[line.split("\t") for line in block.split("\n")] for block in blocks]
    X = [[word for word, _ in row] for row in rows]
    y = [[tag for _, tag in row] for row in rows]
    start = time.perf_counter()
    tagger = BertTagger(head="crf", frozen_layers=3, max_epochs=10, random_state=0)
    score = tagger.fit(X[:90], y[:90]).score(X[90:], y[90:])
    seconds = time.perf_counter() - start
    print(f"\nBertTagger, entity F1 on 30 sentences: {score:.3f} {seconds:6.1f}s")
    (spans,) = tagger.predict_spans(
        ["Nora Lindqvist left Bramwell Books in Lyon on 3 May."]
    )
    for span in spans:
        print(f"  {span['label']:12} {span['text']}")


if __name__ == "__main__":
    main()
