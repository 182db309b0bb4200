"""The registry of shape rules: what the outputs of each kind look like, from its inputs and static fields.

A rule is a pure function `(op, given) -> one type per output field`, None where an optional output is absent. It never
looks at the outputs of `op`, which may be placeholders; what the inputs do not decide (the shape of a `Reshape`, the
dtype of a `Cast`, the store of a comparison) it takes from `given` and checks. A rule of a record class serves every
kind of that record without a rule of its own.

The errors of a rule start with the field; `infer` puts the kind before it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from ir.dtype import BOOL, I32, DType
from ir.errors import DTypeError, ShapeError
from ir.op import Op, fields
from ir.registry import families_of
from ir.shapes.formulas import Dims, show
from ir.tensor import TensorIr


class TensorType(NamedTuple):
    """Shape and dtype of a tensor."""

    dims: Dims
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.dims))}]"


Outputs: TypeAlias = "tuple[TensorType | None, ...]"


class Given(NamedTuple):
    """What is said about the outputs, for all that the inputs do not decide.

    `dims` belongs to the first output, `dtype` to the last; `types` are all outputs, for a `Custom`.
    """

    dims: Dims | None = None
    dtype: DType | None = None
    types: tuple[TensorType, ...] | None = None

    def shape(self) -> Dims:
        """The shape.

        Raises:
            ShapeError: none is given.
        """
        if self.dims is None:
            raise ShapeError("out: expected a shape, which the inputs do not decide, got none; give `out_shape`")
        return self.dims

    def bool_dtype(self) -> DType:
        """The store of a bool output: any; native if none is given.

        Raises:
            DTypeError: what is given is no bool.
        """
        return self._of("a bool", lambda d: d.is_bool, BOOL)

    def index_dtype(self) -> DType:
        """The dtype of indices: any int; i32, Burn's default, if none is given.

        Burn's clients do not agree: some write the dtype of the input, some that of their device.

        Raises:
            DTypeError: what is given is no int.
        """
        return self._of("an int", lambda d: d.is_int, I32)

    def int_dtype(self) -> DType:
        """The dtype of an integer output; i32, Burn's default, if none is given.

        Raises:
            DTypeError: what is given is no int.
        """
        return self.index_dtype()

    def float_dtype(self, default: DType) -> DType:
        """The dtype of a float output.

        Raises:
            DTypeError: what is given is no float.
        """
        return self._of("a float", lambda d: d.is_float, default)

    def number_dtype(self, default: DType) -> DType:
        """The dtype of a numeric output, float or int.

        Raises:
            DTypeError: what is given is neither.
        """
        return self._of("a float or int", lambda d: d.is_float or d.is_int, default)

    def _of(self, family: str, fits: Callable[[DType], bool], default: DType) -> DType:
        dtype = default if self.dtype is None else self.dtype
        if not fits(dtype):
            raise DTypeError(f"out: expected {family} dtype, got {dtype.short}")
        return dtype


NOTHING: Final = Given()
OpT = TypeVar("OpT", bound=Op)
Rule: TypeAlias = Callable[[Any, Given], Outputs]

_rules: dict[type[Op], Rule] = {}


def shape_rule(*kinds: type[OpT]) -> Callable[[Callable[[OpT, Given], Outputs]], Callable[[OpT, Given], Outputs]]:
    """Register a function as the rule of `kinds`, or of all kinds of a record.

    Raises:
        RuntimeError: a kind has a rule already.
    """

    def register(function: Callable[[OpT, Given], Outputs]) -> Callable[[OpT, Given], Outputs]:
        for kind in kinds:
            if kind in _rules:
                raise RuntimeError(f"{kind.__name__} has a shape rule already")
            _rules[kind] = function
        return function

    return register


def rule_of(kind: type[Op]) -> Rule | None:
    """The rule of `kind`: its own, or that of its record."""
    return next((_rules[cls] for cls in kind.__mro__ if cls in _rules), None)


def assert_complete(kinds: Iterable[type[Op]]) -> None:
    """Check that each of `kinds` has a rule.

    Raises:
        RuntimeError: names the kinds that have none.
    """
    if missing := [kind.__name__ for kind in kinds if rule_of(kind) is None]:
        raise RuntimeError(f"kinds without a shape rule: {', '.join(missing)}")


def infer(op: Op, given: Given = NOTHING) -> Outputs:
    """Types of the outputs of `op`, one per output field (per output for a list); None where an optional one is absent.

    The outputs inside `op` are not looked at: they may be placeholders.

    >>> from ir import F32, Matmul, tensor
    >>> a, b, nothing = tensor(0, (2, 3), F32), tensor(1, (3, 5), F32), tensor(2, (), F32)
    >>> infer(Matmul(a, b, nothing))
    (TensorType(dims=(2, 5), dtype=<PlainDType.F32: 'F32'>),)

    Raises:
        ShapeError, DTypeError: the inputs, or what is given, do not fit the kind.
    """
    rule = rule_of(type(op))
    assert rule is not None, "assert_complete ran at import"
    try:
        _check_family(op)
        return rule(op, given)
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"{op.kind}.{error}") from None


def declared(op: Op) -> Given:
    """What `op` declares of its outputs."""
    types = tuple(type_of(t) for t in op.outputs)
    return Given(types[0].dims, types[-1].dtype, types) if types else NOTHING


def type_of(tensor: TensorIr) -> TensorType:
    """Shape and dtype of `tensor`."""
    return TensorType(tensor.shape.dims, tensor.dtype)


def one(dims: Dims, dtype: DType) -> Outputs:
    """The outputs of a kind that has one."""
    return (TensorType(dims, dtype),)


# Checks that rules share. Each error starts with the name of the field.


def tensor_field(op: Op, name: str) -> TensorIr | None:
    """The tensor in a field of `op`."""
    return cast("TensorIr | None", getattr(op, name))


def same_dtype(op: Op, first: str, *others: str) -> DType:
    """The dtype of field `first`, which the tensors in `others` share; absent ones are passed over.

    Raises:
        DTypeError: one has another dtype.
    """
    reference = tensor_field(op, first)
    assert reference is not None
    for name in others:
        tensor = tensor_field(op, name)
        if tensor is not None and tensor.dtype != reference.dtype:
            wanted = f"dtype {reference.dtype.short}, that of {first}"
            raise DTypeError(f"{name}: expected {wanted}, got {tensor.dtype.short}; cast one of them")
    return reference.dtype


def want_family(name: str, tensor: TensorIr | None, family: str) -> None:
    """Check that a tensor, if present, is of `family`: `float`, `int`, `bool` or `quantized`.

    Raises:
        DTypeError: it is not.
    """
    if tensor is not None and family_of(tensor.dtype) != family:
        article = "an" if family == "int" else "a"
        raise DTypeError(f"{name}: expected {article} {family} tensor, got {tensor.dtype.short}")


def want_dims(name: str, tensor: TensorIr | None, pattern: Sequence[int | str], context: str = "") -> None:
    """Check the shape of a tensor, if present: numbers of `pattern` have to agree, names stand for any size.

    Raises:
        ShapeError: it differs.
    """
    if tensor is None:
        return
    dims = tensor.shape.dims
    fits = len(dims) == len(pattern) and all(
        isinstance(want, str) or want == got for want, got in zip(pattern, dims, strict=True)
    )
    if not fits:
        suffix = f" for {context}" if context else ""
        raise ShapeError(f"{name}: expected shape {show(pattern)}{suffix}, got {show(dims)}")


def family_of(dtype: DType) -> str:
    """`float`, `int`, `bool` or `quantized`."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_quantized:
        return "quantized"
    return "int" if dtype.is_int else "float"


_TAKEN: Final = {
    "NumericFloat": {"float"},
    "NumericInt": {"int"},
    "Float": {"float"},
    "Int": {"int"},
    "Bool": {"bool"},
    "Module": {"float"},
    "Activation": {"float"},
    "Distributed": {"float"},
}
"""Which dtypes the first input of a kind may have, by the outer variants it stands under; the base kinds take all."""


@cache
def _first_input(kind: type[Op]) -> tuple[str, frozenset[str]] | None:
    """The first input of `kind` and the families of dtypes it may have; None where nothing is to check."""
    taken = {family for outer in families_of(kind) for family in _TAKEN.get(outer, ())}
    if kind.__name__ in ("Matmul", "Dequantize"):
        taken.add("quantized")
    first = next((field.path for field in fields(kind) if field.is_input), None)
    return (first, frozenset(taken)) if first is not None and taken else None


def _check_family(op: Op) -> None:
    if (first := _first_input(type(op))) is None:
        return
    name, taken = first
    tensor = tensor_field(op, name)
    if tensor is not None and family_of(tensor.dtype) not in taken:
        expected = " or ".join(sorted(taken))
        raise DTypeError(f"{name}: expected a tensor of {expected}, got {tensor.dtype.short}")


def output_names(kind: type[Op]) -> tuple[str, ...]:
    """The fields of `kind` that hold outputs, in declared order."""
    return tuple(f.path for f in fields(kind) if f.is_output)
