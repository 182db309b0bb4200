"""The two forms of the mean pool's gradient: one runs on CPU and TPU, the other on CUDA."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jax_backend.ops import pool
from jax_backend.ops._windows import Window


def spread_by_loops(grad: np.ndarray, windows: tuple[Window, Window]) -> np.ndarray:
    """Each window's value added to every element that it covers, one by one."""
    down, across = windows
    out = np.zeros((*grad.shape[:2], down.size, across.size))
    for y, x in itertools.product(range(down.num_windows), range(across.num_windows)):
        for dy, dx in itertools.product(range(down.kernel), range(across.kernel)):
            row, column = y * down.stride - down.padding + dy, x * across.stride - across.padding + dx
            if 0 <= row < down.size and 0 <= column < across.size:
                out[:, :, row, column] += grad[:, :, y, x]
    return out


@pytest.mark.parametrize("form", [pool._spread_by_axis, pool._spread_at_once])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [((7, 9), (3, 2), (2, 1), (1, 0)), ((5, 5), (2, 2), (3, 3), (0, 0)), ((6, 4), (3, 3), (1, 2), (1, 1))],
)
def test_a_windows_gradient_reaches_each_of_its_elements(
    form: object, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    windows = tuple(
        Window(
            2 + n, size[n], (size[n] + 2 * padding[n] - kernel[n]) // stride[n] + 1, kernel[n], stride[n], padding[n], 1
        )
        for n in range(2)
    )
    grad = np.random.default_rng(0).normal(size=(2, 3, windows[0].num_windows, windows[1].num_windows))
    spread = form(jnp.asarray(grad), windows=windows)  # type: ignore[operator]
    np.testing.assert_allclose(spread, spread_by_loops(grad, windows), rtol=1e-12)
