"""`to_python`: the source of every family runs on jax alone and gives what the interpreter gives."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from msgspec.structs import replace

import ir
from ir.op import Op, map_tensors
from ir.tensor import TensorId
from jax_backend import record
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.function import Function
from jax_backend.program import Program
from tests.cases import cases, families, meganeura_families
from tests.test_every_op import custom_ops


def shifted(op: Op, by: int) -> Op:
    return map_tensors(op, lambda t: replace(t, id=TensorId(t.id.value + by)))


def family_program(family: str) -> Program:
    """The first row of each kind, side by side, on the inputs of the rows."""
    rows = {type(case.op): case for case in reversed(cases(family))}.values()
    ops, data, wanted = list[Op](), dict[int, Any](), list[int]()
    for number, case in enumerate(rows):
        op = shifted(case.op, 100 * number)
        ops.append(op)
        data.update((t.id.value, x.array) for t, x in zip(op.inputs, case.inputs, strict=True))
        wanted += [t.id.value for t in op.outputs]
    return Program.from_ops(ops, wanted, data=data, custom_ops=custom_ops(), name=family, seed=5)


def load(function: Function) -> Callable[..., Any]:
    """The function that the source of `function` defines."""
    source = function.to_python()
    assert "jax_backend" not in source
    assert not [line for line in source.splitlines() if line.startswith(("import", "from")) and "jax" not in line][1:]
    scope: dict[str, Any] = {}
    exec(compile(source, f"{function.name}.py", "exec"), scope)
    name = next(n for n in reversed(scope) if callable(scope[n]))
    return scope[name]


def arguments(function: Function) -> list[Any]:
    return [function.defaults[value.name] for value in function.inputs]


def listed(results: Any) -> Sequence[Any]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("family", [*families(), *meganeura_families()])
def test_the_source_of_a_family_gives_what_the_interpreter_gives(family: str) -> None:
    program = family_program(family)
    source = load(program)

    def both(*inputs: Any) -> Any:
        return listed(source(*inputs)), tuple(program.run(*inputs).values())

    # One compilation: what is the same on both sides is computed once, so that whatever is left has to be equal.
    got, want = jax.jit(both)(*arguments(program))
    assert len(got) == len(want) > 0
    for value, mine, expected in zip(program.outputs, got, want, strict=True):
        assert mine.dtype == expected.dtype, value
        np.testing.assert_array_equal(mine, expected, err_msg=str(value))


def classifier() -> Program:
    with record() as tape:
        x = tape.input("x", (4, 6))
        w = tape.from_numpy(np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3), name="w")
        loss = (x @ w * 0.5 + 1).softmax(1).log().mean()
    return tape.program(loss, name="loss")


SOURCE = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def scaled(x, op1_rhs=np.float32(0.5), op2_rhs=np.float32(1.0)):
    \"\"\"-> t3 float32[4,3].\"\"\"
    # 0: Matmul(lhs=t0 f32[4,4], rhs=t0 f32[4,4], out=t1 f32[4,4])
    matmul_0 = jnp.matmul(x, x, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    # 1: MulScalar(lhs=t1 f32[4,4], rhs=0.5, out=t2 f32[4,4])
    mul_scalar_1 = matmul_0 * op1_rhs
    # 2: AddScalar(lhs=t2 f32[4,4], rhs=1, out=t3 f32[4,4])
    add_scalar_2 = mul_scalar_1 + op2_rhs
    return add_scalar_2
"""


def test_the_source_reads_like_one_that_somebody_wrote() -> None:
    with record() as tape:
        x = tape.input("x", (4, 4))
        y = x @ x * 0.5 + 1
    assert tape.program(y, name="scaled").to_python() == SOURCE.replace("[4,3].", "[4,4].")


def test_the_source_of_a_gradient_runs() -> None:
    gradient = classifier().grad(wrt="w")
    x = np.linspace(0, 2, 24, dtype=np.float32).reshape(4, 6)
    w = classifier().defaults["w"]
    assert "(backward)" in gradient.to_python()
    np.testing.assert_allclose(load(gradient)(x, w), gradient(x), rtol=1e-5, atol=1e-7)


def test_the_source_of_a_loop_runs() -> None:
    with record() as tape:
        x = tape.input("x", (3,))
        y = tape.name(x * 0.5 + 1, "y")
    looped = tape.program(y).scan(4, {"x": "y"})
    start = np.array([0, 2, 8], np.float32)
    np.testing.assert_allclose(load(looped)(start), looped(start))
    np.testing.assert_allclose(load(looped)(start), 2 + (start - 2) / 16)


def test_the_source_of_a_batch_runs() -> None:
    batched = classifier().vmap({"x": 0}, size=3)
    xs = np.linspace(0, 2, 72, dtype=np.float32).reshape(3, 4, 6)
    np.testing.assert_allclose(load(batched)(xs, classifier().defaults["w"]), batched(xs), rtol=1e-5)


def test_what_does_not_fit_a_line_stands_one_below_the_other() -> None:
    with record() as tape:
        many = [tape.input(f"an_input_with_a_long_name_{n}", (2,)) for n in range(6)]
        outputs = [x * 2 for x in many]
    program = tape.program(*outputs, name="wide")
    assert max(map(len, program.to_python().splitlines())) <= 120
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(load(program)(*[x] * 6), [[2, 2]] * 6)


def test_recorded_scalars_are_defaults_of_the_source() -> None:
    function, x = load(classifier()), np.ones((4, 6), np.float32)
    w = classifier().defaults["w"]
    np.testing.assert_allclose(function(x, w, op1_rhs=np.float32(3)), classifier()(x, op1_rhs=3.0), rtol=1e-5)


def test_the_source_runs_where_nothing_but_jax_is(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(classifier().to_python(), encoding="utf-8")
    code = (
        "import sys, numpy as np, made\n"
        "print(made.loss(np.ones((4, 6), np.float32), np.ones((6, 3), np.float32)).tolist())\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('ir', 'jax_backend')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    loss, others = done.stdout.splitlines()
    np.testing.assert_allclose(np.array(eval(loss)), [np.log(1 / 3)], rtol=1e-6)
    assert others == "[]"


def test_what_has_no_source_is_named() -> None:
    registry = CustomOpRegistry()
    registry.register("host", lambda op, inputs: (jax.pure_callback(np.sin, inputs[0], inputs[0]),))
    x, y = ir.tensor(0, (2,), ir.F32), ir.tensor(1, (2,), ir.F32)
    program = Program.from_ops([ir.Custom("host", (x,), (y,), ())], custom_ops=registry)
    with pytest.raises(ir.UnsupportedOp, match="to_python: "):
        program.to_python()
