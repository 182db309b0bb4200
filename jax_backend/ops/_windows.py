"""Windows that slide along one axis, for pools and window extraction."""

from typing import NamedTuple

import numpy as np
from jax import lax

from jax_backend.ops._shared import Array


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
