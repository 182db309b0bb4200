"""Every row of every table in `tests/cases`, through everything that must hold for any operation."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from ir import meganeura
from ir.op import SPLITTERS, Op, mark_read_only, operand_dtype, scalar_slots
from ir.registry import WITH_DTYPE, families_of
from ir.stream import canonical, relativise
from ir.verify import verify_op
from ir.wire import UNION, decode_operation, encode_operation, from_json, to_json
from jax_backend import ops
from jax_backend.custom_ops import CustomOpRegistry, default_custom_ops
from jax_backend.dtypes import jax_dtype
from jax_backend.interpreter import draw_key, run_graph, run_op
from tests import cases as tables
from tests.cases import bad_cases, cases, families, meganeura_families
from tests.opcase import EXACT, ROUNDING, BadCase, OpCase, Tolerance, Typed

KEY = np.array([1, 2, 0, 0], np.uint32)


class Row(NamedTuple):
    """A row and the table it stands in."""

    family: str
    case: OpCase | BadCase


def chosen(config: pytest.Config) -> tuple[str, ...]:
    """The families that this run is about: see `--families`."""
    named = tuple(f for f in config.getoption("families").split(",") if f)
    return named or tuple(dict.fromkeys((*tabled(), *ops.BUILT, *ops.MEGANEURA)))


def tabled() -> tuple[str, ...]:
    """The families that have a table, of both IRs."""
    return (*families(), *meganeura_families())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per row, per row that must be refused, or per kind, as a test asks."""
    named = [family for family in chosen(metafunc.config) if family in tabled()]
    rows = [Row(family, case) for family in named for case in cases(family)]
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", [_parameter(r) for r in rows])
    if "burn_row" in metafunc.fixturenames:
        metafunc.parametrize("burn_row", [_parameter(r) for r in rows if r.family in families()])
    if "eager_row" in metafunc.fixturenames:
        every = metafunc.config.getoption("every_eager")
        metafunc.parametrize("eager_row", [_parameter(r) for r in (rows if every else one_per_dtype(rows))])
    if "bad" in metafunc.fixturenames:
        metafunc.parametrize("bad", [_parameter(Row(f, case)) for f in named for case in bad_cases(f)])
    if "first" in metafunc.fixturenames:
        first = {type(r.case.op): r.case for r in reversed(rows)}
        metafunc.parametrize("first", list(first.values()), ids=[_name(kind) for kind in first])


def one_per_dtype(rows: Sequence[Row]) -> list[Row]:
    """The first row of each kind on each group of dtypes that are computed alike.

    Run at once, every primitive compiles by itself: all rows take 20 minutes of processor time, these a quarter. What
    a value does beside its neighbours does not depend on it; `--every-eager` runs them all.
    """
    found: dict[tuple[type[Op], str], Row] = {}
    for row in rows:
        given = [*row.case.op.inputs, *row.case.op.outputs]
        found.setdefault((type(row.case.op), _group(given[0].dtype) if given else ""), row)
    return list(found.values())


def _name(kind: type[Op]) -> str:
    """The kind, with its IR where it is not Burn's."""
    return f"meganeura.{kind.__name__}" if kind in meganeura.kinds().values() else kind.__name__


def _group(dtype: ir.DType) -> str:
    if dtype.is_bool or dtype.is_quantized:
        return "bool" if dtype.is_bool else "quantized"
    if dtype.is_int:
        return "signed" if dtype.is_signed else "unsigned"
    return "half" if dtype in (ir.F16, ir.BF16) else dtype.short


def _parameter(row: Row) -> Any:
    """A row as a parameter; xdist's loadgroup keeps a family, and so its one compilation, in one worker."""
    return pytest.param(row, id=f"{row.family}-{row.case.id}", marks=pytest.mark.xdist_group(row.family))


def custom_ops() -> CustomOpRegistry:
    """The handlers that the rows of `Custom` name, beside those of the default registry."""
    from tests.cases.control import HANDLERS

    registry = default_custom_ops()
    for id, handler in HANDLERS.items():
        registry.register(id, handler)
    return registry


class Program(NamedTuple):
    """The relative program of one row and the arguments of its only execution."""

    graph: ir.RelativeGraph
    inputs: tuple[Any, ...]
    scalars: tuple[np.ndarray, ...]
    starts: tuple[int, ...]

    def run(self, inputs: Sequence[Any], scalars: Sequence[Any], starts: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, from arguments that may be tracers."""
        return run_graph(self.graph, inputs, scalars, starts, jnp.asarray(KEY), custom_ops())


def program_of(op: Op, inputs: Sequence[Typed]) -> Program:
    """`op` as a program of its own."""
    graph, bindings = relativise([op])
    scalars = tuple(host_scalar(s.value, slot) for s, slot in zip(bindings.scalars, graph.scalars, strict=True))
    return Program(graph, tuple(x.array for x in inputs), scalars, bindings.starts)


def host_scalar(value: Any, slot: Any) -> np.ndarray:
    """A scalar as a 0-d array of its slot's dtype; halves round through float32, as Burn does."""
    number, dtype = slot.convert(value, slot.dtype), jax_dtype(slot.dtype)
    with np.errstate(over="ignore"):
        return np.asarray(number, np.float32 if slot.dtype in (ir.F16, ir.BF16) else dtype).astype(dtype)


@cache
def compiled(family: str) -> dict[str, list[tuple[str, Any]]]:
    """What the compiled programs of a family give: by row, the outputs with static and with traced starts.

    All rows share one compilation, which takes a tenth of the time of one each. A row that cannot be traced has its
    exception in place of the outputs and leaves the others alone.
    """
    jobs: list[tuple[str, str, Callable[..., Any], tuple[Any, ...]]] = []
    for case in cases(family):
        p = program_of(case.op, case.inputs)
        jobs.append((case.id, "compiled", lambda i, s, p=p: p.run(i, s, p.starts), (p.inputs, p.scalars)))
        if p.starts:
            traced = tuple(np.int32(start) for start in p.starts)
            jobs.append((case.id, "compiled, traced starts", p.run, (p.inputs, p.scalars, traced)))
    failed: dict[int, Exception] = {}

    def everything(arguments: list[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = []
        for n, ((_, _, function, _), given) in enumerate(zip(jobs, arguments, strict=True)):
            try:
                results.append(function(*given))
            except Exception as reason:  # reported by the row's own test
                failed[n] = reason
                results.append(())
        return results

    results = jax.jit(everything)([job[3] for job in jobs])
    found: dict[str, list[tuple[str, Any]]] = {}
    for n, ((id, how, _, _), outputs) in enumerate(zip(jobs, results, strict=True)):
        found.setdefault(id, []).append((how, failed.get(n, outputs)))
    return found


def assert_equal(how: str, case: OpCase, outputs: Sequence[Any]) -> None:
    """Compare `outputs` with what the row wants: count, dtypes, shapes, values."""
    assert len(outputs) == len(case.want), f"{how}: {len(outputs)} outputs, want {len(case.want)}"
    for place, (got, want) in enumerate(zip(outputs, case.want, strict=True)):
        got = np.asarray(got)
        name = f"{case.op} {how}, output {place}"
        assert got.dtype == want.array.dtype, f"{name}: dtype {got.dtype}, want {want.array.dtype}"
        assert got.shape == want.array.shape, f"{name}: shape {got.shape}, want {want.array.shape}"
        tolerance = case.tolerance or ROUNDING.get(want.dtype, EXACT)
        bad = differing(got, want.array, tolerance)
        assert not bad.any(), (
            f"{name}: {bad.sum()} of {bad.size} differ beyond {tolerance}, first at {np.argwhere(bad)[0].tolist()}\n"
            f"got  {got[bad].ravel()[:8]}\nwant {want.array[bad].ravel()[:8]}"
        )


def differing(got: np.ndarray, want: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """Where `got` is not `want` within `tolerance`."""
    if want.dtype.kind in "biu" and tolerance.rtol == tolerance.atol == 0:
        return got != want
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= tolerance.atol + tolerance.rtol * np.abs(want)
        same = (got == want) | (near & np.isfinite(want) & np.isfinite(got)) | (np.isnan(got) & np.isnan(want))
    if tolerance.signed_zero:
        same &= (np.signbit(got) == np.signbit(want)) | (want != 0)
    return ~same


def run_eagerly(op: Op, inputs: Sequence[Typed]) -> tuple[Any, ...]:
    """The outputs of `op`, run at once."""
    p = program_of(op, inputs)
    arrays = dict(zip(p.graph.inputs, map(jnp.asarray, p.inputs), strict=True))
    return run_op(
        p.graph.ops[0],
        lambda t: arrays[t.id.value],
        iter([jnp.asarray(s) for s in p.scalars]),
        iter(p.starts),
        lambda: draw_key(jnp.asarray(KEY), 0),
        custom_ops(),
    )


def test_eager(eager_row: Row) -> None:
    """Run at once, a row gives what it wants, in the declared shapes and dtypes."""
    case = eager_row.case
    assert_equal("eager", case, run_eagerly(case.op, case.inputs))


def test_compiled(row: Row) -> None:
    """Compiled, a row gives what it wants, whether its slice starts are constants or arguments."""
    for how, outputs in compiled(row.family)[row.case.id]:
        if isinstance(outputs, Exception):
            raise outputs
        assert_equal(how, row.case, outputs)


def test_accessors(row: Row) -> None:
    """Inputs, outputs and the visitors name each tensor once; the parts that recording takes agree with them."""
    op = row.case.op
    count = len(row.case.inputs) + len(row.case.want)
    assert [t.id.value for t in (*op.inputs, *op.outputs)] == list(range(count))
    visited: list[int] = []
    assert ir.map_tensors(op, lambda t: visited.append(t.id.value) or t) == op
    assert sorted(visited) == list(range(count))
    read_only = mark_read_only(op)
    assert {t.status for t in read_only.inputs} <= {ir.READ_ONLY}
    assert {t.status for t in read_only.outputs} <= {ir.NOT_INIT}
    assert canonical(canonical(op)) == canonical(op)
    parts = SPLITTERS[type(op)].split(op)
    assert parts[1] == tuple(range(count))
    assert parts[3] == op.traced_scalars
    assert len(scalar_slots(op)) == len(op.traced_scalars)
    assert hash(parts[0]) == hash(SPLITTERS[type(op)].split(op)[0])


def test_verified(burn_row: Row) -> None:
    """The shape rules derive from the inputs what the row declares, and so what the lowering gives."""
    verify_op(burn_row.case.op)


def test_wire(burn_row: Row) -> None:
    """Under each outer variant it can stand in, an operation comes back from msgpack and from JSON as it was."""
    op = burn_row.case.op
    for family in families_of(type(op)):
        sent = ir.OperationIr(family, operand_dtype(op) if family in WITH_DTYPE else None, op)
        assert decode_operation(encode_operation(sent, UNION), UNION) == sent
        text = to_json(sent, UNION)
        if b'"Float":null' in text:  # serde's JSON has one null for NaN and both infinities
            with pytest.raises(ir.WireError, match="NaN and the infinities"):
                from_json(text, ir.OperationIr, UNION)
        else:
            assert from_json(text, ir.OperationIr, UNION) == sent


def test_refused(bad: Row) -> None:
    """An operation that makes no sense raises the named error with a message that says why."""
    op = bad.case.op
    inputs = bad.case.inputs or [Typed(np.zeros(t.shape.dims, jax_dtype(t.dtype)), t.dtype) for t in op.inputs]
    with pytest.raises(bad.case.error, match=bad.case.match):
        run_eagerly(op, inputs)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_exports(first: OpCase, platform: str) -> None:
    """The first row of each kind lowers for accelerators, on a machine that has none."""
    p = program_of(first.op, first.inputs)
    traced = tuple(np.int32(start) for start in p.starts)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (p.inputs, p.scalars, traced))
    exported = jax.export.export(jax.jit(p.run), platforms=[platform])(*arguments)
    assert exported.platforms == (platform,)
    assert [a.shape for a in exported.out_avals] == [w.array.shape for w in first.want]


def test_every_kind_has_a_row(pytestconfig: pytest.Config) -> None:
    """No lowering goes untested."""
    among = chosen(pytestconfig)
    tested = tables.tested_kinds(*(family for family in among if family in tabled()))
    wanted = [kind for family in (*ops.BUILT, *ops.MEGANEURA) if family in among for kind in ops.kinds_of(family)]
    missing = [f"{kind.__module__}.{kind.__name__}" for kind in wanted if kind not in tested]
    assert not missing, f"kinds without a row: {', '.join(missing)}"
