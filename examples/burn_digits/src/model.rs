//! A small convolution net.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d, Relu,
};
use burn::prelude::*;

use crate::data::NUM_CLASSES;

#[derive(Config, Debug)]
pub struct NetConfig {
    /// The share of the features that a training step leaves out.
    #[config(default = 0.3)]
    pub dropout: f64,
}

impl NetConfig {
    pub fn init(&self, device: &Device) -> Net {
        Net {
            block1: Block::new(1, 16, device),
            block2: Block::new(16, 32, device),
            block3: Block::new(32, 32, device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            dropout: DropoutConfig::new(self.dropout).init(),
            output: LinearConfig::new(32 * 2 * 2, NUM_CLASSES).init(device),
        }
    }
}

/// Tells ten digits apart.
#[derive(Module, Debug)]
pub struct Net {
    block1: Block,
    block2: Block,
    block3: Block,
    pool: MaxPool2d,
    dropout: Dropout,
    output: Linear,
}

impl Net {
    /// images (batch, 1, 8, 8) -> logits (batch, 10).
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.block1.forward(images);
        let x = self.pool.forward(self.block2.forward(x));
        let x = self.pool.forward(self.block3.forward(x));
        let x = self.dropout.forward(x.flatten::<2>(1, 3));
        self.output.forward(x)
    }
}

/// A convolution over 3 x 3 pixels, batch norm, relu.
#[derive(Module, Debug)]
struct Block {
    conv: Conv2d,
    norm: BatchNorm,
    relu: Relu,
}

impl Block {
    fn new(channels_in: usize, channels_out: usize, device: &Device) -> Self {
        let conv = Conv2dConfig::new([channels_in, channels_out], [3, 3])
            .with_padding(PaddingConfig2d::Same)
            .with_bias(false);
        Self {
            conv: conv.init(device),
            norm: BatchNormConfig::new(channels_out).init(device),
            relu: Relu::new(),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.relu.forward(self.norm.forward(self.conv.forward(x)))
    }
}
