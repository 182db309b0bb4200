"""How attention gets by without all its scores at once, and when it leaves the work to cuDNN."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from jax_backend.lowering import lowering_of
from jax_backend.ops import attention as module
from tests.cases.attention import BIAS, HIDDEN, attend, qkv
from tests.opcase import OpCase
from tests.reference.attention import attention as reference

ALL = attend("all", qkv(), HIDDEN, BIAS, scale=0.4, softcap=1.5, is_causal=True)
SHARED = attend("shared", qkv(heads=6), None, None, is_causal=True)


def run(case: OpCase, arrays: list[Any]) -> Any:
    """The lowering on the tensors of a row, with its scalars."""
    given = iter(arrays)
    operands = [next(given) if tensor else None for tensor in tensors(case.op)]
    scalars = [s and jnp.float32(s.value) for s in (case.op.options.scale, case.op.options.softcap)]
    return lowering_of(ir.Attention)(case.op, *operands, *scalars)


def tensors(op: ir.Attention) -> list[ir.TensorIr | None]:
    return [op.query, op.key, op.value, op.mask, op.attn_bias]


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("case", [ALL, SHARED], ids=str)
def test_blocks_of_queries_give_the_same(case: OpCase, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores_of_a_query = int(np.prod(case.op.query.shape.dims[:2])) * case.op.key.shape.dims[2]
    monkeypatch.setattr(module, "SCORE_LIMIT", block * scores_of_a_query)
    out = run(case, [jnp.asarray(x.array) for x in case.inputs])
    np.testing.assert_allclose(out, case.want[0].array, rtol=2e-6, atol=1e-6)


def test_gradient_goes_through_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [x.array.astype(np.float64) if x.dtype.is_float else x.array for x in ALL.inputs]

    def loss(query: Any) -> Any:
        return jnp.sin(run(ALL, [query, *map(jnp.asarray, arrays[1:])])).sum()

    monkeypatch.setattr(module, "SCORE_LIMIT", 1)
    gradient = jax.grad(loss)(jnp.asarray(arrays[0]))
    options = {"scale": float(np.float32(0.4)), "softcap": 1.5, "causal": True}
    for place in [(0, 0, 0, 0), (1, 1, 2, 6), (0, 1, 1, 3)]:
        step = np.zeros_like(arrays[0])
        step[place] = 1e-6
        high, low = (np.sin(reference(arrays[0] + s, *arrays[1:], **options)).sum() for s in (step, -step))
        np.testing.assert_allclose(gradient[place], (high - low) / 2e-6, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("differentiate", [False, True])
def test_long_sequence_never_holds_all_scores(differentiate: bool) -> None:
    dims = (1, 2, 32_768, 8)
    tensor = [ir.tensor(n, dims, ir.F32) for n in range(4)]
    op = ir.Attention(*tensor[:3], None, None, ir.AttentionOptions(None, None, True), tensor[3])

    def forward(q: Any, k: Any, v: Any) -> Any:
        return lowering_of(ir.Attention)(op, q, k, v, None, None, None, None)

    function = jax.grad(lambda *x: forward(*x).sum()) if differentiate else forward
    operands = [jax.ShapeDtypeStruct(dims, jnp.float32)] * 3
    memory = jax.jit(function).lower(*operands).compile().memory_analysis()
    all_scores_bytes = 4 * 2 * dims[2] ** 2
    assert memory.temp_size_in_bytes < all_scores_bytes / 4


def half(
    dtype: ir.DType = ir.BF16,
    *,
    queries: int = 2048,
    keys: int = 2048,
    width: int = 32,
    value_width: int = 32,
    is_causal: bool = False,
) -> ir.Attention:
    """Attention that cuDNN serves, but for what is given."""
    shapes = [(2, 4, queries, width), (2, 4, keys, width), (2, 4, keys, value_width), (2, 4, queries, value_width)]
    q, k, v, out = (ir.tensor(n, dims, dtype) for n, dims in enumerate(shapes))
    return ir.Attention(q, k, v, None, None, ir.AttentionOptions(None, None, is_causal), out)


@pytest.mark.parametrize(
    ("op", "fits"),
    [
        (half(), True),
        (half(ir.F16), True),
        (half(is_causal=True), True),
        (half(keys=4096), True),
        (half(keys=4096, is_causal=True), False),
        (half(ir.F32), False),
        (half(width=36, value_width=36), False),
        (half(width=256, value_width=256), False),
        (half(value_width=64), False),
        (half(keys=0), False),
        (half(keys=2047), False),
        (half(queries=2), False),
    ],
)
def test_cudnn_serves_where_it_means_the_same_and_pays(op: ir.Attention, fits: bool) -> None:
    assert module._suits_cudnn(op) is fits


def test_cudnn_is_for_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU in the machine the fused kernel is traced, and yet code for the CPU is the plain form."""
    monkeypatch.setattr(module, "_has_cudnn", lambda: True)
    monkeypatch.setattr(module, "FUSED_FROM", 1)
    monkeypatch.setattr(module, "_fused_attention", lambda q, k, v, *, is_causal: jnp.full_like(q, 7.0))
    op = half(queries=64, keys=64)
    rows = [jnp.ones(t.shape.dims, jnp.bfloat16) for t in (op.query, op.key, op.value)]
    fused_is_a_branch = jax.jit(lambda *x: lowering_of(ir.Attention)(op, *x, None, None, None, None))
    np.testing.assert_array_equal(fused_is_a_branch(*rows), np.ones(op.out.shape.dims))
    exported = jax.export.export(fused_is_a_branch, platforms=["cuda"])(*rows)
    assert "7.0" in exported.mlir_module()
