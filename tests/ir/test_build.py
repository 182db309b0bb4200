"""`ir.build`: operations from tensors and plain values."""

from typing import Any

import pytest

import ir
from ir import F32, tensor
from ir.build import build, input_names, parameters
from tests.ir.made import f, i, made


def test_parameters_are_the_fields_in_order_with_options_by_name() -> None:
    assert parameters(ir.Scatter) == ("tensor", "dim", "indices", "value", "update")
    assert parameters(ir.Quantize) == ("tensor", "scales", "global_", "scheme")
    assert parameters(ir.LeakyRelu) == ("lhs", "rhs")
    assert input_names(ir.Scatter) == ("tensor", "indices", "value")


def test_every_kind_can_say_its_parameters() -> None:
    for kind in ir.kinds():
        assert set(input_names(kind)) <= set(parameters(kind))
        assert not {"out", "out_indices"} & set(parameters(kind))


def test_options_go_whole_or_by_name() -> None:
    options = ir.Conv1dOptions((2,), ((1, 1),), (1,), 1)
    by_name = made(ir.Conv1d, f(1, 1, 5), f(1, 1, 3), None, stride=2, padding=1)
    assert made(ir.Conv1d, f(1, 1, 5), f(1, 1, 3), None, options=options) == by_name == [((1, 1, 3), F32)]


WRONG_CALLS: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": (lambda: made(ir.Gather, f(2), i(2)), TypeError, r"Gather\.dim: missing; expected int"),
    "unknown": (
        lambda: made(ir.Gather, f(2), i(2), dim=0, axis=0),
        TypeError,
        "Gather: has no field axis; it has tensor, dim, indices",
    ),
    "tensor": (lambda: made(ir.Add, f(2)), TypeError, r"Add\.rhs: expected a tensor, got none"),
    "tensors": (lambda: made(ir.Neg, f(2), f(2)), TypeError, "Neg: expected 1 tensors, got 2"),
    "list": (lambda: made(ir.Neg, [f(2)]), TypeError, r"Neg\.input: expected one tensor, got 1"),
    "enum": (
        lambda: made(ir.AllReduce, f(2), op="Max", device_ids=[]),
        ValueError,
        r"AllReduce\.op: invalid enum value",
    ),
    "type": (lambda: made(ir.Softmax, f(2), axis=0.5), ValueError, r"Softmax\.axis: expected `int`, got `float`"),
    "negative": (
        lambda: made(ir.RepeatDim, f(2), dim=0, times=-1),
        ValueError,
        r"RepeatDim\.times: expected `int` >= 0",
    ),
}


@pytest.mark.parametrize(("build_it", "error", "match"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_is_refused(build_it: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        build_it()


def test_an_axis_goes_by_either_of_burns_names_for_it() -> None:
    x = tensor(0, (2, 3), ir.F32)
    by_axis, by_dim = (build(ir.Softmax, [x], lambda: 1, {name: -1}) for name in ("axis", "dim"))
    assert by_axis == by_dim
    assert by_axis.axis == 1
    assert build(ir.CumSum, [x], lambda: 1, {"dim": 0}).axis == 0
