"""Vectors of words to the vector of a document: means, weighted means, maximum."""

from __future__ import annotations

import numpy as np


def idf_weights(document_counts: np.ndarray, n_documents: int) -> np.ndarray:
    """ln((1 + n) / (1 + df)) + 1, the smooth form of scikit-learn's TfidfTransformer.

    Parameters
    ----------
    document_counts : ndarray of shape (n_words,)
        Documents that have the word.
    n_documents : int

    Returns
    -------
    ndarray of shape (n_words,), float64
    """
    return np.log((1 + n_documents) / (1 + document_counts)) + 1.0


def sif_weights(counts: np.ndarray, a: float) -> np.ndarray:
    """a / (a + p), where p is the share of a word among all of them.

    Parameters
    ----------
    counts : ndarray of shape (n_words,)
        How often the word occurs.
    a : float

    Returns
    -------
    ndarray of shape (n_words,), float64
        1 for words that do not occur.
    """
    return a / (a + counts / max(counts.sum(), 1))


def pool_document(vectors: np.ndarray, weights: np.ndarray, pooling: str) -> np.ndarray:
    """One vector of several.

    Parameters
    ----------
    vectors : ndarray of shape (n_words, vector_size), n_words > 0
    weights : ndarray of shape (n_words,)
        For "tfidf" and "sif".
    pooling : {"mean", "max", "tfidf", "sif"}
        "tfidf" divides by the sum of the weights, "sif" by the number of words.

    Returns
    -------
    ndarray of shape (vector_size,), float64
    """
    exact = vectors.astype(np.float64)
    if pooling == "mean":
        return exact.mean(axis=0)
    if pooling == "max":
        return exact.max(axis=0)
    total = weights.sum() if pooling == "tfidf" else len(weights)
    # Not by a matrix product, whose last digits depend on the library behind it.
    return (exact * weights[:, np.newaxis]).sum(axis=0) / total


def first_component(vectors: np.ndarray) -> np.ndarray:
    """The direction in which vectors are longest, about the origin and not their mean.

    Parameters
    ----------
    vectors : ndarray of shape (n_documents, vector_size), float64

    Returns
    -------
    ndarray of shape (vector_size,), float64
        Of length 1; zeros if all vectors are.
    """
    if not vectors.any():
        return np.zeros(vectors.shape[1])
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    first = directions[:, -1]
    # A direction and its opposite are the same; one of them is kept.
    return np.copysign(1.0, first[np.argmax(np.abs(first))]) * first
