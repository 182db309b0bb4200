"""Types that jax leaves without a name or without an annotation."""

from typing import Protocol, TypeAlias

import jax

Array: TypeAlias = jax.Array


class Device(Protocol):
    """A `jax.Device`, whose class jax does not annotate."""

    @property
    def id(self) -> int:
        """Number among the devices of its platform."""
        ...

    @property
    def platform(self) -> str:
        """`cpu`, `gpu` or `tpu`."""
        ...

    @property
    def device_kind(self) -> str:
        """Name of the hardware."""
        ...

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes in use and the like; None where the platform does not say."""
        ...

    def __hash__(self) -> int: ...
