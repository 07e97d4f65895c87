"""The CRF against every path, counted out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from skbert.nn.crf import CRF, viterbi
from skbert.text.tags import allowed_transitions

TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
IOBES = ["O", "B-X", "I-X", "E-X", "S-X"]
LENGTHS = [4, 1, 3, 0, 2]
PAD = 7.0  # stands at pads and must not matter


def draw(n_tags=3, dtype=torch.float64, lengths=LENGTHS, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    n_words = max(lengths)
    emissions = torch.randn(len(lengths), n_words, n_tags, generator=generator) * scale
    mask = torch.arange(n_words) < torch.tensor(lengths)[:, None]
    tags = torch.randint(n_tags, mask.shape, generator=generator)
    emissions = emissions.to(dtype).masked_fill(~mask.unsqueeze(2), PAD)
    return emissions, tags.masked_fill(~mask, -100), mask


def make_crf(n_tags=3, allowed=None, seed=1, scale=1.0):
    crf = CRF(n_tags, allowed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(drawn * scale)
    return crf


def is_allowed(path, allowed):
    if allowed is None or not path:
        return True
    transitions, start, end = allowed
    steps = all(transitions[a][b] for a, b in itertools.pairwise(path))
    return start[path[0]] and end[path[-1]] and steps


def every_path(crf, emissions, length, allowed=None):
    """Score of every allowed path of one row: the definition."""
    scores = {}
    for path in itertools.product(range(emissions.shape[1]), repeat=length):
        if not is_allowed(path, allowed):
            continue
        score = sum(emissions[at, tag].item() for at, tag in enumerate(path))
        score += sum(crf.transitions[a, b].item() for a, b in itertools.pairwise(path))
        if path:
            score += crf.start[path[0]].item() + crf.end[path[-1]].item()
        scores[path] = score
    return scores


def log_sum(scores):
    return np.logaddexp.reduce(list(scores.values()))


ALLOWED = {
    "free": (3, None),
    "IOB2": (5, allowed_transitions(TAGS, "IOB2")),
    "IOB1": (5, allowed_transitions(TAGS, "IOB1")),
    "IOBES": (5, allowed_transitions(IOBES, "IOBES")),
    "one tag": (1, None),
}
cases = pytest.mark.parametrize("n_tags, allowed", ALLOWED.values(), ids=ALLOWED)


# Training ----------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("scale", [1.0, 30.0])  # the second is too wide to be scaled
def test_log_likelihood_is_counted_out(n_tags, allowed, scale):
    crf = make_crf(n_tags, allowed, scale=scale)
    emissions, tags, mask = draw(n_tags)
    found = crf.log_likelihood(emissions, tags, mask)
    assert found.shape == (len(LENGTHS),)
    for row, length in enumerate(LENGTHS):
        scores = every_path(crf, emissions[row], length)
        expected = scores[tuple(tags[row, :length].tolist())] - log_sum(scores)
        assert found[row].item() == pytest.approx(expected, abs=1e-9)


def test_path_score_is_counted_out():
    crf = make_crf()
    emissions, tags, mask = draw()
    found = crf.path_score(emissions, tags, mask)
    for row, length in enumerate(LENGTHS):
        scores = every_path(crf, emissions[row], length)
        expected = scores[tuple(tags[row, :length].tolist())]
        assert found[row].item() == pytest.approx(expected, abs=1e-9)


def test_likelihoods_sum_to_one():
    crf = make_crf()
    paths = torch.tensor(list(itertools.product(range(3), repeat=4)))
    emissions = draw()[0][:1].expand(len(paths), -1, -1)
    found = crf.log_likelihood(emissions, paths, torch.ones_like(paths).bool())
    assert found.exp().sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_gradients(scale):
    crf = make_crf(scale=scale)
    emissions, tags, mask = draw()
    emissions.requires_grad_()

    def likelihood(emissions, transitions, start, end):
        scores = {"transitions": transitions, "start": start, "end": end}
        given = (emissions, tags, mask)
        return torch.func.functional_call(_Likelihood(crf), _named(scores), given)

    given = (emissions, *(p.detach().clone().requires_grad_() for p in crf.parameters()))
    assert torch.autograd.gradcheck(likelihood, given)


class _Likelihood(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, *given):
        return self.crf.log_likelihood(*given)


def _named(scores):
    return {f"crf.{name}": value for name, value in scores.items()}


def test_gradient_of_emissions_is_tags_less_marginals():
    crf = make_crf()
    emissions, tags, mask = draw()
    emissions.requires_grad_()
    crf.log_likelihood(emissions, tags, mask).sum().backward()
    gold = torch.nn.functional.one_hot(tags.clamp(min=0), 3) * mask.unsqueeze(2)
    expected = gold - crf.marginals(emissions, mask)
    assert torch.allclose(emissions.grad, expected, atol=1e-9)


def test_forbidden_training_data_stay_finite():
    allowed = allowed_transitions(TAGS, "IOB2")
    crf = make_crf(5, allowed)
    emissions, tags, mask = draw(5)
    tags = torch.full_like(tags, 2)  # I-X opens every sentence
    emissions.requires_grad_()
    likelihood = crf.log_likelihood(emissions, tags, mask)
    likelihood.sum().backward()
    assert torch.equal(
        likelihood.detach(), make_crf(5).log_likelihood(emissions, tags, mask).detach()
    )
    assert likelihood.isfinite().all()
    for tensor in (emissions, *crf.parameters()):
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("filler", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_pads_do_not_leak(filler):
    crf = make_crf()
    emissions, tags, mask = draw()
    spoilt = emissions.masked_fill(~mask.unsqueeze(2), filler).requires_grad_()
    found = crf.log_likelihood(spoilt, tags, mask)
    assert torch.equal(found, crf.log_likelihood(emissions, tags, mask))
    assert torch.equal(crf.decode(spoilt, mask), crf.decode(emissions, mask))
    assert torch.equal(crf.marginals(spoilt, mask), crf.marginals(emissions, mask))
    found.sum().backward()
    assert spoilt.grad.isfinite().all()
    assert not spoilt.grad[~mask].any()


def test_rows_do_not_depend_on_their_batch():
    crf = make_crf().float()
    emissions, tags, mask = draw(dtype=torch.float32)
    together = crf.log_likelihood(emissions, tags, mask)
    for row, length in enumerate(LENGTHS):
        alone = [given[row : row + 1, :length] for given in (emissions, tags, mask)]
        assert torch.allclose(
            crf.log_likelihood(*alone), together[row : row + 1], atol=1e-6
        )


# Decoding ----------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("seed", range(5))
def test_decode_finds_the_best_path(n_tags, allowed, seed):
    crf = make_crf(n_tags, allowed, seed=seed)
    emissions, _, mask = draw(n_tags, seed=seed + 10)
    paths = crf.decode(emissions, mask)
    assert paths.dtype == torch.int64
    assert paths.shape == mask.shape
    assert (paths[~mask] == -1).all()
    best = crf.path_score(emissions, paths, mask)
    for row, length in enumerate(LENGTHS):
        scores = every_path(crf, emissions[row], length, allowed)
        path = tuple(paths[row, :length].tolist())
        assert path == max(scores, key=scores.get)
        assert best[row].item() == pytest.approx(scores[path])


@cases
@pytest.mark.parametrize("seed", range(5))
def test_marginals_are_counted_out(n_tags, allowed, seed):
    crf = make_crf(n_tags, allowed, seed=seed)
    emissions, _, mask = draw(n_tags, seed=seed + 10)
    found = crf.marginals(emissions, mask)
    assert not found[~mask].any()
    for row, length in enumerate(LENGTHS):
        scores = every_path(crf, emissions[row], length, allowed)
        expected = torch.zeros(length, n_tags, dtype=torch.float64)
        for path, score in scores.items():
            for at, tag in enumerate(path):
                expected[at, tag] += np.exp(score - log_sum(scores))
        assert torch.allclose(found[row, :length], expected, atol=1e-9)
        # what no allowed path passes is 0, not nearly 0
        assert ((found[row, :length] > 0) <= (expected > 0)).all()


@pytest.mark.parametrize("allowed", [None, allowed_transitions(TAGS, "IOB2")])
def test_viterbi_over_a_softmax_is_the_likeliest_path(allowed):
    emissions, _, mask = draw(5)
    log_probabilities = emissions.log_softmax(2)
    paths = viterbi(log_probabilities, mask, *(allowed or ()))
    for row, length in enumerate(LENGTHS):
        scores = every_path(CRF(5), log_probabilities[row], length, allowed)
        assert tuple(paths[row, :length].tolist()) == max(scores, key=scores.get)


def test_viterbi_without_rules_is_argmax():
    emissions, _, mask = draw(6)
    assert torch.equal(viterbi(emissions, mask)[mask], emissions.argmax(2)[mask])


def test_viterbi_takes_rules_and_scores_alike():
    emissions, _, mask = draw(5)
    allowed = allowed_transitions(TAGS, "IOB2")
    scores = [np.where(part, 0.0, -np.inf) for part in allowed]
    assert torch.equal(
        viterbi(emissions, mask, *allowed), viterbi(emissions, mask, *scores)
    )


@pytest.mark.parametrize("bonus", [10.0, 1e4, 1e8])
def test_no_emission_buys_a_forbidden_step(bonus):
    allowed = allowed_transitions(TAGS, "IOB2")
    emissions = torch.zeros(1, 3, 5)
    emissions[0, 0, 4] = bonus  # I-Y may not open
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert viterbi(emissions, mask, *allowed)[0, 0] != 4
    assert CRF(5, allowed).marginals(emissions, mask)[0, 0, 4] == 0


def test_impossible_emissions_do_not_buy_one_either():
    # the only allowed path has the probability 0
    allowed = allowed_transitions(["B-X", "I-X"], "IOB2")
    emissions = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]).log()
    path = viterbi(emissions, torch.ones(1, 2, dtype=torch.bool), *allowed)
    assert path[0, 0] == 0


def test_without_an_allowed_path_the_rules_bend_as_little_as_can_be():
    allowed = allowed_transitions(["B-X", "I-X"], "IOBES")  # nothing can end
    crf = make_crf(2, allowed)
    emissions, _, mask = draw(2)
    paths = crf.decode(emissions, mask)
    assert (paths[mask] >= 0).all()
    assert paths[0, 0] == 0  # opening with B-X, going on with I-X breaks one rule only
    assert (paths[0, 1:] == 1).all()
    marginals = crf.marginals(emissions, mask)
    assert torch.allclose(marginals.sum(2), mask.double())


def test_ties_are_settled_in_one_way():
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert not viterbi(torch.zeros(2, 3, 4), mask).any()


# Numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("half_module", [False, True])
def test_half_precision_is_summed_in_float32(dtype, autocast, half_module):
    emissions, tags, mask = draw(9, dtype, [200, 3], scale=3.0)
    crf = make_crf(9).to(dtype if half_module else torch.float32)
    exact = CRF(9).double()
    exact.load_state_dict(crf.state_dict())
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = crf.log_likelihood(emissions, tags, mask)
        marginals = crf.marginals(emissions, mask)
        paths = crf.decode(emissions, mask)
    assert found.dtype == marginals.dtype == torch.float32
    expected = exact.log_likelihood(emissions.double(), tags, mask)
    assert torch.allclose(found.double(), expected, rtol=1e-5)
    expected = exact.marginals(emissions.double(), mask)
    assert torch.allclose(marginals.double(), expected, atol=1e-4)
    assert torch.equal(paths, exact.decode(emissions.double(), mask))


def test_float64_is_kept():
    crf = make_crf()
    emissions, tags, mask = draw()
    assert crf.log_likelihood(emissions, tags, mask).dtype == torch.float64
    assert crf.marginals(emissions, mask).dtype == torch.float64


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 30.0])
@pytest.mark.parametrize("emission_scale", [1.0, 100.0])
def test_float32_is_near_float64(scale, emission_scale):
    crf = make_crf(9, scale=scale)
    emissions, tags, mask = draw(9, lengths=[100, 60, 1], scale=emission_scale)
    emissions.requires_grad_()
    expected = crf.log_likelihood(emissions, tags, mask)
    expected.sum().backward()
    single = emissions.detach().float().requires_grad_()
    found = crf.float().log_likelihood(single, tags, mask)
    found.sum().backward()
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-3)
    assert single.grad.isfinite().all()
    assert torch.allclose(single.grad.double(), emissions.grad, atol=2e-3)


def test_long_rows_keep_their_digits():
    crf = make_crf(5, allowed_transitions(TAGS, "IOB2"))
    emissions, _, mask = draw(5, lengths=[4000, 900])
    emissions += 10.0
    expected, paths = crf.marginals(emissions, mask), crf.decode(emissions, mask)
    found = crf.float().marginals(emissions.float(), mask)
    assert torch.allclose(found.double(), expected, atol=5e-4)
    assert torch.equal(crf.decode(emissions.float(), mask), paths)


def test_broken_emissions_break_nothing_else():
    crf = make_crf(5, allowed_transitions(TAGS, "IOB2")).float()
    emissions, _, mask = draw(5, torch.float32)
    paths = crf.decode(emissions.masked_fill(mask.unsqueeze(2), torch.nan), mask)
    assert ((paths[mask] >= 0) & (paths[mask] < 5)).all()


def test_inference_mode():
    crf = make_crf(5, allowed_transitions(TAGS, "IOB2"))
    emissions, _, mask = draw(5)
    expected = crf.decode(emissions, mask), crf.marginals(emissions, mask)
    with torch.inference_mode():
        assert torch.equal(crf.decode(emissions.clone(), mask), expected[0])
        assert torch.equal(crf.marginals(emissions.clone(), mask), expected[1])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_nothing_to_read(shape):
    crf = make_crf(5, allowed_transitions(TAGS, "IOB2")).float()
    emissions, mask = torch.zeros(*shape, 5), torch.zeros(shape, dtype=torch.bool)
    tags = torch.zeros(shape, dtype=torch.long)
    likelihood = crf.log_likelihood(emissions, tags, mask)
    assert torch.equal(likelihood.detach(), torch.zeros(shape[0]))
    assert crf.decode(emissions, mask).shape == shape
    assert crf.marginals(emissions, mask).shape == (*shape, 5)


def test_empty_rows_only():
    crf = make_crf()
    emissions, tags, mask = draw(lengths=[2, 2])
    mask = torch.zeros_like(mask)
    likelihood = crf.log_likelihood(emissions, tags, mask)
    likelihood.sum().backward()
    assert not likelihood.any()
    assert all(not parameter.grad.any() for parameter in crf.parameters())
    assert (crf.decode(emissions, mask) == -1).all()


def test_rules_of_a_wrong_size_are_named():
    with pytest.raises(ValueError, match="allowed must have the shapes"):
        CRF(4, allowed_transitions(TAGS, "IOB2"))


def test_rules_may_be_read_only():
    allowed = allowed_transitions(TAGS, "IOB2")
    for part in allowed:
        part.flags.writeable = False
    emissions, _, mask = draw(5)
    expected = viterbi(emissions, mask, *map(torch.tensor, allowed))
    assert torch.equal(viterbi(emissions, mask, *allowed), expected)
    assert torch.equal(CRF(5, allowed).decode(emissions, mask), expected)


def test_rules_are_part_of_the_state():
    crf = CRF(5, allowed_transitions(TAGS, "IOB2"))
    other = CRF(5)
    other.load_state_dict(crf.state_dict())
    assert torch.equal(other.allowed_transitions, crf.allowed_transitions)


def test_it_learns():
    emissions, tags, mask = draw(4, torch.float32, [6] * 8)
    crf = CRF(4)
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = -crf.log_likelihood(emissions, tags, mask).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1


def test_same_as_pytorch_crf():
    torchcrf = pytest.importorskip("torchcrf")
    theirs = torchcrf.CRF(7, batch_first=True)
    ours = CRF(7)
    with torch.no_grad():
        ours.transitions.copy_(theirs.transitions)
        ours.start.copy_(theirs.start_transitions)
        ours.end.copy_(theirs.end_transitions)
    lengths = [12, 1, 5, 9]  # an empty row is an error there
    emissions, tags, mask = draw(7, torch.float32, lengths)
    tags = tags.clamp(min=0)
    expected = theirs(emissions, tags, mask, reduction="none")
    assert torch.allclose(ours.log_likelihood(emissions, tags, mask), expected, atol=1e-4)
    paths = ours.decode(emissions, mask).tolist()
    found = [path[:n] for path, n in zip(paths, lengths, strict=True)]
    assert found == theirs.decode(emissions, mask)
