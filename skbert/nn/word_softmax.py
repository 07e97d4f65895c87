"""From the outputs of a language model to the next word: three ways to a probability."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

# Shares of the vocabulary that the clusters of the adaptive softmax end at.
CUTOFFS = (0.1, 0.4)


class WordSoftmax(nn.Module):
    """Losses of words, -log p, under a softmax over a vocabulary.

    Weights are undefined until they are drawn or set.

    Parameters
    ----------
    input_size : int
    n_words : int
        Words by falling frequency.
    n_samples : int or None, default=None
        Negative words that a training step looks at; None is all words.
    """

    def __init__(self, input_size: int, n_words: int, n_samples: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_words, input_size))
        self.bias = nn.Parameter(torch.empty(n_words))
        self.n_samples = n_samples

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Draw new weights from torch's generator."""
        nn.init.normal_(self.weight, 0, self.weight.shape[1] ** -0.5)
        self.bias.zero_()

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> torch.Tensor:
        """Losses, (n,), of outputs (n, input_size) and numbers of words (n,).

        ``rng`` draws negative words, where only some are looked at; None looks at all.
        """
        if rng is None or self.n_samples is None:
            scores = nn.functional.linear(outputs, self.weight, self.bias)
            return nn.functional.cross_entropy(scores, targets, reduction="none")
        sampled, n_draws = draw_negatives(self.n_samples, len(self.weight), rng)
        return self.sampled(outputs, targets, torch.from_numpy(sampled), n_draws)

    def sampled(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        sampled: torch.Tensor,
        n_draws: int,
    ) -> torch.Tensor:
        """Losses against some words that all rows share (Jean et al. 2015).

        Each score is lessened by the log of how often its word is to be expected among
        the words drawn; a row's own word is no negative of it.
        """
        sampled = sampled.to(targets.device)
        own = (outputs * self.weight[targets]).sum(dim=1) + self.bias[targets]
        own = own - self._log_expected(targets, n_draws)
        others = nn.functional.linear(outputs, self.weight[sampled], self.bias[sampled])
        others = others - self._log_expected(sampled, n_draws)
        hit = targets.unsqueeze(1) == sampled.unsqueeze(0)
        others = others.masked_fill(hit, -math.inf)
        scores = torch.cat([own.unsqueeze(1), others], dim=1)
        return scores.logsumexp(dim=1) - own

    def _log_expected(self, words: torch.Tensor, n_draws: int) -> torch.Tensor:
        rank = words.double()
        p = torch.log1p(1 / (rank + 1)) / math.log(len(self.weight) + 1)
        return torch.log(-torch.expm1(n_draws * torch.log1p(-p))).to(self.weight.dtype)


class AdaptiveSoftmax(nn.Module):
    """The same in clusters: rare words have narrow vectors (Grave et al. 2017).

    Exactly normalised, and several times faster than all words at once.

    Parameters
    ----------
    input_size, n_words : int
    """

    def __init__(self, input_size: int, n_words: int) -> None:
        super().__init__()
        # A cluster's vectors are a quarter as wide as those of the one before.
        n_clusters = min(len(CUTOFFS), int(math.log(input_size, 4)))
        cutoffs = [max(1, int(share * n_words)) for share in CUTOFFS[:n_clusters]]
        self.layers = nn.AdaptiveLogSoftmaxWithLoss(
            input_size, n_words, cutoffs, div_value=4.0, head_bias=True
        )

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Draw new weights from torch's generator."""
        self.layers.reset_parameters()

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> torch.Tensor:
        """As that of ``WordSoftmax``; nothing is drawn."""
        return -self.layers(outputs, targets).output


def draw_negatives(
    n_samples: int, n_words: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Distinct words, log-uniform over ranks, and the draws that it took.

    p(k) = log((k + 2) / (k + 1)) / log(n_words + 1), drawn with replacement until there
    are ``n_samples`` distinct ones.
    """
    found: np.ndarray = np.zeros(0, dtype=np.int64)
    while True:
        share = rng.random(2 * n_samples)
        drawn = np.exp(share * math.log(n_words + 1)).astype(np.int64) - 1
        found = np.concatenate([found, np.minimum(drawn, n_words - 1)])
        firsts = np.sort(np.unique(found, return_index=True)[1])
        if len(firsts) >= n_samples:
            firsts = firsts[:n_samples]
            return found[firsts], int(firsts[-1]) + 1
