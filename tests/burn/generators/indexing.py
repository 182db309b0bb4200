"""Plans of the kinds that take indices."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.ops.indexing import IndexingUpdateOp
from tests.burn.draw import INTS, Content, Dims, Draw, anything, dims, tame, within
from tests.burn.generators import EXACT, MOVED, Operand, Plan, Slack, plans

UPDATES = tuple(IndexingUpdateOp)


def _indices(draw: Draw, shape: Dims, size: int) -> Operand:
    """Indices into an axis of `size`, of any int dtype; duplicates are likely, and once in a while one is too large."""
    beyond = draw.one_in(40)
    return Operand(shape, draw.pick(INTS), within(0, size - 1 + beyond))


def _updates(draw: Draw, dtype: DType) -> tuple[IndexingUpdateOp, Slack]:
    """An update; sums and products of floats may be rounded in another order, where an index occurs twice."""
    update = IndexingUpdateOp.Add if dtype.is_bool and draw.below(2) == 0 else draw.pick(UPDATES)
    is_sum = update in (IndexingUpdateOp.Add, IndexingUpdateOp.Mul) and dtype.is_float
    # Halves are rounded at each update.
    if is_sum:
        return update, Slack(ulps=16, terms=64, accumulator=dtype)
    return update, MOVED if update is IndexingUpdateOp.Assign else EXACT  # of 0.0 and -0.0, either is the larger


def _values(dtype: DType, slack: Slack) -> Content:
    return tame if slack.terms else anything


@plans(ir.Select)
def select(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any number of indices, none included."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    count = draw.pick((2, 3, 1, 0, 6)) if shape[axis] else 0
    indices = _indices(draw, (count,), shape[axis])
    return Plan(kind, (Operand(shape, dtype), indices), {"dim": axis}, slack=MOVED)


@plans(ir.SelectAssign)
def select_assign(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any update, often of one place several times."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    count = draw.pick((2, 3, 1, 0, 6)) if shape[axis] else 0
    update, slack = _updates(draw, dtype)
    content = _values(dtype, slack)
    value = Operand((*shape[:axis], count, *shape[axis + 1 :]), dtype, content)
    operands = (Operand(shape, dtype, content), _indices(draw, (count,), shape[axis]), value)
    return Plan(kind, operands, {"dim": axis, "update": update}, slack=slack)


@plans(ir.Gather)
def gather(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Indices shorter and longer than the axis."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    count = draw.pick((2, 3, 1, 0, 6)) if shape[axis] else 0
    indices = _indices(draw, (*shape[:axis], count, *shape[axis + 1 :]), shape[axis])
    return Plan(kind, (Operand(shape, dtype), indices), {"dim": axis}, slack=MOVED)


@plans(ir.Scatter)
def scatter(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any update, often of one place several times."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    count = draw.pick((2, 3, 1, 0, 6)) if shape[axis] else 0
    places = (*shape[:axis], count, *shape[axis + 1 :])
    update, slack = _updates(draw, dtype)
    content = _values(dtype, slack)
    operands = (
        Operand(shape, dtype, content),
        _indices(draw, places, shape[axis]),
        Operand(places, dtype, content),
    )
    return Plan(kind, operands, {"dim": axis, "update": update}, slack=slack)


def _rows(draw: Draw) -> tuple[Dims, Dims, int, int]:
    """Shape of the data, of the batch, depth of an index row, and the size that each of its indices stays below."""
    shape = tuple(max(1, size) for size in dims(draw, 1, 4))
    depth = draw.between(0, len(shape)) if draw.one_in(8) else draw.between(1, len(shape))
    batch = dims(draw, 0, 2) if draw.one_in(6) else dims(draw, 1, 2)
    return shape, batch, depth, min(shape[:depth], default=1)


@plans(ir.GatherNd)
def gather_nd(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Index rows of any depth."""
    shape, batch, depth, size = _rows(draw)
    return Plan(kind, (Operand(shape, dtype), _indices(draw, (*batch, depth), size)), slack=MOVED)


@plans(ir.ScatterNd)
def scatter_nd(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Index rows of any depth, any update."""
    shape, batch, depth, size = _rows(draw)
    update, slack = _updates(draw, dtype)
    content = _values(dtype, slack)
    operands = (
        Operand(shape, dtype, content),
        _indices(draw, (*batch, depth), size),
        Operand(batch + shape[depth:], dtype, content),
    )
    return Plan(kind, operands, {"reduction": update}, slack=slack)
