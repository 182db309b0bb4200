"""Shape and dtype rules: what the outputs of an operation look like, without running it.

`infer(op, given)` gives the types of the outputs of any kind; the formulas behind it are public, on plain numbers.

Promise: every kind has a rule, checked at import; a rule never looks at the outputs of the operation itself.
"""

from ir.registry import kinds
from ir.shapes import (
    attention,
    base,
    control,
    conv,
    float,
    indexing,
    interpolate,
    linear,
    numeric,
    pool,
    quantize,
    records,
    signal,
)
from ir.shapes.formulas import (
    Dims,
    block_grid,
    broadcast_dims,
    conv_out,
    conv_transpose_out,
    expand_dims,
    matmul_dims,
    permute_dims,
    pool_out,
    pool_out_undropped,
    reshape_dims,
    show,
    slice_dims,
    unfold_windows,
    with_axis,
)
from ir.shapes.rules import (
    NOTHING,
    Given,
    Outputs,
    TensorType,
    assert_complete,
    declared,
    infer,
    output_names,
    rule_of,
    type_of,
)

assert_complete(kinds())

__all__ = [
    "NOTHING",
    "Dims",
    "Given",
    "Outputs",
    "TensorType",
    "assert_complete",
    "attention",
    "base",
    "block_grid",
    "broadcast_dims",
    "control",
    "conv",
    "conv_out",
    "conv_transpose_out",
    "declared",
    "expand_dims",
    "float",
    "indexing",
    "infer",
    "interpolate",
    "linear",
    "matmul_dims",
    "numeric",
    "output_names",
    "permute_dims",
    "pool",
    "pool_out",
    "pool_out_undropped",
    "quantize",
    "records",
    "reshape_dims",
    "rule_of",
    "show",
    "signal",
    "slice_dims",
    "type_of",
    "unfold_windows",
    "with_axis",
]
