"""The recorder as people use it: lazy tensors with operators and a method per kind.

    recorder = Recorder()
    x = recorder.from_numpy(np.ones((2, 3), np.float32))
    y = (x * 2 + 1).softmax(-1)              # recorded, not computed
    y.numpy()                                # computed and read

A method is a kind in snake case: `x.sum_dim(1)` records `SumDim`, `x.conv2d(w, stride=2)` records `Conv2d` with `x` as
its first tensor. Arguments are the fields of the kind in declared order; `out_shape` and `out_dtype` say what the
inputs do not decide. Shapes and dtypes are known at once: what does not fit raises where it is written.

Promise: a tensor is dropped from the stream once its last Python reference is gone.
"""

import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

import ir
from ir.build import build_typed
from ir.dtype import DType
from ir.errors import DTypeError
from ir.op import Op
from ir.shapes import Dims, Given, TensorType, slice_dims
from ir.tensor import TensorData, TensorIr, tensor
from jax_backend import host
from jax_backend.dtypes import ir_dtype
from jax_backend.tensor_index import Index, ranges_of
from jax_backend.tensor_methods import equip

Number: TypeAlias = "bool | int | float"


class Readable(Protocol):
    """A read under way."""

    def result(self) -> TensorData:
        """The data, once it is there."""
        ...


class OperationSink(Protocol):
    """What a recorder offers below tensors."""

    @abstractmethod
    def new_id(self) -> int:
        """A tensor id that is not in use."""
        ...

    @abstractmethod
    def register_operation(self, operation: Op) -> None:
        """Append an operation."""
        ...

    @abstractmethod
    def register_tensor_data(self, data: TensorData) -> TensorIr:
        """Bring data to the device under a fresh id."""
        ...

    @abstractmethod
    def read_tensor(self, tensor: TensorIr) -> Readable:
        """Run what is pending and begin to read."""
        ...

    @abstractmethod
    def drop(self, id: int) -> None:
        """Forget a tensor; one that is gone already is no error."""
        ...


class TensorRecorder(OperationSink):
    """Mixin of a recorder: makes tensors, and records any kind on them."""

    @cached_property
    def _unreachable(self) -> deque[int]:
        return deque()

    def drop_unreachable(self) -> None:
        """Drop the tensors that no Python reference holds any more.

        A finalizer may run in the middle of anything, on any thread, so it only notes the id; the drops follow here.
        """
        while self._unreachable:
            self.drop(self._unreachable.popleft())

    def _repr_html_(self) -> str:
        from jax_backend.notebook import recorder_html

        return recorder_html(self)

    def wrap(self, description: TensorIr) -> "Tensor":
        """The tensor of an id that this recorder knows. It is dropped with the last reference to the result."""
        return Tensor(self, description)

    def record(
        self,
        kind: type[Op],
        /,
        *tensors: "Tensor | Sequence[Tensor] | None",
        out_shape: Sequence[int] | None = None,
        out_dtype: DType | None = None,
        out_types: Sequence[tuple[Sequence[int], DType]] | None = None,
        **static: object,
    ) -> "Tensor | tuple[Tensor, ...]":
        """Append an operation of any kind and return its outputs: a tensor, or a tuple where there are more or none.

        Args:
            kind: the class, such as `ir.Conv2d`.
            tensors: the inputs in declared order; None for an absent optional one, a list where the kind takes one.
            out_shape: shape of the output, for kinds whose inputs do not decide it (`Reshape`, `Full`, ..).
            out_dtype: dtype of the output, likewise (`Cast`, comparisons, ..); of indices where there are two outputs.
            out_types: shapes and dtypes of the outputs of a `Custom`.
            static: every other field by name, see `ir.build`.

        Raises:
            ShapeError, DTypeError: the inputs do not fit the kind.
            TypeError, ValueError: a field is missing, unknown or holds what it cannot; a tensor is another recorder's.
        """
        self.drop_unreachable()
        types = None if out_types is None else tuple(TensorType(tuple(dims), dtype) for dims, dtype in out_types)
        given = Given(None if out_shape is None else tuple(out_shape), out_dtype, types)
        plain = {name: _plain(value) for name, value in static.items()}
        op, outputs = build_typed(kind, [self._described(t) for t in tensors], self.new_id, plain, given)
        self.register_operation(op)
        made = tuple([Tensor(self, t) for t in outputs])
        return made[0] if len(made) == 1 else made

    def _described(self, item: "Tensor | Sequence[Tensor] | None") -> TensorIr | tuple[TensorIr, ...] | None:
        if item is None:
            return None
        if not isinstance(item, Tensor):
            return tuple(cast("TensorIr", self._described(t)) for t in item)
        if item.recorder is not self:
            raise ValueError(f"{item!r} belongs to another recorder; read it and bring its data here with from_numpy")
        return item.description

    def from_numpy(self, array: npt.ArrayLike, dtype: DType | None = None) -> "Tensor":
        """A tensor with the elements of `array`, which is copied.

        `dtype` is by default that of the array; Python numbers become f32 and i32, Burn's defaults.

        Raises:
            DTypeError: the IR has no such dtype, or `dtype` is quantized.
        """
        elements = np.asarray(array)
        if dtype is None:
            dtype = ir_dtype(elements.dtype) if isinstance(array, np.ndarray | np.generic) else _default(elements.dtype)
        if dtype.is_quantized:
            raise DTypeError(f"from_numpy: expected a plain dtype, got {dtype.short}; Quantize makes quantized tensors")
        self.drop_unreachable()
        # The device may keep the memory, so it must be ours alone.
        mine = np.array(elements, host.element_dtype(dtype), order="C")
        return Tensor(self, self.register_tensor_data(host.from_numpy(mine, dtype)))

    def full(self, shape: Sequence[int], value: Number, dtype: DType | None = None) -> "Tensor":
        """A tensor of `value`; its dtype is f32, i32 or bool by default, as the value is."""
        dtype = dtype or _default(np.asarray(value).dtype)
        if dtype.is_bool:  # as Burn sends it: Full is a numeric kind
            return self._one(ir.Ones if value else ir.Zeros, out_shape=shape, out_dtype=dtype)
        return self._one(ir.Full, out_shape=shape, out_dtype=dtype, value=value)

    def zeros(self, shape: Sequence[int], dtype: DType = ir.F32) -> "Tensor":
        """A tensor of zeros, or of false."""
        return self._one(ir.Zeros, out_shape=shape, out_dtype=dtype)

    def ones(self, shape: Sequence[int], dtype: DType = ir.F32) -> "Tensor":
        """A tensor of ones, or of true."""
        return self._one(ir.Ones, out_shape=shape, out_dtype=dtype)

    def empty(self, shape: Sequence[int], dtype: DType = ir.F32) -> "Tensor":
        """A tensor whose elements nobody relies on."""
        return self._one(ir.Empty, out_shape=shape, out_dtype=dtype)

    def random(
        self,
        shape: Sequence[int],
        dtype: DType = ir.F32,
        distribution: ir.DefaultDistribution | ir.DistributionParams = ir.DefaultDistribution.Default,
    ) -> "Tensor":
        """Random floats, or ints where `dtype` is one; by default [0, 1), and the whole range of the dtype."""
        kind = ir.IntRandom if dtype.is_int else ir.Random
        return self._one(kind, out_shape=shape, out_dtype=dtype, distribution=distribution)

    def cat(self, tensors: "Sequence[Tensor]", dim: int) -> "Tensor":
        """The tensors joined along `dim`."""
        return self._one(ir.Cat, tensors, dim=dim)

    def _one(self, kind: type[Op], /, *tensors: "Tensor | Sequence[Tensor] | None", **fields: Any) -> "Tensor":
        """`record` for kinds with one output."""
        return cast("Tensor", self.record(kind, *tensors, **fields))


def _operators(
    kind: type[Op], scalar_kind: type[Op]
) -> "tuple[Callable[[Tensor, object], Tensor], Callable[[Tensor, object], Tensor]]":
    """An operator, with a kind for a tensor and one for a number on the right, and its reflected form."""

    def forward(self: "Tensor", other: object) -> "Tensor":
        return self._apply(kind, other, scalar_kind)

    def reflected(self: "Tensor", other: object) -> "Tensor":
        return self._apply_reflected(kind, other)

    return forward, reflected


def _plain(value: object) -> object:
    """A NumPy scalar as the Python number it is; anything else as it is."""
    return cast("np.generic[Any]", value).item() if isinstance(value, np.generic) else value


def _is_number(value: object) -> bool:
    return isinstance(_plain(value), bool | int | float)


class Tensor:
    """A tensor of a recorder: known by type, computed when it is read.

    Operators take tensors of equal rank and dtype, and Python numbers, which take the dtype of the tensor.
    Comparisons give bool tensors, so a tensor equals nothing as a whole; it hashes by identity.
    """

    __slots__ = ("__weakref__", "description", "recorder")

    __array_ufunc__ = None  # NumPy arrays on the left leave the operation to us

    def __init__(self, recorder: TensorRecorder, description: TensorIr) -> None:
        self.recorder: Final = recorder
        self.description: Final = tensor(description.id.value, description.shape.dims, description.dtype)
        note = recorder._unreachable.append
        weakref.finalize(self, note, description.id.value).atexit = False

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    # ---- what it is

    @property
    def shape(self) -> Dims:
        """Sizes of the axes, outermost first."""
        return self.description.shape.dims

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.description.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def id(self) -> int:
        """Name of the tensor in the stream."""
        return self.description.id.value

    def __repr__(self) -> str:
        return f"Tensor({self.description})"

    def _repr_html_(self) -> str:
        from jax_backend.notebook import tensor_html

        return tensor_html(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self!r} has no axis and no length")
        return self.shape[0]

    # ---- reading

    def numpy(self) -> np.ndarray:
        """Compute the tensor and bring it to the host.

        Raises:
            DTypeError: it is quantized.
            IrError: the operation that should have made it failed.
        """
        if self.dtype.is_quantized:
            raise DTypeError(f"{self!r}: a quantized tensor is no array; dequantize it first")
        self.recorder.drop_unreachable()
        return host.to_numpy(self.recorder.read_tensor(self.description).result())

    def item(self) -> Number:
        """The only element, as a Python number.

        Raises:
            ValueError: there are none, or more.
        """
        return cast("Number", self.numpy().item())

    def __array__(self, dtype: "np.dtype[Any] | None" = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no truth value before it is read; use .item() or .numpy()")

    # ---- shape and dtype

    def reshape(self, *shape: int | Sequence[int]) -> "Tensor":
        """The elements in another shape; one size may be -1.

        Raises:
            ShapeError: the element counts differ.
        """
        dims = [int(size) for item in shape for size in (item if isinstance(item, Sequence) else (item,))]
        if dims.count(-1) == 1:
            known = int(np.prod([size for size in dims if size != -1]))
            dims[dims.index(-1)] = int(np.prod(self.shape)) // known if known else 0
        return self.recorder._one(ir.Reshape, self, out_shape=dims)

    def expand(self, *shape: int | Sequence[int]) -> "Tensor":
        """The tensor broadcast to a shape.

        Raises:
            ShapeError: it does not broadcast.
        """
        dims = [int(size) for item in shape for size in (item if isinstance(item, Sequence) else (item,))]
        return self.recorder._one(ir.Expand, self, out_shape=dims)

    @property
    def T(self) -> "Tensor":
        """The tensor with its last two axes exchanged."""
        return self.recorder._one(ir.SwapDims, self, dim1=-2, dim2=-1)

    def astype(self, dtype: DType) -> "Tensor":
        """The tensor in another dtype: a cast within a family, or the kind that leads to another one.

        Raises:
            DTypeError: it is quantized, or `dtype` is.
        """
        if dtype.is_quantized or self.dtype.is_quantized:
            raise DTypeError(f"{self!r}: expected plain dtypes, got {dtype.short}; use quantize and dequantize")
        if dtype.is_bool and not self.dtype.is_bool:
            return self.recorder._one(ir.NotEqualElem, self, rhs=0, out_dtype=dtype)
        kind: type[Op] = ir.Cast
        if dtype.is_int and not self.dtype.is_int:
            kind = ir.IntoInt
        elif dtype.is_float and not self.dtype.is_float:
            kind = ir.IntoFloat
        return self.recorder._one(kind, self, out_dtype=dtype)

    def cast(self, dtype: DType) -> "Tensor":
        """As `astype`."""
        return self.astype(dtype)

    # ---- parts

    def __getitem__(self, index: Index) -> "Tensor":
        ranges, dims = ranges_of(index, self.shape)
        part = self
        if slice_dims(self.shape, ranges) != self.shape or any(r.step < 0 for r in ranges):
            part = self.recorder._one(ir.Slice, self, ranges=ranges)
        return part if part.shape == dims else part.reshape(dims)

    def __iter__(self) -> "Iterator[Tensor]":
        return (self[n] for n in range(len(self)))

    def slice_assign(self, index: Index, value: "Tensor | Number") -> "Tensor":
        """A copy with the part at `index` replaced; indices are those of `[]`, a number fills.

        Raises:
            ShapeError: the value does not have the shape of the part.
        """
        ranges, dims = ranges_of(index, self.shape)
        window = slice_dims(self.shape, ranges)
        if not isinstance(value, Tensor):
            value = self.recorder.full(window, value, self.dtype)
        elif value.shape == dims != window:
            value = value.reshape(window)
        return self.recorder._one(ir.SliceAssign, self, value, ranges=ranges)

    # ---- operators

    def _operand(self, other: object) -> "Tensor | Number | None":
        """What an operator can use of `other`: NumPy arrays and numbers take the dtype of the tensor."""
        if isinstance(other, np.ndarray):
            return self.recorder.from_numpy(cast("npt.ArrayLike", other), self.dtype)
        plain = _plain(other)
        return plain if isinstance(plain, Tensor | bool | int | float) else None

    def _like(self, value: Number) -> "Tensor":
        """A tensor of one element that broadcasts against this one."""
        return self.recorder.full((1,) * self.ndim, value, self.dtype)

    def _apply(self, kind: type[Op], other: object, scalar_kind: type[Op] | None = None) -> "Tensor":
        """`kind` on this and `other`; `scalar_kind`, if there is one, where `other` is a number."""
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        if isinstance(operand, Tensor):
            return self.recorder._one(kind, self, operand)
        if scalar_kind is None:
            return self.recorder._one(kind, self, self._like(operand))
        return self.recorder._one(scalar_kind, self, rhs=operand)

    def _apply_reflected(self, kind: type[Op], other: object) -> "Tensor":
        """`kind` on `other` and this."""
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        left = operand if isinstance(operand, Tensor) else self._like(operand)
        return self.recorder._one(kind, left, self)

    __add__, __radd__ = _operators(ir.Add, ir.AddScalar)
    __sub__, __rsub__ = _operators(ir.Sub, ir.SubScalar)
    __mul__, __rmul__ = _operators(ir.Mul, ir.MulScalar)
    __truediv__, __rtruediv__ = _operators(ir.Div, ir.DivScalar)
    __mod__, __rmod__ = _operators(ir.Rem, ir.RemScalar)
    __lshift__, __rlshift__ = _operators(ir.BitwiseLeftShift, ir.BitwiseLeftShiftScalar)
    __rshift__, __rrshift__ = _operators(ir.BitwiseRightShift, ir.BitwiseRightShiftScalar)
    __gt__, _ = _operators(ir.Greater, ir.GreaterElem)  # Python reflects a comparison by its opposite
    __ge__, _ = _operators(ir.GreaterEqual, ir.GreaterEqualElem)
    __lt__, _ = _operators(ir.Lower, ir.LowerElem)
    __le__, _ = _operators(ir.LowerEqual, ir.LowerEqualElem)

    def _bitwise(self, logical: type[Op], bitwise: type[Op], scalar_kind: type[Op], other: object) -> "Tensor":
        return self._apply(logical, other) if self.dtype.is_bool else self._apply(bitwise, other, scalar_kind)

    def __pow__(self, other: object) -> "Tensor":
        number = _plain(other)
        whole = not isinstance(number, float) or number.is_integer()
        if self.dtype.is_int:
            if not whole:
                raise DTypeError(f"{self!r}: expected an integral exponent on ints, got {number}")
            return self._apply(ir.Powi, number, ir.PowiScalar)
        return self._apply(ir.Powf, number, ir.PowiScalar if whole else ir.PowfScalar)

    def __rpow__(self, other: object) -> "Tensor":
        return self._apply_reflected(ir.Powi if self.dtype.is_int else ir.Powf, other)

    def __and__(self, other: object) -> "Tensor":
        return self._bitwise(ir.And, ir.BitwiseAnd, ir.BitwiseAndScalar, other)

    def __or__(self, other: object) -> "Tensor":
        return self._bitwise(ir.Or, ir.BitwiseOr, ir.BitwiseOrScalar, other)

    def __xor__(self, other: object) -> "Tensor":
        return self._bitwise(ir.Xor, ir.BitwiseXor, ir.BitwiseXorScalar, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> "Tensor":
        return self.recorder._one(ir.Not if self.dtype.is_bool else ir.BitwiseNot, self)

    def __neg__(self) -> "Tensor":
        return self.recorder._one(ir.Neg, self)

    def __abs__(self) -> "Tensor":
        return self.recorder._one(ir.Abs, self)

    def __matmul__(self, other: object) -> "Tensor":
        return NotImplemented if _is_number(other) else self._apply(ir.Matmul, other)

    def __rmatmul__(self, other: object) -> "Tensor":
        return NotImplemented if _is_number(other) else self._apply_reflected(ir.Matmul, other)

    def __eq__(self, other: object) -> "Tensor":  # type: ignore[override]
        return self._apply(ir.Equal, other, ir.EqualElem)

    def __ne__(self, other: object) -> "Tensor":  # type: ignore[override]
        return self._apply(ir.NotEqual, other, ir.NotEqualElem)

    __hash__ = object.__hash__


def _default(dtype: "np.dtype[Any]") -> DType:
    """The dtype of Python numbers that NumPy holds as `dtype`."""
    return {"b": ir.BOOL, "i": ir.I32, "f": ir.F32}.get(dtype.kind) or ir_dtype(dtype)


equip(Tensor)
