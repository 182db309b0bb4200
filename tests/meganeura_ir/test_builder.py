"""Every builder method: what it appends, and what it refuses with which text."""

import inspect
import re

import ml_dtypes
import numpy as np
import pytest

from ir.errors import DTypeError, IrError, ShapeError, StreamError, WireError
from ir.meganeura import DType, Graph, TensorType
from ir.meganeura.build import DenseBuilder, ImageBuilder, SequenceBuilder
from ir.meganeura.ops import BiasAdd, Constant, MatMul, Relu, RmsNorm
from tests.meganeura_ir.calls import GROUPS, MADE, Call, u, x


@pytest.mark.parametrize(("call", "op", "ty"), MADE, ids=[f"{n}-{row[0].method}" for n, row in enumerate(MADE)])
def test_a_method_appends_its_node(call: Call, op: str, ty: str) -> None:
    g = Graph()
    id = call(g)
    assert id == len(g.nodes()) - 1
    shown = str(g).splitlines()[id]
    assert shown.startswith(f"%{id} = {op}(")
    assert shown.endswith(f" : {ty}")
    assert shown.count("%") == 1 + len(g.node(id).inputs)


def test_every_method_has_a_row() -> None:
    methods = {
        name
        for builder in (DenseBuilder, SequenceBuilder, ImageBuilder)
        for name, value in vars(builder).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert {row[0].method for row in MADE} == methods


@pytest.mark.parametrize(
    ("method", "kinds"), [("div", "Recip Mul"), ("mse_loss", "Neg Add Mul MeanAll"), ("l1_loss", "Neg Add Abs MeanAll")]
)
def test_the_methods_that_append_several_nodes(method: str, kinds: str) -> None:
    g = Graph()
    Call(method, x(2, 3), x(2, 3))(g)
    assert [n.op.kind for n in g.nodes()] == ["Input", "Input", *kinds.split()]


ATTENTIONS = [("causal_attention", ()), ("full_attention", ()), ("sliding_window_attention", (2,))]
BOTH = [*ATTENTIONS, ("cross_attention", ()), ("multi_head_attn", (True,))]
HEADS = (2, 1, 4)

REFUSED = [
    (Call("constant", [1.0], [2]), ShapeError, "Constant.data: expected 2 elements for F32<[2]>, got 1"),
    (Call("matmul", x(2, 3, 1), x(3, 2)), ShapeError, "MatMul.a: matmul requires 2D tensors: expected 2 axes, got 3"),
    (Call("matmul", x(2, 3), x(3)), ShapeError, "MatMul.b: matmul requires 2D tensors: expected 2 axes, got 1"),
    (
        Call("matmul", x(4, 3), x(5, 2)),
        ShapeError,
        "MatMul.b: matmul inner dimensions must match: expected 3, got 5 (a t0 f32[4,3], b t1 f32[5,2])",
    ),
    (Call("matmul_at", x(2), x(3, 5)), ShapeError, "MatMulAT.a: MatMulAT requires 2D tensors: expected 2 axes, got 1"),
    (
        Call("matmul_at", x(2, 3), x(3, 5)),
        ShapeError,
        "MatMulAT.b: MatMulAT: K dimensions must match: expected 2, got 3",
    ),
    (Call("matmul_bt", x(2, 3), x(3)), ShapeError, "MatMulBT.b: MatMulBT requires 2D tensors: expected 2 axes, got 1"),
    (
        Call("matmul_bt", x(2, 3), x(3, 5)),
        ShapeError,
        "MatMulBT.b: MatMulBT: K dimensions must match: expected 3, got 5",
    ),
    (Call("add", x(4, 3), x(4, 5)), ShapeError, "Add.b: add requires matching shapes: expected [4, 3], got [4, 5]"),
    (Call("mul", x(4, 3), x(3)), ShapeError, "Mul.b: mul requires matching shapes: expected [4, 3], got [3]"),
    (Call("greater", x(2), x(3)), ShapeError, "Greater.b: greater requires matching shapes: expected [2], got [3]"),
    (Call("bias_add", x(8), x(8)), ShapeError, "BiasAdd.a: bias_add requires 2D input: expected 2 axes, got 1"),
    (Call("bias_add", x(4, 8), x(4, 8)), ShapeError, "BiasAdd.bias: bias must be 1D: expected 1 axes, got 2"),
    (Call("bias_add", x(4, 8), x(4)), ShapeError, "BiasAdd.bias: bias size must match last dim: expected 8, got 4"),
    (Call("broadcast_add", x(8), x(1, 8)), ShapeError, "BiasAdd.a: broadcast_add requires 2D input"),
    (Call("broadcast_add", x(4, 8), x(8)), ShapeError, "BiasAdd.bias: broadcast_add requires 2D addend"),
    (
        Call("broadcast_add", x(4, 8), x(4, 8)),
        ShapeError,
        "BiasAdd.bias: broadcast_add requires addend with first dim = 1: expected 1, got 4",
    ),
    (Call("broadcast_add", x(4, 8), x(1, 4)), ShapeError, "BiasAdd.bias: broadcast_add requires matching last dim"),
    (
        Call("reshape", x(2, 3), [7]),
        ShapeError,
        "Identity.out: reshape: element count mismatch (6 vs 7): expected 6, got 7",
    ),
    (Call("transpose", x(2, 3, 4)), ShapeError, "Transpose.x: transpose requires 2D tensor: expected 2 axes, got 3"),
    (Call("swiglu_concat", x(4)), ShapeError, "SwiGLUConcat.x: SwiGLUConcat requires 2D input"),
    (Call("swiglu_concat", x(2, 3)), ShapeError, "SwiGLUConcat.x: SwiGLUConcat requires even N: expected 0, got 1"),
    (Call("rms_norm", x(3), x(3), 1e-5), ShapeError, "RmsNorm.x: rms_norm requires 2D input"),
    (Call("rms_norm", x(2, 3), x(1, 3), 1e-5), ShapeError, "RmsNorm.weight: rms_norm weight must be 1D"),
    (Call("rms_norm", x(2, 3), x(2), 1e-5), ShapeError, "RmsNorm.weight: rms_norm weight size must match last dim"),
    (Call("layer_norm", x(3), x(3), x(3), 1e-5), ShapeError, "LayerNorm.x: layer_norm requires 2D input"),
    (Call("layer_norm", x(2, 3), x(1, 3), x(3), 1e-5), ShapeError, "LayerNorm.weight: layer_norm weight must be 1D"),
    (Call("layer_norm", x(2, 3), x(3), x(1, 3), 1e-5), ShapeError, "LayerNorm.bias: layer_norm bias must be 1D"),
    (
        Call("layer_norm", x(2, 3), x(2), x(3), 1e-5),
        ShapeError,
        "LayerNorm.weight: layer_norm weight size must match last dim: expected 3, got 2",
    ),
    (
        Call("layer_norm", x(2, 3), x(3), x(2), 1e-5),
        ShapeError,
        "LayerNorm.bias: layer_norm bias size must match last dim: expected 3, got 2",
    ),
    (
        Call("embedding", x(3), x(5, 2)),
        DTypeError,
        "Embedding.indices: embedding indices must be U32: expected U32, got F32",
    ),
    (Call("embedding", u(1, 3), x(5, 2)), ShapeError, "Embedding.indices: embedding indices must be 1D"),
    (Call("embedding", u(3), x(5)), ShapeError, "Embedding.table: embedding table must be 2D"),
    (Call("scatter_add", u(3), x(3), 7), ShapeError, "ScatterAdd.src: scatter_add requires 2D src"),
    (Call("rope", x(8), 1e4, 4), ShapeError, "RoPE.x: rope requires 2D input"),
    (Call("rope", x(3, 5), 1e4, 5), ShapeError, "RoPE.x: rope requires even last dim: expected 0, got 1"),
    (
        Call("rope", x(3, 8), 1e4, 3),
        ShapeError,
        "RoPE.x: rope: dim must be divisible by head_dim: expected 8 % 3 = 0, got 2",
    ),
    (
        Call("rope", x(3, 1856), 1e4, 132),
        ShapeError,
        "rope: dim must be divisible by head_dim: expected 1856 % 132 = 0, got 8",
    ),
    (Call("rope", x(3, 8), 1e4, 0), ShapeError, "RoPE.x: rope: dim must be divisible by head_dim"),
    (Call("rope", x(3, 6), 1e4, 3), ShapeError, "RoPE.head_dim: rope: head_dim must be even: expected 0, got 1"),
    (Call("rope_dynamic_offset", x(3, 6), 1e4, x(1), 2), DTypeError, "RoPE.offset: expected U32, got F32"),
    *[
        (Call(method, *operands, *HEADS, *extra), ShapeError, text)
        for method, extra in BOTH
        for operands, text in [
            ((x(8), x(3, 4), x(3, 4)), ".q: q must be 2D: expected 2 axes, got 1"),
            ((x(3, 8), x(4), x(3, 4)), ".k: k must be 2D: expected 2 axes, got 1"),
            ((x(3, 8), x(3, 4), x(4)), ".v: v must be 2D: expected 2 axes, got 1"),
            ((x(3, 7), x(3, 4), x(3, 4)), ".q: q dim mismatch: expected 8, got 7"),
            ((x(3, 8), x(3, 5), x(3, 4)), ".k: k dim mismatch: expected 4, got 5"),
            ((x(3, 8), x(3, 4), x(3, 5)), ".v: v dim mismatch: expected 4, got 5"),
        ]
    ],
    *[
        (Call(method, *operands, *HEADS, *extra), ShapeError, text)
        for method, extra in ATTENTIONS
        for operands, text in [
            ((x(3, 8), x(2, 4), x(3, 4)), ".k: k seq must match q seq: expected 3, got 2"),
            ((x(3, 8), x(3, 4), x(2, 4)), ".v: v seq must match q seq: expected 3, got 2"),
        ]
    ],
    *[
        (
            Call(method, x(3, 8), x(5, 4), x(3, 4), *HEADS, *extra),
            ShapeError,
            ".v: v seq must match k seq: expected 5, got 3",
        )
        for method, extra in [("cross_attention", ()), ("multi_head_attn", (True,))]
    ],
    (
        Call("sliding_window_attention", x(3, 8), x(3, 4), x(3, 4), *HEADS, 0),
        ShapeError,
        "SlidingWindowAttention.window_size: window_size must be > 0: got 0",
    ),
    (
        Call("full_attention", x(3, 12), x(3, 8), x(3, 8), 3, 2, 4),
        ShapeError,
        "FullAttention.num_kv_heads: expected a divisor of num_heads=3, got 2",
    ),
    (Call("cache_write", x(4), x(5, 4), u(1)), ShapeError, "CacheWrite.new_kv: new_kv must be 2D"),
    (Call("cache_write", x(2, 4), x(5, 4), u(1)), ShapeError, "new_kv must have seq_len=1: expected 1, got 2"),
    (Call("cache_write", x(1, 4), x(5), u(1)), ShapeError, "CacheWrite.cache: cache must be 2D"),
    (Call("cache_write", x(1, 4), x(5, 3), u(1)), ShapeError, "CacheWrite.new_kv: dim must match: expected 3, got 4"),
    (Call("cache_write", x(1, 4), x(5, 4), x(1)), DTypeError, "CacheWrite.kv_pos: expected U32, got F32"),
    (Call("cache_write", x(1, 4), x(5, 4), u(0)), ShapeError, "CacheWrite.kv_pos: expected at least 1 element"),
    (Call("cached_attention", x(8), x(5, 4), x(5, 4), u(1), *HEADS), ShapeError, "CachedAttention.q: q must be 2D"),
    (
        Call("cached_attention", x(2, 8), x(5, 4), x(5, 4), u(1), *HEADS),
        ShapeError,
        "CachedAttention.q: q must have seq_len=1 for cached attention: expected 1, got 2",
    ),
    (
        Call("cached_attention", x(1, 7), x(5, 4), x(5, 4), u(1), *HEADS),
        ShapeError,
        "CachedAttention.q: q dim mismatch: expected 8, got 7",
    ),
    (
        Call("cached_attention", x(1, 8), x(5, 3), x(5, 4), u(1), *HEADS),
        ShapeError,
        "CachedAttention.k_cache: k_cache dim mismatch: expected 4, got 3",
    ),
    (
        Call("cached_attention", x(1, 8), x(5, 4), x(4, 4), u(1), *HEADS),
        ShapeError,
        "CachedAttention.v_cache: caches must match: expected [5, 4], got [4, 4]",
    ),
    (Call("cross_entropy_loss", x(2, 3), x(2)), ShapeError, "logits and labels must match: expected [2, 3], got [2]"),
    (Call("bce_loss", x(2, 3), x(3, 2)), ShapeError, "BceLoss.labels: pred and labels must match"),
    (Call("softmax", x(3)), ShapeError, "Softmax.x: softmax requires 2D input: expected 2 axes, got 1"),
    (Call("swiglu", x(2, 3), x(2, 2)), ShapeError, "SwiGLU.up: expected 6 elements (as gate), got 4"),
    (
        Call("group_norm", x(25), x(4), x(4), *GROUPS),
        ShapeError,
        "GroupNorm.x: expected a multiple of 12 elements (channels spatial), got 25",
    ),
    (
        Call("group_norm", x(24), x(3), x(4), *GROUPS),
        ShapeError,
        "GroupNorm.weight: expected 4 elements (channels), got 3",
    ),
    (
        Call("group_norm", x(24), x(4), x(4), 2, 4, 3, 3, 1e-5),
        ShapeError,
        "GroupNorm.num_groups: expected a divisor of channels=4, got 3",
    ),
    (
        Call("group_norm_grad_input", x(24), x(24), x(4), 3, *GROUPS[1:]),
        ShapeError,
        "GroupNormGradInput.out: expected 24 elements, as [24], got [36]",
    ),
    (
        Call("conv2d", x(63), x(54), 2, 2, 4, 4, 3, 3, 3, 1, 1),
        ShapeError,
        "Conv2d.x: expected a multiple of 32 elements (in_channels in_h in_w), got 63",
    ),
    (
        Call("conv2d", x(64), x(53), 2, 2, 4, 4, 3, 3, 3, 1, 1),
        ShapeError,
        "Conv2d.kernel: expected 54 elements (out_channels in_channels kernel_h kernel_w), got 53",
    ),
    (
        Call("conv2d", x(64), x(54), 3, 2, 4, 4, 3, 3, 3, 1, 1),
        ShapeError,
        "Conv2d.out: expected 96 elements, as [96], got [144]",
    ),
    (
        Call("conv2d", x(64), x(54), 2, 2, 4, 4, 3, 7, 3, 1, 1),
        ShapeError,
        "Conv2d.kernel_h: expected 1 to 6, the padded size, got 7",
    ),
    (Call("conv2d", x(64), x(54), 2, 2, 4, 4, 3, 3, 3, 0, 1), ShapeError, "Conv2d.stride: expected at least 1, got 0"),
    (
        Call("max_pool_2d", x(40), 1, 2, 5, 4, 3, 5, 2, 0),
        ShapeError,
        "MaxPool2d.kernel_w: expected 1 to 4, the padded size, got 5",
    ),
    (
        Call("concat", x(12), x(29), 2, 2, 5, 3),
        ShapeError,
        "Concat.b: expected 30 elements (N channels_b spatial), got 29",
    ),
    (Call("split_a", x(41), 2, 2, 5, 3), ShapeError, "SplitA.x: expected a multiple of 21 elements"),
    (
        Call("global_avg_pool", x(48), 2, 3, 16),
        ShapeError,
        "GlobalAvgPool.out: expected 3 elements, as [1, 3], got [2, 3]",
    ),
    (Call("tanh", u(3)), DTypeError, "Tanh.x: expected F32, got U32; `input_u32` makes indices, `input` numbers"),
    (
        Call("conv2d", x(64), x(54), 2, -2, 4, 4, 3, 3, 3, 1, 1),
        WireError,
        "Conv2d: expected `int` >= 0 - at `$.in_channels`",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "text"), REFUSED, ids=[f"{n}-{row[0].method}" for n, row in enumerate(REFUSED)]
)
def test_a_method_refuses(call: Call, error: type[IrError], text: str) -> None:
    g = Graph()
    with pytest.raises(error, match=re.escape(text)):
        call(g)
    assert {n.op.kind for n in g.nodes()} <= {"Input"}, "nothing but operands was appended"


def test_an_operand_that_does_not_exist_is_refused() -> None:
    g = Graph()
    g.input("x", [1])
    with pytest.raises(StreamError, match=r"Relu.inputs: node %7 does not exist; this graph has nodes %0 to %0"):
        g.relu(7)
    with pytest.raises(StreamError, match=r"node %-1 does not exist"):
        g.relu(-1)
    with pytest.raises(StreamError, match="node %3 does not exist"):
        g.set_outputs([3])
    with pytest.raises(StreamError, match="node %3 does not exist"):
        g.node(3)


def test_a_raw_node_needs_the_inputs_and_attributes_of_its_kind_and_no_shapes() -> None:
    g = Graph()
    a = g.input("a", [2, 3])
    assert g.node(g.add_raw_node(MatMul, [a, a], TensorType.f32([9]))).ty.shape == (9,)
    with pytest.raises(StreamError, match=r"MatMul.inputs: expected 2 \(a, b\), got 1"):
        g.add_raw_node(MatMul, [a], TensorType.f32([9]))
    with pytest.raises(WireError, match="RmsNorm: object missing required field `eps`"):
        g.add_raw_node(RmsNorm, [a, a], TensorType.f32([9]))
    with pytest.raises(WireError, match="RmsNorm: object contains unknown field `epsilon`"):
        g.add_raw_node(RmsNorm, [a, a], TensorType.f32([9]), eps=1e-5, epsilon=1e-5)
    with pytest.raises(WireError, match=r"RmsNorm: expected `float`, got `str` - at `\$.eps`"):
        g.add_raw_node(RmsNorm, [a, a], TensorType.f32([9]), eps="1e-5")


def test_a_raw_node_takes_the_attributes_of_another() -> None:
    g = Graph()
    a, w = g.input("a", [2, 3]), g.input("w", [3])
    first = g.rms_norm(a, w, 0.25)
    second = g.node(g.add_raw_node(g.op(first), [first, w], g.ty(first)))
    assert (second.inputs, second.op.eps) == ((first, w), 0.25)


def test_a_bias_of_a_raw_node_may_have_any_size_but_0() -> None:
    g = Graph()
    g.append(BiasAdd, [g.input("a", [2, 3, 5]), g.input("b", [4])])
    with pytest.raises(ShapeError, match=r"BiasAdd.bias: expected at least 1 element, got 0"):
        g.append(BiasAdd, [0, g.input("none", [0])])


def test_verify_names_the_node() -> None:
    g = Graph()
    g.add_raw_node(MatMul, [g.input("a", [2, 3]), g.input("b", [4, 5])], TensorType.f32([2, 5]))
    with pytest.raises(ShapeError, match=r"node %2: MatMul.b: matmul inner dimensions must match: expected 3, got 4"):
        g.verify()
    g.replace_node(1, g.op(1), [])
    with pytest.raises(DTypeError, match=r"node %3: Relu.out: expected F32, got U32"):
        wrong_dtype().verify()


def wrong_dtype() -> Graph:
    g = Graph()
    for _ in range(3):
        g.input("x", [2])
    g.add_raw_node(Relu, [0], TensorType.new([2], DType.U32))
    return g


def test_attributes_are_rounded_to_f32() -> None:
    g = Graph()
    made = g.node(g.rms_norm(g.input("a", [2, 3]), g.input("w", [3]), 0.1))
    assert made.op.eps == 0.10000000149011612


def test_a_constant_of_equal_elements_holds_one() -> None:
    g = Graph()
    same, other, negative_zero = (g.op(g.constant(data, [2])) for data in ([0.5, 0.5], [0.5, 0.25], [0.0, -0.0]))
    assert isinstance(same, Constant)
    assert (same.data, list(same.values)) == (b"\0\0\0\x3f", [0.5, 0.5])
    assert isinstance(other, Constant)
    assert (other.is_uniform, list(other.values)) == (False, [0.5, 0.25])
    assert isinstance(negative_zero, Constant)
    assert not negative_zero.is_uniform
    big = g.op(g.full(1.0, [49152, 49152]))
    assert isinstance(big, Constant)
    assert len(big.data) == 4


def test_a_constant_takes_arrays() -> None:
    g = Graph()
    rows = np.arange(6).reshape(2, 3)
    taken = [rows, rows.T.copy().T, rows.astype(np.float32), list(rows.ravel()), (float(n) for n in range(6))]
    taken.append(rows.ravel().astype(ml_dtypes.bfloat16))
    assert {g.op(g.constant(data, [2, 3])).data for data in taken} == {np.arange(6, dtype="<f4").tobytes()}
    with pytest.raises(WireError, match=r"Constant.data: must be real number, not str"):
        g.constant(["1"], [1])
    with pytest.raises(WireError, match=r"Constant.data: must be real number, not list"):
        g.constant([[1.0]], [1])


def test_types_of_the_original() -> None:
    ty = TensorType.f32([32, 784])
    assert (ty.num_elements(), ty.size_bytes(), ty.rank(), str(ty)) == (25088, 100352, 2, "F32<[32, 784]>")
    assert TensorType.f32([]).num_elements() == 1
    assert TensorType.new([2], DType.U32).size_bytes() == 8


def test_the_users_of_a_node() -> None:
    g = Graph.new()
    a = g.input("a", [2])
    twice, once = g.mul(a, a), g.relu(a)
    assert g.uses(a) == [twice, once]
    assert g.uses(once) == []
