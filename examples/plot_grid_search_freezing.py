"""
How many layers to freeze, and how fast to learn
=================================================

A grid search over the two settings that matter most in fine-tuning, as a heat map.

    python examples/plot_grid_search_freezing.py [--rows 160] [--output grid.png]

Candidates that freeze layers compute them once per fit, so they are also the quick ones.
"""

import argparse
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from skbert import BertClassifier

MESSAGES = Path(__file__).parent / "data" / "messages.csv"
GRID = {"frozen_layers": [0, 3, 5, "all"], "learning_rate": [2e-5, 1e-4, 5e-4]}


def read(n_rows):
    with open(MESSAGES, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["language"] == "en"]
    return [row["text"] for row in rows[:n_rows]], [row["label"] for row in rows[:n_rows]]


def draw(scores, seconds, path):
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, values, title in zip(
        axes, (scores, seconds), ("accuracy", "seconds per fit"), strict=True
    ):
        axis.imshow(
            values, cmap="viridis" if values is scores else "magma_r", aspect="auto"
        )
        for (row, column), value in np.ndenumerate(values):
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color="grey")
        axis.set_xticks(range(len(GRID["learning_rate"])), GRID["learning_rate"])
        axis.set_yticks(range(len(GRID["frozen_layers"])), GRID["frozen_layers"])
        axis.set(title=title, xlabel="learning_rate", ylabel="frozen_layers")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description="Grid search over freezing and rate.")
    parser.add_argument("--rows", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("grid_search_freezing.png"))
    options = parser.parse_args()

    texts, labels = read(options.rows)
    search = GridSearchCV(
        BertClassifier(max_epochs=options.epochs, random_state=0),
        GRID,
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
        refit=False,
    ).fit(texts, labels)
    shape = len(GRID["frozen_layers"]), len(GRID["learning_rate"])
    scores = search.cv_results_["mean_test_score"].reshape(shape)
    seconds = search.cv_results_["mean_fit_time"].reshape(shape)
    draw(scores, seconds, options.output)
    print(f"best: {search.best_params_} with accuracy {search.best_score_:.3f}")
    print(f"heat map in {options.output}")


if __name__ == "__main__":
    main()
