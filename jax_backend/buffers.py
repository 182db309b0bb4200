"""Arrays by name on one device, checked when they are set."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from jax_backend.graph_function import Leaf, UnknownName, listed
from jax_backend.types import Array, Device


class Buffers:
    """The array of each leaf; zeros until it is set.

    Args:
        kind: what a message calls them: `parameter` or `input`.
        leaves: what there is.
        device: where they are.
    """

    def __init__(self, kind: str, leaves: Iterable[Leaf], device: Device) -> None:
        self.kind: Final = kind
        self.leaves: Final = {leaf.name: leaf for leaf in leaves}
        self._device: Final = device
        self._arrays: dict[str, Array] = {}
        self.num_set = 0
        """How often one was set, so that whoever holds a list of them knows when to ask again."""

    def leaf(self, name: str) -> Leaf:
        """What a name stands for.

        Raises:
            UnknownName: nothing here has it.
        """
        if name not in self.leaves:
            raise UnknownName(f"unknown {self.kind}: {name}; the graph has {listed(self.leaves)}")
        return self.leaves[name]

    def set(self, name: str, data: Any, *, copy: bool = False) -> None:
        """Fill one; `copy` even what is a jax array, because a run will take its buffer.

        Raises:
            UnknownName: nothing here has this name.
            ShapeError, DTypeError: `data` does not fit; see `Leaf.conformed`.
        """
        array = self.leaf(name).conformed(data)
        # A placed array needs no transfer; asking jax for one costs 20 us.
        if copy or not isinstance(array, jax.Array) or array.devices() != {self._device}:
            array = jax.device_put(array, self._device, may_alias=False if copy else None)
        self._arrays[name] = array
        self.num_set += 1

    def get(self, name: str) -> Array:
        """The array of one.

        Raises:
            UnknownName: nothing here has this name.
        """
        if name not in self._arrays:
            self.set(name, self.leaf(name).zeros())
        return self._arrays[name]

    def read(self, name: str) -> np.ndarray:
        """A copy on the host; waits for it.

        Raises:
            UnknownName: nothing here has this name.
        """
        return np.array(self.get(name))

    def arrays(self, leaves: Sequence[Leaf]) -> list[Array]:
        """The arrays of several."""
        return [self.get(leaf.name) for leaf in leaves]

    def replace(self, leaves: Sequence[Leaf], arrays: Sequence[Array]) -> None:
        """Put results of a run in the place of the arrays of several."""
        self._arrays.update(zip((leaf.name for leaf in leaves), arrays, strict=True))
