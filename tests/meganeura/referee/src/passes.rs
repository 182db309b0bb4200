//! The crate's graph passes by name, and the rows of them that its sessions are built with.

use meganeura::graph::Graph;
use meganeura::{autodiff, optimize};
use serde::{Deserialize, Serialize};

/// One pass of the crate over a graph.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Pass {
    Differentiate,
    FuseGroupNormSilu,
    Optimize,
    Toposort,
}

/// What `build_inference_session` compiles.
pub const INFERENCE: &[Pass] = &[Pass::Optimize, Pass::FuseGroupNormSilu];

/// What `build_session` compiles.
pub const TRAINING: &[Pass] = &[
    Pass::Optimize,
    Pass::Toposort,
    Pass::Differentiate,
    Pass::Optimize,
];

impl Pass {
    fn run(self, mut graph: Graph) -> Graph {
        match self {
            Self::Differentiate => autodiff::differentiate(&graph),
            Self::FuseGroupNormSilu => {
                optimize::apply_group_norm_silu_fusions(&mut graph, &mut Vec::new());
                graph
            }
            Self::Optimize => optimize::optimize(&graph),
            Self::Toposort => graph.toposort(),
        }
    }
}

/// `graph` after `passes`, in order.
pub fn apply(graph: Graph, passes: &[Pass]) -> Graph {
    passes.iter().fold(graph, |graph, pass| pass.run(graph))
}
