"""The mix of layers: by hand, and against the original programs where shared/elmo is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from skbert.nn.scalar_mix import ScalarMix

SHARED = Path(__file__).resolve().parents[3] / "shared" / "elmo"


def mix_of(weights, gamma, **options):
    mix = ScalarMix(len(weights), **options)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(weights))
        mix.gamma.fill_(gamma)
    return mix


def layers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_starts_as_the_mean():
    values = layers(5, 3, 4)
    torch.testing.assert_close(ScalarMix(3)(values), values.mean(1))


def test_by_hand():
    """Weights of log 1, log 2 and log 5 are shares of 1, 2 and 5 eighths."""
    mix = mix_of(np.log([1.0, 2.0, 5.0]), 4.0)
    values = torch.tensor([[[8.0, 0.0], [4.0, 2.0], [0.0, 8.0]]])
    expected = torch.tensor([[4 * (1 + 1), 4 * (0.5 + 5)]])
    torch.testing.assert_close(mix(values), expected)
    torch.testing.assert_close(mix(values[0]), expected[0])
    # as users pick one layer
    torch.testing.assert_close(mix_of([-9e10, 0.0, -9e10], 1.0)(values), values[:, 1])


def test_layer_norm_by_hand():
    """Each layer by its own mean and variance, of the tokens that count only."""
    values = layers(2, 3, 2, 4) * torch.tensor([[1.0], [9.0]]) + 5
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = mix_of([0.0, 0.0], 2.0, layer_norm_eps=0.5)(values, mask)
    for layer in range(2):
        of_layer = values[:, :, layer]
        counted = of_layer[mask].numpy()
        of_layer.sub_(float(counted.mean())).div_(float(np.sqrt(counted.var() + 0.5)))
    torch.testing.assert_close(found, values.sum(2))


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_gradients(eps):
    mix = mix_of([0.5, -0.2, 0.1], 1.5, layer_norm_eps=eps).double()
    values = layers(4, 3, 2).double().requires_grad_()
    mask = torch.tensor([True, True, False, True])

    def mixed(values, weights, gamma):
        given = {"weights": weights, "gamma": gamma}
        return torch.func.functional_call(mix, given, (values, mask))

    assert torch.autograd.gradcheck(mixed, (values, mix.weights, mix.gamma))


def test_autocast_does_not_round():
    mix, values = ScalarMix(3), layers(5, 3, 4)
    expected = mix(values)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mix(values), expected)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/elmo")
def test_the_originals():
    """Every array of the original programs, markers counted and not."""
    pytest.importorskip("h5py")
    from skbert.encoders.elmo_formats import read_allennlp
    from skbert.text.encoding import collate

    about = json.loads((SHARED / "cases" / "mix.json").read_text(encoding="utf-8"))
    expected = np.load(SHARED / "cases" / "mix.npz")
    seen = set()
    for case in about["cases"]:
        folder = SHARED / case["model"]
        encoder = read_allennlp(folder / "options.json", folder / "lm_weights.hdf5")
        encodings, _ = encoder.encode(
            about["sentences"],
            max_length=encoder.max_length,
            long_text="truncate",
            stride=0,
            parallel=False,
        )
        encodings.sort(key=lambda encoding: encoding.sample_index)
        batch = collate(encodings, encoder.pad_id)
        hidden = encoder.forward(batch, range(encoder.n_layers + 1))
        stacked = torch.stack(hidden.layers, dim=2)
        words = torch.from_numpy(batch.word_index >= 0)
        weights, gamma = case["weights"], case["gamma"]
        top = [*[-9e10] * encoder.n_layers, 0.0]
        found = {
            "plain": mix_of(weights, gamma)(stacked),
            "top": mix_of(top, 1.0)(stacked),
            "layernorm_tf": mix_of(weights, gamma, layer_norm_eps=1e-12)(stacked, words),
            "layernorm_allennlp": mix_of(weights, gamma, layer_norm_eps=1e-13)(
                stacked, hidden.mask
            ),
        }
        for kind, mixed in found.items():
            for at, row in enumerate(mixed):
                name = f"{case['name']}_{kind}_s{at}"
                ours = row[words[at]].detach().numpy()
                np.testing.assert_allclose(ours, expected[name], rtol=0, atol=1e-5)
                seen.add(name)
    assert seen == set(expected.files)
