"""Operations from shapes and dtypes alone, for the tests of shapes and of building."""

from itertools import count
from typing import Any

import ir
from ir import BOOL, F32, I64, tensor
from ir.build import build
from ir.dtype import BlockScale, BlockSize, DType, NativeStore, QuantMode, QuantScheme, QuantValue, ScaleDtype
from ir.shapes import NOTHING, Dims, Given, TensorType
from ir.shapes import type_of as type_of_tensor

Input = tuple[Dims, DType] | None


def made(kind: type[ir.Op], *inputs: Input | list[Input], given: Given = NOTHING, **static: Any) -> list[TensorType]:
    """Types of the outputs of `kind` on inputs of these types."""
    number = count()

    def described(item: Any) -> Any:
        if isinstance(item, list):
            return [described(i) for i in item]
        return None if item is None else tensor(next(number), *item)

    op = build(kind, [described(i) for i in inputs], lambda: 99, static, given)
    return [type_of_tensor(t) for t in op.outputs]


def f(*dims: int) -> Input:
    return dims, F32


def i(*dims: int) -> Input:
    return dims, I64


def b(*dims: int) -> Input:
    return dims, BOOL


Q8 = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, ScaleDtype.F32, None)
BLOCKS = BlockScale(BlockSize((2, 4, 1, 1, 1), 2), ScaleDtype.F16)
Q8_TWO_LEVEL = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, ScaleDtype.F32, BLOCKS)
