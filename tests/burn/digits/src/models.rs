//! The four programs: a perceptron, a convolution net, a transformer and an LSTM.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig,
    LeakyRelu, LeakyReluConfig, Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d, Relu,
};
use burn::optim::{AdamConfig, AdamWConfig, ModuleOptimizer, SgdConfig};
use burn::prelude::*;

/// A model that tells ten digits apart, and how it is trained.
pub trait Classifier: Module {
    const BATCH_SIZE: usize;
    const STEPS: usize;
    /// The loss is read after every so many steps.
    const READ_EVERY: usize;
    const LEARNING_RATE: f64;

    fn init(device: &Device) -> Self;
    fn optimizer() -> ModuleOptimizer;
    /// images (batch, 8, 8) with pixels from 0 to 16 -> logits (batch, 10).
    fn forward(&self, images: Tensor<3>) -> Tensor<2>;
}

/// 64 - 48 - 10 with gelu.
#[derive(Module, Debug)]
pub struct Mlp {
    hidden: Linear,
    gelu: Gelu,
    output: Linear,
}

impl Classifier for Mlp {
    const BATCH_SIZE: usize = 64;
    const STEPS: usize = 12;
    const READ_EVERY: usize = 4;
    const LEARNING_RATE: f64 = 1e-2;

    fn init(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(64, 48).init(device),
            gelu: Gelu::new(),
            output: LinearConfig::new(48, 10).init(device),
        }
    }

    fn optimizer() -> ModuleOptimizer {
        AdamConfig::new().init()
    }

    fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let [batch, _, _] = images.dims();
        let x = (images / 16.0).reshape([batch, 64]);
        self.output
            .forward(self.gelu.forward(self.hidden.forward(x)))
    }
}

/// Two convolutions, one of them grouped, with batch norm and both kinds of pooling.
#[derive(Module, Debug)]
pub struct Cnn {
    conv: Conv2d,
    norm: BatchNorm,
    relu: Relu,
    pool: MaxPool2d,
    grouped: Conv2d,
    leaky_relu: LeakyRelu,
    adaptive_pool: AdaptiveAvgPool2d,
    output: Linear,
}

impl Classifier for Cnn {
    const BATCH_SIZE: usize = 32;
    const STEPS: usize = 8;
    const READ_EVERY: usize = 4;
    const LEARNING_RATE: f64 = 1e-2;

    fn init(device: &Device) -> Self {
        let conv =
            |from, to| Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Same);
        Self {
            conv: conv(1, 8).init(device),
            norm: BatchNormConfig::new(8).init(device),
            relu: Relu::new(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            grouped: conv(8, 16).with_groups(2).init(device),
            leaky_relu: LeakyReluConfig::new().init(),
            adaptive_pool: AdaptiveAvgPool2dConfig::new([2, 2]).init(),
            output: LinearConfig::new(64, 10).init(device),
        }
    }

    fn optimizer() -> ModuleOptimizer {
        AdamConfig::new().init()
    }

    fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let [batch, _, _] = images.dims();
        let x = (images / 16.0).reshape([batch, 1, 8, 8]);
        let x = self.relu.forward(self.norm.forward(self.conv.forward(x)));
        let x = self.grouped.forward(self.pool.forward(x));
        let x = self.adaptive_pool.forward(self.leaky_relu.forward(x));
        self.output.forward(x.reshape([batch, 64]))
    }
}

/// The pixels as a text of 64 words out of 17; black pixels are padding.
#[derive(Module, Debug)]
pub struct Transformer {
    words: Embedding,
    places: Embedding,
    encoder: TransformerEncoder,
    norm: LayerNorm,
    output: Linear,
}

impl Classifier for Transformer {
    const BATCH_SIZE: usize = 16;
    const STEPS: usize = 4;
    const READ_EVERY: usize = 2;
    const LEARNING_RATE: f64 = 3e-3;

    fn init(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(32, 64, 4, 2)
            .with_norm_first(true)
            .with_dropout(0.0);
        Self {
            words: EmbeddingConfig::new(17, 32).init(device),
            places: EmbeddingConfig::new(64, 32).init(device),
            encoder: encoder.init(device),
            norm: LayerNormConfig::new(32).init(device),
            output: LinearConfig::new(32, 10).init(device),
        }
    }

    fn optimizer() -> ModuleOptimizer {
        AdamWConfig::new().init()
    }

    fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let [batch, _, _] = images.dims();
        let places = Tensor::arange(0..64, &images.device()).reshape([1, 64]);
        let words = images.reshape([batch, 64]).int();
        let padding = words.clone().equal_elem(0);
        let x = self.words.forward(words) + self.places.forward(places);
        let x = TransformerEncoderInput::new(x).mask_pad(padding);
        let x = self.norm.forward(self.encoder.forward(x));
        self.output.forward(x.mean_dim(1).reshape([batch, 32]))
    }
}

/// Reads an image row by row and answers from the last hidden state.
#[derive(Module, Debug)]
pub struct RowLstm {
    lstm: Lstm,
    output: Linear,
}

impl Classifier for RowLstm {
    const BATCH_SIZE: usize = 32;
    const STEPS: usize = 4;
    const READ_EVERY: usize = 2;
    const LEARNING_RATE: f64 = 1.0;

    fn init(device: &Device) -> Self {
        Self {
            lstm: LstmConfig::new(8, 24, true).init(device),
            output: LinearConfig::new(24, 10).init(device),
        }
    }

    fn optimizer() -> ModuleOptimizer {
        SgdConfig::new().init()
    }

    fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let (_, state) = self.lstm.forward(images / 16.0, None);
        self.output.forward(state.hidden)
    }
}
