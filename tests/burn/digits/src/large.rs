//! The models of the benchmarks, and their batches made on the host.

use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, PaddingConfig2d, Relu,
};
use burn::prelude::*;

use crate::host::Numbers;

/// What the command line says about sizes; a perceptron and a convolution net go by `batch` alone.
#[derive(Clone)]
pub struct Sizes {
    pub batch: usize,
    pub layers: usize,
    pub width: usize,
    /// Tokens per text.
    pub length: usize,
    pub vocabulary: usize,
}

/// One batch on the host: floats or integers in, class numbers out.
#[derive(Clone)]
pub struct HostBatch {
    pub inputs: TensorData,
    pub targets: TensorData,
}

/// Inputs of `dims`, uniform in [-1, 1), and classes below 10, both from `seed`.
pub fn image_batch<const D: usize>(seed: u64, dims: [usize; D]) -> HostBatch {
    let mut numbers = Numbers::new(seed);
    let pixels: Vec<f32> = (0..dims.iter().product())
        .map(|_| numbers.uniform())
        .collect();
    let classes: Vec<i32> = (0..dims[0]).map(|_| numbers.below(10)).collect();
    HostBatch {
        inputs: TensorData::new(pixels, dims),
        targets: TensorData::new(classes, [dims[0]]),
    }
}

/// Texts of random words, and for each place the word that follows.
pub fn text_batch(seed: u64, sizes: &Sizes) -> HostBatch {
    let mut numbers = Numbers::new(seed);
    let row = sizes.length + 1;
    let words: Vec<i32> = (0..sizes.batch * row)
        .map(|_| numbers.below(sizes.vocabulary))
        .collect();
    let window = |first: usize| -> Vec<i32> {
        words
            .chunks(row)
            .flat_map(|text| &text[first..][..sizes.length])
            .copied()
            .collect()
    };
    HostBatch {
        inputs: TensorData::new(window(0), [sizes.batch, sizes.length]),
        targets: TensorData::new(window(1), [sizes.batch * sizes.length]),
    }
}

/// 784 - 512 - 512 - 10 with relu.
#[derive(Module, Debug)]
pub struct WideMlp {
    first: Linear,
    second: Linear,
    output: Linear,
    relu: Relu,
}

impl WideMlp {
    pub fn init(device: &Device) -> Self {
        Self {
            first: LinearConfig::new(784, 512).init(device),
            second: LinearConfig::new(512, 512).init(device),
            output: LinearConfig::new(512, 10).init(device),
            relu: Relu::new(),
        }
    }

    /// images (batch, 784) -> logits (batch, 10).
    pub fn forward(&self, images: Tensor<2>) -> Tensor<2> {
        let x = self.relu.forward(self.first.forward(images));
        let x = self.relu.forward(self.second.forward(x));
        self.output.forward(x)
    }
}

/// Three times convolution, batch norm, relu and max pool: 3 - 32 - 64 - 128 channels, then one linear layer.
#[derive(Module, Debug)]
pub struct DeepCnn {
    convs: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    pool: MaxPool2d,
    relu: Relu,
    output: Linear,
}

impl DeepCnn {
    pub fn init(device: &Device) -> Self {
        let conv = |from, to| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device)
        };
        Self {
            convs: vec![conv(3, 32), conv(32, 64), conv(64, 128)],
            norms: [32, 64, 128]
                .map(|channels| BatchNormConfig::new(channels).init(device))
                .to_vec(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            relu: Relu::new(),
            output: LinearConfig::new(128 * 4 * 4, 10).init(device),
        }
    }

    /// images (batch, 3, 32, 32) -> logits (batch, 10).
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = images;
        for (conv, norm) in self.convs.iter().zip(&self.norms) {
            x = self
                .pool
                .forward(self.relu.forward(norm.forward(conv.forward(x))));
        }
        self.output.forward(x.flatten(1, 3))
    }
}

/// A pre-norm decoder; heads of 64, feed-forward layers of four times the width.
#[derive(Module, Debug)]
pub struct Decoder {
    words: Embedding,
    places: Embedding,
    layers: TransformerEncoder,
    norm: LayerNorm,
    output: Linear,
}

impl Decoder {
    pub fn init(sizes: &Sizes, device: &Device) -> Self {
        let width = sizes.width;
        let layers =
            TransformerEncoderConfig::new(width, 4 * width, (width / 64).max(1), sizes.layers)
                .with_norm_first(true)
                .with_dropout(0.0);
        Self {
            words: EmbeddingConfig::new(sizes.vocabulary, width).init(device),
            places: EmbeddingConfig::new(sizes.length, width).init(device),
            layers: layers.init(device),
            norm: LayerNormConfig::new(width).init(device),
            output: LinearConfig::new(width, sizes.vocabulary).init(device),
        }
    }

    /// words (batch, length) -> logits (batch * length, vocabulary).
    pub fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let [batch, length] = words.dims();
        let device = words.device();
        let places = Tensor::arange(0..length as i64, &device).reshape([1, length]);
        let mask = generate_autoregressive_mask(batch, length, &device);
        let x = self.words.forward(words) + self.places.forward(places);
        let x = TransformerEncoderInput::new(x).mask_attn(mask);
        let x = self.norm.forward(self.layers.forward(x));
        self.output.forward(x).flatten(0, 1)
    }
}
