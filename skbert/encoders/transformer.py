"""Every Hugging Face stack as an Encoder."""

from __future__ import annotations

import copy
import inspect
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from skbert.encoders.base import Encoder, EncoderTraits, to_tensor
from skbert.encoders.packed import PackedStack
from skbert.encoders.tokenizer import SANE_LENGTH, PieceTokenizer
from skbert.encoders.vocabulary import restore_vocabulary
from skbert.nn.hidden_states import HiddenStates
from skbert.text.encoding import Batch, Encoding, window_texts
from skbert.text.report import ReadingReport

# Default window of models whose positions are relative and whose tokenizer names no limit.
UNLIMITED_DEFAULT = 512

# Parts of a sentence-transformers checkpoint that are followed here, or by `normalize`.
FOLLOWED = {"Transformer", "Pooling", "Normalize", "Dropout"}

# What models call their table of learned positions.
POSITION_TABLES = {"position_embeddings", "wpe", "embed_positions"}

_LOGGING_LOCK = threading.RLock()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and load reports for a while, and then the user's settings again."""
    from transformers.utils import logging

    with _LOGGING_LOCK:
        verbosity = logging.get_verbosity()
        bars = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()


class TransformerEncoder(Encoder):
    """A Hugging Face encoder, or the encoder half or the stack of another model.

    Parameters
    ----------
    model : PreTrainedModel
        In float32 on the CPU; its weights are never changed.
    tokenizer : PieceTokenizer
    declared : dict
        What the checkpoint says of its use: "pooling", "max_length" and "task_head", or
        None for each, and "left_out", names of what it states and this encoder does not
        do.
    pooler : tuple of ndarray or None, default=None
        See ``Encoder``; the model itself has none.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PieceTokenizer,
        declared: dict[str, Any],
        pooler: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        config = model.config
        n_rows = model.get_input_embeddings().num_embeddings
        # Tables are padded to round numbers; half of them is never padding.
        if not n_rows / 2 <= tokenizer.n_ids <= n_rows:
            raise ValueError(
                f"The tokenizer has {tokenizer.n_ids} pieces but the model a table of "
                f"{n_rows}: they do not belong together. Save both with save_pretrained "
                "in one folder."
            )
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.declared = declared
        self.pooler = pooler
        self.hidden_size = config.hidden_size
        self.n_layers = config.num_hidden_layers
        self.longest = _longest_input(model)
        limits = (tokenizer.facts["max_length"], declared["max_length"], self.longest)
        sane = [limit for limit in limits if limit and limit < SANE_LENGTH]
        self.max_length = min(sane, default=UNLIMITED_DEFAULT)
        pads = (config.pad_token_id, tokenizer.facts["pad_id"], 0)
        self.pad_id = next(pad for pad in pads if pad is not None and pad >= 0)
        self.traits = EncoderTraits(
            summary_piece=_summary_piece(tokenizer),
            language_model=_language_model(model),
            pooling=declared["pooling"] or "mean",
            left_out=tuple(declared.get("left_out", ())),
            task_head=declared.get("task_head"),
        )
        accepted = inspect.signature(model.forward).parameters
        self.takes_types = "token_type_ids" in accepted and self._knows_types()
        self._placed: dict[tuple[torch.device, torch.dtype], TransformerEncoder] = {}
        self._lock = threading.Lock()
        self._packed: PackedStack | None = None
        self._state: dict[str, Any] | None = None

    def __repr__(self) -> str:
        kind = type(self.model).__name__
        return (
            f"TransformerEncoder({kind}, {self.n_layers} layers, {self.hidden_size} wide)"
        )

    # ---- loading and state

    @classmethod
    def from_pretrained(cls, folder: Path) -> TransformerEncoder:
        """Read a checkpoint folder.

        Raises
        ------
        ValueError
            If weights of the encoder are missing in the checkpoint or do not fit.
        """
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        tokenizer = PieceTokenizer.from_pretrained(folder)
        model = _load_checkpoint(config, folder)
        pooler = _take_pooler(model, _summary_piece(tokenizer))
        for parameter in model.parameters():
            # Loaded weights are a view of the file: whoever writes over it would change
            # them, whoever cuts it short would end the process.
            parameter.data = parameter.data.clone()
        declared = _declared_use(folder) | {"task_head": _task_head(config)}
        return cls(model, tokenizer, declared, pooler)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TransformerEncoder:
        """Build the encoder from what ``state`` gave, sharing the memory of the arrays."""
        from transformers import AutoConfig

        facts = json.loads(state["facts"])
        values = json.loads(state["config"])
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        config.use_cache = config.use_mems_eval = False
        weights = {name: to_tensor(array) for name, array in state["weights"].items()}
        model = _load(
            _library_class(facts["class"]),
            "the saved estimator",
            None,
            config=config,
            state_dict=weights,
        )
        _take_pooler(model, None)
        tokenizer = PieceTokenizer(state["tokenizer"], facts["tokenizer"])
        return cls(model, tokenizer, facts["declared"])

    def state(self) -> dict[str, Any]:
        if self._state is None:
            kind = type(self.model)
            config = json.loads(self.model.config.to_json_string(use_diff=False))
            config.pop("_name_or_path", None)  # where it was found does not matter
            self._state = {
                "config": json.dumps(config, sort_keys=True),
                "tokenizer": self.tokenizer.json,
                "facts": json.dumps(
                    {
                        "class": f"{kind.__module__}.{kind.__name__}",
                        "tokenizer": self.tokenizer.facts,
                        "declared": self.declared,
                    }
                ),
                "weights": {
                    name: tensor.numpy() for name, tensor in self.model.state_dict().items()
                },
            }
        return self._state

    # ---- texts to windows

    def n_special(self, n_texts: int) -> int:
        return self.tokenizer.frames[n_texts].n_special

    def encode(
        self,
        rows: Sequence[Any],
        *,
        max_length: int,
        long_text: str,
        stride: int,
        parallel: bool,
    ) -> tuple[list[Encoding], ReadingReport]:
        words = isinstance(rows[0], list)
        if words:
            sides = [self.tokenizer.words(rows, parallel=parallel)]
        elif isinstance(rows[0], str):
            sides = [self.tokenizer.texts(rows, parallel=parallel)]
        else:
            sides = [
                self.tokenizer.texts(side, parallel=parallel)
                for side in zip(*rows, strict=True)
            ]
        frame = self.tokenizer.frames[len(sides)]
        report = ReadingReport()
        encodings: list[Encoding] = []
        for sample, texts in enumerate(zip(*sides, strict=True)):
            windows, cut = window_texts(
                texts,
                frame,
                sample=sample,
                max_length=max_length,
                long_text=long_text,
                stride=stride,
                whole_words=words,
            )
            encodings += windows
            if cut:
                report.cut.add(sample)
            n_unknown = sum(int(self.tokenizer.is_unknown(text).sum()) for text in texts)
            report.n_pieces += sum(len(text.ids) for text in texts)
            report.n_unknown += n_unknown
            if n_unknown and self.tokenizer.has_long_word(rows[sample]):
                report.long_words.add(sample)
        return encodings, report

    # ---- windows to hidden states

    def placed(self, device: torch.device, dtype: torch.dtype) -> TransformerEncoder:
        if (device, dtype) == (self.model.device, self.model.dtype):
            return self
        with self._lock:
            if (device, dtype) not in self._placed:
                moved = copy.copy(self)
                moved.model = copy.deepcopy(self.model).to(device, dtype)
                moved._packed = None
                self._placed[device, dtype] = moved
            return self._placed[device, dtype]

    def trainable(self, device: torch.device) -> TransformerEncoder:
        """A copy in float32 whose weights may change."""
        copied = copy.copy(self)
        copied.model = copy.deepcopy(self.model).to(device).requires_grad_(True)
        copied._packed = PackedStack(copied.model)
        copied._placed, copied._state, copied._fingerprint = {}, None, None
        copied._lock = threading.Lock()
        return copied

    def enable_checkpointing(self, caller: str) -> None:
        """Compute layers again in the backward pass, which saves memory and costs time."""
        if self._packed is not None and self._packed.fits:
            self._packed.checkpointing = True
        elif self.model.supports_gradient_checkpointing:
            _set_checkpointing(self.model, True)
        else:
            raise ValueError(
                f"The 'gradient_checkpointing' parameter of {caller} must be False for "
                f"{type(self.model).__name__}, which does not support it. Lower "
                "micro_batch_size to save memory."
            )

    def snapshot(self) -> TransformerEncoder:
        """This encoder as it is now, in memory of its own on the CPU."""
        model = copy.deepcopy(self.model).cpu().eval().requires_grad_(False)
        restore_vocabulary(model)
        return TransformerEncoder(model, self.tokenizer, self.declared)

    def finished(self) -> TransformerEncoder:
        """A trained copy as an encoder that no longer changes, on the CPU."""
        if self.model.supports_gradient_checkpointing:
            _set_checkpointing(self.model, False)
        restore_vocabulary(self.model)
        return TransformerEncoder(self.model.cpu(), self.tokenizer, self.declared)

    def can_start_at(self, layer: int) -> bool:
        """Whether ``forward`` can go on from the output of a layer."""
        return self._packed is not None and self._packed.fits

    def forward(
        self,
        batch: Batch,
        layers: Sequence[int],
        start: tuple[int, torch.Tensor] | None = None,
    ) -> HiddenStates:
        device = self.model.device
        mask = torch.from_numpy(batch.mask).to(device, non_blocking=True)
        inputs = {"input_ids": torch.from_numpy(batch.input_ids).to(device)}
        if self.takes_types:
            inputs["token_type_ids"] = torch.from_numpy(batch.type_ids).to(device)
        if self._packed is None:
            with self._lock:
                self._packed = self._packed or PackedStack(self.model)
        if self._packed.fits:
            return self._packed.forward(inputs, mask, batch.lengths, layers, start)
        inputs["attention_mask"] = mask.long()
        if getattr(self.model.config, "trigram_input", False):
            # MobileBERT joins each piece with its neighbours, and the last would read a
            # pad: a row of zeros is what it has beyond the end.
            table = self.model.get_input_embeddings()
            embedded = table(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = embedded * mask.unsqueeze(-1)
        last_only = all(layer == self.n_layers for layer in layers)
        output = self.model(**inputs, output_hidden_states=not last_only)
        states = [
            output.last_hidden_state
            if layer == self.n_layers
            else output.hidden_states[layer]
            for layer in layers
        ]
        return HiddenStates(tuple(states), mask)

    def _knows_types(self) -> bool:
        table = getattr(self.model.config, "type_vocab_size", None)
        if table is None:
            # XLNet has no table: its summary piece is of a type of its own. GPT-2 has
            # none either, and would read types as words.
            before, after = self.tokenizer.frames[1].specials
            return any((*before.types, *after.types))
        used = [
            kind
            for frame in self.tokenizer.frames.values()
            for kind in (
                *frame.text_types,
                *(t for s in frame.specials for t in s.types),
            )
        ]
        return max(used, default=0) < table


def _set_checkpointing(model: Any, on: bool) -> None:
    # transformers 5 renamed it on the way.
    new = hasattr(model, "activation_checkpointing_enable")
    name = "activation_checkpointing" if new else "gradient_checkpointing"
    if on:
        getattr(model, f"{name}_enable")({"use_reentrant": False})
    else:
        getattr(model, f"{name}_disable")()
        # They leave hooks behind that no copy survives.
        if getattr(model, "_require_grads_hooks", None):
            model.disable_input_require_grads()


def _load_checkpoint(config: Any, folder: Path) -> Any:
    """The stack that reads, without heads and caches."""
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING

    config.use_cache = config.use_mems_eval = False
    if getattr(config, "attention_type", None) == "block_sparse":
        # BigBird's sparse attention switches itself off, for good, when it meets a batch
        # that is too short for it: vectors would depend on what was read before.
        config.attention_type = "original_full"
    halves = config.is_encoder_decoder and type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING
    model = _load(
        AutoModelForTextEncoding if halves else AutoModel,
        f"The checkpoint {str(folder)!r}",
        folder,
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
    )
    if config.is_encoder_decoder and not halves:
        model = model.get_encoder()
    return model


def _load(model_class: Any, source: str, *args: Any, **kwargs: Any) -> Any:
    """``from_pretrained`` without noise, without draws from the user's generator, whole."""
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        model, report = model_class.from_pretrained(
            *args, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )
    missing = report["missing_keys"]
    faults = [name for name in missing if "pooler" not in name]
    faults += [str(name) for name, *_ in report["mismatched_keys"]]
    if faults:
        raise ValueError(
            f"{source} does not hold the whole encoder: {len(faults)} weights are missing "
            f"or of another shape, such as {sorted(faults)[:3]}."
        )
    if missing:
        model.pooler = None  # drawn at random, since the checkpoint has none
    return model


def _take_pooler(
    model: Any, summary_piece: str | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Remove the pooler; its weights, if it is a linear layer with tanh over that piece.

    Families differ in where they keep the tanh, if they have it: the output tells.
    """
    pooler = getattr(model, "pooler", None)
    if pooler is None:
        return None
    linears = [module for module in pooler.modules() if isinstance(module, nn.Linear)]
    found = None
    if len(linears) == 1 and linears[0].bias is not None and summary_piece is not None:
        (dense,) = linears
        ids = torch.arange(3).unsqueeze(0)
        with torch.inference_mode(), quiet_transformers():
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
            states = output.last_hidden_state
            wanted = dense(states[:, 0 if summary_piece == "first" else -1]).tanh()
        pooled = getattr(output, "pooler_output", None)
        square = dense.in_features == dense.out_features
        if square and pooled is not None and torch.allclose(pooled, wanted, atol=1e-6):
            weight, bias = dense.weight.detach(), dense.bias.detach()
            found = weight.numpy().copy(), bias.numpy().copy()
    model.pooler = None
    return found


def _library_class(path: str) -> Any:
    """A model class of transformers by its path; anything else in a file is refused."""
    from transformers import PreTrainedModel

    module, _, name = path.rpartition(".")
    if module.startswith("transformers.models."):
        found = getattr(import_module(module), name, None)
        if isinstance(found, type) and issubclass(found, PreTrainedModel):
            return found
    raise ValueError(f"{path!r} is not a model class of this version of transformers.")


def _longest_input(model: nn.Module) -> int | None:
    """Pieces that the position table holds, None where positions are relative."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in POSITION_TABLES and isinstance(module, nn.Embedding):
            # RoBERTa and its kin number positions from the padding index on.
            offset = getattr(module, "offset", 0)
            if module.padding_idx is not None:
                offset = module.padding_idx + 1
            return module.num_embeddings - offset
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def _summary_piece(tokenizer: PieceTokenizer) -> str | None:
    cls_id = tokenizer.facts["cls_id"]
    before, after = tokenizer.frames[1].specials
    if cls_id is None:
        return None
    if before.ids[:1] == (cls_id,):
        return "first"
    return "last" if after.ids[-1:] == (cls_id,) else None


def _language_model(model: Any) -> str | None:
    """Causal where a later piece cannot change an earlier one."""
    ids = torch.zeros(2, 3, dtype=torch.long)
    ids[1, -1] = 1
    with torch.inference_mode(), quiet_transformers():
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    first = output.last_hidden_state[:, 0]
    return "causal" if torch.equal(first[0], first[1]) else "masked"


def _declared_use(folder: Path) -> dict[str, Any]:
    """Pooling and length that a sentence-transformers checkpoint states."""
    declared: dict[str, Any] = {"pooling": None, "max_length": None, "left_out": []}
    modules = folder / "modules.json"
    if not modules.exists():
        return declared
    for module in json.loads(modules.read_text(encoding="utf-8")):
        kind = module["type"].rpartition(".")[2]
        settings = folder / module["path"] / "config.json"
        if kind == "Pooling" and settings.exists():
            flags = json.loads(settings.read_text(encoding="utf-8"))
            declared["pooling"] = _pooling_of(flags)
            if declared["pooling"] is None:
                declared["left_out"].append("a pooling of another kind")
        elif kind not in FOLLOWED:
            declared["left_out"].append(f"a {kind} module")
    # Older checkpoints have the kind of their model in the name, as in sentence_roberta_.
    for settings in folder.glob("sentence_*_config.json"):
        values = json.loads(settings.read_text(encoding="utf-8"))
        declared["max_length"] = values.get("max_seq_length")
    return declared


def _task_head(config: Any) -> str | None:
    """The class that wrote a checkpoint, where it has a head for a task of its own."""
    tasks = ("Classification", "QuestionAnswering", "MultipleChoice")
    return next((a for a in config.architectures or () if a.endswith(tasks)), None)


def _pooling_of(flags: dict[str, Any]) -> str | None:
    names = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_lasttoken": "last",
    }
    chosen = [ours for theirs, ours in names.items() if flags.get(theirs)]
    if stated := flags.get("pooling_mode"):
        stated = [stated] if isinstance(stated, str) else stated
        chosen = ["last" if name == "lasttoken" else name for name in stated]
    known = [name for name in chosen if name in names.values()]
    return known[0] if len(known) == len(chosen) == 1 else None
