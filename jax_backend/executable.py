"""From a relative graph to a compiled function.

A program takes its tensors, one by one, and one `pack`: an array of 32-bit words that holds every traced scalar, every
traced slice start and the random state, so that a call makes one small transfer whatever their number and dtypes
(64 separate scalars cost 16 us, one array 9 us).

Promise: compiled ahead of time; a mismatch raises, never retraces.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ir.dtype import F64, I64, U64, DType
from ir.op import ScalarSlot
from ir.scalar import Number, ScalarIr, convert
from ir.stream import RelativeGraph
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.dtypes import jax_dtype
from jax_backend.interpreter import Array, Start, run_graph
from jax_backend.ops._shared import precision
from jax_backend.program_store import ProgramStore, loaded_or_made, program_key
from jax_backend.types import Device

_KEY_WORDS: Final = 4
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)


class Packer:
    """Layout of a program's pack: scalars, then traced starts, then the random state.

    Floats up to 32 bits travel as f32 and ints up to 32 bits as one word each; 64-bit values take two words.
    """

    def __init__(self, slots: Sequence[ScalarSlot], num_starts: int, uses_random: bool) -> None:
        self._slots = tuple(slots)
        self._num_starts = num_starts
        self._uses_random = uses_random
        formats = [_format(slot.dtype) for slot in slots]
        self._layout = struct.Struct("<" + "".join(formats) + "i" * num_starts + "I" * (_KEY_WORDS * uses_random))
        self._converters = [_converter(slot) for slot in slots]
        self.num_words: Final = self._layout.size // 4

    def pack(self, scalars: Sequence[ScalarIr], starts: Sequence[int], key: Sequence[int]) -> np.ndarray:
        """The words of one call, as uint32 (num_words,)."""
        numbers = [make(s.value) for make, s in zip(self._converters, scalars, strict=True)]
        try:
            packed = self._layout.pack(*numbers, *starts, *key)
        except OverflowError:  # beyond the range of f32: rounds to infinity
            numbers = [_to_f32(n) if f == "f" else n for n, f in zip(numbers, self._formats(), strict=True)]
            packed = self._layout.pack(*numbers, *starts, *key)
        return np.frombuffer(packed, np.uint32)

    def unpack(self, words: Array) -> tuple[list[Array], list[Array], Array | None]:
        """The scalars in their slots' dtypes, the starts as int32, and the random state, while tracing."""
        place = 0
        scalars: list[Array] = []
        for slot, form in zip(self._slots, self._formats(), strict=True):
            width = 2 if form in "dqQ" else 1
            scalars.append(_decode([_word(words, place + n) for n in range(width)], form, slot.dtype))
            place += width
        starts = [_word(words, place + n).astype(jnp.int32) for n in range(self._num_starts)]
        place += self._num_starts
        key = jax.lax.slice(words, (place,), (self.num_words,)) if self._uses_random else None
        return scalars, starts, key

    def _formats(self) -> list[str]:
        return [_format(slot.dtype) for slot in self._slots]


def _format(dtype: DType) -> str:
    if dtype.is_float:
        return "d" if dtype is F64 else "f"
    if dtype.is_bool:
        return "I"
    return {I64: "q", U64: "Q"}.get(dtype) or ("i" if dtype.is_signed else "I")  # type: ignore[arg-type]


def _converter(slot: ScalarSlot) -> Callable[[Number], Number]:
    if slot.convert is convert and slot.dtype.is_float:
        return float
    return lambda value: slot.convert(value, slot.dtype)


def _to_f32(value: Number) -> float:
    return float(value) if abs(value) <= _FLOAT_MAX or value != value else float("inf") if value > 0 else float("-inf")


def _word(words: Array, place: int) -> Array:
    # `words[place]` traces a clamped dynamic slice, which costs 0.4 ms of tracing and twice the code.
    return jax.lax.squeeze(jax.lax.slice(words, (place,), (place + 1,)), (0,))


def _decode(words: Sequence[Array], form: str, dtype: DType) -> Array:
    target = jax_dtype(dtype)
    if form in "dqQ":
        wide = words[0].astype(jnp.uint64) | (words[1].astype(jnp.uint64) << jnp.uint64(32))
        return jax.lax.bitcast_convert_type(wide, target)
    if form == "f":
        return jax.lax.bitcast_convert_type(words[0], jnp.float32).astype(target)
    if dtype.is_bool:
        return words[0] != jnp.uint32(0)
    return words[0].astype(target)


ArrayType: TypeAlias = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of an array."""


class Config(NamedTuple):
    """What decides a program's code beside its graph, and where it is kept."""

    custom_ops: CustomOpRegistry
    precision: jax.lax.Precision
    store: ProgramStore | None


class Executable:
    """A compiled program, read from disk where it was compiled before.

    `outputs` are the values it returns, `traced` says which slice starts are arguments (the others have the values
    `starts`), `donated` the positions of the inputs whose buffers it may reuse.
    """

    __slots__ = (
        "compile_s",
        "compiled",
        "donated",
        "from_disk",
        "graph",
        "input_types",
        "new_bytes",
        "output_types",
        "outputs",
        "packer",
        "reason",
        "size_bytes",
        "starts",
        "traced",
    )

    def __init__(
        self,
        graph: RelativeGraph,
        device: Device,
        starts: tuple[int, ...],
        traced: tuple[bool, ...],
        donated: tuple[int, ...],
        config: Config,
    ) -> None:
        self.graph: Final = graph
        self.outputs: Final = frozenset(graph.outputs)
        self.starts: Final = starts
        self.traced: Final = traced
        self.packer: Final = Packer(graph.scalars, sum(traced), graph.num_random > 0)
        self.donated: Final = usable_donations(graph, donated)
        key = config.store and program_key(graph, starts, traced, self.donated, device, config.precision)

        def compiled() -> jax.stages.Compiled:
            function = program_function(graph, self.packer, starts, traced, config.custom_ops)
            with precision(config.precision):
                return compile_for(function, abstract_arguments(graph, self.packer, device), self.donated, device)

        tensors = graph.tensors()
        self.input_types: Final = [array_type(tensors[value]) for value in graph.inputs]
        self.output_types: Final = [array_type(tensors[value]) for value in graph.outputs]
        made, from_disk = loaded_or_made(config.store, key, device, compiled)
        self.compiled: Final = made
        self.from_disk: Final = from_disk
        memory = self.compiled.memory_analysis()
        self.size_bytes: Final = _size(memory, "generated_code")
        self.new_bytes: Final = _size(memory, "output") - _size(memory, "alias") + _size(memory, "temp")
        """Bytes that a call takes beyond its inputs; 0 where the backend does not say."""
        self.reason = ""
        """Why it was made, and how long that took: whoever made it says so."""
        self.compile_s = 0.0

    def __call__(self, inputs: Sequence[Array], pack: np.ndarray | None) -> Sequence[Array]:
        """Run. Returns the outputs in the order of `graph.outputs`; does not wait for them."""
        return self.compiled(*inputs) if pack is None else self.compiled(*inputs, pack)

    def serves(self, outputs: frozenset[int], starts: tuple[int, ...]) -> bool:
        """Whether this program returns `outputs` and holds for the slice starts `starts`."""
        if not outputs <= self.outputs:
            return False
        if starts == self.starts:
            return True
        return all(t or a == b for t, a, b in zip(self.traced, self.starts, starts, strict=True))


def _size(memory: object, part: str) -> int:
    return int(getattr(memory, f"{part}_size_in_bytes", 0) or 0)


def program_function(
    graph: RelativeGraph,
    packer: Packer,
    starts: tuple[int, ...],
    traced: tuple[bool, ...],
    custom_ops: CustomOpRegistry,
) -> Callable[..., tuple[Array, ...]]:
    """The function `(*inputs, pack) -> outputs` of a graph; there is no pack where it would be empty."""

    def program(*arguments: Array) -> tuple[Array, ...]:
        inputs = arguments[: len(graph.inputs)]
        scalars: list[Array] = []
        moving: list[Array] = []
        key: Array | None = None
        if packer.num_words:
            scalars, moving, key = packer.unpack(arguments[-1])
        given = iter(moving)
        all_starts: list[Start] = [next(given) if t else s for t, s in zip(traced, starts, strict=True)]
        return run_graph(graph, inputs, scalars, all_starts, key, custom_ops)

    return program


def abstract_arguments(graph: RelativeGraph, packer: Packer, device: Device) -> list[jax.ShapeDtypeStruct]:
    """The avals of a program's arguments, placed on `device`."""
    placed = jax.sharding.SingleDeviceSharding(device)
    tensors = graph.tensors()
    found = [abstract_value(tensors[value], placed) for value in graph.inputs]
    if packer.num_words:
        found.append(jax.ShapeDtypeStruct((packer.num_words,), jnp.uint32, sharding=placed))
    return found


def array_type(tensor: Any) -> ArrayType:
    """Shape and dtype of the array of a tensor."""
    aval = abstract_value(tensor, None)
    return aval.shape, aval.dtype


def abstract_value(tensor: Any, sharding: jax.sharding.Sharding | None) -> jax.ShapeDtypeStruct:
    """The aval of a tensor; a quantized one is a flat uint8 array of its bytes."""
    if tensor.dtype.is_quantized:
        from jax_backend.ops.quantize import storage_size

        return jax.ShapeDtypeStruct((storage_size(tensor),), jnp.uint8, sharding=sharding)
    return jax.ShapeDtypeStruct(tensor.shape.dims, jax_dtype(tensor.dtype), sharding=sharding)


def usable_donations(graph: RelativeGraph, allowed: Sequence[int]) -> tuple[int, ...]:
    """Of the input positions in `allowed`, those whose buffer some output can take: equal shape and dtype, one each.

    XLA only warns about the others, and their callers would copy shared buffers for nothing.
    """
    tensors = graph.tensors()

    def layout(value: int) -> tuple[Any, ...]:
        return tensors[value].shape.dims, jax_dtype(tensors[value].dtype)

    passed_through = set(graph.inputs)
    free = [layout(v) for v in graph.outputs if v not in passed_through and not tensors[v].dtype.is_quantized]
    usable: list[int] = []
    for position in allowed:
        value = graph.inputs[position]
        if not tensors[value].dtype.is_quantized and layout(value) in free:
            free.remove(layout(value))
            usable.append(position)
    return tuple(usable)


def compile_for(
    function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], donated: Sequence[int], device: Device
) -> jax.stages.Compiled:
    """Trace, lower and compile `function` for `device`."""
    with jax.enable_x64(True), jax.default_device(device):
        jitted = jax.jit(function, donate_argnums=tuple(donated), keep_unused=True)
        return jitted.lower(*arguments).compile()
