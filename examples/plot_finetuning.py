"""
Learning curves of fine-tuning
==============================

Loss and validation score by epoch, from ``history_``, with and without frozen layers.

    python examples/plot_finetuning.py [--rows 200] [--epochs 6] [--output finetuning.png]
"""

import argparse
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from skbert import BertClassifier

MESSAGES = Path(__file__).parent / "data" / "messages.csv"


def read(n_rows):
    with open(MESSAGES, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["language"] == "en"]
    return [row["text"] for row in rows[:n_rows]], [row["label"] for row in rows[:n_rows]]


def main():
    parser = argparse.ArgumentParser(description="Learning curves of fine-tuning.")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--output", type=Path, default=Path("finetuning.png"))
    options = parser.parse_args()

    texts, labels = read(options.rows)
    figure, (loss, score) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for frozen_layers in (0, 4, "all"):
        classifier = BertClassifier(
            frozen_layers=frozen_layers,
            max_epochs=options.epochs,
            early_stopping=True,
            validation_fraction=0.25,
            n_iter_no_change=options.epochs,
            random_state=0,
        ).fit(texts, labels)
        epochs = [record["epoch"] for record in classifier.history_]
        name = f"frozen_layers={frozen_layers!r}"
        loss.plot(epochs, [record["loss"] for record in classifier.history_], label=name)
        score.plot(epochs, [record["validation_score"] for record in classifier.history_])
        seconds = sum(record["seconds"] for record in classifier.history_)
        best = classifier.history_[classifier.best_epoch_ - 1]["validation_score"]
        print(f"{name:22} best epoch {classifier.best_epoch_}, {best:.3f}, {seconds:.1f} s")
    loss.set(title="training loss", xlabel="epoch")
    score.set(title="validation accuracy", xlabel="epoch")
    loss.legend()
    figure.savefig(options.output, dpi=120)
    print(f"curves in {options.output}")


if __name__ == "__main__":
    main()
