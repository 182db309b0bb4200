"""Greedy continuation of prompts: one run over the prompt, then token by token with caches."""

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from ir.errors import ShapeError
from jax_backend.meganeura import Session
from jax_backend.models.decoder import DecoderConfig, build_decode_graph, build_prefill_graph
from jax_backend.models.parameters import Tensors, load_weights
from jax_backend.types import Array


class Generator:
    """A decoder with its weights; two executables serve every prompt and every position.

    Args:
        config: the decoder.
        tensors: its weights.
        prompt_len: tokens of a prompt at most; a shorter one is padded, which changes nothing before the padding.
        max_seq: tokens of prompt and continuation together at most.
        options: those of `Session` but `gradients` and `batch`.
    """

    def __init__(
        self, config: DecoderConfig, tensors: Tensors, *, prompt_len: int, max_seq: int, **options: Any
    ) -> None:
        prefill = build_prefill_graph(config, prompt_len)
        self.prefill: Final = Session(prefill.graph, **options)
        self.decode: Final = Session(build_decode_graph(config, max_seq).graph, **options)
        load_weights(self.prefill, prefill, tensors)
        for name in prefill.loads:
            self.decode.set_parameter(name, self.prefill.parameter(name))
        self._prompt_len = prompt_len
        self._max_seq = max_seq
        count = config.num_hidden_layers
        self._caches = [f"kv_cache.layer.{layer}.{part}" for part in "kv" for layer in range(count)]

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` most likely tokens after `prompt`, one after the other.

        Raises:
            ShapeError: the prompt is empty or too long, or there is no room for the continuation.
        """
        return [int(token[0]) for token in self.stream(prompt, count)]

    def stream(self, prompt: Sequence[int], count: int) -> list[Array]:
        """As `generate`, without waiting: the tokens (1) u32 on the device."""
        if not 0 < len(prompt) <= self._prompt_len or len(prompt) + count - 1 > self._max_seq:
            raise ShapeError(
                f"prompt: expected 1 to {self._prompt_len} tokens and at most {self._max_seq} with the "
                f"continuation, got {len(prompt)} and {count} more"
            )
        self.prefill.set_input("token_ids", [*prompt, *[0] * (self._prompt_len - len(prompt))])
        self.prefill.step()
        rows = [self.prefill.output(n) for n in range(1, self.prefill.num_outputs)]
        self.decode.fill_caches(dict(zip(self._caches, rows, strict=True)))
        tokens = [likeliest(self.prefill.output(), len(prompt) - 1)]
        position = jnp.full((1,), len(prompt), jnp.uint32)
        for _ in range(count - 1):
            token, position = decoded(self.decode, tokens[-1], position)
            tokens.append(token)
        return tokens


def decoded(session: Session, token: Array, position: Array) -> tuple[Array, Array]:
    """One run of a decode graph on a token (1) at a position (1): the likeliest token (1) after it, and its position.

    Nothing is waited for, and only programs go to the device: a number that Python sends costs a transfer.
    """
    session.set_input("token_ids", token)
    session.set_input("kv_pos", position)
    session.step()
    return _next(session.output(), position)


@jax.jit
def likeliest(logits: Array, row: Array) -> Array:
    """The token (1) with the largest of logits (rows, vocab) in a row."""
    chosen = jax.lax.dynamic_slice_in_dim(logits, row, 1)
    return jnp.argmax(chosen, axis=-1).astype(jnp.uint32)


@jax.jit
def _next(logits: Array, position: Array) -> tuple[Array, Array]:
    """The likeliest token (1) of logits (1, vocab), and the position (1) after `position` (1)."""
    return likeliest(logits, jnp.int32(0)), position + jnp.uint32(1)
