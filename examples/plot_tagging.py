"""
Entities in text
================

Names, places, organisations and dates, found in sentences that the tagger has not seen:
marked in the text, and as a picture of which tags are taken for which.

    python examples/plot_tagging.py [--rows 90] [--output tagging.png]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import confusion_matrix

from skbert import BertTagger
from skbert.metrics import entity_report

ENTITIES = Path(__file__).parent / "data" / "entities.conll"
COLOURS = {"PER": "#f6c5a0", "LOC": "#b5d8b0", "ORG": "#a9cbe8", "DATE": "#e3c6ea"}
N_ENGLISH = 120
WIDTH, LINE = 66, 1.0


def read():
    """Words and tags of the English sentences."""
    X, y = [], []
    for block in ENTITIES.read_text(encoding="utf-8").strip().split("\n\n"):
        words, tags = zip(*(line.split("\t") for line in block.split("\n")), strict=True)
        X.append(list(words))
        y.append(list(tags))
    return X[:N_ENGLISH], y[:N_ENGLISH]


def mark(axis, sentences, spans):
    """Sentences with a coloured box behind each entity."""
    line = 0.0
    for words, entities in zip(sentences, spans, strict=True):
        colour = {
            at: COLOURS[span["label"]]
            for span in entities
            for at in range(span["start"], span["end"])
        }
        column = 0
        for at, word in enumerate(words):
            if column + len(word) > WIDTH:
                column, line = 0, line + LINE
            box = {"facecolor": colour.get(at, "none"), "edgecolor": "none", "pad": 1.5}
            axis.text(column, line, word, family="monospace", fontsize=9.5, bbox=box)
            column += len(word) + 1
        line += 1.6 * LINE
    for at, (label, colour) in enumerate(COLOURS.items()):
        box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
        axis.text(6 * at, line, label, family="monospace", fontsize=9.5, bbox=box)
    axis.set(xlim=(0, WIDTH), ylim=(line + LINE, -LINE), title="entities found")
    axis.axis("off")


def confuse(axis, truth, predicted):
    """Which kind of word is taken for which, as shares of the true ones."""
    names = [*COLOURS, "O"]
    kinds = [
        [tag.rpartition("-")[2] for tags in rows for tag in tags]
        for rows in (truth, predicted)
    ]
    shares = confusion_matrix(*kinds, labels=names, normalize="true")
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(shares):
        if value:
            shade = "white" if value > 0.6 else "black"
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=shade)
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.set(title="words, by row", xlabel="predicted", ylabel="true")


def main():
    parser = argparse.ArgumentParser(description="Entities in text.")
    parser.add_argument("--rows", type=int, default=90, help="sentences to train on")
    parser.add_argument("--output", type=Path, default=Path("tagging.png"))
    options = parser.parse_args()

    X, y = read()
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[: options.rows], order[options.rows :]
    tagger = BertTagger(head="crf", max_epochs=10, random_state=0)
    tagger.fit([X[i] for i in train], [y[i] for i in train])
    sentences, truth = [X[i] for i in test], [y[i] for i in test]
    predicted = tagger.predict(sentences)
    print(entity_report(truth, predicted))

    figure, (text, table) = plt.subplots(
        1, 2, figsize=(12, 4.4), layout="constrained", width_ratios=[1.6, 1]
    )
    shown = sorted(range(len(sentences)), key=lambda at: -len(sentences[at]))[:6]
    spans = tagger.predict_spans([sentences[at] for at in shown])
    mark(text, [sentences[at] for at in shown], spans)
    confuse(table, truth, predicted)
    figure.savefig(options.output, dpi=120)
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
