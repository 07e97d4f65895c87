"""Small word vectors out of a caller's own texts, by gensim."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# gensim leaves out what lies beyond in a sentence, and says nothing.
LONGEST = 10_000


def train_word2vec(
    sentences: Sequence[Sequence[str]],
    *,
    vector_size: int,
    window: int,
    min_count: int,
    sg: int,
    negative: int,
    learning_rate: float,
    max_epochs: int,
    seed: int,
    caller: str,
) -> tuple[list[str], np.ndarray]:
    """Train word2vec; the same sentences and seed give the same bytes in every process.

    Parameters
    ----------
    sentences : sequence of sequence of str
    vector_size, window, min_count, sg, negative : int
        As gensim has them.
    learning_rate : float
        gensim's ``alpha``.
    max_epochs : int
        gensim's ``epochs``.
    seed : int
    caller : str
        For errors.

    Returns
    -------
    words : list of str
        The frequent ones first.
    vectors : ndarray of shape (n_words, vector_size), float32

    Raises
    ------
    ImportError
        If gensim is not installed.
    ValueError
        If no word occurs ``min_count`` times.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ImportError(
            f"{caller} with model=None trains vectors by gensim, which is not installed. "
            "Run: pip install 'skbert[word2vec]', or set model= to a file of vectors."
        ) from error
    pieces = [
        list(words[at : at + LONGEST])
        for words in sentences
        for at in range(0, len(words), LONGEST)
    ]
    model = Word2Vec(
        vector_size=vector_size,
        window=window,
        min_count=min_count,
        sg=int(sg),
        negative=negative,
        alpha=learning_rate,
        epochs=max_epochs,
        seed=seed,
        workers=1,  # more of them race
    )
    model.build_vocab(pieces)
    if not len(model.wv):
        raise ValueError(
            f"{caller} found no word that occurs min_count={min_count} times in X, so "
            "there are no vectors to train. Give more texts, lower min_count, or set "
            "model= to a file of vectors."
        )
    model.train(pieces, total_examples=model.corpus_count, epochs=model.epochs)
    return list(model.wv.index_to_key), model.wv.vectors
