"""ElmoVectorizer against the published module's way of computing: the same numbers, faster.

    python tests/benchmarks/elmo.py [--sentences 64] [--rounds 5] [--threads 1] \\
        [--size small] [--data FOLDER]

The baseline does what the AllenNLP module does, written plainly: the character network for
every word of every sentence, all 50 characters, and a cell that is called step by step, on
batches of 32 sentences. Sizes are those of the published models, weights random; the text
is that of ncbi_disease where the shared data are, else of the examples.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np
import torch
from interleave import clock_for, interleave, ratio

from skbert import ElmoVectorizer
from skbert.encoders.elmo import ElmoEncoder, WordVectors
from skbert.encoders.elmo_formats import write_own
from skbert.encoders.elmo_loading import load_elmo
from skbert.nn.bilm import Bilm, BilmConfig
from skbert.text.characters import ByteRows
from skbert.text.words import split_words

HERE = Path(__file__).resolve()
SHARED = HERE.parents[3] / "shared" / "data"
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
SIZES = {"small": (128, 1024, 1), "medium": (256, 2048, 1), "original": (512, 4096, 2)}
N_CHARACTERS = 50
BATCH = 32


def read_sentences(data, n):
    """Lists of words of real text."""
    file = data / "ncbi_disease" / "train.conll"
    if file.exists():
        blocks = file.read_text(encoding="utf-8").strip().split("\n\n")
        rows = [[line.split("\t")[0] for line in b.splitlines()] for b in blocks]
        return rows[:n]
    with open(HERE.parents[2] / "examples" / "data" / "messages.csv") as table:
        texts = [row["text"] for row in csv.DictReader(table)]
    return [[text[a:b] for a, b in split_words(text)] for text in texts[:n]]


def make_model(size, folder):
    width, cells, n_highway = SIZES[size]
    config = BilmConfig(
        width, cells, 2, 3.0, 3.0, True, 0, 0, 262, 16, N_CHARACTERS, FILTERS, "relu",
        n_highway, True,
    )  # fmt: skip
    torch.manual_seed(0)
    bilm = Bilm(config)
    bilm.draw_weights()
    write_own(ElmoEncoder(bilm, ByteRows(N_CHARACTERS)), folder)
    return folder


class CellLoop:
    """One direction of one layer, a step at a time for all rows, finished ones held."""

    def __init__(self, lstm):
        self.lstm = lstm

    def __call__(self, inputs, mask):
        lstm = self.lstm
        n_rows, n_steps, _ = inputs.shape
        hidden = inputs.new_zeros(n_rows, lstm.output_size)
        cell = inputs.new_zeros(n_rows, lstm.cell_size)
        outputs = inputs.new_zeros(n_rows, n_steps, lstm.output_size)
        for step in range(n_steps):
            gates = torch.nn.functional.linear(inputs[:, step], lstm.input_weight)
            gates = gates + torch.nn.functional.linear(
                hidden, lstm.output_weight, lstm.bias
            )
            i, f, o, j = gates.chunk(4, dim=1)
            new = torch.sigmoid(i) * torch.tanh(j) + torch.sigmoid(f) * cell
            new = torch.clamp(new, -lstm.clips[0], lstm.clips[0])
            out = torch.nn.functional.linear(
                torch.sigmoid(o) * torch.tanh(new), lstm.projection
            )
            out = torch.clamp(out, -lstm.clips[1], lstm.clips[1])
            active = mask[:, step, None]
            cell = torch.where(active, new, cell)
            hidden = torch.where(active, out, hidden)
            outputs[:, step] = torch.where(active, out, 0.0)
        return outputs


@torch.inference_mode()
def baseline(encoder, sentences):
    """Top layers of all sentences, (n_words, 2 * projection_dim) each."""
    out = []
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        begin, end = encoder.alphabet.frame()
        longest = max(map(len, batch)) + 2
        ids = np.full((len(batch), longest, N_CHARACTERS), 0)
        for row, words in enumerate(batch):
            rows = encoder.alphabet.rows(words, markers=True)
            ids[row, : len(words) + 2] = np.concatenate([[begin], rows, [end]])
        lengths = torch.tensor([len(words) + 2 for words in batch])
        mask = torch.arange(longest) < lengths[:, None]
        flat = torch.from_numpy(ids).view(-1, N_CHARACTERS)
        tokens = encoder.bilm.token_encoder(flat).view(len(batch), longest, -1)
        # Each row turned round within its own length.
        steps = torch.arange(longest).expand(len(batch), -1)
        turned = torch.where(mask, lengths[:, None] - 1 - steps, steps)
        halves = []
        for stack, order in (
            (encoder.bilm.onward, steps),
            (encoder.bilm.backward_, turned),
        ):
            index = order[:, :, None].expand(-1, -1, tokens.shape[2])
            values = tokens.gather(1, index)
            for number, lstm in enumerate(stack):
                outputs = CellLoop(lstm)(values, mask)
                values = outputs + values if number else outputs
            halves.append(values.gather(1, index))
        top = torch.cat(halves, dim=2).numpy()
        out += [top[row, 1 : len(words) + 1] for row, words in enumerate(batch)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--data", type=Path, default=SHARED)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sentences = read_sentences(options.data, options.sentences)
    n_words = sum(map(len, sentences))
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(options.size, Path(folder))
        encoder = load_elmo(model)
        vectorizer = ElmoVectorizer(model, output="words", layers=-1).fit(sentences)

        def cold():
            vectorizer.encoder_._words = WordVectors()
            return vectorizer.transform(sentences)

        def warm():
            return vectorizer.transform(sentences)

        wanted, found = baseline(encoder, sentences), cold()
        apart = max(np.abs(a - b).max() for a, b in zip(wanted, found, strict=True))
        seconds = interleave(
            {"baseline": lambda: baseline(encoder, sentences), "cold": cold, "warm": warm},
            options.rounds,
            clock_for(options.threads),
        )
    print(
        f"{options.size}, {n_words} words in {len(sentences)} sentences, "
        f"{options.threads} thread(s); furthest apart {apart:.1e}"
    )
    print("| | words/s | times the baseline |")
    print("|---|---|---|")
    base = seconds["baseline"]
    for name, values in seconds.items():
        print(f"| {name} | {n_words / min(values):,.0f} | {ratio(base, values)} |")


if __name__ == "__main__":
    main()
