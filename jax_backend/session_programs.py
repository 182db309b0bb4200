"""The executables of a session, each compiled when it is first needed, or read from disk.

Promise: compiled ahead of time; a mismatch raises, never retraces. What a run changes is donated. jax gives a donated
buffer to the first result of its shape, so results that replace an argument come first, in the order of the arguments:
otherwise gradients land in the buffers of the parameters, which are copied to make room (431 copies in a step of a
ResNet instead of 212).
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

from jax_backend.executable import compile_for
from jax_backend.graph_function import Leaf
from jax_backend.ops._shared import precision as products_in
from jax_backend.program_store import ProgramStore, loaded_or_made, program_key
from jax_backend.training import Arrays, Control, Moments, Plan, Rule, updated
from jax_backend.types import Device

Ran = tuple[Arrays, Arrays, Arrays]
Learned = tuple[Arrays, Arrays, Moments, Arrays, Arrays]


class SessionPrograms:
    """Ways of running a plan.

    Args:
        plan: what runs.
        device: where.
        precision: of products and convolutions.
        store: where executables outlive the process.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        precision: jax.lax.Precision,
        store: ProgramStore | None,
    ) -> None:
        self._plan: Final = plan
        self._device: Final = device
        self._precision: Final = precision
        self._store: Final = store
        self._compiled: dict[str, jax.stages.Compiled] = {}
        self.compile_s = 0.0
        """Seconds spent on tracing and compiling, or on loading."""
        self.num_loaded = 0
        """Executables that an earlier process had compiled."""

    def run(self, trained: Arrays, fixed: Arrays, inputs: Arrays, states: Arrays) -> Ran:
        """New states, outputs and gradients."""
        return self.prepare()(trained, fixed, inputs, states)

    def learn(
        self,
        rule: Rule,
        trained: Arrays,
        fixed: Arrays,
        inputs: Arrays,
        states: Arrays,
        moments: Moments,
        control: Control,
    ) -> Learned:
        """Trained parameters, states and moments afterwards, outputs and gradients."""
        return self.prepare(rule)(trained, fixed, inputs, states, moments, control)

    def update(
        self, rule: Rule, trained: Arrays, grads: Arrays, moments: Moments, control: Control
    ) -> tuple[Arrays, Moments]:
        """The trained parameters and moments after an update."""
        name = f"update {rule}"
        if name not in self._compiled:
            leaves = self._trained_leaves()
            arguments = (self._avals(leaves), self._avals(leaves), self._moment_avals(rule), self._control_avals())
            self._compiled[name] = self._made(name, lambda *given: updated(rule, *given), arguments, (0, 2))
        return self._compiled[name](trained, grads, moments, control)

    def prepare(self, rule: Rule | None = None) -> jax.stages.Compiled:
        """The executable of a step, with or without an update; compiled now if it is not there."""
        name = f"step {rule}"
        if name in self._compiled:
            return self._compiled[name]
        plan = self._plan
        places = {n: ("trained", k) for k, n in enumerate(plan.trained)}

        def ran(trained: Arrays, fixed: Arrays, inputs: Arrays, states: Arrays) -> Ran:
            others = iter(fixed)
            parameters = [trained[places[n][1]] if n in places else next(others) for n in range(len(plan.parameters))]
            outputs, after, grads = plan.run(parameters, inputs, states)
            return after, outputs, grads

        def learned(trained: Arrays, fixed: Arrays, inputs: Arrays, states: Arrays, *more: Any) -> Learned:
            after, outputs, grads = ran(trained, fixed, inputs, states)
            assert rule is not None
            learned, moments = updated(rule, trained, grads, *more)
            return learned, after, moments, outputs, grads

        fixed = [leaf for n, leaf in enumerate(plan.parameters) if n not in places]
        leaves = (self._trained_leaves(), fixed, plan.inputs, plan.states)
        arguments: tuple[Any, ...] = tuple(map(self._avals, leaves))
        if rule is None:
            made = self._made(name, ran, arguments, (3,))
        else:
            more = (self._moment_avals(rule), self._control_avals())
            made = self._made(name, learned, arguments + more, (0, 3, 4))
        self._compiled[name] = made
        return made

    def _made(
        self, name: str, function: Callable[..., Any], arguments: Sequence[Any], donated: tuple[int, ...]
    ) -> jax.stages.Compiled:
        began = time.perf_counter()

        def compiled() -> jax.stages.Compiled:
            with products_in(self._precision):
                return compile_for(function, arguments, donated, self._device)

        made, from_disk = loaded_or_made(self._store, self._key(name, donated), self._device, compiled)
        self.num_loaded += from_disk
        self.compile_s += time.perf_counter() - began
        return made

    def _key(self, name: str, donated: tuple[int, ...]) -> str | None:
        if self._store is None or not self._plan.variant:
            return None
        key = program_key(self._plan.relative, (), (), donated, self._device, self._precision)
        return key and hashlib.blake2b(f"{key} {self._plan.variant} {name}".encode(), digest_size=20).hexdigest()

    def _trained_leaves(self) -> list[Leaf]:
        return [self._plan.parameters[n] for n in self._plan.trained]

    def _avals(self, leaves: Sequence[Leaf]) -> list[jax.ShapeDtypeStruct]:
        return [self._aval(leaf.shape, leaf.dtype) for leaf in leaves]

    def _aval(self, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.sharding.SingleDeviceSharding(self._device))

    def _moment_avals(self, rule: Rule) -> Moments:
        leaves = self._trained_leaves() if rule == "adam" else []
        return Moments(self._avals(leaves), self._avals(leaves))  # type: ignore[arg-type]

    def _control_avals(self) -> Control:
        rates = self._aval((len(self._plan.trained),), np.float32)
        return Control(rates, self._aval((3,), np.float32), self._aval((), np.int32))  # type: ignore[arg-type]
