//! Meganeura's graph as serde lays out its types; the crate itself derives nothing.
//!
//! The definitions mirror those of `meganeura::graph` field by field, and the compiler holds them to it: a name or a
//! type that differs does not build.

use meganeura::graph::{DType, DerivedParam, Graph, NodeId, Op, TensorType};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(remote = "DType")]
enum DTypeDef {
    F32,
    U32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TensorType")]
struct TensorTypeDef {
    shape: Vec<usize>,
    #[serde(with = "DTypeDef")]
    dtype: DType,
}

#[derive(Serialize, Deserialize)]
struct Node {
    id: NodeId,
    #[serde(with = "OpDef")]
    op: Op,
    inputs: Vec<NodeId>,
    #[serde(with = "TensorTypeDef")]
    ty: TensorType,
}

#[derive(Serialize, Deserialize)]
struct Derived {
    name: String,
    sources: Vec<(String, usize)>,
    rows: usize,
}

/// A graph with its private fields.
#[derive(Serialize, Deserialize)]
pub struct Record {
    nodes: Vec<Node>,
    outputs: Vec<NodeId>,
    derived_params: Vec<Derived>,
}

impl From<&Graph> for Record {
    fn from(graph: &Graph) -> Self {
        let nodes = graph.nodes().iter().cloned().map(|node| Node {
            id: node.id,
            op: node.op,
            inputs: node.inputs,
            ty: node.ty,
        });
        let derived = graph.derived_params.iter().cloned().map(|param| Derived {
            name: param.name,
            sources: param.sources,
            rows: param.rows,
        });
        Self {
            nodes: nodes.collect(),
            outputs: graph.outputs().to_vec(),
            derived_params: derived.collect(),
        }
    }
}

impl From<Record> for Graph {
    fn from(record: Record) -> Self {
        let mut graph = Graph::new();
        for node in record.nodes {
            let id = graph.add_raw_node(node.op, node.inputs, node.ty);
            assert_eq!(id, node.id, "a node's id is its place");
        }
        graph.set_outputs(record.outputs);
        let derived = record.derived_params.into_iter().map(|param| DerivedParam {
            name: param.name,
            sources: param.sources,
            rows: param.rows,
        });
        graph.derived_params = derived.collect();
        graph
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Op")]
enum OpDef {
    Parameter {
        name: String,
    },
    Input {
        name: String,
    },
    Constant {
        data: Vec<f32>,
    },
    MatMul,
    MatMulAT,
    MatMulBT,
    Add,
    Mul,
    Relu,
    Sigmoid,
    Tanh,
    Neg,
    Abs,
    Log,
    Recip,
    SumAll,
    MeanAll,
    SumRows,
    Softmax,
    CrossEntropyLoss,
    BceLoss,
    Greater,
    Transpose,
    BiasAdd,
    FusedMatMulAdd,
    FusedMatMulATAdd,
    FusedMatMulBTAdd,
    Nop,
    Identity,
    LogSoftmax,
    ScatterAdd {
        vocab_size: usize,
    },
    Silu,
    SwiGLU,
    SwiGLUConcat,
    SwiGLUConcatGrad,
    SwiGLUGradGate,
    SwiGLUGradUp,
    SiluGrad,
    RmsNorm {
        eps: f32,
    },
    Embedding,
    RoPE {
        theta: f32,
        pos_offset: u32,
        head_dim: u32,
    },
    RoPEGrad {
        theta: f32,
        pos_offset: u32,
        head_dim: u32,
    },
    CausalAttention {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
    },
    CausalAttentionRoPE {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        rope_theta: f32,
    },
    Gelu,
    LayerNorm {
        eps: f32,
    },
    FullAttention {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
    },
    CrossAttention {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
    },
    MultiHeadAttn {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        is_cross: bool,
    },
    MultiHeadAttnGradQ {
        fwd_node: NodeId,
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        is_cross: bool,
    },
    MultiHeadAttnGradK {
        fwd_node: NodeId,
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        is_cross: bool,
    },
    MultiHeadAttnGradV {
        fwd_node: NodeId,
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        is_cross: bool,
    },
    FusedRmsNormMatMul {
        eps: f32,
    },
    RmsNormGradW {
        eps: f32,
    },
    RmsNormGradX {
        eps: f32,
    },
    LayerNormGradWB {
        eps: f32,
    },
    LayerNormGradX {
        eps: f32,
    },
    Conv2d {
        in_channels: u32,
        in_h: u32,
        in_w: u32,
        out_channels: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride: u32,
        padding_h: u32,
        padding_w: u32,
    },
    Conv2dGradInput {
        in_channels: u32,
        in_h: u32,
        in_w: u32,
        out_channels: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride: u32,
        padding_h: u32,
        padding_w: u32,
    },
    Conv2dGradWeight {
        in_channels: u32,
        in_h: u32,
        in_w: u32,
        out_channels: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride: u32,
        padding_h: u32,
        padding_w: u32,
    },
    MaxPool2d {
        channels: u32,
        in_h: u32,
        in_w: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride: u32,
        padding: u32,
    },
    GlobalAvgPool {
        channels: u32,
        spatial: u32,
    },
    GlobalAvgPoolGrad {
        channels: u32,
        spatial: u32,
    },
    GroupNorm {
        num_groups: u32,
        eps: f32,
        channels: u32,
        spatial: u32,
    },
    GroupNormSilu {
        num_groups: u32,
        eps: f32,
        channels: u32,
        spatial: u32,
    },
    GroupNormGradInput {
        num_groups: u32,
        eps: f32,
        channels: u32,
        spatial: u32,
    },
    GroupNormGradWeightBias {
        num_groups: u32,
        eps: f32,
        channels: u32,
        spatial: u32,
    },
    Concat {
        channels_a: u32,
        channels_b: u32,
        spatial: u32,
    },
    SplitA {
        channels_a: u32,
        channels_b: u32,
        spatial: u32,
    },
    SplitB {
        channels_a: u32,
        channels_b: u32,
        spatial: u32,
    },
    Upsample2x {
        channels: u32,
        in_h: u32,
        in_w: u32,
    },
    Upsample2xGrad {
        channels: u32,
        in_h: u32,
        in_w: u32,
    },
    SlidingWindowAttention {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
        window_size: u32,
    },
    CacheWrite,
    CachedAttention {
        num_heads: u32,
        num_kv_heads: u32,
        head_dim: u32,
    },
}
