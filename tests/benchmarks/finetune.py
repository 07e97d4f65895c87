"""BertClassifier and BertRegressor against the Hugging Face Trainer and TF-IDF.

    python tests/benchmarks/finetune.py scores [--sets NAME ...] [--seeds 3]
    python tests/benchmarks/finetune.py speed [--rounds 3]

``scores`` trains the same model on the same rows with the same settings and seeds and
prints score and CPU time, a line for each run, then a table. ``speed`` trains on 128 texts
for two epochs with none, half and all of the layers frozen. Both run on one thread.
The Trainer's classifier begins with the checkpoint's pooler, which matters for pairs of
texts: for stsb_en skbert is told ``pooling="pooler"``. Needs the data sets that the tests
also use where they are there, and ``accelerate``.
"""

import argparse
import csv
import os
import statistics
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from encode import SHARED, read_texts
from interleave import interleave, ratio
from scipy.stats import pearsonr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from skbert import BertClassifier, BertRegressor
from skbert.encoders.loading import find_model

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# Rows to train on and pieces of a window: as much as a slow core trains in a few minutes.
SETS = {
    "banking77": (2000, 48),
    "snips_intent": (400, 48),
    "pubmed_sections": (400, 48),
    "cad_sentiment": (400, 48),
    "stsb_en": (500, 64),
    "goemotions": (800, 48),
    "emobank": (500, 48),
    "law_zh": (221, 64),
    "cold_zh": (400, 48),
}
N_TEST = 400
SETTINGS = {
    "max_epochs": 3,
    "learning_rate": 5e-5,
    "batch_size": 16,
    "weight_decay": 0.01,
    "warmup": 0.1,
}


def read_set(name, part):
    with open(SHARED / name / f"{part}.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if name == "stsb_en":
        X = [(row["text_a"], row["text_b"]) for row in rows]
        return X, np.array([float(row["score"]) for row in rows])
    X = [row["text"] for row in rows]
    if name == "emobank":
        targets = ("valence", "arousal", "dominance")
        return X, np.array([[float(row[t]) for t in targets] for row in rows])
    if name == "goemotions":
        return X, [row["labels"].split("|") for row in rows]
    return X, np.array([row["label"] for row in rows])


def take(values, index):
    return values[index] if isinstance(values, np.ndarray) else [values[i] for i in index]


def sample(name, seed):
    """Training rows drawn by the seed; the same test rows for every seed."""
    X, y = read_set(name, "train")
    X_test, y_test = read_set(name, "test")
    train = np.random.default_rng(seed).permutation(len(X))[: SETS[name][0]]
    test = np.random.default_rng(0).permutation(len(X_test))[:N_TEST]
    if name == "goemotions":
        binarizer = MultiLabelBinarizer().fit(y + y_test)
        y, y_test = binarizer.transform(y), binarizer.transform(y_test)
    return take(X, train), take(y, train), take(X_test, test), take(y_test, test)


def score(name, truth, predicted):
    """Accuracy, micro F1, Pearson's r, or its mean over the targets."""
    if name == "goemotions":
        return f1_score(truth, predicted, average="micro")
    if name in {"stsb_en", "emobank"}:
        columns = zip(
            np.reshape(truth, (len(truth), -1)).T,
            np.reshape(predicted, (len(truth), -1)).T,
            strict=True,
        )
        return float(np.mean([pearsonr(a, b)[0] for a, b in columns]))
    return accuracy_score(truth, predicted)


def tfidf(name, X, y, X_test, seed):
    texts, test = (
        [" ".join(row) if isinstance(row, tuple) else row for row in rows]
        for rows in (X, X_test)
    )
    chinese = name.endswith("_zh")
    vectorizer = TfidfVectorizer(
        sublinear_tf=True,
        analyzer="char" if chinese else "word",
        ngram_range=(1, 2),
    )
    logistic = LogisticRegression(C=10, max_iter=1000)
    heads = {"stsb_en": Ridge(), "emobank": Ridge()}
    heads["goemotions"] = OneVsRestClassifier(logistic)
    return make_pipeline(vectorizer, heads.get(name, logistic)).fit(texts, y).predict(test)


def skbert(name, X, y, X_test, seed, frozen_layers=0, **settings):
    kind = BertRegressor if name in {"stsb_en", "emobank"} else BertClassifier
    if name == "stsb_en":
        settings = {"pooling": "pooler", **settings}
    model = kind(
        MODEL,
        **{**SETTINGS, **settings},
        max_length=SETS[name][1],
        frozen_layers=frozen_layers,
        random_state=seed,
        device="cpu",
    )
    return model.fit(X, y).predict(X_test)


class Rows(torch.utils.data.Dataset):
    def __init__(self, encodings, labels):
        self.encodings, self.labels = encodings, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        row = {key: values[i] for key, values in self.encodings.items()}
        return {**row, "labels": self.labels[i]}


def trainer(name, X, y, X_test, seed, frozen_layers=0, **settings):
    """The same through AutoModelForSequenceClassification and Trainer."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    settings = {**SETTINGS, **settings}
    tokenizer = AutoTokenizer.from_pretrained(find_model(MODEL))
    set_seed(seed)
    if name in {"stsb_en", "emobank"}:
        mean, std = y.mean(axis=0), y.std(axis=0)
        labels = ((y - mean) / std).astype(np.float32).tolist()
        task = {"problem_type": "regression", "num_labels": 1 if y.ndim == 1 else 3}
    elif name == "goemotions":
        labels = y.astype(np.float32).tolist()
        task = {"problem_type": "multi_label_classification", "num_labels": y.shape[1]}
    else:
        classes, labels = np.unique(y, return_inverse=True)
        labels = labels.tolist()
        task = {"num_labels": len(classes)}
    model = AutoModelForSequenceClassification.from_pretrained(find_model(MODEL), **task)
    if frozen_layers:
        model.bert.embeddings.requires_grad_(False)
        model.bert.encoder.layer[:frozen_layers].requires_grad_(False)

    def encode(rows, labels):
        sides = list(zip(*rows, strict=True)) if isinstance(rows[0], tuple) else [rows]
        encodings = tokenizer(*map(list, sides), truncation=True, max_length=SETS[name][1])
        return Rows(encodings, labels)

    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=settings["max_epochs"],
                learning_rate=settings["learning_rate"],
                per_device_train_batch_size=settings["batch_size"],
                per_device_eval_batch_size=32,
                weight_decay=settings["weight_decay"],
                warmup_steps=settings["warmup"],
                seed=seed,
                use_cpu=True,
                dataloader_pin_memory=False,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=encode(X, labels),
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        run.train()
        logits = run.predict(encode(X_test, [labels[0]] * len(X_test))).predictions
    if name in {"stsb_en", "emobank"}:
        return np.squeeze(logits) * std + mean
    if name == "goemotions":
        return (logits > 0).astype(int)
    return classes[logits.argmax(axis=1)]


METHODS = {"TF-IDF": tfidf, "Trainer": trainer, "skbert": skbert}


def compare_scores(names, n_seeds):
    scores, seconds = {}, {}
    for seed in range(n_seeds):
        for name in names:
            X, y, X_test, y_test = sample(name, seed)
            for method, run in METHODS.items():
                start = time.process_time()
                value = score(name, y_test, run(name, X, y, X_test, seed))
                took = time.process_time() - start
                scores.setdefault((name, method), []).append(value)
                seconds.setdefault((name, method), []).append(took)
                print(f"{name}, {method}, seed {seed}: {value:.3f} in {took:.0f} s")
    print("\n| data set | rows | TF-IDF | Trainer | skbert | x Trainer |")
    print("|---|---|---|---|---|---|")
    for name in names:
        cells = []
        for method in METHODS:
            values = scores[name, method]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
        faster = ratio(seconds[name, "Trainer"], seconds[name, "skbert"])
        print(f"| {name} | {SETS[name][0]} | {' | '.join(cells)} | {faster} |")


def compare_speed(rounds):
    texts = read_texts(None, 128)
    y = np.arange(len(texts)) % 2
    SETS["speed"] = (128, 128)
    print("| frozen layers | x Trainer with the same freezing |\n|---|---|")
    for frozen in (0, 3, 6):
        methods = {
            method: lambda run=run, frozen=frozen: run(
                "speed", texts, y, texts[:2], 0, frozen, max_epochs=2
            )
            for method, run in (("Trainer", trainer), ("skbert", skbert))
        }
        seconds = interleave(methods, rounds, time.process_time)
        print(f"| {frozen} | {ratio(seconds['Trainer'], seconds['skbert'])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["scores", "speed"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "scores":
        compare_scores(options.sets, options.seeds)
    else:
        compare_speed(options.rounds)


if __name__ == "__main__":
    main()
