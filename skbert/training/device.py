"""Device, precision and threads: the only file that reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

# torch.set_num_threads also sets what threads that start later will use, process-wide.
_threads_lock = threading.Lock()


def resolve_device(device: str, caller: str) -> torch.device:
    """The device that a name stands for, now.

    Parameters
    ----------
    device : str
        "auto" is the first CUDA device, else Apple's "mps", else the CPU.
    caller : str
        Who asks, for the error.

    Raises
    ------
    ValueError
        If torch does not know the name, or this machine does not have the device.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"The 'device' parameter of {caller} must be 'auto', 'cpu', 'cuda', "
            f"'cuda:<number>' or 'mps'. Got {device!r} instead."
        ) from error
    n_cuda = torch.cuda.device_count()
    there = {
        "cpu": True,
        "cuda": (resolved.index or 0) < n_cuda,
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(resolved.type, False):
        raise ValueError(
            f"The 'device' parameter of {caller} is {device!r}, which this machine does "
            f"not have ({n_cuda} CUDA devices found). Use device='auto' to take what "
            "there is."
        )
    return resolved


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """The number format to compute in.

    "auto" is bfloat16 on CUDA devices that have it, float16 on older ones, and float32
    elsewhere, where exact vectors are expected.
    """
    if precision != "auto":
        return DTYPES[precision]
    if device.type != "cuda":
        return torch.float32
    with torch.cuda.device(device):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def n_threads() -> int:
    """Threads that this process may use; joblib's workers get their share by OpenMP."""
    return torch.get_num_threads()


def _keep_to_one(others: int) -> None:
    """Bind this thread to one torch thread, and none of those that start later.

    torch gives the last number that any thread set to threads that ask for the first
    time. So this one asks first, and another, which ends at once, sets the number again.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
    restorer = threading.Thread(target=torch.set_num_threads, args=(others,))
    restorer.start()
    restorer.join()


def map_side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Results of ``function``, in order, computed by workers of one torch thread each.

    Whole batches side by side beat several threads inside every product, and make a
    batch's numbers independent of the number of threads. With one worker everything
    happens in the calling thread, with the threads it has.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    with _threads_lock:
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(workers, initializer=_keep_to_one, initargs=(before,))
        pending: list[Future[Result]] = []
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > 2 * workers:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)
