"""The kinds and their attributes are those of `graph.rs`."""

from ir.meganeura.ops.records import Mark, kinds
from ir.op import Field, Role, fields

ATTRIBUTES = {
    "Parameter": "name",
    "Input": "name",
    "Constant": "data",
    "ScatterAdd": "vocab_size",
    "RmsNorm": "eps",
    "RoPE": "theta pos_offset head_dim",
    "RoPEGrad": "theta pos_offset head_dim",
    "CausalAttention": "num_heads num_kv_heads head_dim",
    "CausalAttentionRoPE": "num_heads num_kv_heads head_dim rope_theta",
    "LayerNorm": "eps",
    "FullAttention": "num_heads num_kv_heads head_dim",
    "CrossAttention": "num_heads num_kv_heads head_dim",
    "MultiHeadAttn": "num_heads num_kv_heads head_dim is_cross",
    "MultiHeadAttnGradQ": "fwd_node num_heads num_kv_heads head_dim is_cross",
    "MultiHeadAttnGradK": "fwd_node num_heads num_kv_heads head_dim is_cross",
    "MultiHeadAttnGradV": "fwd_node num_heads num_kv_heads head_dim is_cross",
    "FusedRmsNormMatMul": "eps",
    "RmsNormGradW": "eps",
    "RmsNormGradX": "eps",
    "LayerNormGradWB": "eps",
    "LayerNormGradX": "eps",
    "Conv2d": "in_channels in_h in_w out_channels kernel_h kernel_w stride padding_h padding_w",
    "Conv2dGradInput": "in_channels in_h in_w out_channels kernel_h kernel_w stride padding_h padding_w",
    "Conv2dGradWeight": "in_channels in_h in_w out_channels kernel_h kernel_w stride padding_h padding_w",
    "MaxPool2d": "channels in_h in_w kernel_h kernel_w stride padding",
    "GlobalAvgPool": "channels spatial",
    "GlobalAvgPoolGrad": "channels spatial",
    "GroupNorm": "num_groups eps channels spatial",
    "GroupNormSilu": "num_groups eps channels spatial",
    "GroupNormGradInput": "num_groups eps channels spatial",
    "GroupNormGradWeightBias": "num_groups eps channels spatial",
    "Concat": "channels_a channels_b spatial",
    "SplitA": "channels_a channels_b spatial",
    "SplitB": "channels_a channels_b spatial",
    "Upsample2x": "channels in_h in_w",
    "Upsample2xGrad": "channels in_h in_w",
    "SlidingWindowAttention": "num_heads num_kv_heads head_dim window_size",
    "CachedAttention": "num_heads num_kv_heads head_dim",
}
UNITS = """MatMul MatMulAT MatMulBT Add Mul Relu Sigmoid Tanh Neg Abs Log Recip SumAll MeanAll SumRows Softmax
CrossEntropyLoss BceLoss Greater Transpose BiasAdd FusedMatMulAdd FusedMatMulATAdd FusedMatMulBTAdd Nop Identity
LogSoftmax Silu SwiGLU SwiGLUConcat SwiGLUConcatGrad SwiGLUGradGate SwiGLUGradUp SiluGrad Embedding Gelu CacheWrite"""


def is_attribute(field: Field) -> bool:
    marks = getattr(field.type, "__metadata__", ())
    return Mark.NODE_REF in marks or (field.role is None and Mark.DERIVED not in marks)


def test_the_75_kinds_have_the_attributes_of_the_enum_in_its_order() -> None:
    found = {name: " ".join(f.path for f in fields(k) if is_attribute(f)) for name, k in kinds().items()}
    assert found == ATTRIBUTES | dict.fromkeys(UNITS.split(), "")
    assert len(found) == 75


def test_each_kind_makes_one_tensor_called_out() -> None:
    for name, kind in kinds().items():
        assert [f.path for f in fields(kind) if f.is_output] == ["out"], name


def test_only_rope_and_nop_have_operands_that_may_be_absent() -> None:
    optional = {name for name, kind in kinds().items() if {f.role for f in fields(kind)} & {Role.OPT_IN, Role.IN_LIST}}
    assert optional == {"RoPE", "Nop"}


def test_each_kind_says_what_it_means() -> None:
    assert [name for name, kind in kinds().items() if not kind.__doc__] == []
