//! A small U-net that takes noise off the digits: down by pooling, up by transposed convolutions.

use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{Gelu, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig, LeakyRelu};
use burn::nn::{LeakyReluConfig, PaddingConfig2d};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::sigmoid;

use crate::data;
use crate::host::{HostWeights, Numbers};
use crate::report::show;

const BATCH_SIZE: usize = 16;
const STEPS: usize = 6;
const LEARNING_RATE: f64 = 1e-2;

/// Channels and sizes: 1 x 8 x 8 -> 8 x 4 x 4 -> 16 x 2 x 2, and back.
#[derive(Module, Debug)]
struct Unet {
    down1: Conv2d,
    norm1: GroupNorm,
    gelu: Gelu,
    max_pool: MaxPool2d,
    down2: Conv2d,
    norm2: InstanceNorm,
    leaky_relu: LeakyRelu,
    avg_pool: AvgPool2d,
    bottom: Conv2d,
    up2: ConvTranspose2d,
    merge2: Conv2d,
    up1: ConvTranspose2d,
    merge1: Conv2d,
}

impl Unet {
    fn init(device: &Device) -> Self {
        let conv =
            |from, to| Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Same);
        // Burn pads for `Same` as if the kernel had no holes.
        let dilated = conv(16, 16)
            .with_dilation([2, 2])
            .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2));
        let up2 = ConvTranspose2dConfig::new([16, 16], [2, 2]).with_stride([2, 2]);
        let up1 = ConvTranspose2dConfig::new([8, 8], [3, 3])
            .with_stride([2, 2])
            .with_padding([1, 1])
            .with_padding_out([1, 1])
            .with_groups(2);
        Self {
            down1: conv(1, 8).init(device),
            norm1: GroupNormConfig::new(2, 8).init(device),
            gelu: Gelu::new(),
            max_pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            down2: conv(8, 16).init(device),
            norm2: InstanceNormConfig::new(16).init(device),
            leaky_relu: LeakyReluConfig::new().init(),
            avg_pool: AvgPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            bottom: dilated.init(device),
            up2: up2.init(device),
            merge2: conv(32, 8).init(device),
            up1: up1.init(device),
            merge1: conv(16, 1).init(device),
        }
    }

    /// Both (batch, 1, 8, 8).
    fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let level1 = self
            .gelu
            .forward(self.norm1.forward(self.down1.forward(images)));
        let x = self.down2.forward(self.max_pool.forward(level1.clone()));
        let level2 = self.leaky_relu.forward(self.norm2.forward(x));
        let x = self.bottom.forward(self.avg_pool.forward(level2.clone()));
        let x = self.up2.forward(self.gelu.forward(x));
        let x = self.merge2.forward(Tensor::cat(vec![x, level2], 1));
        let x = self.up1.forward(self.gelu.forward(x));
        sigmoid(self.merge1.forward(Tensor::cat(vec![x, level1], 1)))
    }
}

/// Clean images (batch, 1, 8, 8), and the same with noise from the host.
fn noisy_batch(step: usize, random: &mut Numbers, device: &Device) -> [Tensor<4>; 2] {
    let images = data::train_batch(step, BATCH_SIZE, device).images / 16.0;
    let images = images.reshape([BATCH_SIZE, 1, 8, 8]);
    let noise: Vec<f32> = (0..BATCH_SIZE * 64)
        .map(|_| 0.5 * random.uniform())
        .collect();
    let noise = Tensor::from_data(TensorData::new(noise, [BATCH_SIZE, 1, 8, 8]), device);
    [images.clone(), images + noise]
}

/// Prints the loss of each step, then two images that the trained net cleaned.
pub fn run(device: &Device, seed: u64) {
    let device = device.clone().autodiff();
    let mut random = Numbers::new(seed);
    let mut model = Unet::init(&device).map(&mut HostWeights::new(seed));
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..STEPS {
        let [clean, noisy] = noisy_batch(step, &mut random, &device);
        let loss = MseLoss::new().forward(model.forward(noisy), clean, Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(LEARNING_RATE, model, grads);
        show("loss", &loss.into_data());
    }
    let [_, noisy] = noisy_batch(STEPS, &mut random, &device.inner());
    let cleaned = model.valid().forward(noisy.slice([0..2]));
    show("cleaned", &cleaned.into_data());
}
