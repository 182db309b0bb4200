"""A graph of each kind: which operands it takes, and of which sizes. A row draws; another seed is another case."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ir.meganeura.ops import kinds
from ir.meganeura.types import NodeId, TensorType
from tests.meganeura.making import SIZES, Content, Maker, distribution, normal, positive

Row: TypeAlias = Callable[[Maker], NodeId]

HEAD_DIM: Final = 64
"""The only width of a head that Meganeura's attention kernels compute."""

EPS: Final = (1e-6, 1e-5, 1e-3)


def unary(method: str, content: Content = normal) -> Row:
    return lambda m: getattr(m.graph, method)(m.tensor(*m.shape(), content=content))


def rows_and_columns(method: str) -> Row:
    return lambda m: getattr(m.graph, method)(m.tensor(*m.sizes(2)))


def same_shape(method: str, count: int) -> Row:
    def row(m: Maker) -> NodeId:
        shape = m.shape()
        return getattr(m.graph, method)(*(m.tensor(*shape) for _ in range(count)))

    return row


def leaf(kind: str) -> Row:
    return lambda m: {"Parameter": m.tensor, "Input": m.input, "Constant": m.constant}[kind](*m.shape())


def product(method: str) -> Row:
    def row(m: Maker) -> NodeId:
        rows, inner, columns = m.sizes(3)
        a = (inner, rows) if method == "matmul_at" else (rows, inner)
        b = (columns, inner) if method == "matmul_bt" else (inner, columns)
        return getattr(m.graph, method)(m.tensor(*a), m.tensor(*b))

    return row


def product_and_sum(kind: str) -> Row:
    method = {"FusedMatMulAdd": "matmul", "FusedMatMulATAdd": "matmul_at", "FusedMatMulBTAdd": "matmul_bt"}[kind]

    def row(m: Maker) -> NodeId:
        made = m.graph.op(product(method)(m)).outputs[0]
        a, b = (t.id.value for t in m.graph.op(made.id.value).inputs)
        return m.raw(kinds()[kind], [a, b, m.tensor(*made.shape.dims)], made.shape.dims)

    return row


def bias_add(m: Maker) -> NodeId:
    rows, columns = m.sizes(2)
    if m.pick((True, False)):
        return m.graph.bias_add(m.tensor(rows, columns), m.tensor(columns))
    return m.graph.broadcast_add(m.tensor(rows, columns), m.tensor(1, columns))


def sum_rows(m: Maker) -> NodeId:
    """To [columns]; Meganeura's `differentiate` refuses [1, columns]."""
    rows, columns = m.sizes(2)
    return m.graph.sum_rows(m.tensor(rows, columns), TensorType.f32((columns,)))


def cross_entropy(m: Maker) -> NodeId:
    rows, columns = m.sizes(2)
    return m.graph.cross_entropy_loss(m.tensor(rows, columns), m.input(rows, columns, content=distribution))


def bce(m: Maker) -> NodeId:
    shape = m.shape()
    return m.graph.bce_loss(m.tensor(*shape, content=positive), m.input(*shape, content=positive))


def identity(m: Maker) -> NodeId:
    rows, columns = m.sizes(2)
    return m.graph.reshape(m.tensor(rows, columns), m.pick(((rows * columns,), (columns, rows), (1, rows, columns))))


def deleted(m: Maker) -> NodeId:
    """A deleted node beside one that lives."""
    x = m.tensor(*m.shape())
    m.raw(kinds()["Nop"], [x], m.dims(x))
    return m.graph.neg(x)


def swiglu_concat_grad(m: Maker) -> NodeId:
    rows, columns = m.sizes(2)
    inputs = [m.tensor(rows, columns), m.tensor(rows, 2 * columns)]
    return m.raw(kinds()["SwiGLUConcatGrad"], inputs, (rows, 2 * columns))


def normed(m: Maker) -> tuple[int, int]:
    """Rows and columns. Fewer than five columns may be nearly equal, and rounding decides what is left of them."""
    return m.size(), m.pick([size for size in SIZES if size >= 5])


def norm(method: str, vectors: int) -> Row:
    def row(m: Maker) -> NodeId:
        rows, columns = normed(m)
        operands = [m.tensor(rows, columns), *(m.tensor(columns) for _ in range(vectors))]
        return getattr(m.graph, method)(*operands, m.pick(EPS))

    return row


def norm_grad(method: str) -> Row:
    def row(m: Maker) -> NodeId:
        rows, columns = normed(m)
        operands = m.tensor(rows, columns), m.tensor(rows, columns), m.tensor(columns)
        return getattr(m.graph, method)(*operands, m.pick(EPS))

    return row


def rms_norm_product(m: Maker) -> NodeId:
    rows, inner, columns = m.sizes(3)
    inputs = [m.tensor(rows, inner), m.tensor(inner), m.tensor(inner, columns)]
    return m.raw(kinds()["FusedRmsNormMatMul"], inputs, (rows, columns), eps=m.pick(EPS))


def embedding(m: Maker) -> NodeId:
    count, below, width = m.sizes(3)
    return m.graph.embedding(m.indices(count, below), m.tensor(below, width))


def scatter_add(m: Maker) -> NodeId:
    count, below, width = m.sizes(3)
    return m.graph.scatter_add(m.indices(count, below), m.tensor(count, width), below)


def rotated(m: Maker) -> tuple[NodeId, int]:
    head_dim = 2 * m.number(1, 5)
    return m.tensor(m.size(), head_dim * m.number(1, 3)), head_dim


def rope(m: Maker) -> NodeId:
    x, head_dim = rotated(m)
    theta = m.pick((100.0, 10000.0))
    match m.number(0, 2):
        case 0:
            return m.graph.rope(x, theta, head_dim)
        case 1:
            return m.graph.rope_with_offset(x, theta, m.number(1, 30), head_dim)
        case _:
            return m.graph.rope_dynamic_offset(x, theta, m.indices(1, 30), head_dim)


def rope_grad(m: Maker) -> NodeId:
    x, head_dim = rotated(m)
    return m.graph.rope_grad(x, m.pick((100.0, 10000.0)), m.number(0, 30), head_dim)


class Heads(NamedTuple):
    """How q, k and v are divided."""

    num_heads: int
    num_kv_heads: int
    head_dim: int = HEAD_DIM

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim


HEADS: Final = (Heads(1, 1), Heads(2, 1), Heads(3, 3), Heads(4, 2))


def attention(kind: str, *, cross: bool = False) -> Row:
    """Of 1 to 19 rows: the kernels take 8 at a time."""

    def row(m: Maker) -> NodeId:
        heads, rows = m.pick(HEADS), m.number(1, 19)
        kv_rows = m.number(1, 19) if cross else rows
        q, k, v = m.tensor(rows, heads.width), m.tensor(kv_rows, heads.kv_width), m.tensor(kv_rows, heads.kv_width)
        attributes: dict[str, object] = heads._asdict()
        if kind == "SlidingWindowAttention":
            attributes["window_size"] = m.number(1, 20)
        if kind == "CausalAttentionRoPE":
            attributes["rope_theta"] = 10000.0
        if kind == "MultiHeadAttn":
            attributes["is_cross"] = m.pick((True, False))
        return m.raw(kinds()[kind], [q, k, v], (rows, heads.width), **attributes)

    return row


FORWARD: Final = (
    attention("MultiHeadAttn", cross=True),
    attention("CausalAttention"),
    attention("SlidingWindowAttention"),
    attention("FullAttention"),
)


def attention_grad(kind: str) -> Row:
    """Of one of the attentions that Meganeura differentiates."""

    def row(m: Maker) -> NodeId:
        forward = m.pick(FORWARD)(m)
        q, k, v = (t.id.value for t in m.graph.op(forward).inputs)
        heads = {name: getattr(m.graph.op(forward), name) for name in Heads._fields}
        grad_out = m.tensor(*m.dims(forward))
        like = {"MultiHeadAttnGradQ": q, "MultiHeadAttnGradK": k, "MultiHeadAttnGradV": v}[kind]
        inputs = [grad_out, q, k, v]
        return m.raw(kinds()[kind], inputs, m.dims(like), fwd_node=forward, **heads, is_cross=False)

    return row


class Conv(NamedTuple):
    """A convolution as the builder takes it, without the batch."""

    in_channels: int
    in_h: int
    in_w: int
    out_channels: int
    kernel_h: int
    kernel_w: int
    stride: int
    padding_h: int
    padding_w: int

    def sizes(self, batch: int) -> tuple[int, int, int]:
        """Elements of the input, the kernel and the output."""
        out_h = (self.in_h + 2 * self.padding_h - self.kernel_h) // self.stride + 1
        out_w = (self.in_w + 2 * self.padding_w - self.kernel_w) // self.stride + 1
        return (
            batch * self.in_channels * self.in_h * self.in_w,
            self.out_channels * self.in_channels * self.kernel_h * self.kernel_w,
            batch * self.out_channels * out_h * out_w,
        )


def conv_of(m: Maker) -> Conv:
    """Images of 5 to 9 pixels a side, sometimes 34, of up to 5 channels, sometimes 35.

    With a stride of 1 the padding keeps the size: Meganeura's gradient by the input is wrong for any other.
    """
    height, width = m.pick(((5, 7), (9, 6), (34, 5), (5, 34)))
    channels = m.pick(((1, 2), (3, 5), (5, 3), (2, 35), (35, 2)))
    stride = m.number(1, 3)
    if stride == 1:
        kernel, padding = m.pick((((1, 1), (0, 0)), ((3, 3), (1, 1)), ((3, 1), (1, 0)), ((5, 5), (2, 2))))
    else:
        kernel = m.pick(((1, 1), (3, 3), (3, 1), (2, 3), (5, 5)))
        padding = m.pick(((0, 0), (1, 1), (1, 0), (2, 1)))
    return Conv(channels[0], height, width, channels[1], *kernel, stride, *padding)


def conv2d(m: Maker) -> NodeId:
    conv, batch = conv_of(m), m.number(1, 3)
    image, kernel, _ = conv.sizes(batch)
    return m.graph.conv2d_hw(m.tensor(image), m.tensor(kernel), batch, *conv)


def conv2d_grad_input(m: Maker) -> NodeId:
    conv, batch = conv_of(m), m.number(1, 3)
    _, kernel, out = conv.sizes(batch)
    return m.graph.conv2d_grad_input(m.tensor(out), m.tensor(kernel), batch, *conv)


def conv2d_grad_weight(m: Maker) -> NodeId:
    conv, batch = conv_of(m), m.number(1, 3)
    image, _, out = conv.sizes(batch)
    return m.graph.conv2d_grad_weight(m.tensor(out), m.tensor(image), *conv)


def max_pool(m: Maker) -> NodeId:
    batch, channels = m.number(1, 3), m.number(1, 5)
    height, width = m.pick(((6, 8), (7, 9)))
    kernel, stride, padding = m.pick(((2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0)))
    x = m.tensor(batch * channels * height * width)
    return m.graph.max_pool_2d(x, batch, channels, height, width, kernel, kernel, stride, padding)


def global_avg_pool(m: Maker) -> NodeId:
    batch, channels, spatial = m.number(1, 3), m.number(1, 5), m.size()
    return m.graph.global_avg_pool(m.tensor(batch * channels * spatial), batch, channels, spatial)


def global_avg_pool_grad(m: Maker) -> NodeId:
    batch, channels, spatial = m.number(1, 3), m.number(1, 5), m.size()
    attributes = {"channels": channels, "spatial": spatial}
    grad_out = m.tensor(batch, channels)
    return m.raw(kinds()["GlobalAvgPoolGrad"], [grad_out], (batch * channels * spatial,), **attributes)


class Groups(NamedTuple):
    """A group norm."""

    batch: int
    channels: int
    spatial: int
    num_groups: int
    eps: float

    @property
    def size(self) -> int:
        return self.batch * self.channels * self.spatial


def groups_of(m: Maker) -> Groups:
    num_groups = m.number(1, 3)
    # In smaller groups two elements may be nearly equal, and f32 knows little about their variance.
    return Groups(m.number(1, 3), num_groups * m.number(1, 3), m.pick((11, 35, 300)), num_groups, m.pick(EPS))


def group_norm(m: Maker) -> NodeId:
    made = groups_of(m)
    return m.graph.group_norm(m.tensor(made.size), m.tensor(made.channels), m.tensor(made.channels), *made)


def group_norm_silu(m: Maker) -> NodeId:
    made = groups_of(m)
    operands = [m.tensor(made.size), m.tensor(made.channels), m.tensor(made.channels)]
    attributes = made._asdict()
    del attributes["batch"]
    return m.raw(kinds()["GroupNormSilu"], operands, (made.size,), **attributes)


def group_norm_grad_input(m: Maker) -> NodeId:
    made = groups_of(m)
    operands = m.tensor(made.size), m.tensor(made.size), m.tensor(made.channels)
    return m.graph.group_norm_grad_input(*operands, *made)


def group_norm_grad_weight_bias(m: Maker) -> NodeId:
    made = groups_of(m)
    return m.graph.group_norm_grad_weight_bias(m.tensor(made.size), m.tensor(made.size), *made[1:])


def channels(method: str) -> Row:
    def row(m: Maker) -> NodeId:
        batch, a, b, spatial = m.number(1, 3), m.number(1, 5), m.number(1, 5), m.size()
        if method == "concat":
            operands = [m.tensor(batch * a * spatial), m.tensor(batch * b * spatial)]
        else:
            operands = [m.tensor(batch * (a + b) * spatial)]
        return getattr(m.graph, method)(*operands, batch, a, b, spatial)

    return row


def upsample(method: str, factor: int) -> Row:
    def row(m: Maker) -> NodeId:
        batch, channels, height, width = m.number(1, 3), m.number(1, 5), m.number(1, 7), m.number(1, 7)
        x = m.tensor(batch * channels * height * width * factor)
        return getattr(m.graph, method)(x, batch, channels, height, width)

    return row


def cache_write(m: Maker) -> NodeId:
    rows, width = m.sizes(2)
    return m.graph.cache_write(m.tensor(1, width), m.tensor(rows, width), m.indices(1, rows))


def cached_attention(m: Maker) -> NodeId:
    heads, rows = m.pick(HEADS), m.number(1, 19)
    caches = m.tensor(rows, heads.kv_width), m.tensor(rows, heads.kv_width)
    return m.graph.cached_attention(m.tensor(1, heads.width), *caches, m.indices(1, rows), *heads)


ROWS: Final[dict[str, Row]] = {
    **{kind: leaf(kind) for kind in ("Parameter", "Input", "Constant")},
    "MatMul": product("matmul"),
    "MatMulAT": product("matmul_at"),
    "MatMulBT": product("matmul_bt"),
    "Add": same_shape("add", 2),
    "Mul": same_shape("mul", 2),
    **{kind: unary(kind.lower()) for kind in ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Silu", "Gelu")},
    **{kind: unary(kind.lower(), positive) for kind in ("Log", "Recip")},
    "SumAll": unary("sum_all"),
    "MeanAll": unary("mean_all"),
    "SumRows": sum_rows,
    "Softmax": rows_and_columns("softmax"),
    "LogSoftmax": rows_and_columns("log_softmax"),
    "CrossEntropyLoss": cross_entropy,
    "BceLoss": bce,
    "Greater": same_shape("greater", 2),
    "Transpose": rows_and_columns("transpose"),
    "BiasAdd": bias_add,
    **{kind: product_and_sum(kind) for kind in ("FusedMatMulAdd", "FusedMatMulATAdd", "FusedMatMulBTAdd")},
    "Nop": deleted,
    "Identity": identity,
    "ScatterAdd": scatter_add,
    "SwiGLU": same_shape("swiglu", 2),
    "SwiGLUConcat": lambda m: m.graph.swiglu_concat(m.tensor(m.size(), 2 * m.size())),
    "SwiGLUConcatGrad": swiglu_concat_grad,
    "SwiGLUGradGate": same_shape("swiglu_grad_gate", 3),
    "SwiGLUGradUp": same_shape("swiglu_grad_up", 2),
    "SiluGrad": same_shape("silu_grad", 2),
    "RmsNorm": norm("rms_norm", 1),
    "RmsNormGradW": norm_grad("rms_norm_grad_w"),
    "RmsNormGradX": norm_grad("rms_norm_grad_x"),
    "FusedRmsNormMatMul": rms_norm_product,
    "LayerNorm": norm("layer_norm", 2),
    "LayerNormGradWB": norm_grad("layer_norm_grad_wb"),
    "LayerNormGradX": norm_grad("layer_norm_grad_x"),
    "Embedding": embedding,
    "RoPE": rope,
    "RoPEGrad": rope_grad,
    **{
        kind: attention(kind)
        for kind in ("CausalAttention", "CausalAttentionRoPE", "SlidingWindowAttention", "FullAttention")
    },
    **{kind: attention(kind, cross=True) for kind in ("CrossAttention", "MultiHeadAttn")},
    **{kind: attention_grad(kind) for kind in ("MultiHeadAttnGradQ", "MultiHeadAttnGradK", "MultiHeadAttnGradV")},
    "Conv2d": conv2d,
    "Conv2dGradInput": conv2d_grad_input,
    "Conv2dGradWeight": conv2d_grad_weight,
    "MaxPool2d": max_pool,
    "GlobalAvgPool": global_avg_pool,
    "GlobalAvgPoolGrad": global_avg_pool_grad,
    "GroupNorm": group_norm,
    "GroupNormSilu": group_norm_silu,
    "GroupNormGradInput": group_norm_grad_input,
    "GroupNormGradWeightBias": group_norm_grad_weight_bias,
    "Concat": channels("concat"),
    "SplitA": channels("split_a"),
    "SplitB": channels("split_b"),
    "Upsample2x": upsample("upsample_2x", 1),
    "Upsample2xGrad": upsample("upsample_2x_grad", 4),
    "CacheWrite": cache_write,
    "CachedAttention": cached_attention,
}
