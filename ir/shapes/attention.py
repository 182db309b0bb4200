"""Rules of attention and normalisation. Source: burn-ir `builder.rs`."""

from ir.errors import ShapeError
from ir.ops.attention import Attention, BatchNorm, LayerNorm
from ir.shapes.formulas import expand_dims, show
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule, type_of, want_dims, want_family


@shape_rule(Attention)
def attention(op: Attention, given: Given) -> Outputs:
    """`query` (B, H, Q, d) · key (B, Hkv, K, d) · value (B, Hkv, K, dv) -> (B, H, Q, dv), H a multiple of Hkv."""
    want_dims("query", op.query, ("B", "H", "Q", "d"))
    batch, heads, queries, depth = op.query.shape.dims
    context = f"query {show(op.query.shape.dims)}"
    want_dims("key", op.key, (batch, "Hkv", "K", depth), context)
    _, kv_heads, keys, _ = op.key.shape.dims
    want_dims("value", op.value, (batch, kv_heads, keys, "dv"), f"key {show(op.key.shape.dims)}")
    if kv_heads == 0 or heads % kv_heads:
        raise ShapeError(f"key: expected a number of heads that divides {heads} for {context}, got {kv_heads}")
    want_family("mask", op.mask, "bool")
    scores = (batch, heads, queries, keys)
    for name, tensor in (("mask", op.mask), ("attn_bias", op.attn_bias)):
        if tensor is None:
            continue
        want_dims(name, tensor, ("B", "H", "Q", "K"))
        try:
            expand_dims(tensor.shape.dims, scores)
        except ShapeError:
            raise ShapeError(
                f"{name}: expected a shape that broadcasts to {show(scores)}, got {show(tensor.shape.dims)}"
            ) from None
    dtype = same_dtype(op, "query", "key", "value", "attn_bias")
    return one((batch, heads, queries, op.value.shape.dims[3]), dtype)


@shape_rule(LayerNorm)
def layer_norm(op: LayerNorm, given: Given) -> Outputs:
    """The type of the input; gamma and beta have the size of its last axis."""
    dims = op.input.shape.dims
    if not dims:
        raise ShapeError("input: expected rank 1 or more, got ()")
    for name, tensor in (("gamma", op.gamma), ("beta", op.beta)):
        want_dims(name, tensor, (dims[-1],), f"input {show(dims)}")
    same_dtype(op, "input", "gamma", "beta")
    return (type_of(op.input),)


@shape_rule(BatchNorm)
def batch_norm(op: BatchNorm, given: Given) -> Outputs:
    """The type of x (N, C, ..); the others have shape (C,)."""
    dims = op.x.shape.dims
    if len(dims) < 2:
        raise ShapeError(f"x: expected shape (N, C, ..), got {show(dims)}")
    for name, tensor in (("gamma", op.gamma), ("beta", op.beta), ("mean", op.mean), ("variance", op.variance)):
        want_dims(name, tensor, (dims[1],), f"x {show(dims)}")
    same_dtype(op, "x", "gamma", "beta", "mean", "variance")
    return (type_of(op.x),)
