"""Random graphs of every kind that Meganeura differentiates, grown from the loss down to the leaves."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from ir.meganeura import Graph, NodeId
from ir.meganeura import ops as m
from ir.meganeura.ops.linear import ProductAdd

Shape: TypeAlias = tuple[int, ...]
SIZES = (1, 2, 3, 4, 6, 8)


class Grower:
    """A graph under construction; `tensor(shape)` makes a node of that shape, or takes one that is there."""

    def __init__(self, seed: int, budget: int = 30) -> None:
        self.graph = Graph()
        self._rng = Random(seed)
        self._budget = budget
        self._made: dict[Shape, list[NodeId]] = {}

    def loss(self) -> NodeId:
        """A node of one element."""
        g, x = self.graph, self.tensor(self._matrix())
        rows, cols = shape = g.ty(x).shape
        makers: list[Callable[[], NodeId]] = [
            lambda: g.mean_all(x),
            lambda: g.sum_all(x),
            lambda: g.cross_entropy_loss(x, g.input(self._name(), shape)),
            lambda: g.bce_loss(g.sigmoid(x), g.input(self._name(), shape)),
            lambda: g.mse_loss(x, self.tensor((rows, cols))),
            lambda: g.l1_loss(x, self.tensor((rows, cols))),
        ]
        return self._rng.choice(makers)()

    def _matrix(self) -> Shape:
        return self._size(), self._size()

    def _size(self) -> int:
        return self._rng.choice(SIZES)

    def _name(self) -> str:
        return f"n{len(self.graph.nodes())}"

    def tensor(self, shape: Shape) -> NodeId:
        """A node of this shape."""
        known = self._made.setdefault(shape, [])
        if known and self._rng.random() < 0.25:
            return self._rng.choice(known)
        self._budget -= 1
        if self._budget < 0 or self._rng.random() < 0.1:
            made = self._leaf(shape)
        else:
            made = self._rng.choice(self._ways(shape))()
        known.append(made)
        return made

    def _leaf(self, shape: Shape) -> NodeId:
        maker = self._rng.choice([self.graph.parameter, self.graph.parameter, self.graph.input])
        return maker(self._name(), shape)

    def _ways(self, shape: Shape) -> list[Callable[[], NodeId]]:
        both = [*self._elementwise(shape), *self._patterns(shape)]
        return [*both, *(self._of_matrices(*shape) if len(shape) == 2 else self._of_vectors(*shape))]

    def _elementwise(self, shape: Shape) -> list[Callable[[], NodeId]]:
        g, t = self.graph, self.tensor
        unary = (g.relu, g.sigmoid, g.tanh, g.neg, g.abs, g.log, g.recip, g.silu, g.gelu)
        binary = (g.add, g.add, g.mul, g.mul, g.greater, g.div, g.swiglu)
        return [
            *(lambda f=f: f(t(shape)) for f in unary),
            *(lambda f=f: f(t(shape), t(shape)) for f in binary),
            lambda: g.constant([self._rng.uniform(-1, 1) for _ in range(_count(shape))], shape),
        ]

    def _patterns(self, shape: Shape) -> list[Callable[[], NodeId]]:
        """What the optimizer looks for, and what looks like it."""
        g, t = self.graph, self.tensor

        def gated(x: NodeId, y: NodeId) -> NodeId:
            return g.mul(x, g.sigmoid(y)) if self._rng.random() < 0.5 else g.mul(g.sigmoid(y), x)

        def silu() -> NodeId:
            x = t(shape)
            return gated(x, x)

        return [silu, silu, lambda: gated(t(shape), t(shape)), lambda: g.mul(g.silu(t(shape)), t(shape))]

    def _of_matrices(self, rows: int, cols: int) -> list[Callable[[], NodeId]]:
        g, t, inner = self.graph, self.tensor, self._size()
        shape = (rows, cols)

        def at() -> NodeId:
            return g.matmul_at(t((inner, rows)), t((inner, cols)))

        def bt() -> NodeId:
            return g.matmul_bt(t((rows, inner)), t((cols, inner)))

        def product() -> NodeId:
            return g.matmul(t((rows, inner)), t((inner, cols)))

        def fused(kind: type[ProductAdd], a: Shape, b: Shape) -> NodeId:
            return g.append(kind, [t(a), t(b), t(shape)])

        def joined() -> NodeId:
            h, weight = t((rows, inner)), (inner, cols)
            return g.swiglu(g.matmul(h, t(weight)), g.matmul(h, t(weight)))

        ways: list[Callable[[], NodeId]] = [
            product,
            at,
            bt,
            joined,
            lambda: g.add(self._rng.choice((product, at, bt))(), t(shape)),
            lambda: g.add(t(shape), self._rng.choice((product, at, bt))()),
            lambda: fused(m.FusedMatMulAdd, (rows, inner), (inner, cols)),
            lambda: fused(m.FusedMatMulATAdd, (inner, rows), (inner, cols)),
            lambda: fused(m.FusedMatMulBTAdd, (rows, inner), (cols, inner)),
            lambda: g.append(m.FusedRmsNormMatMul, [t((rows, inner)), t((inner,)), t((inner, cols))], eps=1e-5),
            lambda: g.transpose(t((cols, rows))),
            lambda: g.reshape(t((rows * cols,)), shape),
            lambda: g.bias_add(t(shape), t((cols,))),
            lambda: g.broadcast_add(t(shape), t((1, cols))),
            lambda: g.softmax(t(shape)),
            lambda: g.log_softmax(t(shape)),
            lambda: g.swiglu_concat(t((rows, 2 * cols))),
            lambda: g.rms_norm(t(shape), t((cols,)), 1e-5),
            lambda: g.layer_norm(t(shape), t((cols,)), t((cols,)), 1e-5),
            lambda: g.embedding(g.input_u32(self._name(), [rows]), t((inner, cols))),
            lambda: g.scatter_add(g.input_u32(self._name(), [inner]), t((inner, cols)), rows),
            lambda: g.global_avg_pool(t((rows * cols * 4,)), rows, cols, 4),
        ]
        return [*ways, *self._of_heads(rows, cols)] if cols % 4 == 0 else ways

    def _of_heads(self, rows: int, cols: int) -> list[Callable[[], NodeId]]:
        g, t, head_dim = self.graph, self.tensor, cols // 2
        q, kv, heads = (rows, cols), (rows, head_dim), (2, 1, head_dim)
        turned = dict(zip(("num_heads", "num_kv_heads", "head_dim"), heads, strict=True), rope_theta=1e4)
        return [
            lambda: g.rope_with_offset(t(q), 1e4, self._size(), head_dim),
            lambda: g.rope_dynamic_offset(t(q), 1e4, g.input_u32(self._name(), [1]), head_dim),
            lambda: g.causal_attention(t(q), t(kv), t(kv), *heads),
            lambda: g.full_attention(t(q), t(kv), t(kv), *heads),
            lambda: g.sliding_window_attention(t(q), t(kv), t(kv), *heads, self._size()),
            lambda: g.multi_head_attn(t(q), t(kv), t(kv), *heads, self._rng.random() < 0.5),
            lambda: g.append(m.CausalAttentionRoPE, [t(q), t(kv), t(kv)], **turned),
        ]

    def _of_vectors(self, size: int) -> list[Callable[[], NodeId]]:
        g, t = self.graph, self.tensor
        channels = self._rng.choice([n for n in (1, 2, 3) if size % n == 0])
        spatial = size // channels
        sizes = (1, channels, spatial, 1, channels)
        return [
            lambda: g.sum_rows(t((self._size(), size)), g.ty(t((size,)))),
            lambda: g.reshape(t((channels, spatial)), (size,)),
            lambda: g.group_norm(t((size,)), t((channels,)), t((channels,)), 1, channels, spatial, channels, 1e-5),
            lambda: g.silu(g.group_norm(t((size,)), t((channels,)), t((channels,)), 1, channels, spatial, 1, 1e-5)),
            lambda: g.conv2d_hw(t((size,)), t((3 * channels**2,)), *sizes, 3, 1, 1, 1, 0),
            lambda: g.max_pool_2d(t((size,)), 1, channels, spatial, 1, 1, 1, 1, 0),
            lambda: g.split_a(t((size + spatial,)), 1, channels, 1, spatial),
            lambda: g.split_b(t((size + spatial,)), 1, 1, channels, spatial),
            *([lambda: g.concat(t((size // 2,)), t((size // 2,)), 1, 1, 1, size // 2)] if size % 2 == 0 else []),
            *([lambda: g.upsample_2x(t((size // 4,)), 1, 1, 1, size // 4)] if size % 4 == 0 else []),
        ]


def _count(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def random_graph(seed: int) -> Graph:
    """A graph whose first output is a loss; some inner nodes may be outputs too."""
    grower = Grower(seed)
    loss, rng = grower.loss(), Random(~seed)
    graph = grower.graph
    graph.set_outputs([loss, *rng.sample(range(len(graph.nodes())), k=rng.choice((0, 0, 1, 2)))])
    return graph


def broken_graph(seed: int) -> Graph:
    """A random graph in which some nodes are deleted and some read others of larger ids, circles among them."""
    graph, rng = random_graph(seed), Random(seed)
    for _ in range(rng.randrange(4)):
        id = rng.randrange(len(graph.nodes()))
        op, inputs = graph.op(id), list(graph.node(id).inputs)
        if rng.random() < 0.4:
            graph.replace_node(id, m.Nop, inputs)
        elif inputs and op.kind != "Nop":
            place = rng.randrange(len(inputs))
            same = [n.id for n in graph.nodes() if n.ty == graph.ty(inputs[place])]
            inputs[place] = rng.choice(same)
            graph.replace_node(id, op, inputs)
    return graph
