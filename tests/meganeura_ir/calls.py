"""Calls of every builder method, and a small graph for every kind."""

from collections.abc import Callable

from ir.meganeura import Graph, NodeId, TensorType, ops
from ir.op import Op


def x(*shape: int) -> Callable[[Graph], NodeId]:
    """An input of this shape."""
    return lambda g: g.input("x", shape)


def u(*shape: int) -> Callable[[Graph], NodeId]:
    """An input of indices."""
    return lambda g: g.input_u32("u", shape)


class Call:
    """A method with operands to be made, and plain arguments."""

    def __init__(self, method: str, *arguments: object) -> None:
        self.method, self.arguments = method, arguments

    def __call__(self, g: Graph) -> NodeId:
        return getattr(g, self.method)(*(a(g) if callable(a) else a for a in self.arguments))


GROUPS = (2, 4, 3, 2, 1e-5)
"""batch, channels, spatial, groups, eps."""

HEADS = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}

MADE = [
    (Call("input", "x", [2, 3]), 'Input { name: "x" }', "F32<[2, 3]>"),
    (Call("input_u32", "x", [2]), 'Input { name: "x" }', "U32<[2]>"),
    (Call("parameter", "w", []), 'Parameter { name: "w" }', "F32<[]>"),
    (Call("constant", [1.0, 0.5], [2, 1]), "Constant { data: [1.0, 0.5] }", "F32<[2, 1]>"),
    (Call("constant", [], [0]), "Constant { data: [] }", "F32<[0]>"),
    (Call("scalar", 42.0), "Constant { data: [42.0] }", "F32<[1]>"),
    (Call("full", 0.1, [2, 2]), "Constant { data: [0.1, 0.1, 0.1, 0.1] }", "F32<[2, 2]>"),
    (Call("matmul", x(2, 3), x(3, 5)), "MatMul", "F32<[2, 5]>"),
    (Call("matmul_at", x(3, 2), x(3, 5)), "MatMulAT", "F32<[2, 5]>"),
    (Call("matmul_bt", x(2, 3), x(5, 3)), "MatMulBT", "F32<[2, 5]>"),
    (Call("add", x(2, 3), x(2, 3)), "Add", "F32<[2, 3]>"),
    (Call("mul", x(2), x(2)), "Mul", "F32<[2]>"),
    (Call("greater", x(2), x(2)), "Greater", "F32<[2]>"),
    (Call("bias_add", x(2, 3), x(3)), "BiasAdd", "F32<[2, 3]>"),
    (Call("broadcast_add", x(2, 3), x(1, 3)), "BiasAdd", "F32<[2, 3]>"),
    *[
        (Call(method, x(2, 3)), kind, "F32<[2, 3]>")
        for method, kind in {
            "relu": "Relu",
            "sigmoid": "Sigmoid",
            "tanh": "Tanh",
            "neg": "Neg",
            "abs": "Abs",
            "log": "Log",
            "recip": "Recip",
            "silu": "Silu",
            "gelu": "Gelu",
            "softmax": "Softmax",
            "log_softmax": "LogSoftmax",
        }.items()
    ],
    (Call("reshape", x(2, 6), [3, 4]), "Identity", "F32<[3, 4]>"),
    (Call("transpose", x(2, 3)), "Transpose", "F32<[3, 2]>"),
    (Call("div", x(2), x(2)), "Mul", "F32<[2]>"),
    (Call("mse_loss", x(2), x(2)), "MeanAll", "F32<[1]>"),
    (Call("l1_loss", x(2), x(2)), "MeanAll", "F32<[1]>"),
    (Call("sum_all", x(2, 3)), "SumAll", "F32<[1]>"),
    (Call("mean_all", x(2, 3)), "MeanAll", "F32<[1]>"),
    (Call("sum_rows", x(2, 3), TensorType.f32([1, 3])), "SumRows", "F32<[1, 3]>"),
    (Call("swiglu", x(2, 3), x(2, 3)), "SwiGLU", "F32<[2, 3]>"),
    (Call("swiglu_concat", x(2, 6)), "SwiGLUConcat", "F32<[2, 3]>"),
    (Call("swiglu_grad_gate", x(2), x(2), x(2)), "SwiGLUGradGate", "F32<[2]>"),
    (Call("swiglu_grad_up", x(2), x(2)), "SwiGLUGradUp", "F32<[2]>"),
    (Call("silu_grad", x(2), x(2)), "SiluGrad", "F32<[2]>"),
    (Call("rms_norm", x(2, 3), x(3), 1e-5), "RmsNorm { eps: 1e-5 }", "F32<[2, 3]>"),
    (Call("rms_norm_grad_w", x(2, 3), x(2, 3), x(3), 1e-6), "RmsNormGradW { eps: 1e-6 }", "F32<[3]>"),
    (Call("rms_norm_grad_x", x(2, 3), x(2, 3), x(3), 1e-6), "RmsNormGradX { eps: 1e-6 }", "F32<[2, 3]>"),
    (Call("layer_norm", x(2, 3), x(3), x(3), 1e-5), "LayerNorm { eps: 1e-5 }", "F32<[2, 3]>"),
    (Call("layer_norm_grad_wb", x(2, 3), x(2, 3), x(3), 1e-6), "LayerNormGradWB { eps: 1e-6 }", "F32<[3]>"),
    (Call("layer_norm_grad_x", x(2, 3), x(2, 3), x(3), 1e-6), "LayerNormGradX { eps: 1e-6 }", "F32<[2, 3]>"),
    (Call("embedding", u(3), x(5, 2)), "Embedding", "F32<[3, 2]>"),
    (Call("scatter_add", u(3), x(3, 2), 7), "ScatterAdd { vocab_size: 7 }", "F32<[7, 2]>"),
    (Call("rope", x(3, 8), 1e4, 4), "RoPE { theta: 10000.0, pos_offset: 0, head_dim: 4 }", "F32<[3, 8]>"),
    (
        Call("rope_with_offset", x(3, 8), 1e4, 5, 4),
        "RoPE { theta: 10000.0, pos_offset: 5, head_dim: 4 }",
        "F32<[3, 8]>",
    ),
    (
        Call("rope_dynamic_offset", x(3, 8), 1e4, u(1), 4),
        "RoPE { theta: 10000.0, pos_offset: 0, head_dim: 4 }",
        "F32<[3, 8]>",
    ),
    (Call("rope_grad", x(3, 8), 1e4, 5, 4), "RoPEGrad { theta: 10000.0, pos_offset: 5, head_dim: 4 }", "F32<[3, 8]>"),
    *[
        (
            Call(method, x(3, 8), x(3, 4), x(3, 4), 2, 1, 4, *extra),
            f"{kind} {{ num_heads: 2, num_kv_heads: 1, head_dim: 4{shown} }}",
            "F32<[3, 8]>",
        )
        for method, kind, extra, shown in [
            ("causal_attention", "CausalAttention", (), ""),
            ("full_attention", "FullAttention", (), ""),
            ("sliding_window_attention", "SlidingWindowAttention", (2,), ", window_size: 2"),
            ("multi_head_attn", "MultiHeadAttn", (False,), ", is_cross: false"),
        ]
    ],
    (
        Call("cross_attention", x(3, 8), x(5, 4), x(5, 4), 2, 1, 4),
        "CrossAttention { num_heads: 2, num_kv_heads: 1, head_dim: 4 }",
        "F32<[3, 8]>",
    ),
    (Call("cache_write", x(1, 4), x(5, 4), u(1)), "CacheWrite", "F32<[5, 4]>"),
    (
        Call("cached_attention", x(1, 8), x(5, 4), x(5, 4), u(1), 2, 1, 4),
        "CachedAttention { num_heads: 2, num_kv_heads: 1, head_dim: 4 }",
        "F32<[1, 8]>",
    ),
    (Call("cross_entropy_loss", x(2, 3), x(2, 3)), "CrossEntropyLoss", "F32<[1]>"),
    (Call("bce_loss", x(7), x(7)), "BceLoss", "F32<[1]>"),
    (
        Call("group_norm", x(24), x(4), x(4), *GROUPS),
        "GroupNorm { num_groups: 2, eps: 1e-5, channels: 4, spatial: 3 }",
        "F32<[24]>",
    ),
    (
        Call("group_norm_grad_input", x(24), x(24), x(4), *GROUPS),
        "GroupNormGradInput { num_groups: 2, eps: 1e-5, channels: 4, spatial: 3 }",
        "F32<[24]>",
    ),
    (
        Call("group_norm_grad_weight_bias", x(24), x(24), *GROUPS[1:]),
        "GroupNormGradWeightBias { num_groups: 2, eps: 1e-5, channels: 4, spatial: 3 }",
        "F32<[8]>",
    ),
    (Call("concat", x(12), x(30), 2, 2, 5, 3), "Concat { channels_a: 2, channels_b: 5, spatial: 3 }", "F32<[42]>"),
    (Call("split_a", x(42), 2, 2, 5, 3), "SplitA { channels_a: 2, channels_b: 5, spatial: 3 }", "F32<[12]>"),
    (Call("split_b", x(42), 2, 2, 5, 3), "SplitB { channels_a: 2, channels_b: 5, spatial: 3 }", "F32<[30]>"),
    (Call("upsample_2x", x(24), 2, 2, 3, 2), "Upsample2x { channels: 2, in_h: 3, in_w: 2 }", "F32<[96]>"),
    (Call("upsample_2x_grad", x(96), 2, 2, 3, 2), "Upsample2xGrad { channels: 2, in_h: 3, in_w: 2 }", "F32<[24]>"),
    (
        Call("conv2d", x(64), x(54), 2, 2, 4, 4, 3, 3, 3, 1, 1),
        "Conv2d { in_channels: 2, in_h: 4, in_w: 4, out_channels: 3, kernel_h: 3, kernel_w: 3, stride: 1, "
        "padding_h: 1, padding_w: 1 }",
        "F32<[96]>",
    ),
    (
        Call("conv2d_hw", x(40), x(18), 1, 2, 5, 4, 3, 3, 1, 2, 1, 0),
        "Conv2d { in_channels: 2, in_h: 5, in_w: 4, out_channels: 3, kernel_h: 3, kernel_w: 1, stride: 2, "
        "padding_h: 1, padding_w: 0 }",
        "F32<[18]>",
    ),
    (
        Call("conv2d_grad_input", x(18), x(18), 1, 2, 5, 4, 3, 3, 1, 2, 1, 0),
        "Conv2dGradInput { in_channels: 2, in_h: 5, in_w: 4, out_channels: 3, kernel_h: 3, kernel_w: 1, stride: 2, "
        "padding_h: 1, padding_w: 0 }",
        "F32<[40]>",
    ),
    (
        Call("conv2d_grad_weight", x(18), x(40), 2, 5, 4, 3, 3, 1, 2, 1, 0),
        "Conv2dGradWeight { in_channels: 2, in_h: 5, in_w: 4, out_channels: 3, kernel_h: 3, kernel_w: 1, stride: 2, "
        "padding_h: 1, padding_w: 0 }",
        "F32<[18]>",
    ),
    (
        Call("max_pool_2d", x(40), 1, 2, 5, 4, 3, 2, 2, 1),
        "MaxPool2d { channels: 2, in_h: 5, in_w: 4, kernel_h: 3, kernel_w: 2, stride: 2, padding: 1 }",
        "F32<[18]>",
    ),
    (Call("global_avg_pool", x(48), 1, 3, 16), "GlobalAvgPool { channels: 3, spatial: 16 }", "F32<[1, 3]>"),
]
"""A call, the op that it appends as Rust prints it, and the type of its result."""


class Raw:
    """A node of a kind without a method."""

    def __init__(self, kind: type[Op], *operands: Callable[[Graph], NodeId], **attributes: object) -> None:
        self.kind, self.operands, self.attributes = kind, operands, attributes

    def __call__(self, g: Graph) -> NodeId:
        return g.append(self.kind, [operand(g) for operand in self.operands], **self.attributes)


def _declared(kind: type[Op], shape: list[int], **attributes: object) -> Callable[[Graph], NodeId]:
    """A node whose type nothing decides, which reads one input."""
    return lambda g: g.append(kind, [x(2, 3)(g)], TensorType.f32(shape), **attributes)


def _attention_grad(kind: type[Op], like: int) -> Callable[[Graph], NodeId]:
    def made(g: Graph) -> NodeId:
        q, k, v = (g.input(name, shape) for name, shape in (("q", [3, 8]), ("k", [5, 4]), ("v", [5, 4])))
        forward = g.multi_head_attn(q, k, v, *HEADS.values(), True)
        inputs = [g.input("g", [3, 8]), q, k, v]
        return g.append(kind, inputs, g.ty(inputs[like]), fwd_node=forward, **HEADS, is_cross=True)

    return made


WITHOUT_METHOD: list[Callable[[Graph], NodeId]] = [
    Raw(ops.FusedMatMulAdd, x(2, 3), x(3, 5), x(2, 5)),
    Raw(ops.FusedMatMulATAdd, x(3, 2), x(3, 5), x(2, 5)),
    Raw(ops.FusedMatMulBTAdd, x(2, 3), x(5, 3), x(2, 5)),
    Raw(ops.FusedRmsNormMatMul, x(2, 3), x(3), x(3, 5), eps=1e-5),
    Raw(ops.CausalAttentionRoPE, x(3, 8), x(3, 4), x(3, 4), **HEADS, rope_theta=1e4),
    Raw(ops.GroupNormSilu, x(24), x(4), x(4), num_groups=2, eps=1e-5, channels=4, spatial=3),
    Raw(ops.SwiGLUConcatGrad, x(2, 3), x(2, 6)),
    _attention_grad(ops.MultiHeadAttnGradQ, 1),
    _attention_grad(ops.MultiHeadAttnGradK, 2),
    _attention_grad(ops.MultiHeadAttnGradV, 3),
    _declared(ops.GlobalAvgPoolGrad, [24], channels=3, spatial=4),
    _declared(ops.Nop, [2, 3]),
]


def every_kind() -> dict[str, Graph]:
    """A graph per kind that ends with a node of it."""
    graphs: dict[str, Graph] = {}
    for call in [*(row[0] for row in MADE), *WITHOUT_METHOD]:
        graph = Graph()
        graph.set_outputs([call(graph)])
        graphs[graph.nodes()[-1].op.kind] = graph
    return graphs
