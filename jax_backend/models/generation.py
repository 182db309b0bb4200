"""Greedy continuation of prompts: one run over the prompt, then token by token with caches."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from ir.errors import ShapeError
from jax_backend.meganeura import Session
from jax_backend.models.decoder import DecoderConfig, build_decode_graph, build_prefill_graph
from jax_backend.models.parameters import Tensors, load_weights
from jax_backend.training import Feedback
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
        self.decode: Final = Session(build_decode_graph(config, max_seq).graph, feedback=GREEDY, **options)
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
        self.decode.set_input("token_ids", tokens[0])
        self.decode.set_input("kv_pos", [len(prompt)])
        return [*tokens, *decoded(self.decode, count - 1)]


def decoded(session: Session, count: int) -> list[Array]:
    """The tokens (1) u32 of `count` runs of a decode graph with the feedback `GREEDY`, from its inputs on.

    Nothing is waited for, and only one program per token goes to the device: what Python sends costs a transfer, and a
    second program a launch.
    """
    tokens: list[Array] = []
    for _ in range(count):
        session.step()
        tokens.append(session.input("token_ids"))
    return tokens


@jax.jit
def likeliest(logits: Array, row: Array) -> Array:
    """The token (1) with the largest of logits (rows, vocab) in a row."""
    return _largest(jax.lax.dynamic_slice_in_dim(logits, row, 1))


def _largest(logits: Array) -> Array:
    return jax.lax.argmax(logits, 1, np.uint32)


def _next_token(outputs: Sequence[Array], inputs: Mapping[str, Array]) -> Array:
    return _largest(outputs[0])


def _next_position(outputs: Sequence[Array], inputs: Mapping[str, Array]) -> Array:
    return inputs["kv_pos"] + np.uint32(1)


GREEDY: Final[Feedback] = {"token_ids": _next_token, "kv_pos": _next_position}
"""Of a decode graph: the likeliest token after this one, and its position."""
