"""check_rows: every container gives the same list, every fault is named."""

from __future__ import annotations

import collections
import enum

import numpy as np
import pytest

from skbert.text.validation import check_rows, column_names, n_columns

TEXTS = ["good film", "", "差 电影\x00\u200b\n"]
PAIRS = [("a b", "c"), ("", "d"), ("e", "电影")]
WORDS = [["good", "film"], [], ["差"]]
EVEN = [["a", "b"], ["c", "d"], ["e", "f"]]
INDEX = [2, 0, 1]  # labels that would fetch other rows


class OnlyArray:
    """What scikit-learn calls _NotAnArray."""

    def __init__(self, data):
        self.data = np.array(data, dtype=object)

    def __array__(self, dtype=None, copy=None):
        return self.data


class Label(str, enum.Enum):
    good = "good film"


class Text(str):
    def __str__(self):
        return "something else"


def objects(rows):
    array = np.empty(len(rows), dtype=object)
    for position, row in enumerate(rows):
        array[position] = row
    return array


def check(X, *accept):
    return check_rows(X, caller="Est", accept=accept or ("texts", "pairs", "words"))


def lib(name):
    return pytest.importorskip({"pd": "pandas", "pl": "polars", "pa": "pyarrow"}[name])


def memmap(tmp_path, rows):
    array = np.array(rows)
    target = np.memmap(tmp_path / "X", dtype=array.dtype, mode="w+", shape=array.shape)
    target[:] = array
    return target


def string_dtype(rows):
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy 1 has no StringDType")
    return np.array(rows, dtype=np.dtypes.StringDType())


def arrow_dtype(rows, type_name):
    pa, pd = lib("pa"), lib("pd")
    kind = {"str": pa.string(), "list": pa.list_(pa.string())}[type_name]
    return pd.Series(rows, dtype=pd.ArrowDtype(kind), index=INDEX)


def pd_series(dtype):
    def make(rows):
        return lib("pd").Series(rows, dtype=dtype, index=INDEX)

    return make


TEXT_CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "UserList": collections.UserList,
    "list of np.str_": lambda t: [np.str_(x) for x in t],
    "one np.str_": lambda t: [np.str_(t[0]), *t[1:]],
    "list of subclass": lambda t: [Text(x) for x in t],
    "<U": np.array,
    "object": objects,
    "StringDType": string_dtype,
    "masked": lambda t: np.ma.array(t, mask=False),
    "column": lambda t: np.array(t)[:, None],
    "object column": lambda t: objects(t)[:, None],
    "fortran": lambda t: np.asfortranarray(np.array(t)[:, None]),
    "matrix": lambda t: np.array(t)[:, None].view(np.matrix),
    "OnlyArray": OnlyArray,
    "OnlyArray column": lambda t: OnlyArray(np.array(t)[:, None]),
    "list of 0-d arrays": lambda t: [np.array(x) for x in t],
    "Series": lambda t: lib("pd").Series(t, index=INDEX),
    "Series object": pd_series("object"),
    "Series string": pd_series("string"),
    "Series string[python]": pd_series("string[python]"),
    "Series ArrowDtype": lambda t: arrow_dtype(t, "str"),
    "Series category": pd_series("category"),
    "Series duplicate index": lambda t: lib("pd").Series(t, index=[0, 0, 0]),
    "pandas array": lambda t: lib("pd").Series(t).array,
    "Categorical": lambda t: lib("pd").Categorical(t),
    "Index": lambda t: lib("pd").Index(t),
    "pandas frame": lambda t: lib("pd").DataFrame({"t": t}, index=INDEX),
    "polars": lambda t: lib("pl").Series(t),
    "polars category": lambda t: lib("pl").Series(t, dtype=lib("pl").Categorical),
    "polars frame": lambda t: lib("pl").DataFrame({"t": t}),
    "arrow": lambda t: lib("pa").array(t),
    "arrow chunked": lambda t: lib("pa").chunked_array([t[:1], t[1:]]),
    "arrow dictionary": lambda t: lib("pa").array(t).dictionary_encode(),
    "arrow table": lambda t: lib("pa").table({"t": t}),
    "arrow batch": lambda t: lib("pa").record_batch({"t": lib("pa").array(t)}),
    "list of arrow scalars": lambda t: list(lib("pa").array(t)),
}
PAIR_CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "np.str_": lambda p: [(np.str_(a), Text(b)) for a, b in p],
    "<U": np.array,
    "object 2-D": lambda p: np.array(p, dtype=object),
    "StringDType": string_dtype,
    "object 1-D": objects,
    "object column": lambda p: objects(p)[:, None],
    "OnlyArray": OnlyArray,
    "Series": lambda p: lib("pd").Series(p, index=INDEX),
    "MultiIndex": lambda p: lib("pd").MultiIndex.from_tuples(p),
    "pandas frame": lambda p: lib("pd").DataFrame(p, index=INDEX),
    "same names": lambda p: lib("pd").DataFrame(p, columns=["t", "t"]),
    "polars frame": lambda p: lib("pl").DataFrame(p, schema=["a", "b"], orient="row"),
    "arrow table": lambda p: lib("pa").table(
        [[a for a, _ in p], [b for _, b in p]], names=["a", "b"]
    ),
}
WORD_CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "np.str_": lambda w: [[Text(x) for x in row] for row in w],
    "arrays": lambda w: [np.array(row) for row in w],
    "object arrays": lambda w: [objects(row) for row in w],
    "list and array": lambda w: [*w[:-1], np.array(w[-1])],
    "object 1-D": objects,
    "object of arrays": lambda w: objects([np.array(row) for row in w]),
    "object column": lambda w: objects(w)[:, None],
    "Series": lambda w: lib("pd").Series(w, index=INDEX),
    "Series ArrowDtype": lambda w: arrow_dtype(w, "list"),
    "list of Series": lambda w: [lib("pd").Series(row, dtype=object) for row in w],
    "pandas frame": lambda w: lib("pd").DataFrame({"w": w}, index=INDEX),
    "polars": lambda w: lib("pl").Series(w),
    "list of polars": lambda w: list(lib("pl").Series(w)),
    "polars frame": lambda w: lib("pl").DataFrame({"w": w}),
    "arrow": lambda w: lib("pa").array(w),
    "list of arrow scalars": lambda w: list(lib("pa").array(w)),
    "arrow table": lambda w: lib("pa").table({"w": w}),
}


def same(got, wanted):
    assert type(got) is list and got == wanted
    for row, other in zip(got, wanted, strict=True):
        assert type(row) is type(other)
        assert isinstance(row, str) or all(type(item) is str for item in row)


@pytest.mark.parametrize("make", TEXT_CONTAINERS.values(), ids=TEXT_CONTAINERS)
def test_texts(make):
    same(check(make(TEXTS)), TEXTS)
    same(check(make(TEXTS), "texts"), TEXTS)


@pytest.mark.parametrize("make", PAIR_CONTAINERS.values(), ids=PAIR_CONTAINERS)
def test_pairs(make):
    same(check(make(PAIRS)), PAIRS)
    same(check(make(PAIRS), "texts", "pairs"), PAIRS)


@pytest.mark.parametrize("make", WORD_CONTAINERS.values(), ids=WORD_CONTAINERS)
@pytest.mark.parametrize("words", [WORDS, EVEN], ids=["ragged", "even"])
def test_words(make, words):
    same(check(make(words)), words)
    same(check(make(words), "words"), words)


def test_memmap(tmp_path):
    same(check(memmap(tmp_path, TEXTS)), TEXTS)


@pytest.mark.parametrize("name", ["Column", "Dataset"])
def test_datasets(name):
    data = pytest.importorskip("datasets").Dataset.from_dict({"t": TEXTS, "w": WORDS})
    if name == "Column":
        same(check(data["t"]), TEXTS)
        same(check(data["w"]), WORDS)
    else:
        with pytest.raises(ValueError, match="dict at position 0"):
            check(data)


def test_tuples_and_wide_arrays_are_words_where_pairs_are_not_accepted():
    for rows in (list(map(tuple, EVEN)), np.array(EVEN), np.array(EVEN, dtype=object)):
        same(check(rows, "words"), EVEN)
        same(check(rows, "texts", "words"), EVEN)
    same(check([tuple(row) for row in WORDS], "words"), WORDS)
    same(check(np.array([["a", "b", "c"]]), "words"), [["a", "b", "c"]])


@pytest.mark.parametrize("row", ["a\ud800b", ("\udfff", "a\udc00b"), ["x", "\ud83d\ude00"]])
def test_surrogates_are_replaced_in_place(row):
    got = check([row])[0]
    assert "".join(got).encode().decode() == "".join(got)
    assert [len(x) for x in got] == [len(x) for x in row]
    assert check([Text("\ud800é")]) == ["\ufffdé"]


def test_input_is_left_alone():
    texts, words = ["\ud800"], [["\ud800"]]
    assert check(texts) is not texts and check(words)[0] is not words[0]
    assert texts == ["\ud800"] and words == [["\ud800"]]
    array = np.array(TEXTS)
    array.flags.writeable = False
    same(check(array), TEXTS)
    same(check([Label.good]), ["good film"])


CONTAINER_FAULTS = {
    "str": (lambda: "text", ValueError, "Got a single string: wrap it in a list"),
    "np.str_": (lambda: np.str_("text"), ValueError, "single string"),
    "0-d": (lambda: np.array("text"), ValueError, r"0-d array\): wrap it"),
    "bytes": (lambda: b"text", TypeError, "Got bytes. Decode it"),
    "bytearray": (lambda: bytearray(b"text"), TypeError, "Got bytearray"),
    "dict": (lambda: {"a": "b"}, TypeError, r"list\(X.values\(\)\)"),
    "set": (lambda: {"a"}, TypeError, "no order"),
    "frozenset": (lambda: frozenset("a"), TypeError, "no order"),
    "generator": (lambda: (x for x in "ab"), TypeError, r"only once. Use list\(X\)"),
    "map": (lambda: map(str, "a"), TypeError, "only once"),
    "None": (lambda: None, TypeError, "type NoneType. Use a list"),
    "int": (lambda: 3, TypeError, "type int"),
    "class": (lambda: list, TypeError, "type type"),
    "empty list": (list, ValueError, "Got 0 rows, while at least 1 is required"),
    "empty array": (lambda: np.empty((0, 3)), ValueError, "Got 0 rows"),
    "empty frame": (lambda: lib("pd").DataFrame({"a": []}), ValueError, "Got 0 rows"),
    "empty polars": (lambda: lib("pl").DataFrame(), ValueError, "Got 0 rows"),
    "empty Series": (lambda: lib("pd").Series([], dtype=str), ValueError, "Got 0 rows"),
    "floats": (lambda: np.ones((5, 2)), ValueError, "array of dtype float64"),
    "ints": (lambda: np.arange(5), ValueError, "array of dtype int"),
    "bools": (lambda: np.array([True]), ValueError, "array of dtype bool"),
    "dates": (lambda: np.array(["2020"], "M8[D]"), ValueError, "datetime64"),
    "S": (lambda: np.array([b"a"]), ValueError, r"numpy.char.decode\(X"),
    "records": (lambda: np.array([("a",)], [("a", "U1")]), ValueError, "dtype"),
    "complex": (lambda: np.ones((5, 1), complex), ValueError, "Complex data not supp"),
    "complex list": (lambda: [1j, 2j], ValueError, "Complex data not supported"),
    "no column": (
        lambda: np.empty((12, 0), dtype=object),
        ValueError,
        r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is required",
    ),
    "no column, pandas": (
        lambda: lib("pd").DataFrame(index=range(12)),
        ValueError,
        r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is required",
    ),
    "three columns": (
        lambda: np.array([["a", "b", "c"]]),
        ValueError,
        r"shape \(1, 3\). Give a column per text: 1 \(texts\) or 2 \(pairs\)",
    ),
    "three columns, pandas": (
        lambda: lib("pd").DataFrame([list("abc")] * 2),
        ValueError,
        r"shape \(2, 3\). Give a column per text",
    ),
    "3-D": (lambda: np.full((2, 3, 4), "a"), ValueError, r"shape \(2, 3, 4\)"),
    "3-D, one": (lambda: np.full((2, 1, 1), "a"), ValueError, r"shape \(2, 1, 1\)"),
    "lazy": (lambda: lib("pl").LazyFrame({"a": ["b"]}), TypeError, r"X.collect\(\)"),
}


@pytest.mark.parametrize(
    "make, error, match", CONTAINER_FAULTS.values(), ids=CONTAINER_FAULTS
)
def test_container_faults(make, error, match):
    with pytest.raises(error, match=match) as caught:
        check(make())
    assert str(caught.value).startswith("X of Est must hold texts (str)")


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array", "coo_array", "dia_matrix"])
def test_sparse(kind):
    sparse = getattr(pytest.importorskip("scipy.sparse"), kind)(np.eye(3))
    with pytest.raises(TypeError, match="sparse"):
        check(sparse)


NAN = float("nan")
ELEMENT_FAULTS = {
    "None": (lambda: ["a", None, "b"], "Got None at position 1; 1 of 3 rows"),
    "fill": (lambda: [None, "a"], r'Drop these rows or fill them with ""'),
    "nan": (lambda: ["a", NAN], "Got nan at position 1"),
    "float32 nan": (lambda: ["a", np.float32("nan")], "Got nan at position 1. *"),
    "NA": (lambda: ["a", lib("pd").NA], "Got <NA> at position 1.*fill"),
    "NaT": (lambda: ["a", lib("pd").NaT], "Got NaT at position 1.*fill"),
    "masked": (lambda: np.ma.array(["a", "b"], mask=[0, 1]), "None at position 1"),
    "masked item": (lambda: ["a", np.ma.masked], "None at position 1"),
    "all None": (lambda: [None] * 9, "None at position 4; 9 of 9 rows in all"),
    "Series": (
        lambda: lib("pd").Series(["a", None], [1, 0]),
        "(nan|None) at position 1",
    ),
    "str dtype": (
        lambda: lib("pd").Series(["a", NAN], dtype="str"),
        "nan at position 1",
    ),
    "string": (
        lambda: lib("pd").Series(["a", None], dtype="string"),
        "<NA> at pos.* 1",
    ),
    "category": (
        lambda: lib("pd").Series(["a", None], dtype="category"),
        "nan at position 1",
    ),
    "polars null": (lambda: lib("pl").Series([None, "a"]), "None at position 0"),
    "arrow null": (lambda: lib("pa").array(["a", None]), "None at position 1"),
    "arrow scalar": (lambda: list(lib("pa").array(["a", None])), "None at position 1"),
    "pair column": (
        lambda: lib("pl").DataFrame({"a": ["x", "y"], "b": ["z", None]}),
        "None at position 1, text 1",
    ),
    "pair": (lambda: [("a", "b"), (NAN, "c")], "nan at position 1, text 0"),
    "word": (lambda: [["a"], ["b", "c", None]], "None at position 1, word 2"),
    "polars word": (lambda: lib("pl").Series([["a", None]]), "None at pos.* 0, word 1"),
    "bytes": (lambda: ["a", b"b"], "Got bytes at position 1.*Decode"),
    "np.bytes_": (lambda: ["a", np.bytes_(b"b")], "Got bytes at position 1.*Decode"),
    "bytes word": (lambda: [[b"a"]], "Got bytes at position 0, word 0"),
    "arrow binary": (lambda: lib("pa").array([b"a"]), "Got bytes at position 0"),
    "int": (lambda: ["a", 3], r"Got int at position 1.*str\(value\)"),
    "np.int64": (lambda: ["a", np.int64(3)], "Got int at position 1"),
    "bool": (lambda: [True, "a"], "Got bool at position 0"),
    "range": (lambda: range(9), "int at position 4; 9 of 9 rows in all"),
    "pandas ints": (lambda: lib("pd").Series([1, 2]), "int at position 1; 2 of 2"),
    "int words": (lambda: [[1, 2], [3, 4]], "int at position 1, word 0; 2 of 2"),
    "float rows": (lambda: list(np.ones((2, 2))), "float at position 0, word 0"),
    "dict": (lambda: [{"a": "b"}], "Got dict at position 0"),
    "set": (lambda: [{"a"}], "Got set at position 0"),
    "nested": (lambda: [[["a"]]], "Got list at position 0, word 0"),
    "nested array": (lambda: [np.array([["a"]])], "list at position 0, word 0"),
    "lists in two columns": (
        lambda: lib("pl").DataFrame({"a": [["x"]], "b": [["y"]]}),
        "Got list at position 0, text 0",
    ),
    "recursive": (lambda: (lambda row: row.append(row) or [row])([]), "list at pos"),
    "triple": (
        lambda: [("a", "b"), ("a", "b", "c")],
        r"a tuple of length 3 at position 1.*\[list\(row\) for row in X\]",
    ),
    "single": (lambda: [("a",)], "a tuple of length 1 at position 0"),
    "empty tuple": (lambda: [()], "a tuple of length 0 at position 0"),
    "several": (
        lambda: [None, "a", b"b", 3],
        "None at position 0, bytes at position 2, int at position 3; 3 of 4 rows",
    ),
}


@pytest.mark.parametrize("make, match", ELEMENT_FAULTS.values(), ids=ELEMENT_FAULTS)
def test_element_faults(make, match):
    with pytest.raises(ValueError, match=match) as caught:
        check(make())
    assert str(caught.value).startswith("X of Est must hold texts (str)")


@pytest.mark.parametrize(
    "rows, match",
    [
        (
            ["a", "b", ["c"]],
            r"a text \(str\) at position 0 but a list of words \(list\)",
        ),
        (["a", ("b", "c")], r"but a pair \(tuple\) at position 1"),
        ([["a"], ("b", "c"), "d"], r"but a pair \(tuple\) at position 1"),
        (
            [("a", "b"), np.array(["a", "b"])],
            r"list of words \(ndarray\) at position 1",
        ),
    ],
)
def test_mixed_kinds(rows, match):
    for X in (rows, tuple(rows), objects(rows)):
        with pytest.raises(ValueError, match=match):
            check(X)


@pytest.mark.parametrize(
    "rows, accept, match",
    [
        (
            TEXTS,
            ["words"],
            r"lists of words \(lists of str\). Got a text \(str\) at position 0. Split "
            r"first, for example \[text.split\(\) for text in X\] or, for Chinese, "
            r"\[list\(text\) for text in X\]",
        ),
        (np.array([["a"], ["b"]]), ["words"], "Split first"),
        (TEXTS, ["pairs"], r"list\(zip\(first, second\)\)"),
        (EVEN, ["texts"], r'\[" ".join\(words\) for words in X\]'),
        (EVEN, ["texts", "pairs"], "list of words.*Join first.* A pair is a tuple"),
        (PAIRS, ["texts"], r"list of words \(tuple\) at position 0. Join first"),
    ],
)
def test_kinds_not_accepted(rows, accept, match):
    with pytest.raises(ValueError, match=match):
        check(rows, *accept)


def test_wide_frames_are_never_words():
    frame = lib("pd").DataFrame({"a": ["x"], "b": ["y"]})
    with pytest.raises(ValueError, match=r"shape \(1, 2\). Give 1 column of texts"):
        check(frame, "texts", "words")
    with pytest.raises(ValueError, match="1 column whose cells are lists of words"):
        check(frame, "words")
    with pytest.raises(ValueError, match="Give 1 column of texts"):
        check(np.array(EVEN), "texts")


def test_columns():
    pd, pl, pa = lib("pd"), lib("pl"), lib("pa")
    data = {"a": ["x"], "b": ["y"]}
    batch = pa.record_batch({k: pa.array(v) for k, v in data.items()})
    for frame in (pd.DataFrame(data), pl.DataFrame(data), pa.table(data), batch):
        assert column_names(frame) == ["a", "b"]
        assert n_columns(frame) == 2
    for frame in (pd.DataFrame([["x", "y"]]), pd.DataFrame([[1, 2]], columns=["a", 3])):
        assert column_names(frame) is None
        assert n_columns(frame) == 2
    assert column_names(pd.DataFrame(index=[1])) is None
    assert n_columns(pd.DataFrame(index=[1])) == 0
    for flat in (TEXTS, EVEN, "text", None, pd.Series(TEXTS), pl.Series(TEXTS)):
        assert column_names(flat) is None
        assert n_columns(flat) is None
    for array in (np.array(EVEN), OnlyArray(EVEN)):
        assert column_names(array) is None
        assert n_columns(array) == 2
    assert n_columns(np.array(TEXTS)) is None
