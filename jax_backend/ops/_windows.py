"""Windows that slide along one axis, for pools and window extraction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import lax

from jax_backend.ops._shared import Array, const


def pad_before_transposing(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], pads: Sequence[tuple[int, int]]
) -> tuple[Array, list[tuple[int, int]]]:
    """`x` (N, C, *size) and the padding that is left to a convolution of it; numbers per spatial axis.

    A window of 2 with a stride of 2 and a padding of 1 has an adjoint by x with a window of 2, a dilation of 2 and no
    padding. When XLA's CPU compiler swaps the operands of that, it takes the axis for groups and aborts the process
    (jaxlib 0.10.2). Whoever transposes a convolution of the `x` returned here meets no such axis.
    """
    steps = zip(kernel, stride, dilation, pads, strict=True)
    now = [pad if (k, s, d, pad[0]) == (2, 2, 1, 1) else (0, 0) for k, s, d, pad in steps]
    if any(map(any, now)):
        x = lax.pad(x, const(0, x), [(0, 0, 0), (0, 0, 0), *((*pad, 0) for pad in now)])
    return x, [(low - a, high - b) for (low, high), (a, b) in zip(pads, now, strict=True)]


class Window(NamedTuple):
    """Windows along one axis; all numbers in elements.

    Window o covers the places `o * stride - padding + t * dilation` for t in 0..kernel - 1, of which those in
    0..size - 1 are elements.
    """

    axis: int
    size: int
    num_windows: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def after(self) -> int:
        """End padding that the last window needs: more than `padding` in ceil mode, less where a tail is dropped."""
        extent = self.dilation * (self.kernel - 1) + 1
        return max((self.num_windows - 1) * self.stride + extent - self.size - self.padding, 0)

    def pad(self, x: Array, value: np.ndarray) -> Array:
        """`x` with `value` in front of and behind the axis."""
        widths = [(0, 0, 0)] * x.ndim
        widths[self.axis] = (self.padding, self.after, 0)
        return lax.pad(x, value, widths)

    def tap(self, padded: Array, tap: int) -> Array:
        """Element `tap` of every window, from what `pad` returns."""
        start, last = tap * self.dilation, (self.num_windows - 1) * self.stride
        return lax.slice_in_dim(padded, start, start + last + 1 if self.num_windows else start, self.stride, self.axis)
