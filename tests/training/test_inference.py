"""run_rows and map_side_by_side: every row once, in its place, whatever the workers."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skbert.encoders.loading import load_encoder
from skbert.text.batching import pieces_per_batch
from skbert.text.encoding import Encoding
from skbert.text.report import ReadingReport
from skbert.training.device import map_side_by_side
from skbert.training.inference import ReadingOptions, run_rows

CPU = torch.device("cpu")
ROWS = [f"{'word ' * (n % 7)}{n % 23}" for n in range(60)] + ["", ""]


class Counting:
    """An encoder of one piece per character that notes what it is asked to read.

    A text of more than `max_length` pieces is cut into windows.
    """

    pad_id = 0
    batch_factor = 1

    def __init__(self):
        self.read = []

    def encode(self, rows, *, max_length, long_text, stride, parallel):
        self.read += rows
        encodings = []
        for sample, row in enumerate(rows):
            ids = np.frombuffer(row.encode(), np.uint8).astype(np.int32)
            for start in range(0, max(len(ids), 1), max_length):
                part = ids[start : start + max_length]
                zeros = np.zeros(len(part), np.int32)
                encodings.append(Encoding(part, zeros, zeros, zeros == 0, sample))
        cut = [n for n, row in enumerate(rows) if len(row) > max_length]
        return encodings, ReadingReport(cut=cut, n_pieces=sum(map(len, rows)))


def decode(batch):
    """The text of every window, from the batch alone."""
    return [
        bytes(ids[mask].astype(np.uint8)).decode()
        for ids, mask in zip(batch.input_ids, batch.mask, strict=True)
    ]


def options(batch_size="auto", max_length=1000):
    return ReadingOptions(max_length, "windows", 0, batch_size)


def run(rows, compute=decode, encoder=None, progress=lambda n: None, report=None, **kwargs):
    return run_rows(
        rows,
        encoder or Counting(),
        compute,
        options(**kwargs),
        CPU,
        report=report or ReadingReport(),
        progress=progress,
    )


def in_place(rows, **kwargs):
    out = [None] * len(rows)
    for positions, windows in run(rows, **kwargs):
        for position in positions:
            assert out[position] is None
            out[position] = "".join(windows)
    return out


@pytest.fixture(params=[1, 2], ids=["alone", "side by side"])
def workers(request):
    """Runs a test with one torch thread, and with two side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


# Rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_results_stand_where_their_rows_do(workers, seed, batch_size):
    rows = np.random.default_rng(seed).permutation(ROWS).tolist()
    assert in_place(rows, batch_size=batch_size) == rows


def test_windows_of_a_row_come_in_order(workers):
    rows = ["abcdefghij" * 3, "x", "", "klmnopqrst" * 2]
    assert in_place(rows, max_length=4, batch_size=2) == rows


def test_rows_over_several_chunks(workers, monkeypatch):
    monkeypatch.setattr("skbert.text.batching.CHUNK_ROWS", 7)
    assert in_place(ROWS, batch_size=2) == ROWS


def test_every_distinct_row_is_read_and_computed_once(workers):
    encoder, computed = Counting(), []

    def compute(batch):
        computed.extend(decode(batch))
        return decode(batch)

    list(run(ROWS * 3, compute, encoder, batch_size=2))
    assert sorted(encoder.read) == sorted(set(ROWS))
    assert sorted(computed) == sorted(set(ROWS) - {""})


def test_rows_without_pieces_are_never_computed(workers):
    results = list(run(["", ""], compute=lambda batch: pytest.fail("computed")))
    assert results == [([0, 1], [])]


def test_the_report_names_positions_of_the_input(workers):
    report = ReadingReport()
    list(run(["ab", "abcdef", "x", "abcdef"], report=report, max_length=4))
    assert sorted(report.cut) == [1, 3]


def test_progress_counts_every_row(workers, monkeypatch):
    monkeypatch.setattr("skbert.text.batching.CHUNK_ROWS", 7)
    counts = []
    rows = [row for row in ROWS if row] + ["long enough for windows"] * 3
    list(run(rows, progress=counts.append, batch_size=2, max_length=5))
    assert sum(counts) == len(rows)


def test_compute_runs_without_gradients(workers):
    modes = []

    def compute(batch):
        modes.append(torch.is_inference_mode_enabled())
        return decode(batch)

    list(run(ROWS, compute, batch_size=2))
    assert modes and all(modes)


# Side by side ------------------------------------------------------------------------


def test_side_by_side_is_one_worker_to_the_bit(bert_folder):
    encoder = load_encoder(bert_folder)

    def compute(batch):
        return list(encoder.forward(batch, [encoder.n_layers]).layers[0][:, 0].numpy())

    def vectors(n_threads):
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            out = np.zeros((len(ROWS), 32), np.float32)
            for positions, windows in run(
                ROWS, compute, encoder, batch_size=2, max_length=64
            ):
                out[positions] = windows[0]
            return out
        finally:
            torch.set_num_threads(before)

    alone = vectors(1)
    assert np.array_equal(vectors(2), alone)
    assert np.array_equal(vectors(3), alone)


def test_workers_have_one_torch_thread_each():
    names = set()

    def work(item):
        time.sleep(0.01)
        names.add(threading.get_ident())
        return torch.get_num_threads()

    assert list(map_side_by_side(work, range(12), 3)) == [1] * 12
    assert len(names) == 3 and threading.get_ident() not in names


def test_threads_that_start_meanwhile_are_not_bound():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    found = []
    with closing(map_side_by_side(lambda item: item, range(12), 2)) as results:
        next(results)
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    torch.set_num_threads(before)
    assert found == [3]


def test_one_worker_is_the_caller():
    assert set(map_side_by_side(lambda _: threading.get_ident(), range(3), 1)) == {
        threading.get_ident()
    }


@pytest.mark.parametrize("n_items", [0, 1, 100])
def test_order_is_kept(n_items):
    def work(item):
        time.sleep(0.001 * (item % 3))
        return item

    assert list(map_side_by_side(work, range(n_items), 4)) == list(range(n_items))


def test_only_so_many_items_are_taken_ahead():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    results = map_side_by_side(lambda item: item, items(), 2)
    next(results)
    assert len(taken) <= 6
    results.close()


# Exits -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Threads and their number are after every test as before."""
    before = torch.get_num_threads(), threading.active_count()
    yield
    assert (torch.get_num_threads(), threading.active_count()) == before
    # Threads that start later are not bound to the workers' share either.
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [before[0]]


class Fault(Exception):
    pass


def failing_after(n_calls, function=lambda value: value):
    count = iter(range(10**6))

    def call(value):
        if next(count) >= n_calls:
            raise Fault
        return function(value)

    return call


@pytest.mark.parametrize("n_calls", [0, 5, 20])
def test_an_error_in_compute_comes_through(workers, n_calls):
    with pytest.raises(Fault):
        list(run(ROWS, failing_after(n_calls, decode), batch_size=1))
    assert torch.get_num_threads() == workers
    assert in_place(ROWS, batch_size=1) == ROWS


@pytest.mark.parametrize("n_calls", [0, 5])
def test_after_an_error_in_the_progress_others_may_run(workers, n_calls):
    """Even while the error, and with it every frame, is still held."""
    with pytest.raises(Fault) as caught:
        list(run(ROWS, progress=failing_after(n_calls), batch_size=1))
    assert torch.get_num_threads() == workers
    assert in_place(ROWS, batch_size=1) == ROWS
    assert caught.value.__traceback__ is not None


def test_an_error_in_the_tokenizer_comes_through(workers, monkeypatch):
    monkeypatch.setattr("skbert.text.batching.CHUNK_ROWS", 7)
    encoder = Counting()
    encoder.encode = failing_after(2, lambda rows: Counting.encode(encoder, **rows))
    wrapped = SimpleNamespace(
        pad_id=0, encode=lambda rows, **kwargs: encoder.encode({"rows": rows, **kwargs})
    )
    with pytest.raises(Fault):
        list(run(ROWS, encoder=wrapped, batch_size=1))
    assert torch.get_num_threads() == workers


@pytest.mark.parametrize("n_results", [0, 1, 4])
def test_a_caller_that_stops_early(workers, n_results):
    results = run(ROWS, batch_size=1)
    for _ in range(n_results):
        next(results)
    results.close()
    assert torch.get_num_threads() == workers
    assert in_place(ROWS, batch_size=1) == ROWS


def test_a_wrong_number_of_results_is_no_silent_shift(workers):
    with pytest.raises(ValueError):
        list(run(ROWS, compute=lambda batch: decode(batch)[1:], batch_size=2))


def test_two_threads_at_once():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(in_place(ROWS, batch_size=1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    torch.set_num_threads(before)
    assert outcomes == [ROWS] * 4


def test_batches_on_a_cpu_hold_so_many_pieces():
    sizes = []

    def compute(batch):
        sizes.append(batch.mask.size)
        return decode(batch)

    list(run([f"{n:0100}" for n in range(21)], compute))
    assert sizes == [700, 700, 700]
    assert pieces_per_batch("cpu") < 800
