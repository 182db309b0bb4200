"""DType <-> jax dtype.

A bool is `bool_` whatever its store; the store matters at the border only (`host`). Flex32 is float32.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np

from ir.dtype import DType, ParamDType, PlainDType
from ir.errors import DTypeError

_PLAIN = {
    PlainDType.F64: jnp.float64,
    PlainDType.F32: jnp.float32,
    PlainDType.Flex32: jnp.float32,
    PlainDType.F16: jnp.float16,
    PlainDType.BF16: jnp.bfloat16,
    PlainDType.I64: jnp.int64,
    PlainDType.I32: jnp.int32,
    PlainDType.I16: jnp.int16,
    PlainDType.I8: jnp.int8,
    PlainDType.U64: jnp.uint64,
    PlainDType.U32: jnp.uint32,
    PlainDType.U16: jnp.uint16,
    PlainDType.U8: jnp.uint8,
}


@cache
def jax_dtype(dtype: DType) -> np.dtype:
    """The dtype that arrays of `dtype` have on a device.

    Raises:
        DTypeError: `dtype` is quantized: such a tensor is more than one array.
    """
    if isinstance(dtype, ParamDType):
        if dtype.is_bool:
            return np.dtype(np.bool_)
        raise DTypeError(f"a quantized tensor ({dtype.short}) is not one array")
    return np.dtype(_PLAIN[dtype])


def ir_dtype(dtype: np.dtype) -> DType:
    """The dtype of the IR for an array of `dtype`.

    Raises:
        DTypeError: the IR has none.
    """
    from ir.dtype import BOOL

    if dtype == np.bool_:
        return BOOL
    for plain, array in _PLAIN.items():
        if dtype == array:
            return plain
    raise DTypeError(f"the IR has no dtype for arrays of {dtype}")
