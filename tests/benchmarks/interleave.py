"""Timing on a machine that others use too: methods in turn, ratios round by round.

Absolute times on a shared machine mean little. Each round calls every method once, in an
order that moves on from round to round; a ratio compares two calls of the same round, and
the median over rounds is quoted with its range.
"""

import statistics
import time
from collections.abc import Callable


def interleave(
    methods: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of every method in every round, after one call each to warm up."""
    names = list(methods)
    for name in names:
        methods[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = clock()
            methods[name]()
            seconds[name].append(clock() - start)
    return seconds


def clock_for(threads: int) -> Callable[[], float]:
    """CPU time for one thread, which a busy machine disturbs least; else wall time."""
    return time.process_time if threads == 1 else time.perf_counter


def ratio(base: list[float], other: list[float]) -> str:
    """How many times faster ``other`` is: median (least..most)."""
    ratios = [b / o for b, o in zip(base, other, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
