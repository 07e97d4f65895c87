"""BertVectorizer against its peers: the same model, the same texts, in one run.

    python tests/benchmarks/encode.py [--n 600] [--threads 1] [--base]
        [--texts FILE] [--bfloat16]

Prints how many times faster than sentence-transformers' ``encode`` each method is, and the
lowest cosine between its vectors and those of the plain model, text by text. ``--base``
swaps in a random model of the size of BERT-base. FILE holds one text a line; without it the
real texts of the shared data are taken where they are, else the messages of the examples.
"""

import argparse
import csv
import os
import platform
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from interleave import clock_for, interleave, ratio

from skbert import BertVectorizer
from skbert.encoders.loading import find_model

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "data"
SOURCES = ("cad_sentiment", "pubmed_sections", "banking77", "emobank", "goemotions")


def read_texts(path, n):
    if path:
        texts = path.read_text(encoding="utf-8").splitlines()
    else:
        files = [SHARED / name / "train.csv" for name in SOURCES if SHARED.exists()]
        texts = []
        for file in files or [HERE.parents[1] / "examples" / "data" / "messages.csv"]:
            with open(file, encoding="utf-8", newline="") as lines:
                texts += [" ".join(row["text"].split()) for row in csv.DictReader(lines)][
                    :700
                ]
    chosen = np.random.default_rng(0).permutation(len(texts))[:n]
    return [texts[i] for i in chosen]


def random_base(folder):
    """A random model as large as BERT-base, with the vocabulary of the default model."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(
        find_model("sentence-transformers/all-MiniLM-L6-v2")
    )
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def skbert_method(folder, texts, max_length, precision="float32"):
    vectorizer = BertVectorizer(
        folder, pooling="mean", max_length=max_length, precision=precision, device="cpu"
    ).fit(texts)
    return lambda: vectorizer.transform(texts)


def sentence_transformers_method(folder, texts, max_length, **kwargs):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    read = Transformer(str(folder), max_seq_length=max_length, **kwargs)
    model = SentenceTransformer(
        modules=[read, Pooling(read.get_word_embedding_dimension())]
    )
    model.to("cpu")
    return lambda: model.encode(texts, show_progress_bar=False)


def pipeline_method(folder, texts, max_length):
    """One text at a time: its batches would pool over padding."""
    from transformers import pipeline

    extract = pipeline("feature-extraction", model=str(folder), device="cpu")
    options = {"tokenize_kwargs": {"truncation": True, "max_length": max_length}}
    return lambda: np.stack([np.mean(v[0], axis=0) for v in extract(texts, **options)])


def loop_method(folder, texts, max_length, batch_size=32):
    """What most people write: padded batches in the order of the input."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder),
    )

    @torch.inference_mode()
    def run():
        out = []
        for start in range(0, len(texts), batch_size):
            inputs = tokenizer(
                texts[start : start + batch_size],
                padding=True,
                truncation=True,
                max_length=max_length,
                return_tensors="pt",
            )
            states = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1)
            out.append((states * mask).sum(1) / mask.sum(1))
        return torch.cat(out).numpy()

    return run


def lowest_cosine(vectors, reference):
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return ((vectors * reference).sum(1) / norms).min()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--bfloat16", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    texts = read_texts(options.texts, options.n)
    with tempfile.TemporaryDirectory() as temporary:
        if options.base:
            folder = random_base(temporary)
        else:
            folder = find_model("sentence-transformers/all-MiniLM-L6-v2")
        given = (folder, texts, options.max_length)
        methods = {
            "sentence-transformers": sentence_transformers_method(*given),
            "skbert": skbert_method(*given),
            "plain padded loop": loop_method(*given),
            "Hugging Face pipeline": pipeline_method(*given),
        }
        if options.bfloat16:
            methods["skbert bfloat16"] = skbert_method(*given, "bfloat16")
            methods["sentence-transformers bfloat16"] = sentence_transformers_method(
                *given, model_kwargs={"dtype": torch.bfloat16}
            )
        reference = loop_method(*given, batch_size=1)()
        cosines = {name: lowest_cosine(run(), reference) for name, run in methods.items()}
        seconds = interleave(methods, options.rounds, clock_for(options.threads))

    model = "random BERT-base" if options.base else "MiniLM"
    print(f"{len(texts)} texts, {model}, {options.threads} thread(s), {platform.machine()}")
    print("| method | x sentence-transformers | lowest cosine |\n|---|---|---|")
    base = seconds["sentence-transformers"]
    for name, values in sorted(seconds.items(), key=lambda item: sum(item[1])):
        print(f"| {name} | {ratio(base, values)} | {cosines[name]:.6f} |")


if __name__ == "__main__":
    main()
