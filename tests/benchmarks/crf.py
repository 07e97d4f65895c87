"""skbert's CRF against the package pytorch-crf: the same scores, in one run.

    python tests/benchmarks/crf.py [--rounds 7] [--threads 1] [--device cpu]

Prints for several shapes how many times faster skbert's CRF is, forward and backward of
the log-likelihood and Viterbi decoding to lists, and how far the two are apart.
"""

import argparse
import platform

import torch
import torchcrf
from interleave import clock_for, interleave, ratio

from skbert.nn.crf import CRF

# Rows, words of the longest row and tags: sentences of slots, long ones, characters.
SHAPES = [(16, 20, 5), (32, 30, 9), (32, 40, 73), (64, 60, 21), (16, 250, 9)]


def draw(n_rows, n_words, n_tags, device):
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(n_rows, n_words, n_tags, generator=generator)
    tags = torch.randint(n_tags, (n_rows, n_words), generator=generator)
    lengths = torch.randint(n_words // 3, n_words + 1, (n_rows,), generator=generator)
    lengths[0] = n_words
    mask = torch.arange(n_words) < lengths[:, None]
    return emissions.to(device).requires_grad_(), tags.to(device), mask.to(device)


def pair(n_tags, device):
    """Both modules with the same scores."""
    theirs = torchcrf.CRF(n_tags, batch_first=True).to(device)
    ours = CRF(n_tags).to(device)
    with torch.no_grad():
        ours.transitions.copy_(theirs.transitions)
        ours.start.copy_(theirs.start_transitions)
        ours.end.copy_(theirs.end_transitions)
    return ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    on_cpu = options.device == "cpu"
    clock = clock_for(options.threads if on_cpu else 0)

    print(f"{options.device}, {options.threads} thread(s), {platform.machine()}")
    print("| rows, words, tags | x training step | x decoding | furthest apart |")
    print("|---|---|---|---|")
    for shape in SHAPES:
        emissions, tags, mask = draw(*shape, options.device)
        ours, theirs = pair(shape[2], options.device)
        n_words = mask.sum(1).tolist()

        def wait(value):
            if not on_cpu:
                torch.cuda.synchronize()
            return value

        def step(likelihood, module, emissions=emissions):
            emissions.grad = None
            module.zero_grad()
            value = likelihood()
            value.sum().backward()
            return wait(value.detach())

        def our_step(ours=ours, given=(emissions, tags, mask)):
            return step(lambda: ours.log_likelihood(*given), ours, given[0])

        def their_step(theirs=theirs, given=(emissions, tags, mask)):
            return step(lambda: theirs(*given, reduction="none"), theirs, given[0])

        def our_paths(ours=ours, given=(emissions, mask), n_words=n_words):
            paths = ours.decode(*given).tolist()
            return [path[:n] for path, n in zip(paths, n_words, strict=True)]

        def their_paths(theirs=theirs, given=(emissions, mask)):
            with torch.no_grad():
                return theirs.decode(*given)

        apart = (our_step() - their_step()).abs().max().item()
        assert our_paths() == their_paths()
        training = interleave(
            {"ours": our_step, "theirs": their_step}, options.rounds, clock
        )
        decoding = interleave(
            {"ours": our_paths, "theirs": their_paths}, options.rounds, clock
        )
        ratios = [ratio(times["theirs"], times["ours"]) for times in (training, decoding)]
        print(f"| {', '.join(map(str, shape))} | {' | '.join(ratios)} | {apart:.1e} |")


if __name__ == "__main__":
    main()
