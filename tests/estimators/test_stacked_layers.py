"""A vector of each layer for each word: out of BertVectorizer, into the BiLSTM heads."""

from __future__ import annotations

import numpy as np
import pytest

from skbert import BertVectorizer

SENTENCES = [["good", "film"], [], ["a", "", "bad", "unbelievably" * 4, "end"], ["film"]]


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize": True},
        {"max_length": 7, "word_pooling": "max"},  # the long word is cut in windows
        {"max_length": 7, "word_pooling": "mean", "batch_size": 1},
    ],
)
def test_a_stack_is_its_layers(bert_folder, tmp_path, settings):
    settings = {"output": "words", "device": "cpu", **settings}
    layers = [2, 0, -1]
    by_layer = [
        BertVectorizer(bert_folder, layers=layer, **settings).fit_transform(SENTENCES)
        for layer in layers
    ]
    stacked = BertVectorizer(
        bert_folder, layers=layers, layer_pooling="stack", memory=tmp_path, **settings
    )
    concat = BertVectorizer(
        bert_folder, layers=layers, layer_pooling="concat", memory=tmp_path, **settings
    ).fit(SENTENCES)
    for _ in range(2):  # the second time from memory
        out = stacked.fit_transform(SENTENCES)
        assert [row.shape for row in out] == [
            (len(words), 3, stacked.n_features_out_) for words in SENTENCES
        ]
        for row, *alone in zip(out, *by_layer, strict=True):
            assert row.dtype == np.float32
            np.testing.assert_allclose(row, np.stack(alone, axis=1), rtol=0, atol=1e-6)
        assert concat.transform(SENTENCES)[0].ndim == 2
    assert not hasattr(stacked, "get_feature_names_out")


def test_documents_have_one_vector(bert_folder):
    with pytest.raises(ValueError, match="'layer_pooling' .* for output='document'.*words"):
        BertVectorizer("no/such-model", layer_pooling="stack").fit(["a text"])
    fitted = BertVectorizer(bert_folder, long_text="windows").fit(["a text"])
    with pytest.raises(ValueError, match="'layer_pooling'"):
        fitted.set_params(layer_pooling="stack").transform(["a text"])
