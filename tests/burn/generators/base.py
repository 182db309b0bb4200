"""Plans of the base kinds."""

import math

import ir
from ir.dtype import DType
from ir.op import Op
from ir.shapes import Given
from ir.slices import SliceRange, window
from tests.burn.draw import BOOLS, FLOATS, INTS, Dims, Draw, broadcastable, dims, number
from tests.burn.generators import MOVED, Again, Later, Operand, Plan, plans


@plans(ir.Reshape)
def reshape(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Axes joined, split by 1 or put in another order."""
    shape = dims(draw)
    to = list(shape)
    if draw.below(2):
        to.reverse()
    if draw.below(2):
        to = [math.prod(to)]
    if draw.below(2):
        to.insert(draw.below(len(to) + 1), 1)
    return Plan(kind, (Operand(shape, dtype),), given=Given(dims=tuple(to)), slack=MOVED)


@plans(ir.SwapDims)
def swap_dims(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any two axes, the same one twice included."""
    shape = dims(draw)
    axes = {"dim1": draw.below(len(shape)), "dim2": draw.below(len(shape))}
    return Plan(kind, (Operand(shape, dtype),), axes, slack=MOVED)


@plans(ir.Permute)
def permute(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any order of the axes."""
    shape = dims(draw)
    rest, axes = list(range(len(shape))), []
    while rest:
        axes.append(rest.pop(draw.below(len(rest))))
    return Plan(kind, (Operand(shape, dtype),), {"axes": tuple(axes)}, slack=MOVED)


@plans(ir.Flip)
def flip(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any set of axes, none included."""
    shape = dims(draw)
    axes = tuple(axis for axis in range(len(shape)) if draw.below(2))
    return Plan(kind, (Operand(shape, dtype),), {"axes": axes}, slack=MOVED)


@plans(ir.Expand)
def expand(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Axes of 1 widened, to 0 too, and axes added in front."""
    to = dims(draw)
    source = broadcastable(draw, to)[draw.below(len(to)) :]
    return Plan(kind, (Operand(source, dtype),), given=Given(dims=to), slack=MOVED)


@plans(ir.Unfold)
def unfold(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Windows that overlap, that leave gaps, that are longer than the axis."""
    shape = dims(draw, 1, 4)
    static = {"dim": draw.below(len(shape)), "size": draw.between(1, 4), "step": draw.between(1, 4)}
    return Plan(kind, (Operand(shape, dtype),), static, slack=MOVED)


def _ranges(draw: Draw, shape: Dims) -> tuple[SliceRange, ...]:
    """A slice for some of the axes: bounds of either sign and beyond the axis, steps of either sign."""
    count = len(shape) - (draw.below(len(shape)) if draw.one_in(3) else 0)
    made: list[SliceRange] = []
    for size in shape[:count]:
        start = draw.between(0, size) if draw.below(3) else -draw.between(0, size + 2)
        end = None if draw.one_in(4) else draw.between(0, size + 2) if draw.below(3) else -draw.between(0, size + 2)
        made.append(SliceRange(start, end, draw.pick((1, 1, 2, 3, -1, -2))))
    return tuple(made)


@plans(ir.Slice)
def slice_(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any slice."""
    shape = dims(draw)
    return Plan(kind, (Operand(shape, dtype),), {"ranges": _ranges(draw, shape)}, slack=MOVED)


@plans(ir.SliceAssign)
def slice_assign(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any slice, with a value of its shape."""
    shape = dims(draw)
    ranges = _ranges(draw, shape)
    value = tuple(window(item, size).count for item, size in zip(ranges, shape, strict=False)) + shape[len(ranges) :]
    return Plan(kind, (Operand(shape, dtype), Operand(value, dtype)), {"ranges": ranges}, slack=MOVED)


@plans(ir.MaskWhere)
def mask_where(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """All three broadcast."""
    shape = dims(draw)
    tensor, mask, value = (broadcastable(draw, shape) for _ in range(3))
    operands = (Operand(tensor, dtype), Operand(mask, draw.pick(BOOLS)), Operand(value, dtype))
    return Plan(kind, operands, slack=MOVED)


@plans(ir.MaskFill)
def mask_fill(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Tensor and mask broadcast."""
    shape = dims(draw)
    tensor, mask = broadcastable(draw, shape), broadcastable(draw, shape)
    static = {"value": Later(lambda later: number(later, dtype))}
    return Plan(kind, (Operand(tensor, dtype), Operand(mask, draw.pick(BOOLS))), static, slack=MOVED)


@plans(ir.Equal, ir.NotEqual)
def equal(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Both broadcast; now and then a tensor meets itself."""
    shape = dims(draw)
    given = Given(dtype=draw.pick(BOOLS))
    if draw.one_in(8):
        return Plan(kind, (Operand(shape, dtype), Again(0)), given=given)
    operands = (Operand(broadcastable(draw, shape), dtype), Operand(broadcastable(draw, shape), dtype))
    return Plan(kind, operands, given=given)


@plans(ir.EqualElem, ir.NotEqualElem)
def equal_elem(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """A scalar of any kind."""
    static = {"rhs": Later(lambda later: number(later, dtype))}
    return Plan(kind, (Operand(dims(draw), dtype),), static, Given(dtype=draw.pick(BOOLS)))


@plans(ir.RepeatDim)
def repeat_dim(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """No times to three times."""
    shape = dims(draw)
    static = {"dim": draw.below(len(shape)), "times": draw.pick((2, 1, 3, 0))}
    return Plan(kind, (Operand(shape, dtype),), static, slack=MOVED)


@plans(ir.Cat)
def cat(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """One to four tensors, empty ones among them."""
    shape = dims(draw)
    axis = draw.below(len(shape))
    parts = [(*shape[:axis], draw.pick((1, 2, 3, 0)), *shape[axis + 1 :]) for _ in range(draw.between(1, 4))]
    return Plan(kind, (tuple(Operand(part, dtype) for part in parts),), {"dim": axis}, slack=MOVED)


@plans(ir.Cast)
def cast(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """To any dtype of the family."""
    among = BOOLS if dtype.is_bool else INTS if dtype.is_int else FLOATS
    return Plan(kind, (Operand(dims(draw), dtype),), given=Given(dtype=draw.pick(among)))


@plans(ir.Empty, ir.Ones, ir.Zeros)
def creation(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any shape; what is in an empty one is nobody's business."""
    compare = "shape" if kind is ir.Empty else "values"
    return Plan(kind, (), given=Given(dims(draw), dtype), compare=compare)


@plans(ir.All, ir.Any)
def all_any(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Of everything."""
    return Plan(kind, (Operand(dims(draw), dtype),), given=Given(dtype=draw.pick(BOOLS)))


@plans(ir.AllDim, ir.AnyDim)
def all_any_dim(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Along any axis."""
    shape = dims(draw)
    return Plan(kind, (Operand(shape, dtype),), {"axis": draw.below(len(shape))}, Given(dtype=draw.pick(BOOLS)))
