"""Custom operations: what the ids of `Custom` mean. The registry is an object that is handed in, never a global."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax.numpy as jnp

from ir.errors import UnsupportedOp
from ir.ops.control import Custom
from jax_backend.ops._shared import Array, out_dtype, widen_half
from jax_backend.ops.signal import real_to_spectrum, spectrum_to_real

Handler: TypeAlias = Callable[..., Any]


class CustomOpRegistry:
    """Handlers by id. A handler is a lowering: `(op, inputs) -> array or tuple of arrays`, pure and traceable.

    `op.scalars` are static, `inputs` is a tuple of arrays, one output is due per tensor of `op.outputs`.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def register(self, id: str, handler: Handler) -> None:
        """Let `handler` run the operations with this `id`.

        Raises:
            ValueError: the id is taken.
        """
        if id in self._handlers:
            raise ValueError(f"custom op {id!r} has a handler already")
        self._handlers[id] = handler

    def handler(self, op: Custom) -> Handler:
        """The handler of `op`.

        Raises:
            UnsupportedOp: its id is unknown.
        """
        try:
            return self._handlers[op.id]
        except KeyError:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise UnsupportedOp(f"Custom.id: no handler for {op.id!r}; known ids: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)


def default_custom_ops() -> CustomOpRegistry:
    """A new registry with the ids that Burn 0.22.1 itself sends.

    `signal::rfft` and `signal::irfft` (scalars dim, whether n is given, n) mean `Rfft` and `IRfft`; `linalg::svd`
    (scalars sweeps of Burn's own algorithm, swap) is a thin singular value decomposition.
    """
    registry = CustomOpRegistry()
    registry.register("signal::rfft", _rfft)
    registry.register("signal::irfft", _irfft)
    registry.register("linalg::svd", _svd)
    return registry


def _rfft(op: Custom, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    (signal,) = inputs
    return _as_declared(op, real_to_spectrum(signal, *_dim_and_n(op)))


def _irfft(op: Custom, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    re, im = inputs
    return _as_declared(op, (spectrum_to_real(re, im, *_dim_and_n(op)),))


def _dim_and_n(op: Custom) -> tuple[int, int | None]:
    dim, has_n, n = (scalar.value for scalar in op.scalars)
    return int(dim), int(n) if has_n else None


def _svd(op: Custom, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Factors u, s, vt of x (.., m, n), m >= n, s descending. With swap, x came transposed and u, vt change places."""
    (x,) = inputs
    _, swap = (scalar.value for scalar in op.scalars)
    u, s, vt = jnp.linalg.svd(widen_half(x), full_matrices=False)
    if swap:
        u, vt = jnp.swapaxes(vt, -1, -2), jnp.swapaxes(u, -1, -2)
    return _as_declared(op, (u, s, vt))


def _as_declared(op: Custom, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(array.astype(out_dtype(out)) for array, out in zip(arrays, op.outputs, strict=True))
