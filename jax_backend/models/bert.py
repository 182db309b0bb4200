"""BERT encoders of sentences, such as MiniLM. Names: transformers."""

import math
from dataclasses import dataclass
from typing import Final

from ir.meganeura import Graph
from jax_backend.models import layers
from jax_backend.models.config import HuggingFaceConfig
from jax_backend.models.parameters import Model, Parameters, first_rows

_NEGLIGIBLE: Final = 1e-24
"""Added to a mean of squares, so that an embedding of zeros stays one."""


@dataclass(frozen=True)
class BertConfig(HuggingFaceConfig):
    """The sizes of an encoder, under the names of a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    layer_norm_eps: float = 1e-12


def build_embedder(config: BertConfig, seq_len: int) -> Model:
    """One sentence -> its embedding (1, hidden) of length 1: the mean over its tokens, normalised; and all states.

    Inputs: `token_ids` (seq) u32, padded at the end with anything; `mask` (seq, 1), 1 for a token and 0 for padding.
    Outputs: the embedding, then the states (seq, hidden).
    """
    made = _Bert(config, seq_len)
    graph, size = made.graph, config.hidden_size
    states = made.states()
    total = graph.matmul_at(made.mask, states)  # its length goes, so it need not be divided by the number of tokens
    embedding = graph.rms_norm(total, graph.full(1 / math.sqrt(size), (size,)), _NEGLIGIBLE)
    return made.parameters.finish(embedding, states)


class _Bert:
    """One encoder in the making."""

    def __init__(self, config: BertConfig, seq_len: int) -> None:
        self.config = config
        self.seq_len = seq_len
        self.graph = Graph()
        self.parameters = Parameters(self.graph)
        self.tokens = self.graph.input_u32("token_ids", (seq_len,))
        self.mask = self.graph.input("mask", (seq_len, 1))

    def states(self) -> int:
        config, graph = self.config, self.graph
        shape = (self.seq_len, 1)
        padding = graph.add(graph.full(1.0, shape), graph.neg(self.mask))
        hidden = graph.mul(padding, graph.full(layers.HIDDEN, shape))
        x = self._embedded()
        for layer in range(config.num_hidden_layers):
            x = self._layer(x, hidden, f"encoder.layer.{layer}")
        return x

    def _embedded(self) -> int:
        config, graph = self.config, self.graph
        size = config.hidden_size

        def rows(kind: str, count: int) -> int:
            name = f"embeddings.{kind}_embeddings.weight"
            return self.parameters.declare(name, (count, size), first_rows(name, count))

        words = graph.embedding(self.tokens, rows("word", config.vocab_size))
        x = graph.broadcast_add(graph.add(words, rows("position", self.seq_len)), rows("token_type", 1))
        return self._norm(x, "embeddings.LayerNorm")

    def _layer(self, x: int, hidden: int, name: str) -> int:
        config, graph, linear = self.config, self.graph, self.parameters.linear
        size, heads = config.hidden_size, config.num_attention_heads
        q, k, v = (linear(x, f"{name}.attention.self.{part}", size, size) for part in ("query", "key", "value"))
        found = layers.masked_attention(graph, q, k, v, hidden, heads, size // heads)
        found = linear(found, f"{name}.attention.output.dense", size, size)
        x = self._norm(graph.add(found, x), f"{name}.attention.output.LayerNorm")
        h = linear(x, f"{name}.intermediate.dense", size, config.intermediate_size)
        h = linear(layers.gelu(graph, h), f"{name}.output.dense", config.intermediate_size, size)
        return self._norm(graph.add(h, x), f"{name}.output.LayerNorm")

    def _norm(self, x: int, name: str) -> int:
        return self.parameters.layer_norm(x, name, self.config.hidden_size, self.config.layer_norm_eps)
