"""Functions compiled ahead of time, and what a call of them costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import jax

from jax_backend.values import Results

if TYPE_CHECKING:
    from jax_backend.function import Function

_PARTS: Final = ("argument", "output", "temp", "alias", "generated_code")


@dataclass(frozen=True)
class Cost:
    """What one call takes, as XLA counts it. Sizes in bytes."""

    flops: float
    bytes_accessed: float
    peak_bytes: int
    """Arguments, results and temporaries at once."""
    argument_bytes: int
    output_bytes: int
    temporary_bytes: int
    code_bytes: int


class Compiled:
    """A function compiled for one device or mesh. It is called as the function is."""

    def __init__(
        self,
        function: "Function",
        compiled: jax.stages.Compiled,
        moving: frozenset[str],
        sharding: jax.sharding.Sharding | None,
    ) -> None:
        self.function: Final = function
        self.stage: Final = compiled
        self._moving = moving
        self._sharding = sharding

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """As the function; a tensor that is elsewhere is brought to the device."""
        return self.function._form.present(self.run(*inputs, **named))

    def run(self, *inputs: Any, **named: Any) -> Results:
        """The results by name."""
        with jax.enable_x64(True):
            return self.stage(self.placed(*inputs, **named))

    def placed(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        """The arguments of a call where the code expects them; `stage` takes them as they are.

        Raises:
            TypeError: a slice start is given that is built in; and as in a call.
        """
        bound = self.function.bind(*inputs, **named)
        arguments = {n: a for n, a in bound.items() if n in self._moving or not self.function._is_fixed(n)}
        if late := named.keys() & (bound.keys() - arguments.keys()):
            raise TypeError(f"{self.function.name}: {', '.join(sorted(late))} is built in; compile with moving=")
        return jax.device_put(arguments, self._sharding) if self._sharding else arguments

    def hlo(self) -> str:
        """The optimized HLO."""
        return self.stage.as_text() or ""

    def cost(self) -> Cost:
        """Operations, bytes and memory of one call, as XLA counts them."""
        counted = cast("Mapping[str, float]", self.stage.cost_analysis() or {})
        memory = self.stage.memory_analysis()
        sizes = [int(getattr(memory, f"{part}_size_in_bytes", 0) or 0) for part in _PARTS]
        arguments, outputs, temporaries, aliased, code = sizes
        peak = arguments + outputs + temporaries - aliased
        flops, accessed = counted.get("flops", 0.0), counted.get("bytes accessed", 0.0)
        return Cost(flops, accessed, peak, arguments, outputs, temporaries, code)
