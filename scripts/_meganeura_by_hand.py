"""The models of `bench_meganeura.py` as somebody writes them in plain JAX: a loop over layers, parameters in a dict.

Parameters have the names and layouts of the graphs, so that both sides run on the same arrays.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from jax_backend.models.decoder import DecoderConfig
from jax_backend.models.resnet import ResNetConfig
from jax_backend.models.whisper import WhisperConfig

Array: TypeAlias = jax.Array
Params: TypeAlias = Mapping[str, Array]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x: Array, p: Params, name: str, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps) * p[f"{name}.weight"] + p[f"{name}.bias"]


def rope(x: Array, positions: Array, theta: float) -> Array:
    """Turn x (rows, heads, size) by the positions of its rows."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Of q (rows, heads, size) to k and v (others, key heads, size), where the mask (rows, others) is true."""
    rows, heads, size = q.shape
    q = q.reshape(rows, k.shape[1], -1, size)
    scores = jnp.einsum("rkgd,okd->kgro", q, k) * size**-0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jnp.einsum("kgro,okd->rkgd", jax.nn.softmax(scores, -1), v).reshape(rows, heads * size)


def decoder_layer(p: Params, config: DecoderConfig, name: str, x: Array, attend: Any) -> Array:
    size, attn, mlp = config.head_dim, f"{name}.self_attn", f"{name}.mlp"
    h = rms_norm(x, p[f"{name}.input_layernorm.weight"], config.rms_norm_eps)
    q, k, v = ((h @ p[f"{attn}.{part}_proj.weight"]).reshape(len(h), -1, size) for part in "qkv")
    x = x + attend(q, k, v) @ p[f"{attn}.o_proj.weight"]
    h = rms_norm(x, p[f"{name}.post_attention_layernorm.weight"], config.rms_norm_eps)
    inner = jax.nn.silu(h @ p[f"{mlp}.gate_proj.weight"]) * (h @ p[f"{mlp}.up_proj.weight"])
    return x + inner @ p[f"{mlp}.down_proj.weight"]


def logits_of(p: Params, config: DecoderConfig, x: Array) -> Array:
    return rms_norm(x, p["model.norm.weight"], config.rms_norm_eps) @ p["model.embed_tokens.weight"].T


def decoder(p: Params, config: DecoderConfig, tokens: Array) -> tuple[Array, list[Array], list[Array]]:
    """Logits (tokens, vocab), and the turned keys and the values of each layer."""
    positions = jnp.arange(len(tokens), dtype=jnp.float32)
    mask = positions[:, None] >= positions[None]
    keys: list[Array] = []
    values: list[Array] = []

    def attend(q: Array, k: Array, v: Array) -> Array:
        q, k = rope(q, positions, config.rope_theta), rope(k, positions, config.rope_theta)
        keys.append(k)
        values.append(v)
        return attention(q, k, v, mask)

    x = p["model.embed_tokens.weight"][tokens]
    for layer in range(config.num_hidden_layers):
        x = decoder_layer(p, config, f"model.layers.{layer}", x, attend)
    return logits_of(p, config, x), keys, values


def decode(
    p: Params, config: DecoderConfig, caches: list[tuple[Array, Array]], token: Array, position: Array
) -> tuple[Array, list[tuple[Array, Array]]]:
    """The likeliest token (1) after `token` (1), and the caches with the row of `position` (1)."""
    place = position[0].astype(jnp.int32)
    rows = position.astype(jnp.float32)
    seen = (jnp.arange(caches[0][0].shape[0]) <= place)[None]
    after: list[tuple[Array, Array]] = []

    def attend(q: Array, k: Array, v: Array) -> Array:
        q, k = rope(q, rows, config.rope_theta), rope(k, rows, config.rope_theta)
        k_cache, v_cache = caches[len(after)]
        k_cache = jax.lax.dynamic_update_slice_in_dim(k_cache, k, place, 0)
        v_cache = jax.lax.dynamic_update_slice_in_dim(v_cache, v, place, 0)
        after.append((k_cache, v_cache))
        return attention(q, k_cache, v_cache, seen)

    x = p["model.embed_tokens.weight"][token]
    for layer in range(config.num_hidden_layers):
        x = decoder_layer(p, config, f"model.layers.{layer}", x, attend)
    return jnp.argmax(logits_of(p, config, x), -1).astype(jnp.uint32), after


def cross_entropy(logits: Array, labels: Array) -> Array:
    return -(labels * jax.nn.log_softmax(logits)).sum(-1).mean()


def decoder_loss(p: Params, config: DecoderConfig, tokens: Array, labels: Array) -> Array:
    """Mean over a batch of sequences: tokens (batch, seq), labels (batch, seq, vocab)."""
    return jax.vmap(lambda t, y: cross_entropy(decoder(p, config, t)[0], y))(tokens, labels).mean()


def convolved(
    x: Array, kernel: Array, shape: tuple[int, ...], stride: tuple[int, int], padding: tuple[int, int]
) -> Array:
    pads = [(padding[0], padding[0]), (padding[1], padding[1])]
    return jax.lax.conv_general_dilated(
        x, kernel.reshape(shape), stride, pads, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def resnet(p: Params, config: ResNetConfig, image: Array) -> Array:
    """Logits of images (batch, 3, size, size); biases are in full size, as in the graph."""

    def conv(x: Array, conv: str, norm: str, channels: int, size: int, stride: int) -> Array:
        shape, around = (channels, x.shape[1], size, size), (size // 2, size // 2)
        y = convolved(x, p[f"{conv}.weight"], shape, (stride, stride), around)
        return y + p[f"{norm}.fused_bias"].reshape(y.shape)

    x = jax.nn.relu(conv(image, "conv1", "bn1", 64, 7, 2))
    around = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), around)
    for stage, count in enumerate(config.blocks):
        for block in range(count):
            name, channels = f"layer{stage + 1}.{block}", 64 << stage
            stride = 2 if stage and not block else 1
            h = jax.nn.relu(conv(x, f"{name}.conv1", f"{name}.bn1", channels, 1, 1))
            h = jax.nn.relu(conv(h, f"{name}.conv2", f"{name}.bn2", channels, 3, stride))
            h = conv(h, f"{name}.conv3", f"{name}.bn3", 4 * channels, 1, 1)
            if not block:
                x = conv(x, f"{name}.downsample.0", f"{name}.downsample.1", 4 * channels, 1, stride)
            x = jax.nn.relu(h + x)
    return x.mean((2, 3)) @ p["fc.weight"] + p["fc.bias"]


def resnet_loss(p: Params, config: ResNetConfig, image: Array, labels: Array) -> Array:
    return cross_entropy(resnet(p, config, image), labels)


def whisper_encoder(p: Params, config: WhisperConfig, mel: Array) -> Array:
    """States of one spectrogram (mel bins, frames); GELU is the form with tanh, as in Meganeura's builder."""
    name, size, heads = "model.encoder", config.d_model, config.encoder_attention_heads

    def linear(x: Array, name: str) -> Array:
        y = x @ p[f"{name}.weight"]
        return y + p[f"{name}.bias"] if f"{name}.bias" in p else y

    x = mel[None, :, :, None]
    for conv, stride in (("conv1", 1), ("conv2", 2)):
        y = convolved(x, p[f"{name}.{conv}.weight"], (size, x.shape[1], 3, 1), (stride, stride), (1, 0))
        x = jax.nn.gelu(y + p[f"{name}.{conv}.fused_bias"].reshape(y.shape))
    x = x[0, :, :, 0].T + p[f"{name}.embed_positions.weight"]
    for layer in range(config.encoder_layers):
        at = f"{name}.layers.{layer}"
        h = layer_norm(x, p, f"{at}.self_attn_layer_norm", config.layer_norm_eps)
        q, k, v = (linear(h, f"{at}.self_attn.{part}_proj").reshape(len(h), heads, -1) for part in "qkv")
        x = x + linear(attention(q, k, v, None), f"{at}.self_attn.out_proj")
        h = layer_norm(x, p, f"{at}.final_layer_norm", config.layer_norm_eps)
        x = x + linear(jax.nn.gelu(linear(h, f"{at}.fc1")), f"{at}.fc2")
    return layer_norm(x, p, f"{name}.layer_norm", config.layer_norm_eps)
