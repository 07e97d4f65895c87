"""Tiny random checkpoints, one per model family, written as published ones look.

Each folder opens with ``AutoConfig``, ``AutoTokenizer`` and ``AutoModel``. The same
seed gives the same bytes in every process: vocabularies are learnt by the rule below,
because the WordPiece and Unigram trainers of `tokenizers` differ from run to run.
"""

from __future__ import annotations

import functools
import math
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerFast

# Imports of torch and transformers stay inside the functions: conftest.py reads
# ARCHITECTURES while pytest collects.

CORPUS: tuple[str, ...] = (
    "The quick brown fox jumps over the lazy dog.",
    "A good film with a good cast and a very good story.",
    "This was a bad film: the story was bad and the cast was worse.",
    "I loved the music, the pictures and the ending.",
    "I hated the music, the pictures and the ending!",
    "We would not watch it again, and we would not tell a friend to watch it.",
    "It is the best book I have read in years, and the cheapest.",
    "It is the worst book I have read this year; nobody should buy it.",
    "The battery lasts two days, but the screen broke in the first week.",
    "Great service, friendly people, fast delivery. Thank you!",
    "Slow service and cold food... never again?",
    "The food was great and the people were friendly, but the price was too high.",
    "Angela Merkel met Barack Obama in Berlin on Tuesday.",
    "Barack Obama lived in Chicago before he moved to Washington.",
    "New York is larger than Berlin, and Tokyo is larger than New York.",
    "Apple opened an office in Munich, where Siemens and BMW have offices too.",
    "The United Nations met in Geneva on 24 October 2021.",
    "Shares of Siemens rose 3.5% to 142.80 euros on Monday.",
    "Shares of Apple fell 1.25 dollars after the company lowered its outlook.",
    "The company reported a profit of $17,500 in the third quarter.",
    "The home team won 3-1 after scoring two goals in the last ten minutes.",
    "The team lost the final, although the players trained the whole year.",
    "Doctors tested a new vaccine on 1000 patients in 12 hospitals.",
    "The patients were tested again after 6, 7, 8 and 9 weeks.",
    "The government announced new elections; the opposition welcomed the decision.",
    "She said: \"I don't know whether he'll come, but I'm not waiting.\"",
    "He didn't come, so she wasn't waiting (and they weren't talking).",
    "Is the station near the river or near the old bridge?",
    "The old man and the young woman walked along the river to the bridge.",
    "Learning words from pieces is easier than learning words from letters.",
    "Researchers are learning how language models represent words and sentences.",
    "Write to info@example.org or visit https://example.org/help for help.",
    "Un café, s'il vous plaît: the café in Zürich is naïve but charming.",
    "Der Film war gut und die Musik war schön.",
    "Der Film war schlecht, und das Buch war nicht besser.",
    "Das Wetter in München war gestern schön, aber heute regnet es.",
    "Die Straße über den Fluss führt nach Köln und nach Düsseldorf.",
    "我爱北京天安门。",
    "北京是中国的首都,上海是中国最大的城市。",
    "这部电影很好,我很喜欢这个故事。",
    "这本书不好,我不喜欢。",
    "今天天气很好,我们去公园吧!",
)

# As many windows as this fit every family that has a position table.
MAX_LENGTH = 64
_N_MERGES = 400
_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_PLAIN = {"intermediate_size": 64, "max_position_embeddings": MAX_LENGTH}
# RoBERTa numbers positions from pad_token_id + 1, so two rows are never used.
_SHIFTED = {"intermediate_size": 64, "max_position_embeddings": MAX_LENGTH + 2}


@dataclass(frozen=True)
class _Family:
    """What sets one family apart: classes, special pieces, configuration."""

    model: str
    tokenizer: str
    kind: str  # "wordpiece", "bytes" or "unigram"
    config: dict[str, Any]  # with the piece itself as "..._token_id"
    first: str = ""  # special pieces, in the order of their ids ...
    last: str = ""  # ... and those after the learnt vocabulary
    framed: bool = False  # [CLS] and [SEP] come from the file, not from the class
    limited: bool = True  # does the published tokenizer state its longest window?
    padded: bool = False  # more embeddings than pieces, as published


_BERT = "[PAD] [UNK] [CLS] [SEP] [MASK]"
_ROBERTA = "<s> <pad> </s> <unk>"

# fmt: off
_FAMILIES: dict[str, _Family] = {
    "bert": _Family(
        "BertForPreTraining", "BertTokenizer", "wordpiece", _PLAIN, _BERT),
    "roberta": _Family(
        "RobertaForMaskedLM", "RobertaTokenizer", "bytes",
        {**_SHIFTED, "type_vocab_size": 1}, _ROBERTA, "<mask>"),
    "xlm-roberta": _Family(
        "XLMRobertaForMaskedLM", "XLMRobertaTokenizer", "unigram",
        {**_SHIFTED, "type_vocab_size": 1}, _ROBERTA, "<mask>"),
    "albert": _Family(
        "AlbertForPreTraining", "AlbertTokenizer", "unigram",
        {**_PLAIN, "embedding_size": 16}, "<pad> <unk> [CLS] [SEP] [MASK]"),
    "distilbert": _Family(
        "DistilBertForMaskedLM", "DistilBertTokenizer", "wordpiece",
        {"hidden_dim": 64, "max_position_embeddings": MAX_LENGTH}, _BERT),
    "electra": _Family(
        "ElectraForPreTraining", "ElectraTokenizer", "wordpiece",
        {**_PLAIN, "embedding_size": 16}, _BERT),
    "mobilebert": _Family(
        "MobileBertForPreTraining", "MobileBertTokenizer", "wordpiece",
        {**_PLAIN, "embedding_size": 16, "intra_bottleneck_size": 16,
         "num_feedforward_networks": 2}, _BERT),
    "deberta-v2": _Family(
        "DebertaV2ForMaskedLM", "DebertaV2Tokenizer", "unigram",
        {**_PLAIN, "relative_attention": True, "position_buckets": 16,
         "max_relative_positions": -1, "pos_att_type": "p2c|c2p",
         "position_biased_input": False, "share_att_key": True,
         "norm_rel_ebd": "layer_norm", "type_vocab_size": 0},
        "[PAD] [CLS] [SEP] [UNK]", "[MASK]",
        framed=True, limited=False, padded=True),
    "mpnet": _Family(
        "MPNetForMaskedLM", "MPNetTokenizer", "wordpiece", _SHIFTED,
        "<s> <pad> </s> <unk> [UNK]", "<mask>"),
    "modernbert": _Family(
        "ModernBertForMaskedLM", "PreTrainedTokenizerFast", "bytes",
        {**_PLAIN, "global_attn_every_n_layers": 2, "local_attention": 16,
         "pad_token_id": "[PAD]", "bos_token_id": "[CLS]", "eos_token_id": "[SEP]",
         "cls_token_id": "[CLS]", "sep_token_id": "[SEP]"},
        last="[UNK] [CLS] [SEP] [PAD] [MASK]", framed=True, padded=True),
    "longformer": _Family(
        "LongformerForMaskedLM", "LongformerTokenizer", "bytes",
        {**_SHIFTED, "type_vocab_size": 1, "attention_window": [8, 8, 8]},
        _ROBERTA, "<mask>"),
    "big_bird": _Family(
        "BigBirdForPreTraining", "BigBirdTokenizer", "unigram",
        {**_PLAIN, "attention_type": "block_sparse", "block_size": 4,
         "num_random_blocks": 1, "sep_token_id": "[SEP]"},
        "<pad> <s> </s> <unk> [CLS] [SEP] [MASK]"),
    "xlnet": _Family(
        "XLNetLMHeadModel", "XLNetTokenizer", "unigram",
        {"d_inner": 64, "mem_len": None},
        "<unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop>", limited=False),
    "gpt2": _Family(
        "GPT2LMHeadModel", "GPT2Tokenizer", "bytes",
        {"n_positions": MAX_LENGTH, "n_inner": 64, "bos_token_id": "<|endoftext|>",
         "eos_token_id": "<|endoftext|>"}, last="<|endoftext|>"),
    "t5": _Family(
        "T5ForConditionalGeneration", "T5Tokenizer", "unigram",
        {"n_positions": MAX_LENGTH, "d_kv": 8, "d_ff": 64,
         "decoder_start_token_id": "<pad>"},
        "<pad> </s> <unk>", " ".join(f"<extra_id_{99 - i}>" for i in range(100)),
        padded=True),
}
# fmt: on

ARCHITECTURES: tuple[str, ...] = tuple(_FAMILIES)


def make_tiny_model(
    architecture: str,
    folder: Path,
    *,
    seed: int = 0,
    corpus: Sequence[str] | None = None,
    **config_overrides: Any,
) -> Path:
    """Write a complete checkpoint of one family into a folder and return the folder.

    The vocabulary is learnt from `corpus` (None: `CORPUS`). Further keywords go to the
    configuration, under its own names or the common ones (``num_hidden_layers``);
    ``architectures=["ElectraForMaskedLM"]`` saves another head than the published one.
    """
    import torch
    import transformers

    family = _FAMILIES[architecture]
    with _quiet():
        tokenizer = _make_tokenizer(family, CORPUS if corpus is None else corpus)
        n_pieces = len(tokenizer)
        n_rows = -(-n_pieces // 64) * 64 if family.padded else n_pieces
        options: dict[str, Any] = {**_SIZES, "vocab_size": n_rows}
        for name, value in family.config.items():
            is_piece = name.endswith("_token_id")
            options[name] = tokenizer.vocab[value] if is_piece else value
        # Some families name the same size differently (n_embd, d_model, dim): without
        # renaming, an override would sit beside the tiny value, not replace it.
        names = transformers.AutoConfig.for_model(architecture).attribute_map
        options = {names.get(name, name): value for name, value in options.items()}
        for name, value in config_overrides.items():
            options[names.get(name, name)] = value
        config = transformers.AutoConfig.for_model(architecture, **options)
        model_class = getattr(transformers, (config.architectures or [family.model])[0])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = model_class(config)
            torch.manual_seed(seed)  # releases differ in what they draw while building
            _draw_weights(model)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _draw_weights(model: nn.Module) -> None:
    """Draw every weight anew, so that no part of the network is without effect.

    Left to the library, biases are zero, norms the identity and vectors of different
    texts nearly equal. Drawing in order of names keeps releases comparable.
    """
    import torch

    embeddings = (m for m in model.modules() if isinstance(m, torch.nn.Embedding))
    tables = {id(embedding.weight) for embedding in embeddings}
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape)
            if weight.ndim == 1:  # biases around 0, norm weights around 1
                weight.add_(0.1 * noise)
            else:  # 0.15 is about 1 / sqrt(n_inputs) for 32 to 64 inputs
                weight.copy_((0.3 if id(weight) in tables else 0.15) * noise)


def _make_tokenizer(family: _Family, corpus: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of the family's class, its vocabulary learnt from the corpus."""
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import BertProcessing

    options: dict[str, Any] = {"model_max_length": MAX_LENGTH} if family.limited else {}
    if family.kind == "wordpiece":
        options["do_lower_case"] = True  # not every release of 5.x has it as default
    build: Any = getattr(transformers, family.tokenizer)
    if build is transformers.PreTrainedTokenizerFast:
        build = _modernbert_tokenizer
    # An empty tokenizer already knows how its family cleans and splits a text. ASCII
    # goes in too, so that no Latin text is all unknown, whatever the corpus.
    backend = build(**options).backend_tokenizer
    words: Counter[str] = Counter()
    ascii_pieces = string.digits + string.ascii_letters + string.punctuation
    for text in (*corpus, " ".join(ascii_pieces)):
        clean = backend.normalizer.normalize_str(text) if backend.normalizer else text
        words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(clean))
    characters = Counter("".join(words.elements()))
    mark = "##" if family.kind == "wordpiece" else ""
    merges = _learn_merges(tuple(sorted(words.items())), mark)
    counts = {left + right.removeprefix(mark): n for left, right, n in merges}
    first, last = family.first.split(), family.last.split()

    if family.kind == "unigram":
        total = characters.total()
        learnt = sorted({**characters, **counts}.items())
        scores = {piece: round(math.log(n / total), 4) for piece, n in learnt}
        scored = {**dict.fromkeys(first, 0.0), **scores, **dict.fromkeys(last, 0.0)}
        options["vocab"] = list(scored.items())
    else:
        if family.kind == "bytes":
            options["merges"] = [(left, right) for left, right, _ in merges]
        alphabet = sorted(characters if mark else ByteLevel.alphabet())
        inside = [mark + character for character in alphabet]
        order = dict.fromkeys((*first, *alphabet, *inside, *counts, *last))
        options["vocab"] = {piece: i for i, piece in enumerate(order)}
    tokenizer = build(**options)
    if family.framed:
        ends = [(piece, tokenizer.vocab[piece]) for piece in ("[SEP]", "[CLS]")]
        tokenizer.backend_tokenizer.post_processor = BertProcessing(*ends)
    return tokenizer


@functools.lru_cache(maxsize=16)
def _learn_merges(
    words: tuple[tuple[str, int], ...], mark: str
) -> list[tuple[str, str, int]]:
    """Byte-pair encoding: join the commonest neighbours, ties in alphabetical order."""
    rows = [([word[0], *(mark + c for c in word[1:])], n) for word, n in words]
    merges: list[tuple[str, str, int]] = []
    for _ in range(_N_MERGES):
        pairs: Counter[tuple[str, str]] = Counter()
        for row, n in rows:
            for pair in pairwise(row):
                pairs[pair] += n
        if not pairs or max(pairs.values()) < 2:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((*best, pairs[best]))
        for row, _n in rows:
            at = 0
            while best[0] in row[at:]:
                at = row.index(best[0], at) + 1
                if row[at : at + 1] == [best[1]]:
                    row[at - 1 : at + 1] = [best[0] + best[1].removeprefix(mark)]
    return merges


def _modernbert_tokenizer(
    vocab: dict[str, int] | None = None,
    merges: list[tuple[str, str]] | None = None,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """ModernBERT has no tokenizer class of its own; its file says everything."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE(vocab or {}, merges or []))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True, special=True),
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages and bars of transformers, then restore them."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
