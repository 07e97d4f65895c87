"""ELMo's first layer: a vector for a word from its characters, apart from its sentence."""

from __future__ import annotations

import torch
from torch import nn

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class TokenEncoder(nn.Module):
    """Words as rows of integers to vectors (Peters et al. 2018; Kim et al. 2015).

    A row is the number of the word, if there is a table of words, and then the numbers of
    its characters, if there is a table of characters. Characters go through convolutions,
    the maximum of each over *all* positions, pads included, and highways::

        g = sigmoid(u W_g' + b_g);  u = g relu(u W' + b) + (1 - g) u

    Weights are undefined until they are set.

    Parameters
    ----------
    output_size : int
    n_words : int
        Rows of the table of words; 0 is no such table.
    word_size : int
        Width of that table.
    n_characters : int
        Rows of the table of characters; 0 is no such table.
    character_size : int
        Width of that table.
    filters : sequence of (int, int)
        Width and number of the filters of each convolution.
    activation : {"relu", "tanh"}
    n_highway : int
        Highway layers.
    projected : bool
        Whether a linear layer leads to ``output_size``.
    """

    def __init__(
        self,
        output_size: int,
        *,
        n_words: int,
        word_size: int,
        n_characters: int,
        character_size: int,
        filters: tuple[tuple[int, int], ...],
        activation: str,
        n_highway: int,
        projected: bool,
    ) -> None:
        super().__init__()
        self.words: nn.Parameter | None = None
        self.characters: nn.Parameter | None = None
        self.n_filters = n_filters = sum(n for _, n in filters) if n_characters else 0
        if n_words:
            self.words = nn.Parameter(torch.empty(n_words, word_size))
        self.convolutions = nn.ModuleList()
        self.highways = nn.ModuleList()
        if n_characters:
            self.characters = nn.Parameter(torch.empty(n_characters, character_size))
            self.convolutions.extend(
                nn.utils.skip_init(nn.Conv1d, character_size, n, width)
                for width, n in filters
            )
            # The gate, and what it lets in, as one layer.
            self.highways.extend(
                nn.utils.skip_init(nn.Linear, n_filters, 2 * n_filters)
                for _ in range(n_highway)
            )
        self.projection: nn.Linear | None = None
        if projected:
            n_inputs = n_filters + (word_size if n_words else 0)
            self.projection = nn.utils.skip_init(nn.Linear, n_inputs, output_size)
        self._activate = ACTIVATIONS[activation]

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Draw new weights from torch's generator, as bilm-tf does.

        Row 0 of the characters, which stands for a masked word, is zeros.
        """
        if self.words is not None:
            nn.init.xavier_uniform_(self.words)
        if self.characters is not None:
            self.characters.uniform_(-1, 1)
            self.characters[0] = 0
        for convolve in self.convolutions:
            n_inputs = convolve.weight[0].numel()  # type: ignore[index]
            if self._activate is torch.relu:
                nn.init.uniform_(convolve.weight, -0.05, 0.05)  # type: ignore[arg-type]
            else:
                nn.init.normal_(convolve.weight, 0, n_inputs**-0.5)  # type: ignore[arg-type]
            nn.init.zeros_(convolve.bias)  # type: ignore[arg-type]
        for highway in self.highways:
            nn.init.normal_(highway.weight, 0, highway.in_features**-0.5)  # type: ignore
            bias: torch.Tensor = highway.bias  # type: ignore[assignment]
            bias.zero_()
            bias[: len(bias) // 2] = -2  # at first, what comes in goes through
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, 0, self.projection.in_features**-0.5)
            nn.init.zeros_(self.projection.bias)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Vectors, (n_words, output_size), of rows of integers, (n_words, width)."""
        return self.combine(rows, self.read_characters(rows))

    def read_characters(self, rows: torch.Tensor) -> torch.Tensor | None:
        """Activations of the filters, (n_words, n_filters), if there are characters."""
        if self.characters is None:
            return None
        embedded = self.characters[rows if self.words is None else rows[:, 1:]]
        read = []
        for convolve in self.convolutions:
            # A convolution as one product over all windows, several times as fast on a CPU
            # as torch's own for so few channels.
            width: int = convolve.kernel_size[0]  # type: ignore
            windows = embedded.unfold(1, width, 1).flatten(2)
            products = nn.functional.linear(windows, convolve.weight.flatten(1))  # type: ignore
            read.append(products.amax(dim=1) + convolve.bias)  # type: ignore[operator]
        # The activations rise, so that they may as well follow the maximum.
        return self._activate(torch.cat(read, dim=1))

    def combine(self, rows: torch.Tensor, units: torch.Tensor | None) -> torch.Tensor:
        """Vectors of words from what ``read_characters`` gave."""
        parts = []
        if self.words is not None:
            parts.append(self.words[rows[:, 0]])
        if units is not None:
            for highway in self.highways:
                gate, new = highway(units).chunk(2, dim=1)
                units = torch.lerp(units, new.relu(), gate.sigmoid())
            parts.append(units)
        vectors = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return vectors if self.projection is None else self.projection(vectors)
