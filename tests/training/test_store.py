"""VectorStore: what was put in comes out, and nothing else ever does."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import skbert
from skbert.training.store import BLOCK, VectorStore

RECIPE = {"encoder": "abc", "layers": [1, "mean"], "windows": [512, "truncate", 0]}
ROWS = [
    "good film",
    "",
    "差 电影\x00\u200b",
    ("a", "b"),
    ("ab", ""),
    ["a", "b"],
    ["ab", ""],
    [""],
]


def vectors_of(rows, seed=0):
    """Of one row for texts, of as many as there are words for lists."""
    rng = np.random.default_rng(seed)
    shapes = [(len(row), 4) if isinstance(row, list) else (4,) for row in rows]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture
def store(tmp_path):
    store = VectorStore(tmp_path / "new" / "folder", RECIPE)
    store.add((row, v, False) for row, v in zip(ROWS, vectors_of(ROWS), strict=True))
    return store


def test_round_trip_to_the_bit(store):
    found = {position: vectors for position, vectors, _ in store.find(ROWS)}
    assert sorted(found) == [*range(len(ROWS))]
    for position, expected in enumerate(vectors_of(ROWS)):
        assert found[position].dtype == np.float32 and found[position].flags.writeable
        assert np.array_equal(found[position], expected)


def test_another_object_on_the_same_folder_finds_them(store):
    assert len(list(VectorStore(store.path.parent, dict(RECIPE)).find(ROWS))) == len(ROWS)


def test_positions_are_those_of_the_question(store):
    asked = ["unknown", ROWS[2], "unknown", ROWS[0], ROWS[2]]
    found = {position: vectors for position, vectors, _ in store.find(asked)}
    assert sorted(found) == [1, 3, 4]
    assert np.array_equal(found[1], found[4]) and found[1] is not None
    assert np.array_equal(found[3], vectors_of(ROWS)[0])


@pytest.mark.parametrize(
    "other",
    [
        RECIPE | {"encoder": "abd"},
        RECIPE | {"layers": [1, "sum"]},
        RECIPE | {"windows": [512, "truncate", 1]},
        {},
    ],
)
def test_another_recipe_finds_nothing(store, other):
    assert list(VectorStore(store.path.parent, other).find(ROWS)) == []


def test_the_order_of_a_recipe_does_not_matter(store):
    turned = dict(reversed(RECIPE.items()))
    assert len(list(VectorStore(store.path.parent, turned).find(ROWS))) == len(ROWS)


def test_numbers_of_numpy_are_plain_ones(store):
    turned = RECIPE | {"layers": [np.int64(1), "mean"], "windows": [512, "truncate", False]}
    same = RECIPE | {"layers": [1, "mean"], "windows": [512, "truncate", np.bool_(False)]}
    folder = store.path.parent
    assert VectorStore(folder, turned).key("a") == VectorStore(folder, same).key("a")


def test_keys_tell_texts_pairs_and_words_apart(tmp_path):
    store = VectorStore(tmp_path, RECIPE)
    rows = [
        *ROWS,
        "a b",
        "ab",
        '["a", "b"]',
        "('a', 'b')",
        ["a b"],
        ("a b", ""),
        [],
        ["", ""],
    ]
    assert len({store.key(row) for row in rows}) == len(rows)


def test_a_row_that_is_added_again_is_replaced(store):
    new = np.ones(4, np.float32)
    store.add([(ROWS[0], new, True)])
    ((_, found, cut),) = store.find(ROWS[:1])
    assert cut and np.array_equal(found, new)


@pytest.mark.parametrize("shape", [(0, 4), (4,), (3, 0), (2, 3)])
def test_shapes_survive(tmp_path, shape):
    store = VectorStore(tmp_path, RECIPE)
    store.add([("x", np.ones(shape)[..., ::-1], False)])
    ((_, found, _),) = store.find(["x"])
    assert found.shape == shape and (found == 1).all()


def test_nothing_to_add_and_nothing_to_find(store):
    store.add([])
    assert list(store.find([])) == []


def test_more_rows_than_fit_one_question(tmp_path):
    store = VectorStore(tmp_path, RECIPE)
    rows = [str(n) for n in range(2 * BLOCK + 3)]
    store.add((row, np.full(2, n), False) for n, row in enumerate(rows))
    assert [(p, v[0]) for p, v, _ in store.find(rows)] == [(n, n) for n in range(len(rows))]


# Damage ------------------------------------------------------------------------------


def alter(store, statement, *values):
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(statement, values)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", b"\x00" * 16),
        ("data", b""),
        ("data", None),
        ("data", "text"),
        ("checksum", 1),
        ("checksum", None),
        ("about", '{"shape": [5], "cut": false}'),
        ("about", '{"shape": [2, 2], "cut": false}'),
        ("about", "garbage"),
        ("about", '{"shape": [4], "cut": true}'),
        ("about", None),
    ],
)
def test_an_altered_entry_is_a_miss(store, column, value):
    alter(
        store, f"UPDATE vectors SET {column} = ? WHERE key = ?", value, store.key(ROWS[0])
    )
    assert [position for position, _, _ in store.find(ROWS)] == [*range(1, len(ROWS))]
    store.add([(ROWS[0], np.ones(4), False)])
    assert len(list(store.find(ROWS))) == len(ROWS)


def garbage(path):
    path.write_bytes(b"this is not a database " * 100)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:4000])


def other_table(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE vectors (a TEXT)")


def is_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [garbage, cut_short, other_table, is_a_folder])
def test_a_damaged_file_warns_and_finds_nothing(store, damage):
    damage(store.path)
    with pytest.warns(RuntimeWarning, match="could not be read") as caught:
        assert list(store.find(ROWS)) == []
    assert str(store.path) in str(caught[0].message)
    with pytest.warns(RuntimeWarning, match="could not be written"):
        store.add([("x", np.ones(4), False)])


def test_an_emptied_file_is_begun_anew(store):
    store.path.write_bytes(b"")
    assert list(store.find(ROWS)) == []
    store.add([(ROWS[0], np.ones(4), False)])
    assert len(list(store.find(ROWS))) == 1


def test_a_store_that_cannot_be_written_is_still_read(store, monkeypatch):
    """As in a folder of somebody else; root may write anywhere, so SQLite is asked to."""
    connect = sqlite3.connect

    def read_only(path, **options):
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    assert len(list(store.find(ROWS))) == len(ROWS)
    with pytest.warns(RuntimeWarning, match="could not be written"):
        store.add([("x", np.ones(4), False)])


def test_a_folder_that_cannot_be_made_warns_and_finds_nothing(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(RuntimeWarning, match="could not be"):
        store = VectorStore(tmp_path / "file" / "folder", RECIPE)
        assert list(store.find(ROWS)) == []
        store.add([("x", np.ones(4), False)])


# Processes ---------------------------------------------------------------------------

WRITE = """
import sys
from pathlib import Path
import numpy as np
from skbert.training.store import VectorStore

store = VectorStore(Path(sys.argv[1]), {})
for block in range(20):
    rows = [f"{block} {n}" for n in range(50)]
    store.add((row, np.full(8, block), False) for row in rows)
    assert len(list(store.find(rows))) == 50
"""


def test_processes_that_write_at_once(tmp_path):
    folder = str(Path(skbert.__file__).parent.parent)
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITE, str(tmp_path)],
            env={"PYTHONPATH": folder},
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert (writer.returncode, errors) == (0, "")
    found = list(
        VectorStore(tmp_path, {}).find([f"{b} {n}" for b in range(20) for n in range(50)])
    )
    assert [array[0] for _, array, _ in found] == [n // 50 for n in range(1000)]
