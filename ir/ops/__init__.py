"""Every kind of the IR, one module per family. Importing this fills and freezes the registry."""

from ir.ops import (
    activation,
    attention,
    base,
    bool,
    control,
    conv,
    float,
    indexing,
    int,
    interpolate,
    linear,
    numeric,
    pool,
    quantize,
    reduce,
    signal,
    sort,
)
from ir.registry import freeze

freeze()

__all__ = [
    "activation",
    "attention",
    "base",
    "bool",
    "control",
    "conv",
    "float",
    "indexing",
    "int",
    "interpolate",
    "linear",
    "numeric",
    "pool",
    "quantize",
    "reduce",
    "signal",
    "sort",
]
