"""Each backward kind is the derivative of its forward kind.

Every finite row of a forward kind in `tests/cases` gives a test: the backward kind runs on the row's operands and a
gradient of whole numbers; what it must give comes from `jax.vjp` of the forward lowering in float64. A new backward
kind needs a line in `GRADIENTS`, and `test_every_backward_kind_is_here` fails until it has one.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from ir.op import Op, fields, map_operands, values
from ir.registry import kinds
from ir.stream import relativise
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.dtypes import jax_dtype
from jax_backend.interpreter import run_graph
from tests.cases import cases
from tests.cases.activation import UNARY
from tests.opcase import OpCase, Typed, build, case, t


class Gradient(NamedTuple):
    """`backward` gives the gradients of `forward` by its inputs `wrt`, in the order of its outputs.

    The inputs of `backward` have the names of the forward's fields, but for those in `names`; "grad" there is the
    incoming gradient.
    """

    forward: type[Op]
    backward: type[Op]
    wrt: tuple[str, ...]
    names: dict[str, str]


def by(wrt: str, forward: type[Op], backward: type[Op], **names: str) -> Gradient:
    return Gradient(forward, backward, tuple(wrt.split()), names or {"output_grad": "grad"})


GRADIENTS = (
    by("x", ir.Linear, ir.LinearXBackward),
    by("weight", ir.Linear, ir.LinearWeightBackward),
    by("bias", ir.Linear, ir.LinearBiasBackward),
    by("weights", ir.Embedding, ir.EmbeddingBackward, out_grad="grad"),
    by("x", ir.Conv1d, ir.Conv1dXBackward),
    by("weight", ir.Conv1d, ir.Conv1dWeightBackward),
    by("bias", ir.Conv1d, ir.Conv1dBiasBackward),
    by("x", ir.Conv2d, ir.Conv2dXBackward),
    by("weight", ir.Conv2d, ir.Conv2dWeightBackward),
    by("bias", ir.Conv2d, ir.Conv2dBiasBackward),
    by("x", ir.Conv3d, ir.Conv3dXBackward),
    by("weight", ir.Conv3d, ir.Conv3dWeightBackward),
    by("bias", ir.Conv3d, ir.Conv3dBiasBackward),
    by("weight", ir.ConvTranspose1d, ir.ConvTranspose1dWeightBackward),
    by("bias", ir.ConvTranspose1d, ir.ConvTranspose1dBiasBackward),
    by("weight", ir.ConvTranspose2d, ir.ConvTranspose2dWeightBackward),
    by("bias", ir.ConvTranspose2d, ir.ConvTranspose2dBiasBackward),
    by("weight", ir.ConvTranspose3d, ir.ConvTranspose3dWeightBackward),
    by("bias", ir.ConvTranspose3d, ir.ConvTranspose3dBiasBackward),
    by("x offset weight mask bias", ir.DeformableConv2d, ir.DeformableConv2dBackward, out_grad="grad"),
    by("x", ir.AvgPool1d, ir.AvgPool1dBackward, grad="grad"),
    by("x", ir.AvgPool2d, ir.AvgPool2dBackward, grad="grad"),
    by("x", ir.AdaptiveAvgPool1d, ir.AdaptiveAvgPool1dBackward, grad="grad"),
    by("x", ir.AdaptiveAvgPool2d, ir.AdaptiveAvgPool2dBackward, grad="grad"),
    by("x", ir.AdaptiveAvgPool3d, ir.AdaptiveAvgPool3dBackward, grad="grad"),
    by("x", ir.MaxPool1dWithIndices, ir.MaxPool1dWithIndicesBackward, grad="grad", indices="out_indices"),
    by("x", ir.MaxPool2dWithIndices, ir.MaxPool2dWithIndicesBackward, grad="grad", indices="out_indices"),
    by("x", ir.Interpolate, ir.InterpolateBackward, grad="grad"),
    by("input", ir.Relu, ir.ReluBackward, lhs="out", rhs="grad"),
    by("input", ir.Gelu, ir.GeluBackward, lhs="input", rhs="grad"),
    by("input", ir.Sigmoid, ir.SigmoidBackward, lhs="out", rhs="grad"),
    by("input", ir.LogSigmoid, ir.LogSigmoidBackward, lhs="input", rhs="grad"),
)

TABLES = ("conv", "conv_transpose", "deform", "interpolate", "linear", "pool")

NOT_A_DERIVATIVE = {ir.CtcLossBackward}
"""Burn's is that of the loss by logits, as if the log-probabilities came from a log-softmax; its rows hold numbers."""

ROUNDING = {ir.F64: 1e-12, ir.F32: 4e-6, ir.FLEX32: 4e-6, ir.F16: 1.5e-3, ir.BF16: 1.2e-2}
"""Of the largest element: sums of products, in float32 for halves, where the reference has float64. An activation's
derivative from the rounded output of the forward pass may be off by one rounding more."""


class Setup(NamedTuple):
    """One test: the backward operation, its operands, and the forward one that it belongs to."""

    op: Op
    inputs: tuple[np.ndarray, ...]
    forward: OpCase
    wrt: tuple[str, ...]
    grad: np.ndarray

    def derivative(self) -> tuple[jax.Array, ...]:
        """What the operation must give: reverse mode of the forward lowering in float64."""
        names = [name for name, x in by_name(self.forward.op, self.forward.inputs).items() if x is not None]
        wide = (x.array.astype(np.float64) if x.dtype.is_float else x.array for x in self.forward.inputs)
        given = dict(zip(names, map(jnp.asarray, wide), strict=True))

        def forward(*active: jax.Array) -> jax.Array:
            changed = given | dict(zip(self.wrt, active, strict=True))
            return run([in_float64(self.forward.op)], [changed[name] for name in names])[0]

        _, adjoint = jax.vjp(forward, *(given[name] for name in self.wrt))
        return adjoint(jnp.asarray(self.grad.astype(np.float64)))


def run(ops: Sequence[Op], inputs: Sequence[Any]) -> tuple[jax.Array, ...]:
    """All outputs of a stream without scalars; the tensors that come in have the ids 0.. of `inputs`."""
    graph, bindings = relativise(ops)
    assert not bindings.scalars
    given = [inputs[bindings.ids[number]] for number in graph.inputs]
    return run_graph(graph, given, (), bindings.starts, None, CustomOpRegistry())


def in_float64(op: Op) -> Op:
    """`op` with its float tensors declared as F64."""
    return map_operands(
        op, lambda _, x: ir.tensor(x.id.value, x.shape.dims, ir.F64, x.status) if x.dtype.is_float else x
    )


def grad_of(shape: tuple[int, ...], dtype: ir.DType) -> Typed:
    places = np.arange(int(np.prod(shape)))
    return t(dtype, (places * places * 5 + places // 3) % 13 - 6, shape)


def by_name(op: Op, inputs: Sequence[Typed]) -> dict[str, Typed | None]:
    """The inputs of `op` by field; None where an optional one is absent."""
    given = iter(inputs)
    return {f.path: None if value is None else next(given) for f, value in values(op) if f.is_input}


def setup(gradient: Gradient, row: OpCase) -> Setup:
    """The backward operation for the forward one in `row`."""
    given = by_name(row.op, row.inputs)
    outputs = (f.path for f, value in values(row.op) if f.is_output and value is not None)
    grad = grad_of(row.want[0].array.shape, row.want[0].dtype)
    tensors = given | dict(zip(outputs, row.want, strict=True)) | {"grad": grad}
    operands = [tensors[gradient.names.get(f.path, f.path)] for f in fields(gradient.backward) if f.is_input]
    like = [None if (x := given[name]) is None else t(grad.dtype, np.zeros(x.array.shape)) for name in gradient.wrt]
    wanted = {f.path for f in fields(gradient.backward)}
    static = {f.path: value for f, value in values(row.op) if f.role is None and f.path in wanted}
    op = build(gradient.backward, operands, like, static)
    wrt = tuple(name for name in gradient.wrt if given[name] is not None)
    return Setup(op, tuple(x.array for x in operands if x is not None), row, wrt, grad.array)


def activation_rows() -> list[OpCase]:
    """Finite numbers for each activation: the rows of its table have infinities among them."""
    return [
        case(f"{kind.__name__}-{dtype.short}", kind, t(dtype, [-3, -0.5, 0, 0.5447, 2, 7]), want=reference)
        for kind, (reference, _) in UNARY.items()
        for dtype in (ir.F64, ir.F32, ir.F16, ir.BF16)
    ]


def is_smooth(row: OpCase) -> bool:
    """A row whose derivative is a number: finite inputs; of floats."""
    return all(np.isfinite(x.array.astype(np.float64)).all() for x in row.inputs)


def chosen() -> Iterator[tuple[Gradient, OpCase]]:
    """Each gradient with each row of its forward kind that has the input it is by."""
    forward = {gradient.forward for gradient in GRADIENTS}
    rows = [row for table in TABLES for row in cases(table) if type(row.op) in forward and is_smooth(row)]
    rows += activation_rows()
    for gradient in GRADIENTS:
        for row in rows:
            if type(row.op) is gradient.forward and by_name(row.op, row.inputs)[gradient.wrt[0]] is not None:
                yield gradient, row


CHOSEN = list(chosen())


def doubled(op: Op) -> list[Op]:
    """`op` in the middle of a stream: its gradient is added to itself before, each output after."""
    grad = next(x for f, x in values(op) if f.is_input and f.path in ("grad", "output_grad", "out_grad", "rhs"))
    fresh = iter(range(1000, 2000))

    def add(x: ir.TensorIr) -> ir.Add:
        return ir.Add(x, x, ir.tensor(next(fresh), x.shape.dims, x.dtype, ir.NOT_INIT))

    before = add(grad)
    twice = ir.tensor(before.out.id.value, grad.shape.dims, grad.dtype)
    middle = map_operands(op, lambda f, x: twice if x is grad else x)
    return [before, middle, *(add(ir.tensor(x.id.value, x.shape.dims, x.dtype)) for x in op.outputs)]


class Result(NamedTuple):
    """What a setup must give, gives alone, and gives in the middle of a stream."""

    want: list[np.ndarray]
    alone: list[np.ndarray]
    within: list[np.ndarray]


@cache
def results() -> list[Result]:
    """A result per setup, from one compilation for all, which LLVM need not optimise."""
    setups = [setup(*pair) for pair in CHOSEN]

    def everything(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, Any, Any]]:
        given = zip(setups, inputs, strict=True)
        return [(s.derivative(), run([s.op], i), run(doubled(s.op), i)[-len(s.wrt) :]) for s, i in given]

    outputs = jax.jit(everything, compiler_options={"xla_backend_optimization_level": "0"})([s.inputs for s in setups])
    return [Result(*([np.asarray(x) for x in part] for part in parts)) for parts in outputs]


@pytest.mark.parametrize("number", range(len(CHOSEN)), ids=[f"{g.backward.__name__}-{r.id}" for g, r in CHOSEN])
def test_backward_is_the_derivative(number: int) -> None:
    gradient, row = CHOSEN[number]
    result, op = results()[number], setup(gradient, row).op
    assert len(result.want) == len(result.alone) == len(op.outputs)
    for want, alone, within, out in zip(*result, op.outputs, strict=True):
        assert alone.dtype == within.dtype == jax_dtype(out.dtype)
        scale = ROUNDING[out.dtype] * max(1.0, np.abs(want).max(initial=0.0))
        for got, times in ((alone, 1), (within, 4)):
            with np.errstate(over="ignore"):
                rounded = (times * want).astype(got.dtype).astype(np.float64)
            np.testing.assert_allclose(got.astype(np.float64), rounded, rtol=0, atol=times * scale)


def test_every_backward_kind_is_here() -> None:
    declared = {kind for kind in kinds() if kind.__name__.endswith("Backward")}
    assert declared == {g.backward for g in GRADIENTS} | NOT_A_DERIVATIVE


def test_every_gradient_has_rows() -> None:
    assert {g.backward for g, _ in CHOSEN} == {g.backward for g in GRADIENTS}
