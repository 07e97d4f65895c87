"""The BiLSTM and its heads: rows do not see each other, nor pads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skbert.nn.bilstm import BiLSTM
from skbert.nn.bilstm_pooling import PooledBiLSTM
from skbert.nn.ragged import to_padded
from skbert.nn.tagging import TaggingHead

LENGTHS = torch.tensor([3, 0, 5, 1])


def vectors(n=9, size=4):
    return torch.randn(n, size, generator=torch.Generator().manual_seed(0))


def drawn(module):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module.draw_weights()
    return module.eval()


def test_padding_and_back():
    values = vectors()
    padded, mask = to_padded(values, LENGTHS)
    assert padded.shape == (4, 5, 4)
    assert torch.equal(padded[mask], values)
    assert not padded[~mask].any()
    assert torch.equal(padded[2], values[3:8])


def test_a_row_is_what_torch_gives_for_it_alone():
    """Values and gradients, against torch's own bidirectional LSTM of the same weights."""
    lstm = drawn(BiLSTM(4, 3, 2, 0.5))
    theirs = torch.nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer in range(2):
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                for ours, end in ((lstm.onward, ""), (lstm.backward_, "_reverse")):
                    weight = getattr(theirs, f"{part}_l{layer}{end}")
                    weight.copy_(getattr(ours[layer], f"{part}_l0"))
    values = vectors().requires_grad_()
    together = lstm(values, LENGTHS)
    rows = [row for row in values.split(LENGTHS.tolist()) if len(row)]
    expected = torch.cat([theirs(row.unsqueeze(0))[0][0] for row in rows])
    torch.testing.assert_close(together, expected)
    weights = torch.arange(together.numel()).view_as(together)
    (ours,) = torch.autograd.grad((together * weights).sum(), values)
    (by_row,) = torch.autograd.grad((expected * weights).sum(), values)
    torch.testing.assert_close(ours, by_row, rtol=1e-4, atol=1e-4)
    assert lstm(values[:0], torch.tensor([0, 0])).shape == (0, 6)


@pytest.mark.parametrize("pooling", ["max", "mean", "attention"])
def test_pooling_sees_its_own_row(pooling):
    head = PooledBiLSTM(
        4, 2, lstm_hidden_size=3, n_lstm_layers=1, dropout=0.5, pooling=pooling
    )
    drawn(head)
    values = vectors()
    together = head(values, LENGTHS)
    alone = [
        head(part, torch.tensor([len(part)]))[0] for part in values.split(LENGTHS.tolist())
    ]
    torch.testing.assert_close(together, torch.stack(alone))
    # an empty row has the outputs of a vector of zeros
    torch.testing.assert_close(together[1], head.linear.bias)


def test_attention_by_hand():
    head = PooledBiLSTM(
        4, 2, lstm_hidden_size=3, n_lstm_layers=1, dropout=0.0, pooling="attention"
    )
    drawn(head)
    values = vectors(5)
    states = head.bilstm(values, torch.tensor([5]))
    dense, query = head.attention[0], head.attention[2]
    scores = torch.tanh(states @ dense.weight.T + dense.bias) @ query.weight[0]
    expected = head.linear(scores.softmax(0) @ states)
    torch.testing.assert_close(head(values, torch.tensor([5]))[0], expected)


@pytest.mark.parametrize("crf", [False, True])
def test_weights_go_out_and_come_in(crf):
    options = {"lstm_hidden_size": 3, "n_lstm_layers": 1, "dropout": 0.0, "crf": crf}
    head = drawn(TaggingHead(4, 5, **options))
    other = TaggingHead(4, 5, **options)
    other.set_arrays({name: array.copy() for name, array in head.arrays().items()})
    assert torch.equal(head(vectors(), LENGTHS), other(vectors(), LENGTHS))
    assert ("crf.transitions" in head.arrays()) == crf


def test_building_a_head_draws_nothing():
    state = torch.get_rng_state()
    TaggingHead(4, 5, lstm_hidden_size=3, n_lstm_layers=1, dropout=0.0, crf=True)
    PooledBiLSTM(
        4, 2, lstm_hidden_size=3, n_lstm_layers=1, dropout=0.0, pooling="attention"
    )
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("crf", [False, True])
def test_decoding_row_by_row(crf):
    """Tags and probabilities of joined rows are those of each row alone."""
    head = drawn(
        TaggingHead(4, 3, lstm_hidden_size=0, n_lstm_layers=1, dropout=0.0, crf=crf)
    )
    if crf:
        with torch.no_grad():
            head.crf.transitions.normal_(generator=torch.Generator().manual_seed(1))
    emissions = 50 * head(vectors(), LENGTHS)
    tags, table = head.decode(emissions, LENGTHS), head.probabilities(emissions, LENGTHS)
    for part, own_tags, own_table in zip(
        *(values.split(LENGTHS.tolist()) for values in (emissions, tags, table)),
        strict=True,
    ):
        one = torch.tensor([len(part)])
        assert torch.equal(head.decode(part, one), own_tags)
        torch.testing.assert_close(head.probabilities(part, one), own_table)
    np.testing.assert_allclose(table.sum(1).detach(), 1, atol=1e-6)
