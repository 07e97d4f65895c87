"""BertTagger and BiLSTMTagger against the Hugging Face Trainer and a plain model.

    python tests/benchmarks/tagging.py scores [--sets NAME ...] [--seeds 0 1 2]
    python tests/benchmarks/tagging.py few [--sets NAME ...] [--seeds 0 1 2]

``scores`` trains on the same sentences with every method: a linear model on word shapes and
neighbours (no decoding), the Trainer's token classification, BertTagger with softmax and
with a CRF, and a BiLSTM-CRF on word vectors of the frozen encoder. The Trainer and
BertTagger have the same encoder, epochs, rates of the encoder, batches and seeds; the
Trainer has one rate for all. ``few`` compares full fine-tuning and the frozen encoder on 50
and 200 sentences, with each estimator's own defaults.
Entity F1, or word accuracy for parts of speech; CPU time of one thread.
"""

import argparse
import os
import statistics
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from encode import SHARED
from interleave import ratio
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skbert import BertTagger, BertVectorizer, BiLSTMTagger
from skbert.encoders.loading import find_model
from skbert.metrics import entity_f1_score, word_accuracy_score
from skbert.text.tags import detect_scheme

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SETS = ["snips_slots", "ncbi_disease", "wnut17", "uner_zh", "ud_english_ewt", "ud_german"]
N_TRAIN, N_TEST = 150, 200
SETTINGS = {"max_epochs": 5, "learning_rate": 1e-4, "batch_size": 16}


def read_set(name, part):
    """Words and tags; of .conllu files the parts of speech."""
    path = next((SHARED / name).glob(f"{part}.conll*"))
    word, tag = (1, 3) if path.suffix == ".conllu" else (0, 1)
    X, y = [], []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        rows = [line.split("\t") for line in block.split("\n") if line and line[0] != "#"]
        if path.suffix == ".conllu":
            rows = [row for row in rows if row[0].isdigit()]
        if rows:
            X.append([row[word] for row in rows])
            y.append([row[tag] for row in rows])
    return X, y


def sample(name, seed, n_train):
    """Training sentences drawn by the seed; the same test sentences for every seed."""
    X, y = read_set(name, "train")
    X_test, y_test = read_set(name, "test")
    train = np.random.default_rng(seed).permutation(len(X))[:n_train]
    test = np.random.default_rng(0).permutation(len(X_test))[:N_TEST]
    return (
        [X[i] for i in train],
        [y[i] for i in train],
        [X_test[i] for i in test],
        [y_test[i] for i in test],
    )


def score(truth, predicted):
    if detect_scheme(truth) is None:
        return word_accuracy_score(truth, predicted)
    return entity_f1_score(truth, predicted)


def features(words, at):
    """The word, its shape and its neighbours."""
    word = words[at]
    shape = "".join("A" if c.isupper() else "a" if c.isalpha() else c for c in word)
    found = {"word": word.lower(), "shape": shape, "end": word[-3:], "start": word[:3]}
    for step in (-2, -1, 1, 2):
        inside = 0 <= at + step < len(words)
        found[f"word {step}"] = words[at + step].lower() if inside else "<edge>"
    return found


def plain(X, y, X_test, seed):
    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=300))
    rows = [features(words, at) for words in X for at in range(len(words))]
    model.fit(rows, [tag for tags in y for tag in tags])
    return [
        model.predict([features(words, at) for at in range(len(words))]).tolist()
        for words in X_test
    ]


def bert(X, y, X_test, seed, **settings):
    tagger = BertTagger(MODEL, random_state=seed, device="cpu", **settings)
    return tagger.fit(X, y).predict(X_test)


def frozen(X, y, X_test, seed):
    vectorizer = BertVectorizer(MODEL, output="words", device="cpu")
    tagger = BiLSTMTagger(random_state=seed, device="cpu")
    return make_pipeline(vectorizer, tagger).fit(X, y).predict(X_test)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def trainer(X, y, X_test, seed):
    """As in the token classification guide: labels on the first piece of each word."""
    from transformers import (
        AutoModelForTokenClassification,
        AutoTokenizer,
        DataCollatorForTokenClassification,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    tokenizer = AutoTokenizer.from_pretrained(find_model(MODEL))
    tags = sorted({tag for row in y for tag in row})
    number = {tag: i for i, tag in enumerate(tags)}
    set_seed(seed)
    model = AutoModelForTokenClassification.from_pretrained(
        find_model(MODEL), num_labels=len(tags)
    )

    def encode(X, y):
        rows = []
        for words, row in zip(X, y, strict=True):
            pieces = tokenizer(
                words, is_split_into_words=True, truncation=True, max_length=256
            )
            ids = pieces.word_ids()
            first = [i != before for i, before in zip(ids, [None, *ids[:-1]], strict=True)]
            pieces["labels"] = [
                number[row[i]] if i is not None and new else -100
                for i, new in zip(ids, first, strict=True)
            ]
            rows.append(dict(pieces))
        return Rows(rows)

    test = encode(X_test, [[tags[0]] * len(words) for words in X_test])
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=SETTINGS["max_epochs"],
                learning_rate=SETTINGS["learning_rate"],
                per_device_train_batch_size=SETTINGS["batch_size"],
                per_device_eval_batch_size=32,
                weight_decay=0.01,
                warmup_steps=0.1,
                seed=seed,
                use_cpu=True,
                dataloader_pin_memory=False,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=encode(X, y),
            data_collator=DataCollatorForTokenClassification(tokenizer),
        )
        run.train()
        logits = run.predict(test).predictions
    out = []
    for words, row, scores in zip(X_test, test.rows, logits, strict=True):
        labelled = np.flatnonzero(np.array(row["labels"]) != -100)
        best = [tags[i] for i in scores[labelled].argmax(axis=1)]
        # Words past the limit or without pieces have no prediction here.
        out.append([*best, *["O"] * (len(words) - len(best))])
    return out


METHODS = {
    "plain": plain,
    "Trainer": trainer,
    "BertTagger": lambda *args: bert(*args, **SETTINGS),
    "BertTagger, CRF": lambda *args: bert(*args, head="crf", **SETTINGS),
    "frozen, BiLSTM-CRF": frozen,
}
FEW = {"BertTagger": bert, "frozen, BiLSTM-CRF": frozen}


def compare(names, seeds, methods, n_train):
    scores, seconds = {}, {}
    for seed in seeds:
        for name in names:
            X, y, X_test, y_test = sample(name, seed, n_train)
            for method, run in methods.items():
                start = time.process_time()
                value = score(y_test, run(X, y, X_test, seed))
                took = time.process_time() - start
                scores.setdefault((name, method), []).append(value)
                seconds.setdefault((name, method), []).append(took)
                print(
                    f"{name}, {n_train} sentences, {method}, seed {seed}: {value:.3f} in "
                    f"{took:.0f} s",
                    flush=True,
                )
    print(f"\n| data set | sentences | {' | '.join(methods)} | x Trainer |")
    print("|---|---|" + "---|" * len(methods) + "---|")
    for name in names:
        cells = []
        for method in methods:
            values = scores[name, method]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
        faster = "-"
        if "Trainer" in methods:
            faster = ratio(seconds[name, "Trainer"], seconds[name, "BertTagger"])
        print(f"| {name} | {n_train} | {' | '.join(cells)} | {faster} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["scores", "few"])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "scores":
        compare(options.sets, options.seeds, METHODS, N_TRAIN)
    else:
        for n_train in (50, 200):
            compare(options.sets, options.seeds, FEW, n_train)


if __name__ == "__main__":
    main()
