"""Recorded streams that the benchmarks run: an elementwise one, and a training step of a small network."""

from collections.abc import Iterator
from itertools import count, pairwise

import numpy as np

import ir
from ir.op import Op
from ir.tensor import READ_ONLY, READ_WRITE, TensorIr, TensorStatus
from jax_backend import host
from jax_backend.recorder import Recorder

KINDS = (ir.Add, ir.Mul, ir.Sub, ir.Add, ir.Add, ir.Mul, ir.Sub)


def t(id: int, dims: tuple[int, ...], status: TensorStatus = READ_ONLY) -> TensorIr:
    return ir.tensor(id, dims, ir.F32, status)


def upload(recorder: Recorder, id: int, array: np.ndarray) -> None:
    recorder.register_tensor_data_id(id, host.from_numpy(array.astype(np.float32), ir.F32))


def chain(
    num_ops: int, ids: Iterator[int], *, source: int = 0, other: int = 1, dims: tuple[int, ...] = (16,)
) -> list[Op]:
    """`num_ops` binary operations without a short period, each on the result before it and on one fixed tensor."""
    ops: list[Op] = []
    draw = np.random.default_rng(0)
    previous, status = source, READ_ONLY
    for kind in draw.integers(0, len(KINDS), num_ops):
        made = next(ids)
        ops.append(KINDS[kind](t(previous, dims, status), t(other, dims), t(made, dims, ir.NOT_INIT)))
        previous, status = made, READ_WRITE
    return ops


class AdamStep:
    """Adam steps of a small network, recorded as by a Burn client: fresh ids, bias corrections from the host."""

    def __init__(self, recorder: Recorder, sizes: tuple[int, ...] = (64, 48, 10), batch: int = 64) -> None:
        self._recorder = recorder
        self._ids = count(1000)
        self._sizes, self._batch = sizes, batch
        self._steps = 0
        draw = np.random.default_rng(1)
        self._x = self._upload(draw.normal(size=(batch, sizes[0])))
        self._y = self._upload(np.eye(sizes[-1])[draw.integers(0, sizes[-1], batch)])
        pairs = list(pairwise(sizes))
        self._weights = [(self._upload(draw.normal(size=p) * 0.1), p) for p in pairs]
        self._moments = {w: (self._upload(np.zeros(d)), self._upload(np.zeros(d))) for w, d in self._weights}
        self.loss = -1

    def _upload(self, array: np.ndarray) -> int:
        id = next(self._ids)
        upload(self._recorder, id, array)
        return id

    def _op(self, kind: type[Op], dims: tuple[int, ...], *inputs: TensorIr, **static: object) -> int:
        made = next(self._ids)
        names = [f for f in kind.__struct_fields__ if f not in static and f != "out"]
        fields = dict(zip(names, inputs, strict=True))
        self._recorder.register_operation(kind(**fields, **static, out=t(made, dims, ir.NOT_INIT)))
        return made

    def _scale(self, source: TensorIr, by: float) -> int:
        return self._op(ir.MulScalar, source.shape.dims, source, rhs=ir.scalar(by))

    def run(self) -> None:
        """Record forward, backward and the update. The loss is `self.loss`, (batch, classes)."""
        if self.loss >= 0:
            self._recorder.drop(self.loss)
        self._steps += 1
        b = self._batch
        activations, current = [self._x], self._x
        for weight, (rows, cols) in self._weights:
            current = self._op(ir.Matmul, (b, cols), t(current, (b, rows)), t(weight, (rows, cols)))
            current = self._op(ir.Tanh, (b, cols), t(current, (b, cols), READ_WRITE))
            activations.append(current)
        last = (b, self._sizes[-1])
        grad = self._op(ir.Sub, last, t(current, last), t(self._y, last))
        self.loss = self._op(ir.Mul, last, t(grad, last), t(grad, last))
        updated: list[tuple[int, tuple[int, int]]] = []
        for place in range(len(self._weights) - 1, -1, -1):
            weight, (rows, cols) = self._weights[place]
            flipped = self._op(ir.SwapDims, (rows, b), t(activations[place], (b, rows)), dim1=0, dim2=1)
            slope = self._op(ir.Matmul, (rows, cols), t(flipped, (rows, b), READ_WRITE), t(grad, (b, cols)))
            turned = self._op(ir.SwapDims, (cols, rows), t(weight, (rows, cols)), dim1=0, dim2=1)
            passed = self._op(ir.Matmul, (b, rows), t(grad, (b, cols), READ_WRITE), t(turned, (cols, rows), READ_WRITE))
            grad = passed
            updated.append((self._adam(weight, slope, (rows, cols)), (rows, cols)))
        self._recorder.drop(grad)
        for activation in activations[1:]:
            self._recorder.drop(activation)
        self._weights = updated[::-1]

    def _adam(self, weight: int, slope: int, dims: tuple[int, int]) -> int:
        first, second = self._moments.pop(weight)
        moved = self._op(
            ir.Add,
            dims,
            t(self._scale(t(first, dims, READ_WRITE), 0.9), dims, READ_WRITE),
            t(self._scale(t(slope, dims), 0.1), dims, READ_WRITE),
        )
        square = self._op(ir.Mul, dims, t(slope, dims), t(slope, dims, READ_WRITE))
        spread = self._op(
            ir.Add,
            dims,
            t(self._scale(t(second, dims, READ_WRITE), 0.999), dims, READ_WRITE),
            t(self._scale(t(square, dims, READ_WRITE), 0.001), dims, READ_WRITE),
        )
        unbiased = self._scale(t(moved, dims), 1 / (1 - 0.9**self._steps))
        variance = self._scale(t(spread, dims), 1 / (1 - 0.999**self._steps))
        root = self._op(ir.Sqrt, dims, t(variance, dims, READ_WRITE))
        safe = self._op(ir.AddScalar, dims, t(root, dims, READ_WRITE), rhs=ir.scalar(1e-8))
        delta = self._op(ir.Div, dims, t(unbiased, dims, READ_WRITE), t(safe, dims, READ_WRITE))
        made = self._op(
            ir.Sub,
            dims,
            t(weight, dims, READ_WRITE),
            t(self._scale(t(delta, dims, READ_WRITE), 1e-3), dims, READ_WRITE),
        )
        self._moments[made] = (moved, spread)
        return made
