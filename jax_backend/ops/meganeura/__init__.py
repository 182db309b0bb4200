"""The lowerings of Meganeura's kinds, one module per family, named as the modules of `ir.meganeura.ops`."""

from jax_backend.ops.meganeura import attention, conv, elementwise, indexing, leaf, linear, norm, reduce
from jax_backend.ops.meganeura.leaf import NO_PROGRAM

FAMILIES = (attention, conv, elementwise, indexing, leaf, linear, norm, reduce)

__all__ = ["FAMILIES", "NO_PROGRAM"]
