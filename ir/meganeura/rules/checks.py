"""The registry of rules, and the checks that they are made of."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from ir.errors import DTypeError, ShapeError
from ir.meganeura.node import has_mark
from ir.meganeura.ops.indexing import Embedding
from ir.meganeura.ops.leaf import Nop
from ir.meganeura.ops.records import Mark
from ir.meganeura.types import DType, TensorType
from ir.op import Op, values
from ir.tensor import TensorIr

Rule = Callable[[Any], TensorType | None]
RuleT = TypeVar("RuleT", bound=Rule)
_rules: dict[type[Op], Rule] = {}


def rule(*of: type[Op]) -> Callable[[RuleT], RuleT]:
    """Register the rule of kinds: the type of the result, or None where the declaration alone says it."""

    def register(function: RuleT) -> RuleT:
        _rules.update(dict.fromkeys(of, function))
        return function

    return register


def result_type(op: Op) -> TensorType | None:
    """The type of the result of `op` by its inputs and attributes; None where its declaration is free.

    Raises:
        ShapeError, DTypeError: the inputs do not fit.
    """
    _check_dtypes(op)
    return _rules[type(op)](op)


def verify_node(op: Op) -> None:
    """Check a node by itself. Its declared shape may differ from the rule's with as many elements.

    Raises:
        ShapeError, DTypeError: the inputs do not fit, or the result is declared otherwise than they make it.
    """
    made, declared = result_type(op), TensorType.of(op.outputs[0])
    if made is None:
        return
    if made.num_elements() != declared.num_elements():
        fail(op, "out", f"expected {made.num_elements()} elements, as {list(made.shape)}, got {list(declared.shape)}")
    if made.dtype is not declared.dtype:
        raise DTypeError(f"{op.kind}.out: expected {made.dtype.value}, got {declared.dtype.value}")


def _check_dtypes(op: Op) -> None:
    if isinstance(op, Nop):
        return
    for field, value in values(op):
        if field.is_input and value is not None:
            wanted = DType.U32 if has_mark(field, Mark.INDEX) else DType.F32
            if value.dtype is not wanted.plain:
                text = " indices must be U32:" if isinstance(op, Embedding) else ""
                name = " embedding" if text else ""
                raise DTypeError(
                    f"{op.kind}.{field.path}:{name}{text} expected {wanted.value}, got {value.dtype.value}; "
                    "`input_u32` makes indices, `input` numbers"
                )


def fail(op: Op, field: str, text: str) -> NoReturn:
    """Refuse `op` for one of its fields; the message ends with all operands.

    Raises:
        ShapeError: always.
    """
    operands = ", ".join(f"{f.path} {v}" for f, v in values(op) if f.is_input and v is not None)
    raise ShapeError(f"{op.kind}.{field}: {text}" + (f" ({operands})" if operands else ""))


def equal(op: Op, field: str, expected: int, got: int, text: str) -> None:
    """Two sizes that must be equal; `text` says why."""
    if expected != got:
        fail(op, field, f"{text}: expected {expected}, got {got}")


def rank(op: Op, field: str, expected: int, text: str) -> Sequence[int]:
    """The sizes of an operand that has `expected` axes."""
    dims: tuple[int, ...] = getattr(op, field).shape.dims
    if len(dims) != expected:
        fail(op, field, f"{text}: expected {expected} axes, got {len(dims)}")
    return dims


def same_shape(op: Op, field: str, other: str, text: str) -> TensorType:
    """The type of `other`, whose shape `field` shares."""
    expected, got = like(getattr(op, other)), like(getattr(op, field))
    if expected.shape != got.shape:
        fail(op, field, f"{text}: expected {list(expected.shape)}, got {list(got.shape)}")
    return expected


def elements(op: Op, field: str, expected: int, what: str) -> None:
    """An operand that holds `expected` elements, under any shape."""
    got = count(getattr(op, field))
    if expected != got:
        fail(op, field, f"expected {expected} elements ({what}), got {got}")


def batch_of(op: Op, field: str, image: int, what: str) -> int:
    """How many images of `image` elements a flat operand holds."""
    got = count(getattr(op, field))
    if image == 0 or got % image:
        fail(op, field, f"expected a multiple of {image} elements ({what}), got {got}")
    return got // image


def count(tensor: TensorIr) -> int:
    """Number of elements of an operand."""
    return TensorType.of(tensor).num_elements()


def like(tensor: TensorIr) -> TensorType:
    """The type of an operand."""
    return TensorType.of(tensor)


def f32(*dims: int) -> TensorType:
    """A result of numbers."""
    return TensorType(dims, DType.F32)


def assert_complete(kinds: Iterable[type[Op]]) -> None:
    """Check that each of `kinds` has a rule.

    Raises:
        RuntimeError: names the kinds that have none.
    """
    if missing := [kind.__name__ for kind in kinds if kind not in _rules]:
        raise RuntimeError(f"kinds without a rule: {', '.join(missing)}")
