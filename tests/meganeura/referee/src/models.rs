//! The graphs that the crate's own builders make, by name.

use meganeura::graph::{Graph, NodeId};
use meganeura::models::sd_unet::{self, SDUNetConfig};
use meganeura::models::smollm2::{self, SmolLM2Config};
use meganeura::models::smolvla::{self, SmolVLAConfig};
use meganeura::models::smolvlm2::{self, SmolVLM2Config};
use meganeura::models::whisper::{self, WhisperConfig};
use meganeura::models::{gemma4, mistral, phi3, resnet};
use meganeura::nn;

use crate::passes::{self, Pass};

/// Which part of a session's life a graph shows.
#[derive(Clone, Copy)]
enum Stage {
    /// As the model's builder left it.
    Forward,
    /// With its gradients.
    Differentiated,
    /// As an inference session compiles it.
    Inference,
    /// As a training session compiles it.
    Training,
}

use Stage::{Differentiated, Forward, Inference, Training};

impl Stage {
    fn passes(self) -> &'static [Pass] {
        match self {
            Forward => &[],
            Differentiated => &[Pass::Differentiate],
            Inference => passes::INFERENCE,
            Training => passes::TRAINING,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Forward => "",
            Differentiated => "-differentiated",
            Inference => "-inference",
            Training => "-training",
        }
    }
}

/// A model: its name, the stages to show, and what builds it.
type Row = (&'static str, &'static [Stage], fn() -> Graph);

// A stage that changes nothing is not shown.
const LOSS: &[Stage] = &[Forward, Differentiated, Training];
const RUN: &[Stage] = &[Forward, Inference];
const UNCHANGED: &[Stage] = &[Forward];

const ROWS: &[Row] = &[
    ("mlp", &[Forward, Differentiated], mlp),
    ("transformer-block", RUN, transformer_block),
    ("resnet18", UNCHANGED, || {
        outputs(|g| resnet::build_graph(g, 1))
    }),
    ("resnet50", UNCHANGED, || {
        outputs(|g| resnet::build_resnet50(g, 4))
    }),
    ("whisper-small-test", UNCHANGED, || {
        outputs(|g| whisper::build_encoder(g, &whisper_small(), 1, 12))
    }),
    ("whisper-small-test-loss", LOSS, || {
        whisper::build_training_graph(&whisper_small(), 1, 12)
    }),
    ("whisper-tiny", UNCHANGED, || {
        outputs(|g| whisper::build_encoder(g, &WhisperConfig::whisper_tiny(), 1, 3000))
    }),
    ("smollm2-small-test", RUN, || {
        smollm2(&SmolLM2Config::small_test(), 5)
    }),
    ("smollm2-head64", RUN, || smollm2(&head64(), 5)),
    ("smollm2-head64-loss", LOSS, || {
        smollm2::build_training_graph(&head64(), 5)
    }),
    ("smollm2-head64-prefill", RUN, || prefill(&head64(), 3)),
    ("smollm2-head64-decode", RUN, || decode(&head64(), 7)),
    ("smollm2-135m", RUN, || {
        smollm2(&SmolLM2Config::smollm2_135m(), 128)
    }),
    ("smollm2-135m-loss", LOSS, || {
        smollm2::build_training_graph(&SmolLM2Config::smollm2_135m(), 2)
    }),
    ("smollm2-135m-prefill", RUN, || {
        prefill(&SmolLM2Config::smollm2_135m(), 128)
    }),
    ("smollm2-135m-decode", RUN, || {
        decode(&SmolLM2Config::smollm2_135m(), 256)
    }),
    (
        "sd-unet-tiny-loss",
        &[Forward, Differentiated, Training, Inference],
        || outputs(|g| sd_unet::build_training_graph(g, &SDUNetConfig::tiny())),
    ),
    ("smolvla-small-test", RUN, || {
        let config = SmolVLAConfig::small_test();
        outputs(|g| smolvla::build_action_expert(g, &config, config.chunk_size, 3))
    }),
    ("smolvla-small-test-loss", LOSS, || {
        let config = SmolVLAConfig::small_test();
        smolvla::build_action_expert_training(&config, config.chunk_size, 3)
    }),
    ("smolvla-base", RUN, || {
        let config = SmolVLAConfig::smolvla_base();
        outputs(|g| smolvla::build_action_expert(g, &config, config.chunk_size, 16))
    }),
    ("smolvla-state-projection", UNCHANGED, || {
        outputs(|g| smolvla::build_state_projection(g, &SmolVLAConfig::small_test()))
    }),
    ("smolvlm2-small-test", RUN, || {
        outputs(|g| smolvlm2::build_graph(g, &SmolVLAConfig::small_test().vlm, 5))
    }),
    ("smolvlm2-500m", RUN, || {
        outputs(|g| smolvlm2::build_graph(g, &SmolVLM2Config::smolvlm2_500m(), 16))
    }),
    ("gemma4-small-test", RUN, || {
        outputs(|g| gemma4::build_graph(g, &gemma4::Gemma4Config::small_test(), 11))
    }),
    ("mistral-small-test", RUN, || {
        outputs(|g| mistral::build_graph(g, &mistral::MistralConfig::small_test(), 11))
    }),
    ("phi3-small-test", RUN, || {
        outputs(|g| phi3::build_graph(g, &phi3::Phi3Config::small_test(), 11))
    }),
];

/// Every model in every stage, with what makes it.
pub fn all() -> impl Iterator<Item = (String, impl Fn() -> Graph)> {
    ROWS.iter().flat_map(|&(name, stages, build)| {
        stages.iter().map(move |stage| {
            let make = move || passes::apply(build(), stage.passes());
            (format!("{name}{}", stage.suffix()), make)
        })
    })
}

fn outputs(build: impl FnOnce(&mut Graph) -> NodeId) -> Graph {
    let mut graph = Graph::new();
    let output = build(&mut graph);
    graph.set_outputs(vec![output]);
    graph
}

/// The network of the crate's MNIST example, narrower.
fn mlp() -> Graph {
    outputs(|g| {
        let x = g.input("x", &[4, 49]);
        let labels = g.input("labels", &[4, 10]);
        let layers = nn::Mlp::new(g, "mlp", 49, 32, 10, nn::Activation::Relu);
        let logits = layers.forward(g, x);
        g.cross_entropy_loss(logits, labels)
    })
}

fn transformer_block() -> Graph {
    outputs(|g| {
        let x = g.input("x", &[5, 128]);
        let config = nn::TransformerBlockConfig {
            hidden: 128,
            intermediate: 192,
            kv_dim: 64,
            num_heads: 2,
            num_kv_heads: 1,
            head_dim: 64,
            rms_eps: 1e-6,
            rope_theta: 10000.0,
        };
        nn::TransformerBlock::new(g, "block", &config).forward(g, x)
    })
}

/// A decoder whose heads are 64 wide, the only width that the crate's attention kernels compute.
fn head64() -> SmolLM2Config {
    SmolLM2Config {
        vocab_size: 96,
        hidden_size: 128,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        intermediate_size: 160,
        ..SmolLM2Config::small_test()
    }
}

/// An encoder whose heads are 64 wide.
fn whisper_small() -> WhisperConfig {
    WhisperConfig {
        d_model: 128,
        n_heads: 2,
        n_layers: 2,
        ffn_dim: 192,
        n_mels: 10,
        max_source_positions: 6,
        layer_norm_eps: 1e-5,
    }
}

fn smollm2(config: &SmolLM2Config, seq_len: usize) -> Graph {
    outputs(|g| smollm2::build_graph(g, config, seq_len))
}

/// Outputs: logits, the keys of every layer, the values of every layer.
fn prefill(config: &SmolLM2Config, seq_len: usize) -> Graph {
    let mut graph = Graph::new();
    let (logits, keys, values) = smollm2::build_prefill_graph(&mut graph, config, seq_len);
    graph.set_outputs([vec![logits], keys, values].concat());
    graph
}

fn decode(config: &SmolLM2Config, max_seq_len: usize) -> Graph {
    outputs(|g| smollm2::build_decode_graph(g, config, max_seq_len).0)
}
