"""A fine-tuned encoder and head as a standard checkpoint of transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from skbert.encoders.transformer import quiet_transformers
from skbert.nn.heads import hidden_activations
from skbert.text.encoding import Encoding, collate

# Where the classifiers of transformers keep their two linear layers, with a tanh between
# them: BERT and MobileBERT, ALBERT, DeBERTa, RoBERTa and MPNet.
HEADS = (
    ("{base}.pooler.dense", "classifier"),
    ("{base}.pooler", "classifier"),
    ("pooler.dense", "classifier"),
    ("classifier.dense", "classifier.out_proj"),
)
# Settings with which these heads have that tanh.
CONFIG = {"pooler_hidden_act": "tanh", "classifier_activation": True}
# tanh(s x) / s is x, to the precision of float32; a power of two rounds nothing.
SMALL = 2.0**-13
PROBES = ("a", "the 1 的。", "a the the 1 1 a")


def export_classifier(
    encoder: Any,
    head: Sequence[tuple[np.ndarray, np.ndarray]],
    settings: dict[str, Any],
    max_length: int,
    folder: Path,
    caller: str,
) -> None:
    """Write what ``AutoModelForSequenceClassification`` and pipelines open.

    Parameters
    ----------
    encoder : TransformerEncoder
    head : sequence of (weight, bias)
        Linear layers over the summary piece, with tanh between them; one or two.
    settings : dict
        Of the configuration: labels and kind of problem.
    max_length : int
        Pieces at which the tokenizer truncates when it is asked to.
    folder : Path
    caller : str
        For errors.

    Raises
    ------
    ValueError
        If the family's classifier in transformers computes something else.
    """
    from transformers import AutoModelForSequenceClassification

    model = _with_encoder(AutoModelForSequenceClassification, encoder, settings)
    if model is None or not _set_head(model, head):
        raise _refusal(encoder, caller)
    tokenizer = _tokenizer(encoder, max_length)
    if not _agree(model, tokenizer, encoder, head):
        raise _refusal(encoder, caller)
    _write(model, tokenizer, folder)


def export_tagger(
    encoder: Any,
    head: tuple[np.ndarray, np.ndarray],
    tags: Sequence[str],
    max_length: int,
    folder: Path,
    caller: str,
) -> None:
    """Write what ``AutoModelForTokenClassification`` and pipelines open.

    Parameters
    ----------
    encoder : TransformerEncoder
    head : tuple of (weight, bias)
        A linear layer over the first piece of each word.
    tags : sequence of str
        In the order of the outputs.
    max_length : int
        Pieces at which the tokenizer truncates when it is asked to.
    folder : Path
    caller : str
        For errors.

    Raises
    ------
    ValueError
        If the family's tagger in transformers computes something else.
    """
    from transformers import AutoModelForTokenClassification

    settings = {
        "id2label": dict(enumerate(tags)),
        "label2id": {tag: i for i, tag in enumerate(tags)},
    }
    model = _with_encoder(AutoModelForTokenClassification, encoder, settings)
    linear = getattr(model, "classifier", None)
    if not isinstance(linear, nn.Linear):
        raise _refusal(encoder, caller)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.array(head[0])))
        linear.bias.copy_(torch.from_numpy(np.array(head[1])))
    tokenizer = _tokenizer(encoder, max_length, words=True)
    if not _agree_on_words(model, tokenizer, encoder, head):
        raise _refusal(encoder, caller)
    _write(model, tokenizer, folder)


def _with_encoder(auto_class: Any, encoder: Any, settings: dict[str, Any]) -> Any:
    """A model of transformers around the encoder's weights, None if there is none."""
    from transformers import AutoConfig

    values = json.loads(encoder.state()["config"]) | settings
    # Other families have other settings of the same names.
    values |= {k: v for k, v in CONFIG.items() if type(values.get(k)) is type(v)}
    values.pop("architectures", None)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            model = auto_class.from_config(config).eval()
    except ValueError:
        return None
    base = getattr(model, model.base_model_prefix, None)
    if base is None:
        return None
    unexpected = base.load_state_dict(encoder.model.state_dict(), strict=False)[1]
    return None if unexpected else model


def _write(model: Any, tokenizer: Any, folder: Path) -> None:
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _refusal(encoder: Any, caller: str) -> ValueError:
    return ValueError(
        f"{caller} cannot be exported: what transformers has for "
        f"{type(encoder.model).__name__} computes something else than this head. Use save."
    )


def _set_head(model: Any, head: Sequence[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Put the head into the two linear layers; False if there is no place for it."""
    *hidden, (out_weight, out_bias) = [
        (torch.from_numpy(weight), torch.from_numpy(bias)) for weight, bias in head
    ]
    for names in HEADS:
        try:
            dense, out = (
                model.get_submodule(name.format(base=model.base_model_prefix))
                for name in names
            )
        except AttributeError:
            continue
        if isinstance(dense, nn.Linear) and isinstance(out, nn.Linear):
            break
    else:
        return False
    width = dense.out_features
    if not hidden:
        eye = torch.eye(width) * SMALL
        hidden, out_weight = [(eye, torch.zeros(width))], out_weight / SMALL
    if len(hidden) > 1 or len(hidden[0][0]) > width or out.bias is None:
        return False
    weight, bias = hidden[0]
    with torch.no_grad():
        for parameter in (dense.weight, dense.bias, out.weight, out.bias):
            parameter.zero_()
        # Units that the head does not have give tanh(0) and are not read.
        dense.weight[: len(weight)] = weight
        dense.bias[: len(bias)] = bias
        out.weight[:, : len(weight)] = out_weight
        out.bias.copy_(out_bias)
    return True


def _tokenizer(encoder: Any, max_length: int, *, words: bool = False) -> Any:
    """The encoder's tokenizer for transformers; it reads a text as its words if asked."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    content = json.loads(encoder.tokenizer.json)
    if words and encoder.tokenizer.needs_space:
        # The first word is read as one inside a text.
        parts = [content["pre_tokenizer"], content["post_processor"]]
        parts += parts[0].get("pretokenizers", ())
        for part in parts:
            if "add_prefix_space" in (part or {}):
                part["add_prefix_space"] = True
    backend = Tokenizer.from_str(json.dumps(content))
    facts = encoder.tokenizer.facts
    ids = {"pad_token": facts["pad_id"], "unk_token": facts["unk_id"]}
    ids["cls_token"] = facts["cls_id"]
    special = {
        name: backend.id_to_token(id_) for name, id_ in ids.items() if id_ is not None
    }
    names = [name for name in facts["input_names"] if name != "token_type_ids"]
    if encoder.takes_types:  # of ALBERT transformers sends none, unless it is told
        names.append("token_type_ids")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        model_input_names=names,
        **special,
    )


@torch.inference_mode()
def _agree(model: Any, tokenizer: Any, encoder: Any, head: Any) -> bool:
    """Try both ways: heads of the same names may have other activations or norms."""
    for row in (*PROBES, PROBES[1:]):  # the last is a pair
        _, states = _read(encoder, row)
        values = hidden_activations(head, states[0])
        texts = [row] if isinstance(row, str) else row
        inputs = tokenizer(*texts, truncation=True, return_tensors="pt")
        if not _close(model(**inputs).logits[0], values, *head[-1]):
            return False
    return True


@torch.inference_mode()
def _agree_on_words(model: Any, tokenizer: Any, encoder: Any, head: Any) -> bool:
    """Try both ways, from words to the outputs of their pieces."""
    for text in PROBES:
        window, states = _read(encoder, text.split())
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
        if inputs["input_ids"][0].tolist() != window.input_ids.tolist():
            return False
        if not _close(model(**inputs).logits[0], states, *head):
            return False
    return True


def _read(encoder: Any, row: Any) -> tuple[Encoding, np.ndarray]:
    """The first window of a row, and the last layer's states of its pieces, float64."""
    (window, *_), _ = encoder.encode(
        [row],
        max_length=encoder.max_length,
        long_text="truncate",
        stride=0,
        parallel=False,
    )
    states = encoder.forward(collate([window], encoder.pad_id), [encoder.n_layers])
    return window, states.layers[0][0].double().numpy()


def _close(
    theirs: torch.Tensor, values: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> bool:
    """Whether outputs are those of a linear layer, to the precision of float32."""
    scale = np.abs(weight).max() * np.abs(values).max() + np.abs(bias).max()
    apart = np.abs(values @ weight.T + bias - theirs.double().numpy()).max()
    return bool(apart <= 1e-4 * scale)
