"""What a run of a Meganeura session computes, as pure functions on lists of arrays.

Optimizers are optax's. SGD: p -= rate g. Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
p -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon), one t for the session, 1 in the first step.
Source: meganeura 0.2 `optimizer.rs`, `session.rs`.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np
import optax  # pyright: ignore[reportMissingTypeStubs]
from msgspec import Struct

from ir.errors import DTypeError, ShapeError, StreamError
from ir.meganeura import Compat, Graph, differentiate
from ir.meganeura.ops import Parameter
from ir.stream import RelativeGraph
from jax_backend.executable import abstract_value
from jax_backend.graph_function import GraphFunction, Leaf, UnknownName, listed
from jax_backend.types import Array

Arrays: TypeAlias = list[Array]
Forward: TypeAlias = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]
"""(parameters, inputs, states) -> (outputs, new states)."""
Differentiated: TypeAlias = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays, Arrays]]
"""(parameters, inputs, states) -> (outputs, new states, gradients of the trained parameters)."""
Feedback: TypeAlias = Mapping[str, Callable[[Arrays, Mapping[str, Array]], Array]]
"""By name of an input, what it holds in the next run: a function of the outputs and of the inputs by name."""
Gradients: TypeAlias = Literal["jax", "graph", "given"] | None
"""Where gradients come from: see `Session`."""


class Sgd(Struct, frozen=True):
    """Gradient descent without momentum or decay."""

    learning_rate: float = 0.01


class Adam(Struct, frozen=True):
    """Adam without decay."""

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


Optimizer: TypeAlias = Sgd | Adam
Rule: TypeAlias = Literal["sgd", "adam"]


class Moments(NamedTuple):
    """Adam's state: averages of each trained parameter's gradient and of its square."""

    first: Arrays
    second: Arrays


class Control(NamedTuple):
    """The numbers of an update: a rate per trained parameter, beta1, beta2 and epsilon, steps done before."""

    rates: "Array | np.ndarray"
    constants: "Array | np.ndarray"
    steps: "Array | np.ndarray"


class Plan(NamedTuple):
    """How a session runs its graph: the function, and what goes into it.

    `trained` are the places of the parameters that have a gradient, in the order of the gradients; `fed` are the
    inputs that follow from a run: the last outputs of `run`, after the `num_outputs` of the graph.
    """

    run: Differentiated
    relative: RelativeGraph
    parameters: tuple[Leaf, ...]
    inputs: tuple[Leaf, ...]
    states: tuple[Leaf, ...]
    trained: tuple[int, ...]
    num_outputs: int
    fed: tuple[Leaf, ...]
    unused_parameters: tuple[Leaf, ...]
    unused_inputs: tuple[Leaf, ...]
    variant: str
    """What decides the code beside the graph; empty where that cannot be written down."""


def plan(
    graph: Graph,
    gradients: Gradients,
    compat: Compat,
    batch: int | None,
    shared: Collection[str],
    feedback: Feedback,
) -> Plan:
    """How to run `graph`; the arguments are those of `Session`.

    Raises:
        StreamError, UnknownName, ShapeError, DTypeError: as `Session`.
    """
    whole = differentiate(graph, compat) if gradients == "graph" else graph
    function = GraphFunction(whole, compat)
    names = {op.name for op in whole.ops() if isinstance(op, Parameter)}
    unused = [[leaf for leaf in function.unused if (leaf.name in names) == kept] for kept in (True, False)]
    there = {leaf.name for leaf in (*function.inputs, *unused[1])}
    if unknown := set(shared) - there:
        raise UnknownName(f"shared: expected some of the inputs {listed(there)}, got {listed(unknown)}")
    forward: Forward = function
    inputs, states = function.inputs, function.states
    if batch is not None:
        forward = batched(function, [leaf.name in shared for leaf in inputs])
        inputs = tuple(leaf if leaf.name in shared else leaf.batched(batch) for leaf in inputs)
        states = tuple(leaf.batched(batch) for leaf in states)
    trained: tuple[int, ...] = ()
    num_outputs = function.num_outputs
    run = without_gradients(forward)
    if gradients == "jax":
        trained = tuple(range(len(function.parameters)))
        run = differentiated(forward, trained)
    elif gradients is not None:
        num_outputs, places = gradient_places(whole, function)
        trained = tuple(places)
        run = carried(forward, tuple(places.values()), num_outputs, batch=batch is not None)
    variant = f"{gradients} {batch} {sorted(shared)}"
    fed: tuple[Leaf, ...] = ()
    if feedback:
        outputs = output_avals(function.relative, num_outputs, batch)
        fed, code = feedback_of(feedback, outputs, inputs)
        run = with_feedback(run, [feedback[leaf.name] for leaf in fed], [leaf.name for leaf in inputs])
        variant = f"{variant} {code}" if code else ""
    made = (run, function.relative, function.parameters, inputs, states, trained, num_outputs, fed)
    return Plan(*made, tuple(unused[0]), tuple(unused[1]), variant)


def output_avals(graph: RelativeGraph, count: int, batch: int | None) -> list[jax.ShapeDtypeStruct]:
    """The first `count` outputs of a graph; with `batch`, along a new first axis."""
    tensors = graph.tensors()
    outer = () if batch is None else (batch,)
    avals = [abstract_value(tensors[value], None) for value in graph.outputs[:count]]
    return [jax.ShapeDtypeStruct((*outer, *aval.shape), aval.dtype) for aval in avals]


def feedback_of(
    feedback: Feedback, outputs: Sequence[jax.ShapeDtypeStruct], inputs: Sequence[Leaf]
) -> tuple[tuple[Leaf, ...], str]:
    """The inputs that follow from a run, and a name for the code that makes them; empty where it holds arrays.

    Raises:
        UnknownName: one is none of `inputs`.
        ShapeError, DTypeError: its function gives another array than it takes.
    """
    leaves = {leaf.name: leaf for leaf in inputs}
    if unknown := feedback.keys() - leaves.keys():
        raise UnknownName(f"feedback: expected some of the inputs {listed(leaves)}, got {listed(unknown)}")
    named = {leaf.name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in inputs}
    codes: list[str] = []
    for name, function in feedback.items():
        with jax.enable_x64(True):
            traced = jax.make_jaxpr(function)(list(outputs), named)
        (result,) = traced.out_avals
        if result.shape != leaves[name].shape:
            raise ShapeError(f"feedback of {name}: expected {list(leaves[name].shape)}, got {list(result.shape)}")
        if result.dtype != leaves[name].dtype:
            raise DTypeError(f"feedback of {name}: expected {leaves[name].dtype}, got {result.dtype}")
        codes.append("" if traced.consts else f"{name} {traced}")
    code = hashlib.blake2b("\n".join(codes).encode(), digest_size=20).hexdigest() if all(codes) else ""
    return tuple(leaves[name] for name in feedback), code


def with_feedback(
    run: Differentiated, functions: Sequence[Callable[[Arrays, Mapping[str, Array]], Array]], names: Sequence[str]
) -> Differentiated:
    """`run` with what `functions` make of its outputs and of its inputs, whose names are `names`, as last outputs."""

    def run_and_feed(parameters: Arrays, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        outputs, after, grads = run(parameters, inputs, states)
        named = dict(zip(names, inputs, strict=True))
        return [*outputs, *(function(list(outputs), named) for function in functions)], after, grads

    return run_and_feed


def gradient_places(graph: Graph, function: GraphFunction) -> tuple[int, dict[int, int]]:
    """How many outputs of a differentiated graph are no gradients, and the output that each parameter has, by place.

    A parameter without a gradient has a placeholder of shape [1] there, and no entry here.

    Raises:
        StreamError: there are fewer outputs than a loss and a gradient per parameter.
    """
    parameters = [op for op in graph.ops() if isinstance(op, Parameter)]
    first = len(graph.outputs()) - len(parameters)
    if first < 1:
        raise StreamError(
            f"outputs: expected a loss and a gradient for each of {len(parameters)} parameters, "
            f"got {len(graph.outputs())}; `differentiate(graph)` makes them, gradients='jax' needs none"
        )
    places = {leaf.name: n for n, leaf in enumerate(function.parameters)}
    found: dict[int, int] = {}
    for output, op in enumerate(parameters, first):
        if op.name in places and graph.ty(graph.outputs()[output]).shape == op.out.shape.dims:
            found[places[op.name]] = output
    return first, found


def without_gradients(forward: Forward) -> Differentiated:
    """`forward` with no gradients beside it."""

    def run(parameters: Arrays, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        return *forward(parameters, inputs, states), []

    return run


def batched(forward: Forward, shared: Sequence[bool]) -> Forward:
    """`forward` on several sets of inputs and states; inputs that are `shared`, and the parameters, are the same."""

    def run(parameters: Arrays, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        axes = (None, [None if same else 0 for same in shared], 0)
        return jax.vmap(forward, in_axes=axes)(parameters, inputs, states)

    return run


def differentiated(forward: Forward, trained: Sequence[int]) -> Differentiated:
    """`forward` with the gradients of its first output, or of that output's mean, by jax.

    `trained` are the places of the parameters that get one.
    """

    def run(parameters: Arrays, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        def objective(chosen: Arrays) -> tuple[Array, tuple[Arrays, Arrays]]:
            outputs, after = forward(replaced(parameters, trained, chosen), inputs, states)
            return outputs[0].mean(), (outputs, after)

        chosen = [parameters[n] for n in trained]
        grads, (outputs, after) = jax.grad(objective, has_aux=True)(chosen)
        return outputs, after, grads

    return run


def carried(forward: Forward, places: Sequence[int], num_outputs: int, *, batch: bool) -> Differentiated:
    """`forward` of a graph that computes gradients itself, at these places of its outputs.

    With `batch`, each gradient has one row per set of inputs: their mean is that of the mean of the losses.
    """

    def run(parameters: Arrays, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        outputs, after = forward(parameters, inputs, states)
        grads = [outputs[n].mean(0) if batch else outputs[n] for n in places]
        return outputs[:num_outputs], after, grads

    return run


def replaced(values: Arrays, places: Sequence[int], others: Arrays) -> Arrays:
    """`values` with those at `places` replaced by `others`, in order."""
    changed = list(values)
    for place, other in zip(places, others, strict=True):
        changed[place] = other
    return changed


def updated(
    rule: Rule, parameters: Arrays, grads: Arrays, moments: Moments, control: Control
) -> tuple[Arrays, Moments]:
    """The trained parameters and the moments after one step."""
    # optax raises an f32 to the power of an i32, which strict promotion, where a caller has it on, refuses.
    with jax.numpy_dtype_promotion("standard"):
        directions: Any = grads
        if rule == "adam":
            beta1, beta2, epsilon = control.constants
            state: Any = optax.ScaleByAdamState(control.steps, moments.first, moments.second)
            directions, state = optax.scale_by_adam(beta1, beta2, epsilon).update(directions, state)
            moments = Moments(state.mu, state.nu)
        changes: Any = [-rate * d for rate, d in zip(control.rates, directions, strict=True)]
        after: Any = optax.apply_updates(parameters, changes)
        return after, moments


def control_values(optimizer: Optimizer, multipliers: Sequence[float], steps: int) -> Control:
    """The numbers of one update; `multipliers` scale the learning rate of each trained parameter."""
    rates = np.asarray([optimizer.learning_rate * m for m in multipliers], np.float32)
    constants = (optimizer.beta1, optimizer.beta2, optimizer.epsilon) if isinstance(optimizer, Adam) else (0, 0, 0)
    return Control(rates, np.asarray(constants, np.float32), np.asarray(steps, np.int32))
