"""A recorded program as a function: what it takes, what it gives, and what JAX makes of it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import ir
from ir import F16, F32, I32, U8, scalar, tensor
from ir.errors import DTypeError, ShapeError, StreamError
from ir.meganeura import Graph
from ir.slices import SliceRange
from ir.stream import relativise
from jax_backend import record
from jax_backend.interpreter import OperationError
from jax_backend.program import Program
from jax_backend.values import advanced, seed_words
from tests.reference import conv as reference

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
W = np.array([[1, 0], [2, -1], [0.5, 3]], np.float32)


def affine() -> Program:
    """t3 = (x @ w) * 2.5, with x t0 (2, 3) and w t1 (3, 2)."""
    x, w = tensor(0, (2, 3), F32), tensor(1, (3, 2), F32)
    y, z = tensor(2, (2, 2), F32), tensor(3, (2, 2), F32)
    return Program.from_ops([ir.Matmul(x, w, y), ir.MulScalar(y, scalar(2.5), z)], [3], names={0: "x", 1: "w"})


def window() -> Program:
    """Rows 1 and 2 of five."""
    x, y = tensor(0, (5, 3), F32), tensor(1, (2, 3), F32)
    ranges = (SliceRange(1, 3, 1), SliceRange(0, 3, 1))
    return Program.from_ops([ir.Slice(x, ranges, y)], names={0: "x"})


def noise() -> Program:
    """Two draws of four uniform numbers."""
    distribution = ir.DefaultDistribution.Default
    return Program.from_ops([ir.Random(tensor(n, (4,), F32), distribution) for n in (0, 1)])


def step() -> Program:
    """One step of Burn's kind for w: w - lr * g, and the loss before it, sum of w * w."""
    w, g, update, new = (tensor(n, (3,), F32) for n in range(4))
    square, loss = tensor(4, (3,), F32), tensor(5, (1,), F32)
    ops = [
        ir.MulScalar(g, scalar(0.5), update),
        ir.Sub(w, update, new),
        ir.Mul(w, w, square),
        ir.Sum(square, loss),
    ]
    return Program.from_ops(ops, [3, 5], order=[0, 1], names={0: "w", 1: "g", 3: "new", 5: "loss"})


def test_a_program_says_what_it_takes_and_gives() -> None:
    program = affine()
    assert list(map(str, program.inputs)) == ["x float32[2,3]", "w float32[3,2]"]
    assert list(map(str, program.parameters)) == ["op1_rhs float32[]"]
    assert list(map(str, program.outputs)) == ["t3 float32[2,2]"]
    assert [op.kind for op in program.ops] == ["Matmul", "MulScalar"]
    assert str(program.ops[1]) == "MulScalar(lhs=t2 f32[2,2], rhs=2.5, out=t3 f32[2,2])"
    assert repr(program) == "<Program program: (x float32[2,3], w float32[3,2]) -> (t3 float32[2,2])>"


def test_a_call_computes_with_recorded_scalars_or_with_others() -> None:
    program = affine()
    np.testing.assert_allclose(program(X, W), X @ W * 2.5)
    np.testing.assert_allclose(program(X, w=W, op1_rhs=-1.0), -(X @ W))
    np.testing.assert_allclose(program.run(w=W, x=X)["t3"], X @ W * 2.5)


def test_a_graph_and_its_bindings_are_all_that_a_program_needs() -> None:
    x, y = tensor(7, (3,), F32), tensor(8, (3,), F32)
    graph, bindings = relativise([ir.AddScalar(x, scalar(1.5), y)])
    program = Program(graph, bindings, data={7: np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(program(), [2.5, 3.5, 4.5])
    np.testing.assert_array_equal(program([0.0, 0.0, 1.0]), [1.5, 1.5, 2.5])


def test_inputs_come_in_the_order_of_their_first_use_or_as_one_says() -> None:
    assert [v.name for v in step().inputs] == ["w", "g"]
    assert [v.name for v in Program.from_ops(step().ops, [3]).inputs] == ["t1", "t0"]


def test_several_outputs_come_as_a_tuple() -> None:
    w, g = np.array([1, 2, 3], np.float32), np.array([2, 0, 4], np.float32)
    new, loss = step()(w, g)
    np.testing.assert_array_equal(new, [0, 2, 1])
    np.testing.assert_array_equal(loss, [14])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda p: p(X), TypeError, r"program: w float32\[3,2\] has no recorded value; give it by position or by name"),
        (lambda p: p(X, X), ShapeError, r"program\.w: expected shape \(3, 2\), got \(2, 3\)"),
        (lambda p: p(X.astype(np.float64), W), DTypeError, r"program\.x: expected dtype float32, got float64"),
        (lambda p: p(X, W, W), TypeError, "expected at most 2 inputs, got 3"),
        (lambda p: p(X, x=X), TypeError, "x given twice"),
        (lambda p: p(X, W, lr=1), TypeError, "has no argument lr; it has x, w, op1_rhs"),
        (lambda p: p.grad(wrt="lr"), TypeError, r"program\.wrt: expected some of x, w, op1_rhs, got lr"),
        (lambda p: p.grad()(X, W), ShapeError, r"program\.loss: expected one element, got \(2, 2\)"),
        (lambda p: p.vmap({"lr": 0}, size=2), TypeError, r"program\.axis: expected some of"),
        (lambda p: p.scan(2, {"x": "t3"}), ShapeError, r"program\.carry: expected an output like x float32\[2,3\]"),
        (lambda p: p.scan(2, {"x": "y"}), TypeError, r"program\.carry: expected some of t3, got y"),
        (lambda p: p.export("never", keep=["lr"]), TypeError, r"program\.keep: expected some of"),
        (lambda p: p.shard(devices(), {"lr": PartitionSpec()}), TypeError, r"program\.specs: expected some of"),
        (lambda p: p.shard(devices(), {}).vmap(size=2), StreamError, "shard comes last"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Program], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(affine())


def test_an_integer_has_no_gradient() -> None:
    x, y = tensor(0, (3,), I32), tensor(1, (3,), I32)
    program = Program.from_ops([ir.Add(x, x, y)])
    with pytest.raises(DTypeError, match="expected an input of floats, got none"):
        program.grad()
    with pytest.raises(DTypeError, match=r"expected floats to differentiate by, got t0 int32\[3\]"):
        program.grad(wrt="t0")


def test_a_failing_operation_is_named() -> None:
    x, y = tensor(0, (1,), U8), tensor(1, (1,), U8)
    program = Program.from_ops([ir.Custom("nothing", (x,), (y,), ())])
    with pytest.raises(OperationError, match=r"op 1 of 1: Custom\(.*no handler for 'nothing'"):
        program(np.zeros(1, np.uint8))


def test_a_meganeura_graph_is_a_program() -> None:
    graph = Graph()
    x, w = graph.input("x", (2, 3)), graph.parameter("w", (3, 2))
    cache, place = graph.parameter("cache", (4, 2)), graph.input_u32("place", (1,))
    hidden = graph.relu(graph.matmul(x, w))
    graph.set_outputs([graph.tanh(hidden)])
    program = Program.of_graph(graph, data={"w": W})
    assert list(map(str, program.inputs)) == ["x float32[2,3]", "w float32[3,2]"]
    np.testing.assert_allclose(program(X), np.tanh(np.maximum(X @ W, 0)), rtol=1e-6)
    gradient = program.grad(jnp.sum, wrt="x")(X)
    slope = (X @ W > 0) * (1 - np.tanh(np.maximum(X @ W, 0)) ** 2)
    np.testing.assert_allclose(gradient, slope @ W.T, rtol=1e-5, atol=1e-6)
    row = graph.matmul(graph.input("one", (1, 3)), w)
    graph.set_outputs([graph.cache_write(row, cache, place)])
    writing = Program.of_graph(graph, data={"w": W, "cache": np.zeros((4, 2), np.float32)})
    assert [v.name for v in writing.outputs] == ["output0", "new_cache"]
    filled = writing.scan(3, {"cache": "new_cache"}, over=["one", "place"])
    rows = np.stack([X[:1], 2 * X[:1], 3 * X[:1]])
    results = filled.run(one=rows, place=np.array([[0], [2], [3]], np.uint32))
    want = np.outer([1, 0, 2, 3], X[0] @ W)
    np.testing.assert_allclose(results["new_cache"], want, rtol=1e-6)


def test_two_inputs_cannot_have_one_name() -> None:
    x, y, z = (tensor(n, (3,), F32) for n in range(3))
    with pytest.raises(StreamError, match="expected one input of each name, got several called x"):
        Program.from_ops([ir.Add(x, y, z)], names={0: "x", 1: "x"})


# ---- parameters


def test_a_slice_start_is_a_parameter_and_has_bounds() -> None:
    program, x = window(), np.arange(15, dtype=np.float32).reshape(5, 3)
    assert [(p.name, p.largest) for p in program.parameters] == [("op0_start0", 3), ("op0_start1", 0)]
    np.testing.assert_array_equal(program(x), x[1:3])
    np.testing.assert_array_equal(program(x, op0_start0=3), x[3:5])
    with pytest.raises(ShapeError, match="expected a start of 0 to 3, got 4"):
        program(x, op0_start0=4)


def test_a_slice_start_moves_in_a_compiled_program_where_that_was_asked_for() -> None:
    program, x = window(), np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(program.compile(moving=["op0_start0"])(x, op0_start0=2), x[2:4])
    fixed = program.compile()
    assert "dynamic-slice" not in fixed.hlo()
    with pytest.raises(TypeError, match="op0_start0 is built in; compile with moving="):
        fixed(x, op0_start0=2)


def test_a_half_scalar_is_rounded_as_burn_does() -> None:
    x, y = tensor(0, (1,), F16), tensor(1, (1,), F16)
    program = Program.from_ops([ir.AddScalar(x, scalar(1e30), y)])
    assert np.isinf(program(np.zeros(1, np.float16))).all()


def test_random_numbers_depend_on_the_seed_alone() -> None:
    program = noise()
    first, second = program()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(program(seed=0), (first, second))
    assert not np.array_equal(program(seed=1)[0], first)


# ---- transforms


def test_a_gradient_is_that_of_the_formula() -> None:
    program = affine()
    d_x, d_w = X @ W * 2.5 @ W.T * 5, X.T @ (X @ W * 2.5) * 5
    loss, grads = program.value_and_grad(lambda z: jnp.sum(z * z))(X, W)
    np.testing.assert_allclose(loss, np.sum((X @ W * 2.5) ** 2), rtol=1e-6)
    np.testing.assert_allclose(grads["x"], d_x, rtol=1e-6)
    np.testing.assert_allclose(grads["w"], d_w, rtol=1e-6)
    np.testing.assert_allclose(program.grad(lambda z: jnp.sum(z * z), wrt="w")(X, W), d_w, rtol=1e-6)


def test_a_recorded_scalar_has_a_gradient() -> None:
    np.testing.assert_allclose(affine().grad(jnp.sum, wrt="op1_rhs")(X, W), np.sum(X @ W), rtol=1e-6)


def test_a_convolution_whose_transpose_aborts_xla_has_a_gradient() -> None:
    """A window of 2 with a stride of 2 and a padding of 1, which its adjoint would undo."""
    x, w, y = tensor(0, (3, 1, 8, 5), F32), tensor(1, (2, 1, 2, 3), F32), tensor(2, (3, 2, 5, 2), F32)
    options = ir.Conv2dOptions((2, 2), ((1, 1), (0, 0)), (1, 1), 1)
    program = Program.from_ops([ir.Conv2d(x, w, None, options, y)], [2], names={0: "x", 1: "w"})
    rng = np.random.default_rng(0)
    at, kernel = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 1, 8, 5), (2, 1, 2, 3)))
    static: dict[str, Any] = {"stride": (2, 2), "pads": ((1, 1), (0, 0)), "dilation": (1, 1)}
    want = reference.conv_x_grad(at, kernel, np.ones((3, 2, 5, 2)), **static)
    np.testing.assert_allclose(program.grad(jnp.sum, wrt="x")(at, kernel), want, rtol=1e-5, atol=1e-6)


def test_an_output_of_one_element_is_a_loss() -> None:
    w, g = np.array([1, 2, 3], np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(step().grad("loss", wrt="w")(w, g), 2 * w)


def test_a_program_is_a_function_to_jax() -> None:
    """Where 64-bit types are off, as they are by default, although the look-up of rows has 64-bit indices."""
    with record() as tape:
        weights, rows = tape.input("weights", (5, 3)), tape.input("rows", (2, 4), I32)
        total = (weights.embedding(rows) * 2.0).sum()
    program = tape.program(total)
    with jax.enable_x64(False):
        table, places = jnp.ones((5, 3)), jnp.array([[0, 0, 0, 1], [1, 4, 4, 4]], jnp.int32)
        np.testing.assert_array_equal(jax.jit(program)(table, places), [48])
        gradient = jax.grad(lambda w: program(w, places)[0])(table)
        np.testing.assert_array_equal(gradient[:, 0], [6, 4, 0, 0, 6])
        assert gradient.dtype == jnp.float32
        many = jax.vmap(program, in_axes=(0, None))(jnp.stack([table, 2 * table]), places)
        np.testing.assert_array_equal(many[:, 0], [48, 96])
        narrow = jax.hessian(lambda w: affine()(jnp.asarray(X), w).sum())(jnp.asarray(W))
        np.testing.assert_array_equal(narrow, np.zeros((3, 2, 3, 2)))


def test_draws_beyond_one_word_are_counted() -> None:
    state = jnp.asarray(seed_words(5, 2**32 - 1))
    assert advanced(state, np.uint32(3)).tolist() == seed_words(5, 2**32 + 2).tolist()


def test_a_batch_runs_at_once() -> None:
    program, xs = affine(), np.stack([X, -X, 2 * X])
    batched = program.vmap({"x": 0}, size=3)
    assert list(map(str, batched.inputs)) == ["x float32[3,2,3]", "w float32[3,2]"]
    np.testing.assert_allclose(batched(xs, W), xs @ W * 2.5)
    last = program.vmap({"x": -1, "op1_rhs": 0}, size=3)
    scales = np.array([1, 2, 3], np.float32)
    want = xs @ W * scales[:, None, None]
    np.testing.assert_allclose(last(np.moveaxis(xs, 0, -1), W, op1_rhs=scales), want)


def test_a_number_batches_what_was_not_recorded() -> None:
    ops = affine().ops
    program = Program.from_ops(ops, [3], data={1: W}, names={0: "x", 1: "w"})
    xs = np.stack([X, 3 * X])
    np.testing.assert_allclose(program.vmap(0, size=2)(xs), xs @ W * 2.5)


def test_transforms_stack() -> None:
    per_sample = affine().grad(jnp.sum, wrt="w").vmap({"x": 0}, size=2)
    xs = np.stack([X, 2 * X])
    want = [np.repeat(x.sum(0)[:, None], 2, 1) * 2.5 for x in xs]
    np.testing.assert_allclose(per_sample(xs, W), want)


def test_a_step_runs_many_times_inside_one_executable() -> None:
    program, w, g = step(), np.array([4, 8, 16], np.float32), np.array([1, 2, 4], np.float32)
    new, losses = program.scan(3, {"w": "new"})(w, g)
    np.testing.assert_array_equal(new, w - 1.5 * g)
    np.testing.assert_array_equal(losses[:, 0], [np.sum((w - n * 0.5 * g) ** 2) for n in range(3)])
    rates = np.array([0, 1, 2], np.float32)
    looped = program.scan(3, {"w": "new"}, over=["op0_rhs"])
    np.testing.assert_array_equal(looped(w, g, op0_rhs=rates)[0], w - 3 * g)
    assert looped.stablehlo().count("stablehlo.while") == 1


def test_random_numbers_go_on_from_step_to_step() -> None:
    program = noise()
    first, second = program.scan(2, {})()
    whole = Program.from_ops([ir.Random(tensor(n, (4,), F32), ir.DefaultDistribution.Default) for n in range(4)])
    np.testing.assert_array_equal([first[0], second[0], first[1], second[1]], whole())


def devices() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("data",), devices=jax.devices("cpu")[:4])


def test_a_sharded_program_spreads_and_gives_the_same() -> None:
    x, w = tensor(0, (8, 3), F32), tensor(1, (3, 2), F32)
    y, total = tensor(2, (8, 2), F32), tensor(3, (1,), F32)
    program = Program.from_ops([ir.Matmul(x, w, y), ir.Sum(y, total)], [2, 3], names={0: "x", 2: "y"})
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    spread = program.shard(devices(), {"x": PartitionSpec("data")}, out_specs={"y": PartitionSpec("data")})
    made, summed = spread(rows, W)
    np.testing.assert_allclose(made, rows @ W)
    np.testing.assert_allclose(summed, [np.sum(rows @ W)])
    assert {s.data.shape for s in made.addressable_shards} == {(2, 2)}
    compiled = spread.compile()
    assert "all-reduce" in compiled.hlo()
    np.testing.assert_allclose(compiled(rows, W)[0], rows @ W)


# ---- what XLA makes of it


def test_a_compiled_program_runs_where_it_was_compiled_for() -> None:
    device = jax.devices("cpu")[2]
    result = affine().compile(device)(X, W)
    np.testing.assert_allclose(result, X @ W * 2.5)
    assert result.devices() == {device}


def test_the_cost_counts_operations_and_bytes() -> None:
    x, y, z = tensor(0, (64, 32), F32), tensor(1, (32, 16), F32), tensor(2, (64, 16), F32)
    cost = Program.from_ops([ir.Matmul(x, y, z)]).cost()
    assert cost.flops == 2 * 64 * 32 * 16
    assert cost.argument_bytes == 4 * (64 * 32 + 32 * 16)
    assert cost.output_bytes == 4 * 64 * 16
    assert cost.peak_bytes >= cost.argument_bytes + cost.output_bytes
    assert cost.bytes_accessed >= cost.argument_bytes + cost.output_bytes


def test_stablehlo_is_the_program() -> None:
    text = affine().stablehlo()
    assert text.count("stablehlo.dot_general") == 1
    assert "tensor<2x3xf32>" in text


def test_the_report_says_what_became_of_each_operation() -> None:
    x, y = tensor(0, (64, 64), F32), tensor(1, (64, 64), F32)
    a, b, c, d, e = (tensor(n, (64, 64), F32) for n in range(2, 7))
    flat, idle = tensor(7, (4096,), F32), tensor(8, (64, 64), F32)
    ops = [
        ir.Matmul(x, y, a),
        ir.Exp(a, b),
        ir.AddScalar(b, scalar(1), c),
        ir.Exp(a, d),
        ir.Mul(c, d, e),
        ir.Reshape(e, flat),
        ir.Neg(x, idle),
    ]
    program = Program.from_ops(ops, [7])
    report = program.optimize_report()
    assert report.unused == (6,)
    assert report.repeated == ((3, 1),)
    assert set(report.gone) >= {5, 6}
    assert {place for i in report.instructions for place in i.ops} == {0, 1, 2, 4} | ({3} - set(report.gone))
    assert len(report.fusions) >= 1
    assert report.cost.flops >= 2 * 64**3
    text = str(report)
    assert text.startswith("program: 7 operations, ")
    assert "lead to no output: Neg.6" in text
    assert "Exp.3 computes what Exp.1 does" in text
    assert program.grad(jnp.sum).optimize_report().instructions


def test_what_repeats_because_its_operand_does_is_repeated_too() -> None:
    from jax_backend.optimize_report import repeated

    x, (a, b, c, d) = tensor(0, (2,), F32), (tensor(n, (2,), F32) for n in range(1, 5))
    ops = [ir.Exp(x, a), ir.Exp(x, b), ir.Neg(a, c), ir.Neg(b, d), ir.AddScalar(d, scalar(1), tensor(5, (2,), F32))]
    assert repeated([*ops, ir.AddScalar(d, scalar(2), tensor(6, (2,), F32))]) == ((1, 0), (3, 2))


RELOAD = """
import sys
from jax import export
import numpy as np
function = export.deserialize(open(sys.argv[1], "rb").read())
x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
print(function.call(x, op1_rhs=np.float32(2)).tolist())
print(sorted(function.platforms), any(m.split(".")[0] in ("ir", "jax_backend", "msgspec") for m in sys.modules))
"""


def test_an_exported_program_runs_in_a_process_that_has_jax_alone(tmp_path: Path) -> None:
    program = Program.from_ops(affine().ops, [3], data={1: W}, names={0: "x", 1: "w"})
    path = tmp_path / "affine.jax"
    program.export(path, keep=["op1_rhs"])
    done = subprocess.run(
        [sys.executable, "-c", RELOAD, str(path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    values, facts = done.stdout.splitlines()
    np.testing.assert_allclose(np.array(eval(values)), X @ W * 2)
    assert facts == "['cpu', 'cuda', 'tpu'] False"
