//! The sentence encoder all-MiniLM-L6-v2 (Apache 2.0), rebuilt in Burn, with the weights of its safetensors file.

use std::path::Path;

use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::prelude::*;
use burn::store::{ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore};

use crate::Result;
use crate::report::show;

const VOCABULARY: usize = 30522;
const MAX_LENGTH: usize = 512;
const WIDTH: usize = 384;
const PADDING: i32 = 0;

#[derive(Module, Debug)]
struct MiniLm {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    norm: LayerNorm,
    encoder: TransformerEncoder,
}

/// Where the file's names differ from the fields above and of Burn's encoder, as regular expressions.
const NAMES: [(&str, &str); 11] = [
    (r"^embeddings\.word_embeddings\.", "words."),
    (r"^embeddings\.position_embeddings\.", "positions."),
    (r"^embeddings\.token_type_embeddings\.", "types."),
    (r"^embeddings\.LayerNorm\.", "norm."),
    (r"^encoder\.layer\.", "encoder.layers."),
    (r"attention\.self\.", "mha."),
    (r"attention\.output\.dense\.", "mha.output."),
    (r"attention\.output\.LayerNorm\.", "norm_1."),
    (r"intermediate\.dense\.", "pwff.linear_inner."),
    (r"(\d)\.output\.dense\.", "${1}.pwff.linear_outer."),
    (r"(\d)\.output\.LayerNorm\.", "${1}.norm_2."),
];

impl MiniLm {
    fn load(weights: &Path, device: &Device) -> Result<Self> {
        let encoder = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 12, 6)
            .with_layer_norm_eps(1e-12)
            .init(device);
        let embedding = |size| EmbeddingConfig::new(size, WIDTH).init(device);
        let mut model = Self {
            words: embedding(VOCABULARY),
            positions: embedding(MAX_LENGTH),
            types: embedding(2),
            norm: LayerNormConfig::new(WIDTH).with_epsilon(1e-12).init(device),
            encoder,
        };
        let mut store =
            SafetensorsStore::from_file(weights).with_from_adapter(PyTorchToBurnAdapter);
        for (from, to) in NAMES {
            store = store.with_key_remapping(from, to);
        }
        model.load_from(&mut store)?;
        Ok(model)
    }

    /// ids (batch, length), padded with zeros -> embeddings (batch, 384) of length 1.
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let [batch, length] = ids.dims();
        let padding = ids.clone().equal_elem(PADDING);
        let places = Tensor::arange(0..length as i64, &ids.device()).reshape([1, length]);
        let x = self.words.forward(ids.clone())
            + self.positions.forward(places)
            + self.types.forward(ids.zeros_like());
        let input = TransformerEncoderInput::new(self.norm.forward(x)).mask_pad(padding.clone());
        let states = self.encoder.forward(input);

        let kept = padding.bool_not().float().reshape([batch, length, 1]);
        let mean = (states * kept.clone()).sum_dim(1) / kept.sum_dim(1);
        let mean = mean.reshape([batch, WIDTH]);
        let norm = mean.clone().square().sum_dim(1).sqrt();
        mean / norm
    }
}

/// The ids of one sentence a line, all padded to the longest; (sentence, place).
fn read_ids(path: &Path, device: &Device) -> Result<Tensor<2, Int>> {
    let text = std::fs::read_to_string(path)?;
    let sentences = text
        .lines()
        .map(|line| line.split(' ').map(str::parse).collect())
        .collect::<std::result::Result<Vec<Vec<i32>>, _>>()?;
    let count = sentences.len();
    let length = sentences.iter().map(Vec::len).max().unwrap_or(0);
    let padded: Vec<i32> = sentences
        .into_iter()
        .flat_map(|mut ids| {
            ids.resize(length, PADDING);
            ids
        })
        .collect();
    Ok(Tensor::from_data(
        TensorData::new(padded, [count, length]),
        device,
    ))
}

/// Prints the embedding of each sentence, and how similar each is to each other (their cosines).
pub fn run(device: &Device, weights: &Path, ids: &Path) -> Result<()> {
    let model = MiniLm::load(weights, device)?;
    let embeddings = model.forward(read_ids(ids, device)?);
    let cosines = embeddings.clone().matmul(embeddings.clone().transpose());
    show("embeddings", &embeddings.into_data());
    show("cosines", &cosines.into_data());
    Ok(())
}
