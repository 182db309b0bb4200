"""The tensors of a recorder: what they record, against a sink that collects, and what they compute, against NumPy."""

import gc
from itertools import count
from typing import NamedTuple

import numpy as np
import pytest

import ir
from ir import SliceRange, TensorData, TensorIr, tensor
from ir.ops.numeric import DefaultDistribution
from ir.verify import Level, StreamVerifier
from jax_backend.recorder import Recorder
from jax_backend.tensor import Tensor, TensorRecorder


class Answer(NamedTuple):
    data: TensorData

    def result(self) -> TensorData:
        return self.data


class Collector(TensorRecorder):
    """A recorder that runs nothing: it verifies and keeps what it is told, and answers reads of uploads."""

    def __init__(self) -> None:
        self.ops: list[ir.Op] = []
        self.dropped: list[int] = []
        self.data: dict[int, TensorData] = {}
        self._ids = count()
        self._verifier = StreamVerifier()

    def new_id(self) -> int:
        return next(self._ids)

    def register_operation(self, operation: ir.Op) -> None:
        self._verifier.check(operation)
        self.ops.append(operation)

    def register_tensor_data(self, data: TensorData) -> TensorIr:
        id = self.new_id()
        self.data[id] = data
        return tensor(id, data.shape, data.dtype)

    def read_tensor(self, tensor: TensorIr) -> Answer:
        return Answer(self.data[tensor.id.value])

    def drop(self, id: int) -> None:
        self.dropped.append(id)


@pytest.fixture
def recorder() -> Collector:
    return Collector()


@pytest.fixture
def x(recorder: Collector) -> Tensor:
    return recorder.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.fixture
def n(recorder: Collector) -> Tensor:
    return recorder.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))


@pytest.fixture
def b(recorder: Collector) -> Tensor:
    return recorder.from_numpy(np.array([[True, False, True]]))


TENSOR_OPERATORS = {
    "add": (lambda x: x + x, ir.Add),
    "sub": (lambda x: x - x, ir.Sub),
    "mul": (lambda x: x * x, ir.Mul),
    "div": (lambda x: x / x, ir.Div),
    "rem": (lambda x: x % x, ir.Rem),
    "pow": (lambda x: x**x, ir.Powf),
    "eq": (lambda x: x == x, ir.Equal),
    "ne": (lambda x: x != x, ir.NotEqual),
    "gt": (lambda x: x > x, ir.Greater),
    "ge": (lambda x: x >= x, ir.GreaterEqual),
    "lt": (lambda x: x < x, ir.Lower),
    "le": (lambda x: x <= x, ir.LowerEqual),
    "neg": (lambda x: -x, ir.Neg),
    "abs": (abs, ir.Abs),
}
SCALAR_OPERATORS = {
    "add": (lambda x: x + 2, ir.AddScalar),
    "sub": (lambda x: x - 2, ir.SubScalar),
    "mul": (lambda x: x * 2, ir.MulScalar),
    "div": (lambda x: x / 2, ir.DivScalar),
    "rem": (lambda x: x % 2, ir.RemScalar),
    "pow-integral": (lambda x: x**2.0, ir.PowiScalar),
    "pow-fraction": (lambda x: x**0.5, ir.PowfScalar),
    "eq": (lambda x: x == 2, ir.EqualElem),
    "ne": (lambda x: x != 2, ir.NotEqualElem),
    "gt": (lambda x: x > 2, ir.GreaterElem),
    "ge": (lambda x: x >= 2, ir.GreaterEqualElem),
    "lt": (lambda x: x < 2, ir.LowerElem),
    "le": (lambda x: x <= 2, ir.LowerEqualElem),
    "gt-reflected": (lambda x: 2 < x, ir.GreaterElem),  # noqa: SIM300
    "numpy-scalar": (lambda x: x * np.float32(2), ir.MulScalar),
}
INT_OPERATORS = {
    "and": (lambda n: n & n, ir.BitwiseAnd),
    "or": (lambda n: n | n, ir.BitwiseOr),
    "xor": (lambda n: n ^ n, ir.BitwiseXor),
    "invert": (lambda n: ~n, ir.BitwiseNot),
    "left": (lambda n: n << n, ir.BitwiseLeftShift),
    "right": (lambda n: n >> n, ir.BitwiseRightShift),
    "and-scalar": (lambda n: n & 1, ir.BitwiseAndScalar),
    "or-scalar": (lambda n: 1 | n, ir.BitwiseOrScalar),
    "xor-scalar": (lambda n: n ^ 1, ir.BitwiseXorScalar),
    "left-scalar": (lambda n: n << 1, ir.BitwiseLeftShiftScalar),
    "right-scalar": (lambda n: n >> 1, ir.BitwiseRightShiftScalar),
    "pow": (lambda n: n**n, ir.Powi),
    "pow-scalar": (lambda n: n**3, ir.PowiScalar),
}
BOOL_OPERATORS = {
    "and": (lambda b: b & b, ir.And),
    "or": (lambda b: b | b, ir.Or),
    "xor": (lambda b: b ^ b, ir.Xor),
    "invert": (lambda b: ~b, ir.Not),
}


@pytest.mark.parametrize(("write", "kind"), TENSOR_OPERATORS.values(), ids=TENSOR_OPERATORS)
def test_an_operator_on_tensors_records_its_kind(recorder: Collector, x: Tensor, write, kind: type[ir.Op]) -> None:
    y = write(x)
    assert [type(op) for op in recorder.ops] == [kind]
    assert y.shape == (2, 3)
    assert y.dtype == (ir.BOOL if kind.__name__ in ("Equal", "NotEqual") or "er" in kind.__name__ else ir.F32)


@pytest.mark.parametrize(("write", "kind"), SCALAR_OPERATORS.values(), ids=SCALAR_OPERATORS)
def test_an_operator_on_a_number_records_the_scalar_kind(recorder: Collector, x: Tensor, write, kind) -> None:
    write(x)
    assert [type(op) for op in recorder.ops] == [kind]
    assert recorder.ops[0].rhs.value in (2, 0.5)


@pytest.mark.parametrize(("write", "kind"), INT_OPERATORS.values(), ids=INT_OPERATORS)
def test_bit_operators_on_ints(recorder: Collector, n: Tensor, write, kind: type[ir.Op]) -> None:
    assert write(n).dtype is ir.I32
    assert [type(op) for op in recorder.ops] == [kind]


@pytest.mark.parametrize(("write", "kind"), BOOL_OPERATORS.values(), ids=BOOL_OPERATORS)
def test_bit_operators_on_bools_are_logical(recorder: Collector, b: Tensor, write, kind: type[ir.Op]) -> None:
    assert write(b).dtype == ir.BOOL
    assert [type(op) for op in recorder.ops] == [kind]


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda x: 1 - x, ir.Sub),
        (lambda x: 1 / x, ir.Div),
        (lambda x: 1 % x, ir.Rem),
        (lambda x: 2**x, ir.Powf),
    ],
    ids=["sub", "div", "rem", "pow"],
)
def test_a_number_on_the_left_is_a_tensor_of_one_element(recorder: Collector, x: Tensor, write, kind) -> None:
    write(x)
    full, op = recorder.ops
    assert (type(full), type(op)) == (ir.Full, kind)
    assert op.lhs.shape.dims == (1, 1)
    assert op.rhs.id.value == x.id


def test_an_array_on_the_left_leaves_the_operator_to_the_tensor(recorder: Collector, x: Tensor) -> None:
    y = np.ones((2, 3), np.float32) - x
    assert isinstance(y, Tensor)
    assert recorder.ops[0].rhs.id.value == x.id
    assert recorder.data[recorder.ops[0].lhs.id.value].dtype is ir.F32


def test_matmul_takes_no_number(recorder: Collector, x: Tensor) -> None:
    assert (x @ x.T).shape == (2, 2)
    with pytest.raises(TypeError):
        x @ 2


def test_a_fractional_power_of_ints_is_refused(n: Tensor) -> None:
    with pytest.raises(ir.DTypeError, match=r"expected an integral exponent on ints, got 0\.5"):
        n**0.5


def test_a_tensor_equals_nothing_as_a_whole(x: Tensor) -> None:
    assert hash(x) == hash(x)
    assert (x == None) is False  # noqa: E711
    with pytest.raises(TypeError, match="has no truth value before it is read"):
        bool(x == x)


def test_methods_take_fields_in_declared_order_or_by_name(recorder: Collector, x: Tensor, n: Tensor) -> None:
    index = recorder.from_numpy(np.zeros(4, np.int64))
    assert x.select(1, index).shape == x.select(dim=-1, indices=index).shape == (2, 4)
    assert x.swap_dims(0, 1).shape == (3, 2)
    assert x.scatter(1, n, x, "Add").dtype is ir.F32
    assert recorder.ops[-1].update is ir.IndexingUpdateOp.Add
    assert x.sum_dim(-1).shape == (2, 1)
    assert x.softmax(1).shape == (2, 3)
    assert x.mask_fill(x > 1, 0.5).shape == (2, 3)
    assert x.clamp(0, 1).shape == (2, 3)
    assert x.pad([(1, 0), (0, 2)], "Edge").shape == (3, 5)


def test_methods_with_two_outputs_give_a_tuple(x: Tensor) -> None:
    values, indices = x.top_k_with_indices(1, 2, out_dtype=ir.I64)
    assert (values.shape, values.dtype, indices.shape, indices.dtype) == ((2, 2), ir.F32, (2, 2), ir.I64)


def test_options_go_by_their_own_names(recorder: Collector) -> None:
    x, w = recorder.zeros((2, 4, 9, 9)), recorder.zeros((6, 2, 3, 3))
    assert x.conv2d(w, stride=(2, 1), padding=1, groups=2).shape == (2, 6, 5, 9)
    options = recorder.ops[-1].options
    assert options == ir.Conv2dOptions((2, 1), ((1, 1), (1, 1)), (1, 1), 2)
    assert x.attention(x, x, is_causal=True).shape == (2, 4, 9, 9)
    assert x.max_pool2d(2, 2, 0).shape == (2, 4, 4, 4)


def test_wrong_arguments_are_refused(x: Tensor) -> None:
    with pytest.raises(TypeError, match="softmax: expected at most 1 arguments, got 2"):
        x.softmax(1, 2)
    with pytest.raises(TypeError, match="softmax: axis given twice"):
        x.softmax(1, axis=1)
    with pytest.raises(TypeError, match=r"Softmax\.axis: missing"):
        x.softmax()
    with pytest.raises(TypeError, match="Softmax: has no field dim; it has input, axis"):
        x.softmax(dim=1, axis=1)
    with pytest.raises(ValueError, match=r"Scatter\.update: invalid enum value 'Plus'"):
        x.scatter(0, x, x, "Plus")
    with pytest.raises(AttributeError):
        x.frobnicate()


def test_what_does_not_fit_raises_where_it_is_written(recorder: Collector, x: Tensor) -> None:
    with pytest.raises(ir.ShapeError, match=r"Matmul\.rhs: expected shape \(3, n\) for lhs \(2, 3\), got \(2, 3\)"):
        x @ x
    assert recorder.ops == []


def test_a_tensor_of_another_recorder_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match="belongs to another recorder"):
        x + Collector().zeros((2, 3))


def test_every_kind_that_begins_with_a_tensor_is_a_method() -> None:
    methods = set(dir(Tensor))
    assert {"p_relu", "max_pool2d_with_indices", "log1p", "arc_tan2", "sum", "reshape", "all_reduce"} <= methods
    assert not {"drop", "init", "zeros", "random"} & methods
    assert len([m for m in methods if not m.startswith("_")]) > 190
    assert "Cross-correlate" in Tensor.conv2d.__doc__


INDICES = {
    "int": 1,
    "negative-int": -1,
    "slice": slice(0, 1),
    "step": (slice(None), slice(None, None, 2)),
    "reverse": (slice(None), slice(None, None, -1)),
    "reverse-step": (slice(None), slice(2, None, -2)),
    "bounds-beyond": slice(-9, 9),
    "empty": slice(1, 1),
    "ellipsis": (..., 1),
    "new-axis": (None, 0, slice(1, 3)),
    "everything": ...,
    "element": (1, 2),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indices_have_the_shape_that_numpy_gives(x: Tensor, index) -> None:
    assert x[index].shape == np.zeros((2, 3))[index].shape


def test_a_reversed_slice_visits_what_numpy_visits(recorder: Collector) -> None:
    x = recorder.from_numpy(np.arange(10))
    x[8:1:-3]  # 8, 5, 2
    assert recorder.ops[-1].ranges == (SliceRange(2, 9, -3),)


def test_wrong_indices_are_refused(x: Tensor, b: Tensor) -> None:
    with pytest.raises(IndexError, match="index 2 is out of range for an axis of 2"):
        x[2]
    with pytest.raises(IndexError, match="at most 2 indices"):
        x[0, 0, 0]
    with pytest.raises(TypeError, match="use select, gather or mask_where"):
        x[b]


def test_iteration_ends(x: Tensor) -> None:
    assert [row.shape for row in x] == [(3,), (3,)]
    assert len(x) == 2


def test_slice_assign_fills_or_replaces(recorder: Collector, x: Tensor) -> None:
    assert x.slice_assign((slice(None), 1), 7.0).shape == (2, 3)
    row = recorder.zeros((3,))
    assert x.slice_assign(0, row).shape == (2, 3)
    assert [type(op) for op in recorder.ops] == [ir.Full, ir.SliceAssign, ir.Zeros, ir.Reshape, ir.SliceAssign]


CASTS = {
    "float-float": (ir.F32, ir.F16, ir.Cast),
    "float-int": (ir.F32, ir.I64, ir.IntoInt),
    "float-bool": (ir.F32, ir.BOOL, ir.NotEqualElem),
    "int-float": (ir.I32, ir.F64, ir.IntoFloat),
    "int-int": (ir.I32, ir.U8, ir.Cast),
    "bool-int": (ir.BOOL, ir.I8, ir.IntoInt),
    "bool-float": (ir.BOOL, ir.F32, ir.IntoFloat),
    "bool-bool": (ir.BOOL, ir.BOOL_U8, ir.Cast),
}


@pytest.mark.parametrize(("source", "wanted", "kind"), CASTS.values(), ids=CASTS)
def test_astype_records_the_kind_that_leads_there(recorder: Collector, source, wanted, kind) -> None:
    assert recorder.zeros((2,), source).astype(wanted).dtype == wanted
    assert type(recorder.ops[-1]) is kind


def test_reshape_finds_one_size(x: Tensor) -> None:
    assert x.reshape(3, -1).shape == x.reshape((-1, 2)).shape == (3, 2)
    with pytest.raises(ir.ShapeError, match=r"Reshape\.out: expected 6 elements"):
        x.reshape(4, 2)


def test_uploads_keep_dtype_and_copy(recorder: Collector) -> None:
    array = np.array([1, 2, 3], np.int16)
    x = recorder.from_numpy(array)
    array[:] = 0
    assert x.dtype is ir.I16
    np.testing.assert_array_equal(x.numpy(), np.array([1, 2, 3], np.int16))
    assert recorder.from_numpy([1.5]).dtype is ir.F32
    assert recorder.from_numpy([1]).dtype is ir.I32
    assert recorder.from_numpy(True).dtype == ir.BOOL
    assert recorder.from_numpy(array, ir.BF16).dtype is ir.BF16


@pytest.mark.parametrize("dtype", [ir.BOOL, ir.BOOL_U8, ir.BOOL_U32])
def test_bools_come_back_whatever_their_store(recorder: Collector, dtype) -> None:
    x = recorder.from_numpy(np.array([True, False]), dtype)
    assert x.numpy().tolist() == [True, False]
    assert np.asarray(x).dtype == np.bool_


def test_item_is_a_python_number(recorder: Collector) -> None:
    assert recorder.from_numpy(np.array([2.5], np.float32)).item() == 2.5
    with pytest.raises(ValueError, match=r"size 1|one element|scalar"):
        recorder.from_numpy(np.zeros(2)).item()


def test_creation(recorder: Collector) -> None:
    assert recorder.full((2,), 1.5).dtype is ir.F32
    assert recorder.full((2,), 3).dtype is ir.I32
    assert recorder.full((2,), True).dtype == ir.BOOL
    assert recorder.random((2, 5)).shape == (2, 5)
    assert recorder.random((2,), ir.I64, DefaultDistribution.Default).dtype is ir.I64
    assert recorder.cat([recorder.ones((2, 1)), recorder.empty((2, 3))], dim=-1).shape == (2, 4)
    kinds = [type(op) for op in recorder.ops]
    assert kinds == [ir.Full, ir.Full, ir.Ones, ir.Random, ir.IntRandom, ir.Ones, ir.Empty, ir.Cat]


def test_record_takes_any_kind(recorder: Collector, x: Tensor) -> None:
    both = recorder.record(
        ir.Custom, [x], id="mine", scalars=(ir.scalar(3),), out_types=[((2,), ir.F32), ((5,), ir.I64)]
    )
    assert [t.shape for t in both] == [(2,), (5,)]
    assert recorder.record(ir.SyncCollective) == ()


def test_repr_names_the_type_and_computes_nothing(x: Tensor) -> None:
    assert repr(x) == "Tensor(t0 f32[2,3])"


def test_a_tensor_is_dropped_with_its_last_reference_and_no_sooner(recorder: Collector, x: Tensor) -> None:
    y = x + 1
    alias = y
    del y
    x + 2
    assert recorder.dropped == [] or recorder.dropped == [2]  # the unnamed sum is gone already
    lost = alias.id
    del alias
    gc.collect()
    recorder.drop_unreachable()
    assert lost in recorder.dropped
    assert x.id not in recorder.dropped


def test_a_finalizer_records_nothing_by_itself(recorder: Collector) -> None:
    x = recorder.zeros((2,))
    del x
    assert recorder.dropped == []
    recorder.ones((2,))
    assert recorder.dropped == [0]


# ---- with the recorder that computes


@pytest.fixture
def real() -> Recorder:
    return Recorder(verify=Level.full, seed=0)


def test_everything_computes_what_numpy_does(real: Recorder) -> None:
    a = np.arange(-3, 3, dtype=np.float32).reshape(2, 3) + np.float32(0.5)
    n = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    x, k = real.from_numpy(a), real.from_numpy(n)
    pairs: list[tuple[Tensor, np.ndarray]] = [
        (1 - x, 1 - a),
        (2 / x, 2 / a),
        (x * 2 + 1, a * 2 + 1),
        (abs(-x), np.abs(a)),
        (x**2, a**2),
        (5 % k, 5 % n),
        (k / 2, n // 2),
        (k << 1, n << 1),
        ((k & 1) == 1, (n & 1) == 1),
        (~(x > 0), ~(a > 0)),
        (x @ x.T, a @ a.T),
        (x.sum_dim(1), a.sum(1, keepdims=True)),
        (x.slice_assign((..., 1), 9), np.stack([a[:, 0], [9, 9], a[:, 2]], 1)),
        (x.astype(ir.I8), a.astype(np.int8)),
        (x.mask_where(x > 0, -x), np.where(a > 0, -a, a)),
        (real.cat([x, x[:, :1]], -1), np.concatenate([a, a[:, :1]], -1)),
        *((x[index], a[index]) for index in INDICES.values()),
    ]
    for got, want in pairs:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        assert got.shape == want.shape
    assert real.stats.programs <= 3  # all of it was pending at the first read


def test_two_outputs_compute(real: Recorder) -> None:
    x = real.from_numpy(np.array([[3, 1, 2]], np.float32))
    values, indices = x.top_k_with_indices(1, 2)
    assert values.numpy().tolist() == [[3, 2]]
    assert indices.numpy().tolist() == [[0, 2]]


def test_the_recorder_keeps_what_python_holds(real: Recorder) -> None:
    x = real.from_numpy(np.ones((2,), np.float32))
    y = x + 1
    z = y * 3
    lost = y.id
    del y
    assert z.numpy().tolist() == [6, 6]
    assert lost not in real.handles
    assert x.id in real.handles
    assert z.id in real.handles


def test_a_loop_leaves_no_handles_behind(real: Recorder) -> None:
    x = real.zeros((2,))
    for _ in range(20):
        x = x + 1
    assert x.numpy().tolist() == [20, 20]
    real.drop_unreachable()
    assert len(list(real.handles.ids())) == 1


def test_a_sync_keeps_nothing_that_python_lost(real: Recorder) -> None:
    x = real.zeros((2,))
    y = x + 1
    lost = y.id
    del y
    real.sync()
    assert lost not in real.handles
    assert x.id in real.handles
