"""Pooling against plain loops, and never a look at a pad."""

from __future__ import annotations

import pytest
import torch

from skbert.nn.hidden_states import HiddenStates
from skbert.nn.pooling import pool_pieces, pool_words

HOWS = ["mean", "max", "first", "last"]
N_ROWS, N_PIECES, SIZE = 5, 9, 4


def draw_states(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N_ROWS, N_PIECES, SIZE, generator=generator).to(dtype)


def masks():
    """Pads on the right, on the left, and holes (pieces that another window owns)."""
    lengths = torch.tensor([9, 5, 1, 3, 8])[:, None]
    right = torch.arange(N_PIECES) < lengths
    holes = torch.rand(N_ROWS, N_PIECES, generator=torch.Generator().manual_seed(1)) > 0.5
    holes[:, 4] = True
    return {"right": right, "left": right.flip(1), "holes": holes}


def pool_one(pieces, how):
    """The definition."""
    pieces = pieces.float()
    if how in {"first", "last"}:
        return pieces[0 if how == "first" else -1]
    return pieces.mean(0) if how == "mean" else pieces.max(0).values


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_pool_pieces_is_a_plain_loop(how, side):
    states, mask = draw_states(), masks()[side]
    expected = [pool_one(row[m], how) for row, m in zip(states, mask, strict=True)]
    assert torch.allclose(pool_pieces(states, mask, how), torch.stack(expected), atol=1e-6)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("side", ["right", "left", "holes"])
@pytest.mark.parametrize("filler", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_pads_do_not_leak(how, side, filler):
    states, mask = draw_states(), masks()[side]
    spoilt = states.masked_fill(~mask.unsqueeze(-1), filler)
    assert torch.equal(pool_pieces(spoilt, mask, how), pool_pieces(states, mask, how))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_are_float32(how, dtype):
    states, mask = draw_states(dtype), masks()["right"]
    index = torch.where(mask, 0, -1)
    assert pool_pieces(states, mask, how).dtype == torch.float32
    assert pool_words(states, index, how)[0].dtype == torch.float32


def test_half_precision_is_summed_in_float32():
    # 1 + 1/128 is exact in bfloat16, 400 times as much is not
    states = torch.full((1, 400, 1), 1 + 1 / 128, dtype=torch.bfloat16)
    mask = torch.ones(1, 400, dtype=torch.bool)
    assert pool_pieces(states, mask, "mean").item() == 1 + 1 / 128
    assert (
        pool_words(states, torch.zeros(1, 400, dtype=torch.long), "mean")[0] == 1 + 1 / 128
    )


def test_float16_does_not_overflow():
    states = torch.full((1, 400, 1), 60_000.0, dtype=torch.float16)
    mask = torch.ones(1, 400, dtype=torch.bool)
    assert pool_pieces(states, mask, "mean").item() == 60_000


# Words -------------------------------------------------------------------------------

WORD_INDEX = {
    "plain": [[-1, 0, 0, 1, 2, 2, 2, 3, -1], [-1, 0, 1, -1, -1, -1, -1, -1, -1]],
    "gaps": [[-1, 1, 1, 4, 7, 7, -1, -1, -1], [3, 3, 3, 3, 3, 9, 9, 9, 9]],
    "no words": [[-1] * 9, [-1, 5, 5, -1, -1, -1, -1, -1, -1], [-1] * 9],
    "left": [[-1, -1, -1, -1, 0, 0, 1, 2, -1], [-1, -1, -1, -1, -1, -1, -1, 0, -1]],
    "same number in neighbouring rows": [[-1, 0, 0, 0, 1, 1, 1, 1, 1], [1] * 9, [1] * 9],
}


def pool_words_by_loop(states, word_index, how):
    for row, index in enumerate(word_index):
        for word in index[index >= 0].unique().tolist():
            pieces = states[row][index == word]
            yield pool_one(pieces, how), row, word, len(pieces)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("index", WORD_INDEX.values(), ids=WORD_INDEX)
def test_pool_words_is_a_plain_loop(how, index):
    word_index = torch.tensor(index)
    states = draw_states()[: len(index)]
    expected = list(pool_words_by_loop(states, word_index, how))
    vectors, rows, words, counts = pool_words(states, word_index, how)
    assert torch.allclose(vectors, torch.stack([e[0] for e in expected]), atol=1e-6)
    found = zip(rows.tolist(), words.tolist(), counts.tolist(), strict=True)
    assert list(found) == [e[1:] for e in expected]


@pytest.mark.parametrize("how", HOWS)
def test_stacked_layers_are_pooled_each_alone(how):
    word_index = torch.tensor(WORD_INDEX["gaps"])
    layers = [draw_states()[:2], draw_states()[:2] * 2 - 1]
    expected = [pool_words(layer, word_index, how)[0] for layer in layers]
    vectors = pool_words(torch.stack(layers, dim=2), word_index, how)[0]
    torch.testing.assert_close(vectors, torch.stack(expected, dim=1))


@pytest.mark.parametrize("how", HOWS)
def test_pool_words_without_any_word(how):
    vectors, rows, words, counts = pool_words(
        draw_states(), torch.full((N_ROWS, N_PIECES), -1), how
    )
    assert vectors.shape == (0, SIZE)
    assert len(rows) == len(words) == len(counts) == 0


@pytest.mark.parametrize("how", HOWS)
def test_pieces_of_no_word_do_not_leak(how):
    states = draw_states()[:2]
    word_index = torch.tensor(WORD_INDEX["gaps"])
    spoilt = states.masked_fill((word_index < 0).unsqueeze(-1), torch.nan)
    expected = pool_words(states, word_index, how)[0]
    assert torch.equal(pool_words(spoilt, word_index, how)[0], expected)


# Layers ------------------------------------------------------------------------------


def stack(dtype=torch.float32):
    layers = [draw_states(dtype), draw_states(dtype) * 2, draw_states(dtype) - 1]
    return HiddenStates(tuple(layers), masks()["right"])


def test_combine_is_what_it_says():
    hidden = stack()
    a, b, c = hidden.layers
    assert torch.allclose(hidden.combine("mean"), (a + b + c) / 3, atol=1e-6)
    assert torch.allclose(hidden.combine("sum"), a + b + c, atol=1e-6)
    assert torch.equal(hidden.combine("concat"), torch.cat([a, b, c], dim=2))
    assert torch.equal(hidden.combine("stack").unbind(2)[1], b)


@pytest.mark.parametrize("how", ["mean", "sum", "concat"])
def test_one_layer_is_itself(how):
    hidden = HiddenStates((draw_states(),), masks()["right"])
    assert hidden.combine(how) is hidden.layers[0]
    assert torch.equal(hidden.combine("stack"), hidden.layers[0].unsqueeze(2))


def test_layers_in_half_precision_are_summed_in_float32():
    layer = torch.full((1, 1, 1), 1 + 1 / 128, dtype=torch.bfloat16)
    hidden = HiddenStates((layer,) * 3, torch.ones(1, 1, dtype=torch.bool))
    assert hidden.combine("sum").item() == 3 + 3 / 128
