"""TransformerEncoder on every family: the numbers of Hugging Face's own models."""

from __future__ import annotations

import json
import shutil
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import MAX_LENGTH, make_tiny_model

from skbert import BertVectorizer
from skbert.encoders.packed import PackedStack
from skbert.encoders.tokenizer import PieceTokenizer
from skbert.encoders.transformer import TransformerEncoder, quiet_transformers
from skbert.nn.pooling import pool_words
from skbert.text.encoding import collate

TEXTS = [
    "The quick brown fox",
    "",
    "I hated the music, the pictures and the ending! " * 3,
    "北京是中国的首都",
    "Angela Merkel met Barack Obama in Berlin 🎉.",
    " Un café,\tin Zürich\n",
    "[MASK] or <mask> or </s> or [SEP] inside a text",
    "a",
    "\x00\u200b\ufeff",
]
ODD_WORDS = [
    ["The", "\u200b", "Hague", "."],
    ["", "Berlin", "", "", "Tokyo", ""],
    ["a", "\ufe0f", "b", "\x00", "c", " ", "d", "\u00ad"],
    list("深发展A19.5元"),
    ["🎉", "party", "👩‍👩‍👧"],
    ["do", "n't", "not waiting", " led", "trailed "],
    ["don't"],
    [],
    [""],
    ["x" * 40, "y"],
]
HUGE_WORDS = ["a" * 500, "x", "b" * 500, "的" * 500, "film"]

# Tokenizers that know a word inside running text by the space before it.
SPACED = {"roberta", "modernbert", "longformer", "gpt2"}
# Models that were pretrained with token types. The tokenizers of the last three do not hand
# them out any more since transformers 5, but still know them.
TYPED = {"bert", "electra", "mobilebert", "albert", "big_bird", "xlnet"}
PACKED = {"bert", "roberta", "xlm-roberta", "electra", "big_bird"}
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@cache
def load(folder):
    return TransformerEncoder.from_pretrained(folder)


@cache
def load_reference(folder):
    """The model as a user of Hugging Face would load it, in float32."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    config = AutoConfig.from_pretrained(folder)
    if config.model_type == "big_bird":
        config.attention_type = "original_full"
    auto = AutoModelForTextEncoding if config.model_type == "t5" else AutoModel
    with torch.random.fork_rng(devices=[]), quiet_transformers():  # a pooler is drawn
        model = auto.from_pretrained(folder, config=config, dtype=torch.float32)
    return model.get_encoder() if config.model_type == "bart" else model.eval()


@cache
def load_tokenizer(folder, **options):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, **options)


def encode(encoder, rows, long_text="windows", stride=0, max_length=None):
    return encoder.encode(
        rows,
        max_length=max_length or encoder.max_length,
        long_text=long_text,
        stride=stride,
        parallel=False,
    )[0]


def states_of(encoder, encodings, layers=None):
    """Unpadded states of every window: a list of (n_layers, n_pieces, hidden_size)."""
    layers = range(encoder.n_layers + 1) if layers is None else layers
    with torch.inference_mode():
        hidden = encoder.forward(collate(encodings, encoder.pad_id), layers)
    stacked = torch.stack(hidden.layers, dim=1)
    assert hidden.mask.sum(1).tolist() == [len(e) for e in encodings]
    return [row[:, mask] for row, mask in zip(stacked, hidden.mask, strict=True)]


def reference_states(folder, ids, types):
    """All layers of one unpadded row."""
    model = load_reference(folder)
    inputs = {"input_ids": torch.from_numpy(np.array([ids], np.int64))}
    if model.config.model_type in TYPED:
        inputs["token_type_ids"] = torch.from_numpy(np.array([types], np.int64))
    with torch.inference_mode():
        output = model(**inputs, output_hidden_states=True)
    return torch.cat([*output.hidden_states[:-1], output.last_hidden_state])


def reference_words(folder, words):
    """Ids and types for a list of words, and the word of each piece, by Hugging Face."""
    name = load_reference(folder).config.model_type
    options = {"is_split_into_words": True, "return_token_type_ids": True}
    if name in SPACED - {"modernbert"}:
        inputs = load_tokenizer(folder, add_prefix_space=True)(words, **options)
    else:  # the generic class of ModernBERT has no such parameter
        before = " " if name in SPACED else ""
        words = [before * (word[:1] not in ("", " ")) + word for word in words]
        inputs = load_tokenizer(folder)(words, **options)
    owners = [-1 if word is None else word for word in inputs.word_ids()]
    return inputs["input_ids"], inputs["token_type_ids"], owners


def close(ours, theirs, **tolerance):
    torch.testing.assert_close(ours, theirs, **(tolerance or TOLERANCE))


# The numbers -------------------------------------------------------------------------


def test_pieces_are_those_of_the_tokenizer(model_folder):
    encoder, tokenizer = load(model_folder), load_tokenizer(model_folder)
    for text, encoding in zip(TEXTS, encode(encoder, TEXTS), strict=True):
        inputs = tokenizer(text, return_token_type_ids=True)
        assert encoding.input_ids.tolist() == inputs["input_ids"]
        assert encoding.type_ids.tolist() == inputs["token_type_ids"]


def test_every_layer_is_that_of_hugging_face_without_padding(model_folder):
    encodings = [e for e in encode(load(model_folder), TEXTS) if len(e)]
    assert len({len(encoding) for encoding in encodings}) > 3
    for encoding, ours in zip(
        encodings, states_of(load(model_folder), encodings), strict=True
    ):
        close(ours, reference_states(model_folder, encoding.input_ids, encoding.type_ids))


def test_pairs_are_those_of_hugging_face(model_folder):
    pairs = [
        ("The quick brown fox", "jumps"),
        ("", "Berlin"),
        ("Berlin", ""),
        ("a", "b, c"),
    ]
    encoder, tokenizer = load(model_folder), load_tokenizer(model_folder)
    encodings = encode(encoder, pairs)
    sides = map(list, zip(*pairs, strict=True))
    inputs = tokenizer(*sides, return_token_type_ids=True)
    for number, ours in enumerate(states_of(encoder, encodings)):
        ids, types = inputs["input_ids"][number], inputs["token_type_ids"][number]
        assert encodings[number].input_ids.tolist() == ids
        assert encodings[number].type_ids.tolist() == types
        close(ours, reference_states(model_folder, ids, types))


def test_neighbours_in_a_batch_do_not_matter(model_folder):
    encoder = load(model_folder)
    encodings = [e for e in encode(encoder, TEXTS) if len(e)]
    together = states_of(encoder, encodings)
    backwards = states_of(encoder, encodings[::-1])[::-1]
    for encoding, ours, other in zip(encodings, together, backwards, strict=True):
        close(ours, other)
        close(ours, states_of(encoder, [encoding])[0])


def test_asking_for_one_layer_gives_that_layer(model_folder):
    encoder = load(model_folder)
    encodings = [e for e in encode(encoder, TEXTS[2:5]) if len(e)]
    every = states_of(encoder, encodings)
    for layer in range(encoder.n_layers + 1):
        for ours, expected in zip(
            states_of(encoder, encodings, [layer]), every, strict=True
        ):
            close(ours[0], expected[layer])


def test_layers_come_in_the_order_asked_for(bert_folder):
    encoder = load(bert_folder)
    encodings = encode(encoder, TEXTS[:1])
    (ours,), (every,) = (
        states_of(encoder, encodings, [3, 0, 3]),
        states_of(encoder, encodings),
    )
    close(ours, every[[3, 0, 3]])


def test_a_full_window_is_read(model_folder):
    encoder = load(model_folder)
    (window,) = encode(encoder, ["a b c " * 200], "truncate", max_length=MAX_LENGTH)
    assert len(window) == MAX_LENGTH
    assert states_of(encoder, [window])[0].isfinite().all()


# Words -------------------------------------------------------------------------------


def word_vectors(encoder, row, how="mean", **options):
    """Words that have pieces, and their vectors, from all windows."""
    found = {}
    for window in encode(encoder, [row], **options):
        if len(window):
            states = states_of(encoder, [window], [encoder.n_layers])[0]
            index = torch.from_numpy(np.where(window.owned, window.word_index, -1)[None])
            vectors, _, words, _ = pool_words(states, index.long(), how)
            found.update(zip(words.tolist(), vectors, strict=True))
    return found


@pytest.mark.parametrize("words", ODD_WORDS, ids=repr)
def test_a_word_is_pooled_from_its_own_pieces(model_folder, words):
    ids, types, owners = reference_words(model_folder, words)
    ours = word_vectors(load(model_folder), words)
    assert sorted(ours) == sorted(set(owners) - {-1})
    if ours:
        theirs = reference_states(model_folder, ids, types)[-1]
        for word, vector in ours.items():
            close(vector, theirs[torch.tensor(owners) == word].mean(0))


@pytest.mark.parametrize(
    "words", [ODD_WORDS[3], list("我爱北京天安门")], ids=["mixed", "pure"]
)
def test_characters_given_as_words_stay_words(model_folder, words):
    assert sorted(word_vectors(load(model_folder), words)) == [*range(len(words))]


def test_words_read_as_inside_running_text(model_folder):
    """FAULTS A4: "hello world" as words has the pieces of the text " hello world"."""
    encoder = load(model_folder)
    text = " The old man met the young woman"
    (as_words,) = encode(encoder, [text.split()])
    (as_text,) = encode(encoder, [text])
    assert as_words.input_ids.tolist() == as_text.input_ids.tolist()


@pytest.mark.parametrize("stride", [0, 10])
def test_every_one_of_700_words_has_a_vector(model_folder, stride):
    encoder = load(model_folder)
    words = ("the cast was good and Zürich schön " * 100).split()
    windows = encode(encoder, [words], stride=stride, max_length=40)
    owned = [w.word_index[w.owned & (w.word_index >= 0)] for w in windows]
    assert sorted(set(np.concatenate(owned).tolist())) == [*range(700)]
    assert all((w[1:] >= w[:-1]).all() for w in owned)
    # A window is what its words alone would be.
    for window in windows[:: len(windows) // 3]:
        inside = window.word_index[window.word_index >= 0]
        (alone,) = encode(encoder, [words[inside[0] : inside[-1] + 1]])
        assert alone.input_ids.tolist() == window.input_ids.tolist()
        close(states_of(encoder, [alone])[0], states_of(encoder, [window])[0])


def test_words_longer_than_a_window(model_folder):
    encoder = load(model_folder)
    for long_text in ("windows", "truncate"):
        windows = encode(encoder, [HUGE_WORDS], long_text, max_length=MAX_LENGTH)
        assert all(len(window) <= MAX_LENGTH for window in windows)
    words = word_vectors(encoder, HUGE_WORDS, max_length=MAX_LENGTH)
    assert sorted(words) == [*range(len(HUGE_WORDS))]


def test_words_too_long_for_the_vocabulary_are_reported(bert_folder):
    """FAULTS A6: 100 characters are read, 101 are one unknown piece."""
    options = {"max_length": 64, "long_text": "windows", "stride": 0, "parallel": False}
    rows = [["a" * 100], ["a" * 101], ["☃"], ["ok"]]
    encodings, report = load(bert_folder).encode(rows, **options)
    assert report.long_words == {1}
    assert report.n_unknown == 2
    assert [e.sample_index for e in encodings if len(e) == 3] == [1, 2]


def test_chinese_text_without_spaces_is_no_long_word(bert_folder):
    options = {"max_length": 64, "long_text": "windows", "stride": 0, "parallel": False}
    rows = ["这部电影很好," * 30 + "☃", "a." * 80 + "☃", "我 " + "a" * 101]
    assert load(bert_folder).encode(rows, **options)[1].long_words == {2}


# Facts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "summary", "language_model", "longest"),
    [
        ("bert", "first", "masked", 64),
        ("roberta", "first", "masked", 64),  # 66 positions, of which two are never used
        ("xlm-roberta", "first", "masked", 64),
        ("mpnet", "first", "masked", 64),
        ("longformer", "first", "masked", 64),
        ("albert", "first", "masked", 64),
        ("distilbert", "first", "masked", 64),
        ("electra", "first", "masked", 64),
        ("xlnet", "last", "masked", None),
        ("gpt2", None, "causal", 64),
        ("t5", None, "masked", None),
    ],
)
def test_facts(tiny_models, family, summary, language_model, longest):
    encoder = load(tiny_models(family))
    traits = encoder.traits
    assert (traits.summary_piece, traits.language_model) == (summary, language_model)
    assert encoder.longest == longest
    assert encoder.hidden_size == 32 and encoder.n_layers == 3


@pytest.fixture
def altered(tmp_path, bert_folder):
    """A copy of a checkpoint with a file removed or JSON values changed."""

    def alter(file, values, folder=bert_folder):
        copy = tmp_path / "copy"
        if not copy.exists():
            shutil.copytree(folder, copy)
        if values is None:
            (copy / file).unlink()
        else:
            path = copy / file
            old = json.loads(path.read_text()) if path.exists() else {}
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                json.dumps(values if isinstance(values, list) else old | values)
            )
        return copy

    return alter


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, 64),  # FAULTS D1: then transformers says 1e30
        ({"model_max_length": 1e30}, 64),
        ({"model_max_length": 20}, 20),
        ({"model_max_length": 512}, 64),
    ],
)
def test_max_length_is_a_sane_one(altered, settings, expected):
    folder = altered("tokenizer_config.json", settings)
    assert TransformerEncoder.from_pretrained(folder).max_length == expected


def test_xlnet_without_a_limit_reads_512(tiny_models):
    assert load(tiny_models("xlnet")).max_length == 512


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
        ({"pooling_mode_weightedmean_tokens": True}, "mean"),  # not ours: the default
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, "mean"),
    ],
)
def test_use_declared_by_sentence_transformers(altered, flags, expected):
    module = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
    altered("modules.json", [module])
    altered("sentence_bert_config.json", {"max_seq_length": 24})
    encoder = TransformerEncoder.from_pretrained(altered("1_Pooling/config.json", flags))
    assert encoder.traits.pooling == expected
    assert encoder.max_length == 24


@pytest.mark.parametrize(
    ("kind", "flags", "left_out"),
    [
        ("Normalize", {"pooling_mode": "mean"}, None),
        ("Dense", {"pooling_mode": "mean"}, "a Dense module"),
        ("Normalize", {"pooling_mode": "weightedmean"}, "a pooling of another kind"),
    ],
)
def test_what_is_left_out_of_a_checkpoint_is_told(altered, kind, flags, left_out):
    paths = {"Transformer": "", "Pooling": "1_Pooling", kind: "2_" + kind}
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": path}
        for name, path in paths.items()
    ]
    altered("modules.json", modules)
    altered("sentence_roberta_config.json", {"max_seq_length": 24})
    folder = altered("1_Pooling/config.json", flags)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectorizer = BertVectorizer(folder).fit(["good"])
        vectorizer.transform(["good"])
        BertVectorizer(folder, pooling="mean").fit(["good"])
        BertVectorizer(folder, output="words").fit([["good"]])
    assert vectorizer.max_length_ == 24
    assert len(caught) == (left_out is not None)
    assert all(left_out in str(warning.message) for warning in caught)


def test_truncation_and_padding_in_the_file_are_ignored(altered, bert_folder):
    settings = {
        "truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 50}, "direction": "Left", "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[PAD]", "pad_to_multiple_of": None},
    }  # fmt: skip
    ours = TransformerEncoder.from_pretrained(altered("tokenizer.json", settings))
    for left, right in zip(
        encode(ours, TEXTS), encode(load(bert_folder), TEXTS), strict=True
    ):
        assert left.input_ids.tolist() == right.input_ids.tolist()


def test_padding_side_of_the_checkpoint_does_not_matter(altered, bert_folder):
    ours = TransformerEncoder.from_pretrained(
        altered("tokenizer_config.json", {"padding_side": "left"})
    )
    encodings = encode(ours, TEXTS)
    for left, right in zip(
        states_of(ours, encodings), states_of(load(bert_folder), encodings), strict=True
    ):
        assert torch.equal(left, right)


@pytest.fixture(scope="module")
def bart_folder(tmp_path_factory):
    """BART: a model without an encoder class of its own."""
    from transformers import BartConfig, BartModel, BartTokenizer

    folder = tmp_path_factory.mktemp("bart")
    roberta = make_tiny_model("roberta", tmp_path_factory.mktemp("roberta"))
    content = json.loads((roberta / "tokenizer.json").read_text())["model"]
    merges = [tuple(pair) for pair in content["merges"]]
    tokenizer = BartTokenizer(vocab=content["vocab"], merges=merges)
    sizes = {
        f"{half}_{name}": size
        for half in ("encoder", "decoder")
        for name, size in [("layers", 3), ("ffn_dim", 64), ("attention_heads", 4)]
    }
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=32, max_position_embeddings=64, **sizes
    )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(0)
        BartModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_only_the_encoder_half_of_bart_is_read(bart_folder):
    encoder = load(bart_folder)
    assert (encoder.longest, encoder.n_layers) == (64, 3)
    assert (encoder.traits.summary_piece, encoder.traits.language_model) == (
        "first",
        "masked",
    )
    assert not [name for name in encoder.state()["weights"] if "decoder" in name]
    encodings = encode(encoder, TEXTS)
    for encoding, ours in zip(encodings, states_of(encoder, encodings), strict=True):
        close(ours, reference_states(bart_folder, encoding.input_ids, None))


# State -------------------------------------------------------------------------------


def test_state_gives_the_same_encoder_to_the_bit(model_folder):
    encoder = load(model_folder)
    copy = TransformerEncoder.from_state(encoder.state())
    rows = TEXTS if encoder.n_special(1) else [t for t in TEXTS if t]
    encodings = encode(encoder, rows)
    for left, right in zip(encodings, encode(copy, rows), strict=True):
        assert left.input_ids.tolist() == right.input_ids.tolist()
        assert left.word_index.tolist() == right.word_index.tolist()
    for left, right in zip(
        states_of(encoder, encodings), states_of(copy, encodings), strict=True
    ):
        assert torch.equal(left, right)
    for fact in ("max_length", "longest", "pad_id", "traits", "hidden_size", "n_layers"):
        assert getattr(copy, fact) == getattr(encoder, fact)
    assert copy.fingerprint() == encoder.fingerprint()


def test_state_is_plain_and_survives_another_round(model_folder):
    state = load(model_folder).state()
    assert {type(value) for value in state.values()} == {str, dict}
    assert {type(array) for array in state["weights"].values()} == {np.ndarray}
    again = TransformerEncoder.from_state(state).state()
    assert {k: v for k, v in again.items() if k != "weights"} == {
        k: v for k, v in state.items() if k != "weights"
    }
    for name, array in state["weights"].items():
        assert np.array_equal(array, again["weights"][name])


def test_state_gives_the_same_arrays_at_every_call(model_folder):
    first, second = (load(model_folder).state()["weights"] for _ in range(2))
    assert all(first[name] is second[name] for name in first)


def test_no_weight_is_copied(model_folder):
    encoder = load(model_folder)
    arrays = encoder.state()["weights"]
    for model in (encoder.model, TransformerEncoder.from_state(encoder.state()).model):
        for name, tensor in model.state_dict().items():
            assert tensor.numpy().ctypes.data == arrays[name].ctypes.data, name


def test_state_may_be_a_read_only_memory_map(tmp_path, bert_folder):
    encoder = load(bert_folder)
    state = dict(encoder.state(), weights={})
    for name, array in encoder.state()["weights"].items():
        np.save(tmp_path / f"{name}.npy", array)
        state["weights"][name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    copy = TransformerEncoder.from_state(state)
    encodings = encode(encoder, TEXTS)
    assert torch.equal(states_of(copy, encodings)[0], states_of(encoder, encodings)[0])


def test_state_of_a_foreign_class_is_refused(bert_folder):
    state = dict(load(bert_folder).state())
    for path in ("os.system", "torch.nn.Linear", "transformers.models.bert.nothing",
                 "transformers.models.bert.modeling_bert.BertLayer"):  # fmt: skip
        state["facts"] = json.dumps(json.loads(state["facts"]) | {"class": path})
        with pytest.raises(ValueError, match="not a model class"):
            TransformerEncoder.from_state(state)


def test_fingerprint_tells_weights_and_vocabularies_apart(
    tiny_models, bert_folder, altered
):
    prints = {
        load(bert_folder).fingerprint(),
        load(tiny_models("bert", seed=1)).fingerprint(),
        load(tiny_models("electra")).fingerprint(),
    }
    state = dict(load(bert_folder).state())
    state["tokenizer"] = state["tokenizer"].replace(
        '"lowercase": true', '"lowercase": false'
    )
    prints.add(TransformerEncoder.from_state(state).fingerprint())
    assert len(prints) == 4


# Devices and number formats ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_number_formats_leave_the_weights_alone(model_folder, dtype):
    encoder = TransformerEncoder.from_pretrained(model_folder)
    before = {name: array.copy() for name, array in encoder.state()["weights"].items()}
    placed = encoder.placed(torch.device("cpu"), dtype)
    encodings = [e for e in encode(placed, TEXTS) if len(e)]
    ours = states_of(placed, encodings, [placed.n_layers])
    assert {state.dtype for state in ours} == {dtype}
    for left, right in zip(ours, states_of(encoder, encodings, [3]), strict=True):
        assert right.dtype == torch.float32
        assert (left.float() - right).abs().max() < 0.1 * right.abs().max()
    for name, array in encoder.state()["weights"].items():
        assert array.dtype == before[name].dtype and np.array_equal(array, before[name])
    assert placed.state() is encoder.state()


def test_an_encoder_is_placed_once(bert_folder):
    encoder = load(bert_folder)
    cpu = torch.device("cpu")
    assert encoder.placed(cpu, torch.float32) is encoder
    assert encoder.placed(cpu, torch.bfloat16) is encoder.placed(cpu, torch.bfloat16)


# The packed stack --------------------------------------------------------------------


def test_packed_is_used_where_it_fits(model_folder):
    model = load(model_folder).model
    assert PackedStack(model).fits == (model.config.model_type in PACKED)


@pytest.mark.parametrize("family", sorted(PACKED))
@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 7, 7, 2], [1], [5, 9, 5]])
def test_packed_equals_the_padded_forward(tiny_models, family, lengths):
    model = load(tiny_models(family)).model
    lengths = np.array(lengths)
    mask = torch.arange(lengths.max()) < torch.from_numpy(lengths)[:, None]
    ids = torch.arange(5, 5 + mask.numel()).view(mask.shape)
    inputs = {"input_ids": ids.masked_fill(~mask, model.config.pad_token_id)}
    with torch.inference_mode():
        ours = PackedStack(model).forward(inputs, mask, lengths, [0, 1, 2, 3])
        theirs = model(**inputs, attention_mask=mask.long(), output_hidden_states=True)
    for left, right in zip(ours.layers, theirs.hidden_states, strict=True):
        close(left[mask], right[mask])


def change_scale(model):
    model.encoder.layer[0].attention.self.scaling *= 1.05


def change_activation(model):
    model.encoder.layer[1].output.forward = lambda states, residual: residual


def change_linear(model):
    class Doubled(torch.nn.Linear):
        def forward(self, states):
            return 2 * super().forward(states)

    inner = model.encoder.layer[2].intermediate
    weights = inner.dense.state_dict()
    inner.dense = Doubled(32, 64)
    inner.dense.load_state_dict(weights)


def add_child(model):
    model.encoder.layer[0].adapter = torch.nn.Linear(32, 32)


def wrap_encoder(model):
    inner = model.encoder.forward
    model.encoder.forward = lambda states, *args, **kwargs: inner(
        states + 1, *args, **kwargs
    )


def make_decoder(model):
    model.config.is_decoder = True


@pytest.mark.parametrize(
    "change",
    [change_scale, change_activation, change_linear, add_child, wrap_encoder, make_decoder],
)
def test_packed_refuses_look_alikes(bert_folder, change):
    model = TransformerEncoder.from_pretrained(bert_folder).model
    assert PackedStack(model).fits
    change(model)
    assert not PackedStack(model).fits


# Odd tokenizers ----------------------------------------------------------------------


def piece_tokenizer(model, pre_tokenizer=None, post_processor=None, added=(), **facts):
    from tokenizers import Tokenizer

    backend = Tokenizer(model)
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    if post_processor is not None:
        backend.post_processor = post_processor
    backend.add_special_tokens(list(added))
    names = {"cls_id": None, "unk_id": None, "pad_id": None, "max_length": 64}
    return PieceTokenizer(
        backend.to_str(), {**names, "input_names": ["input_ids"], **facts}
    )


def test_a_tokenizer_without_pre_tokenizer_reads_a_text_as_one_word():
    from tokenizers.models import BPE

    vocab = {piece: i for i, piece in enumerate("abc 1")}
    tokenizer = piece_tokenizer(BPE(vocab, []), added=["[MASK]"])
    (pieces,) = tokenizer.texts(["ab ba[MASK]c"], parallel=False)
    assert pieces.ids.tolist() == [0, 1, 3, 1, 0, 5, 2]
    assert (np.diff(pieces.words) >= 0).all() and pieces.words[0] == 0
    (pieces,) = tokenizer.words([["ab", "", "[MASK]", "c"]], parallel=False)
    assert pieces.words[pieces.ids < 3].tolist() in ([0, 0, 3], [0, 0, 0, 3, 3])


def test_a_tokenizer_that_knows_none_of_the_probes_is_refused():
    from tokenizers.models import BPE

    with pytest.raises(ValueError, match="no piece"):
        piece_tokenizer(BPE({"z": 0}, []))


def test_special_pieces_are_read_inside_a_text(bert_folder):
    tokenizer = load(bert_folder).tokenizer
    (pieces,) = tokenizer.texts(["[MASK][SEP] [CLS]"], parallel=False)
    assert pieces.ids.tolist() == [4, 3, 2]
    assert pieces.words.tolist() == [0, 1, 2]


def test_one_by_one_and_in_parallel_are_the_same(model_folder):
    tokenizer = load(model_folder).tokenizer
    for read, rows in [(tokenizer.texts, TEXTS), (tokenizer.words, ODD_WORDS)]:
        for one, other in zip(
            read(rows, parallel=False), read(rows, parallel=True), strict=True
        ):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.words.tolist() == other.words.tolist()


# Extremes ----------------------------------------------------------------------------


@pytest.mark.parametrize("long_text", ["windows", "truncate", "head_tail"])
@pytest.mark.parametrize("stride", [0, 1])
def test_the_smallest_window(model_folder, long_text, stride):
    encoder = load(model_folder)
    length = encoder.n_special(1) + 1 + stride
    windows = encode(encoder, ["the good film", "a"], long_text, stride, length)
    assert max(map(len, windows)) <= length
    assert {window.sample_index for window in windows} == {0, 1}
    assert all(window.owned.any() for window in windows)


def test_books_are_read_in_reasonable_time(bert_folder, stopwatch):
    encoder = load(bert_folder)
    book = "the good film and the bad story of a man " * 10_000
    with stopwatch(10):  # under a second on an idle core
        assert len(encode(encoder, [book])) > 1000
        assert len(encode(encoder, [book], "truncate")) == 1
        assert len(encode(encoder, [book.split()])) > 1000


@pytest.fixture
def stopwatch():
    import time
    from contextlib import contextmanager

    @contextmanager
    def under(seconds):
        start = time.process_time()
        yield
        assert time.process_time() - start < seconds

    return under


def test_loading_says_nothing(model_folder: Path, capfd):
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    TransformerEncoder.from_pretrained(model_folder)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (verbosity, bars)
