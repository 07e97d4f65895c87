"""Memory that encoding n distinct texts takes, above the loaded model; a process for each.

    python tests/benchmarks/memory.py [--n 2000 20000] [--max-length 48]

Prints the growth of the resident set at its highest and the size of the output, in MB.
"""

import argparse
import os
import subprocess
import sys
import threading

os.environ.setdefault("HF_HUB_OFFLINE", "1")
METHODS = ("skbert", "sentence-transformers")


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(method, n, max_length):
    import torch
    from encode import read_texts, sentence_transformers_method, skbert_method

    from skbert.encoders.loading import find_model

    torch.set_num_threads(1)
    some = read_texts(None, 2000)
    texts = [f"{number} {some[number % len(some)]}" for number in range(n)]
    make = skbert_method if method == "skbert" else sentence_transformers_method
    folder = find_model("sentence-transformers/all-MiniLM-L6-v2")
    given: list[str] = texts[:256]
    run = make(folder, given, max_length)
    run()
    given[:] = texts
    before, highest, stop = resident_mb(), [0.0], threading.Event()

    def watch():
        while not stop.wait(0.01):
            highest[0] = max(highest[0], resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = run()
    stop.set()
    watcher.join()
    grown = max(highest[0], resident_mb()) - before
    print(f"| {method} | {n} | {grown:.0f} | {out.nbytes / 2**20:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 20000])
    parser.add_argument("--max-length", type=int, default=48)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.child[0], int(options.child[1]), options.max_length)
        return
    print(
        "| method | texts | MB above the model | MB of output |\n|---|---|---|---|",
        flush=True,
    )
    for n in options.n:
        for method in METHODS:
            length = ["--max-length", str(options.max_length)]
            command = [sys.executable, "-W", "ignore", __file__, "--child", method, str(n)]
            subprocess.run(command + length, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
