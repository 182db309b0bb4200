"""Whisper: an encoder of spectrograms and a decoder of text.

Source: meganeura `models/whisper.rs`, for the encoder's nodes and their order; transformers for the names.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ir.meganeura import Graph
from jax_backend.models import layers
from jax_backend.models.parameters import Model, Parameters, first_rows, flat, per_channel


@dataclass(frozen=True)
class WhisperConfig:
    """The sizes of a Whisper model, under the names of a Hugging Face `config.json`."""

    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    vocab_size: int
    num_mel_bins: int = 80
    layer_norm_eps: float = 1e-5
    activation_function: Literal["gelu", "gelu_tanh"] = "gelu"
    """`gelu` is what Whisper was trained with; `gelu_tanh` the operation that Meganeura's own builder uses."""


WHISPER_TINY: Final = WhisperConfig(384, 4, 6, 1536, 4, 6, 1536, 51865)


def build_encoder(config: WhisperConfig, mel_len: int) -> Model:
    """`mel` (mel bins x mel_len), flat -> states ((mel_len - 1) // 2 + 1, d_model)."""
    made = _Whisper(config)
    return made.parameters.finish(made.encoded(mel_len))


def build_training_graph(config: WhisperConfig, mel_len: int, num_classes: int = 64) -> Model:
    """The encoder and a classifier of each state, `train_proj.weight`; `labels` (states, classes) -> loss (1).

    The classifier is Meganeura's: no file has it.
    """
    made = _Whisper(config)
    states = made.encoded(mel_len)
    weight = made.graph.parameter("train_proj.weight", (config.d_model, num_classes))
    logits = made.graph.matmul(states, weight)
    labels = made.graph.input("labels", (made.graph.ty(states).shape[0], num_classes))
    return made.parameters.finish(made.graph.cross_entropy_loss(logits, labels))


def build_decoder(config: WhisperConfig, seq_len: int, num_states: int) -> Model:
    """`token_ids` (seq) u32, `states` (num_states, d_model) of the encoder -> logits (seq, vocab)."""
    made = _Whisper(config)
    return made.parameters.finish(made.decoded(seq_len, num_states))


class _Whisper:
    """One half of a model in the making."""

    def __init__(self, config: WhisperConfig) -> None:
        self.config = config
        self.graph = Graph()
        self.parameters = Parameters(self.graph)

    def encoded(self, mel_len: int) -> int:
        config, graph = self.config, self.graph
        size = config.d_model
        mel = graph.input("mel", (config.num_mel_bins * mel_len,))
        x = self._conv(mel, "model.encoder.conv1", config.num_mel_bins, mel_len, mel_len, 1)
        seq_len = (mel_len - 1) // 2 + 1
        x = self._conv(x, "model.encoder.conv2", size, mel_len, seq_len, 2)
        x = graph.transpose(graph.reshape(x, (size, seq_len)))
        x = graph.add(x, self._positions("model.encoder", seq_len))
        for layer in range(config.encoder_layers):
            name = f"model.encoder.layers.{layer}"
            h = self._norm(x, f"{name}.self_attn_layer_norm")
            q, k, v = self._projected(h, h, f"{name}.self_attn")
            heads = graph.full_attention(q, k, v, *self._heads(config.encoder_attention_heads))
            x = graph.add(x, self.parameters.linear(heads, f"{name}.self_attn.out_proj", size, size))
            x = self._feed_forward(x, name, config.encoder_ffn_dim)
        return self._norm(x, "model.encoder.layer_norm")

    def decoded(self, seq_len: int, num_states: int) -> int:
        config, graph = self.config, self.graph
        size, heads = config.d_model, self._heads(config.decoder_attention_heads)
        tokens = graph.input_u32("token_ids", (seq_len,))
        states = graph.input("states", (num_states, size))
        table = self.parameters.declare("model.decoder.embed_tokens.weight", (config.vocab_size, size))
        x = graph.add(graph.embedding(tokens, table), self._positions("model.decoder", seq_len))
        for layer in range(config.decoder_layers):
            name = f"model.decoder.layers.{layer}"
            h = self._norm(x, f"{name}.self_attn_layer_norm")
            q, k, v = self._projected(h, h, f"{name}.self_attn")
            found = graph.causal_attention(q, k, v, *heads)
            x = graph.add(x, self.parameters.linear(found, f"{name}.self_attn.out_proj", size, size))
            h = self._norm(x, f"{name}.encoder_attn_layer_norm")
            q, k, v = self._projected(h, states, f"{name}.encoder_attn")
            found = graph.cross_attention(q, k, v, *heads)
            x = graph.add(x, self.parameters.linear(found, f"{name}.encoder_attn.out_proj", size, size))
            x = self._feed_forward(x, name, config.decoder_ffn_dim)
        return graph.matmul_bt(self._norm(x, "model.decoder.layer_norm"), table)

    def _conv(self, x: int, name: str, channels: int, length: int, out_length: int, stride: int) -> int:
        """A convolution over time, of three frames, as one of height `length` and width 1."""
        graph, size = self.graph, self.config.d_model
        weight = self.parameters.declare(f"{name}.weight", (size * channels * 3,), flat(f"{name}.weight"))
        full = per_channel(f"{name}.bias", 1, out_length)
        bias = self.parameters.declare(f"{name}.fused_bias", (size * out_length,), full)
        x = graph.conv2d_hw(x, weight, 1, channels, length, 1, size, 3, 1, stride, 1, 0)
        return self._activated(graph.add(x, bias))

    def _positions(self, name: str, seq_len: int) -> int:
        weight = f"{name}.embed_positions.weight"
        return self.parameters.declare(weight, (seq_len, self.config.d_model), first_rows(weight, seq_len))

    def _projected(self, x: int, others: int, name: str) -> tuple[int, int, int]:
        """Queries of x, keys and values of others; the keys have no bias."""
        graph, size = self.graph, self.config.d_model
        matrices = [self.parameters.matrix(f"{name}.{part}_proj.weight", size, size) for part in "qkv"]
        q_bias, v_bias = (self.parameters.declare(f"{name}.{part}_proj.bias", (size,)) for part in "qv")
        q = graph.bias_add(graph.matmul(x, matrices[0]), q_bias)
        k = graph.matmul(others, matrices[1])
        return q, k, graph.bias_add(graph.matmul(others, matrices[2]), v_bias)

    def _feed_forward(self, x: int, name: str, inner: int) -> int:
        size = self.config.d_model
        h = self.parameters.linear(self._norm(x, f"{name}.final_layer_norm"), f"{name}.fc1", size, inner)
        return self.graph.add(x, self.parameters.linear(self._activated(h), f"{name}.fc2", inner, size))

    def _norm(self, x: int, name: str) -> int:
        return self.parameters.layer_norm(x, name, self.config.d_model, self.config.layer_norm_eps)

    def _activated(self, x: int) -> int:
        exact = self.config.activation_function == "gelu"
        return layers.gelu(self.graph, x) if exact else self.graph.gelu(x)

    def _heads(self, count: int) -> tuple[int, int, int]:
        return count, count, self.config.d_model // count
