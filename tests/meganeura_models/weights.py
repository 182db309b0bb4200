"""Weights that need no file: every number follows from the name of its tensor and its place.

Names and layouts are those of Hugging Face and torchvision, so that a loader has them to translate. Uses NumPy alone:
the environment that makes the golden outputs has torch and not this project.
"""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np


def uniform(name: str, count: int) -> np.ndarray:
    """`count` numbers in [-1, 1): splitmix64 of place and name, as float64."""
    x = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 32)
    with np.errstate(over="ignore"):
        x *= np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def weight(name: str, shape: Sequence[int]) -> np.ndarray:
    """The tensor `name`, as float32: kernels double the deviation of what they multiply, scales are near 1."""
    numbers = uniform(name, int(np.prod(shape))).reshape(shape)
    if len(shape) > 1:
        numbers = numbers * np.sqrt(12.0 / np.prod(shape[1:]))
    elif name.endswith("running_var"):
        numbers = 1.0 + 0.5 * numbers
    elif name.endswith("weight"):
        numbers = 1.0 + 0.2 * numbers
    else:
        numbers = 0.1 * numbers
    return np.ascontiguousarray(numbers, np.float32)


def weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Every tensor of a model."""
    return {name: weight(name, shape) for name, shape in shapes.items()}


def token_ids(count: int, vocab: int) -> list[int]:
    """Tokens that repeat late."""
    return [(7 * n * n + 3 * n + 5) % vocab for n in range(count)]


def waves(shape: Sequence[int]) -> np.ndarray:
    """Smooth data, such as an image or a spectrogram, as float32."""
    return np.sin(0.37 * np.arange(np.prod(shape), dtype=np.float64)).reshape(shape).astype(np.float32)
