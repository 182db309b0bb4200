"""Decoders of the Llama family (SmolLM2, Llama, Mistral): RMS norms, rotary positions, grouped heads, SwiGLU.

Source: meganeura `models/smollm2.rs`, `models/mistral.rs`, for the nodes and their order; transformers for the names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ir.meganeura import Graph
from jax_backend.models.config import HuggingFaceConfig
from jax_backend.models.parameters import Model, Parameters


@dataclass(frozen=True)
class DecoderConfig(HuggingFaceConfig):
    """The sizes of a decoder, under the names of a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = True
    sliding_window: int | None = None
    """Positions that each one sees, itself included; None: all before it."""

    @classmethod
    def complete(cls, found: dict[str, Any]) -> None:
        """Sizes that follow from others, and those of RoPE, which newer files keep in a record of their own."""
        found.setdefault("head_dim", found["hidden_size"] // found["num_attention_heads"])
        found.setdefault("tie_word_embeddings", False)
        found.update(found.get("rope_parameters") or {})

    @property
    def width(self) -> int:
        """Of the queries, all heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Of the keys and of the values, all heads together."""
        return self.num_key_value_heads * self.head_dim

    @property
    def heads(self) -> tuple[int, int, int]:
        """Query heads, key heads, size of each."""
        return self.num_attention_heads, self.num_key_value_heads, self.head_dim


SMOLLM2_135M: Final = DecoderConfig(49152, 576, 1536, 30, 9, 3, 64, rope_theta=100000.0)
"""As `config.json` of the model says; Meganeura's own configuration has rope_theta 10000."""

Attend = Callable[[int, int, int, int, str], int]
"""Heads from (layer, q, k, v, name of the layer); turns q and k first."""


def build_graph(config: DecoderConfig, seq_len: int) -> Model:
    """`token_ids` (seq) u32 -> logits (seq, vocab)."""
    made = _Decoder(config)
    logits = made.logits(seq_len, made.whole_sequence)
    return made.parameters.finish(logits)


def build_training_graph(config: DecoderConfig, seq_len: int) -> Model:
    """`token_ids` (seq) u32, `labels` (seq, vocab) weights of the tokens that follow -> mean cross entropy (1)."""
    made = _Decoder(config)
    logits = made.logits(seq_len, made.whole_sequence)
    labels = made.graph.input("labels", (seq_len, config.vocab_size))
    return made.parameters.finish(made.graph.cross_entropy_loss(logits, labels))


def build_prefill_graph(config: DecoderConfig, seq_len: int) -> Model:
    """As `build_graph`; after the logits come the turned keys of all layers, then the values, each (seq, kv width)."""
    made = _Decoder(config)
    logits = made.logits(seq_len, made.whole_sequence)
    return made.parameters.finish(logits, *made.keys, *made.values)


def build_decode_graph(config: DecoderConfig, max_seq: int) -> Model:
    """`token_ids` (1) u32 at position `kv_pos` (1) u32 -> logits (1, vocab).

    The caches `kv_cache.layer.{i}.k` and `.v` (max_seq, kv width) are state: each run writes one row.

    Raises:
        ShapeError: the configuration has a window, which the IR's attention to a cache does not know.
    """
    made = _Decoder(config)
    position = 0

    def attend(layer: int, q: int, k: int, v: int, name: str) -> int:
        graph = made.graph
        q = graph.rope_dynamic_offset(q, config.rope_theta, position, config.head_dim)
        k = graph.rope_dynamic_offset(k, config.rope_theta, position, config.head_dim)
        k_cache = graph.parameter(f"kv_cache.layer.{layer}.k", (max_seq, config.kv_width))
        v_cache = graph.parameter(f"kv_cache.layer.{layer}.v", (max_seq, config.kv_width))
        graph.cache_write(k, k_cache, position)
        graph.cache_write(v, v_cache, position)
        return graph.cached_attention(q, k_cache, v_cache, position, *config.heads)

    token = made.graph.input_u32("token_ids", (1,))
    position = made.graph.input_u32("kv_pos", (1,))
    return made.parameters.finish(made.logits_of(token, attend))


class _Decoder:
    """One decoder in the making; `keys` and `values` of whole sequences, by layer."""

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.graph = Graph()
        self.parameters = Parameters(self.graph)
        self.keys: list[int] = []
        self.values: list[int] = []

    def logits(self, seq_len: int, attend: Attend) -> int:
        return self.logits_of(self.graph.input_u32("token_ids", (seq_len,)), attend)

    def logits_of(self, tokens: int, attend: Attend) -> int:
        config, graph, parameters = self.config, self.graph, self.parameters
        table = parameters.declare("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
        x = graph.embedding(tokens, table)
        for layer in range(config.num_hidden_layers):
            x = self._layer(layer, x, attend)
        x = parameters.rms_norm(x, "model.norm", config.hidden_size, config.rms_norm_eps)
        if config.tie_word_embeddings:
            return graph.matmul_bt(x, table)
        return parameters.linear(x, "lm_head", config.hidden_size, config.vocab_size, bias=False)

    def _layer(self, layer: int, x: int, attend: Attend) -> int:
        config, graph, parameters = self.config, self.graph, self.parameters
        size, name = config.hidden_size, f"model.layers.{layer}"
        h = parameters.rms_norm(x, f"{name}.input_layernorm", size, config.rms_norm_eps)
        widths = {"q": config.width, "k": config.kv_width, "v": config.kv_width}
        matrices = [parameters.matrix(f"{name}.self_attn.{p}_proj.weight", size, n) for p, n in widths.items()]
        q, k, v = (graph.matmul(h, matrix) for matrix in matrices)
        heads = attend(layer, q, k, v, name)
        x = graph.add(x, parameters.linear(heads, f"{name}.self_attn.o_proj", config.width, size, bias=False))
        h = parameters.rms_norm(x, f"{name}.post_attention_layernorm", size, config.rms_norm_eps)
        inner = config.intermediate_size
        gate, up = (parameters.matrix(f"{name}.mlp.{p}_proj.weight", size, inner) for p in ("gate", "up"))
        down = parameters.matrix(f"{name}.mlp.down_proj.weight", inner, size)
        return graph.add(x, graph.matmul(graph.swiglu(graph.matmul(h, gate), graph.matmul(h, up)), down))

    def whole_sequence(self, layer: int, q: int, k: int, v: int, name: str) -> int:
        config, graph = self.config, self.graph
        q = graph.rope(q, config.rope_theta, config.head_dim)
        k = graph.rope(k, config.rope_theta, config.head_dim)
        self.keys.append(k)
        self.values.append(v)
        if config.sliding_window is None:
            return graph.causal_attention(q, k, v, *config.heads)
        return graph.sliding_window_attention(q, k, v, *config.heads, config.sliding_window)
