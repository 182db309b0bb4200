//! Two devices: tensors that go there and back, a model split over both, and a batch split over both.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsAccumulator, GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::activation::relu;

use crate::data::{self, Batch};
use crate::host::HostWeights;
use crate::models::{Classifier, Mlp};
use crate::report::show;

const BATCH_SIZE: usize = 32;
const STEPS: usize = 4;

/// Prints what each part computes.
pub fn run(devices: &[Device; 2], seed: u64) {
    there_and_back(devices);
    let training = devices.clone().map(Device::autodiff);
    split_model(&training, seed);
    split_batch(&training, seed);
}

/// Tensors of each kind, computed on one device, used on the other, read from both.
fn there_and_back([first, second]: &[Device; 2]) {
    let x = Tensor::<1, Int>::arange(0..35, first).reshape([5, 7]);
    let square = (x.clone() * x.clone()).to_device(second);
    let even = x
        .clone()
        .remainder_scalar(2)
        .equal_elem(0)
        .to_device(second);
    let there = square.mask_fill(even, -1);
    let floats = there.clone().float().to_device(first) / 4.0;
    show("there", &there.clone().into_data());
    show("back", &(there.to_device(first) + x).into_data());
    show("floats", &floats.clone().into_data());

    // One tensor, used on both devices, and one that is moved before it was ever computed with.
    let copies: Vec<_> = (0..3)
        .map(|i| floats.clone().to_device(second) + i)
        .collect();
    let total = copies
        .into_iter()
        .reduce(|sum, copy| sum + copy)
        .map(|sum| sum.to_device(first));
    show(
        "total",
        &(total.unwrap_or(floats.clone()) - floats).into_data(),
    );
}

/// The first layer on one device, the second on the other; gradients cross in the other direction.
#[derive(Module, Debug)]
struct SplitModel {
    hidden: Linear,
    output: Linear,
}

impl SplitModel {
    /// images (batch, 64) on the first device -> logits (batch, 10) on the second.
    fn forward(&self, images: Tensor<2>, second: &Device) -> Tensor<2> {
        let hidden = relu(self.hidden.forward(images));
        self.output.forward(hidden.to_device(second))
    }
}

fn split_model([first, second]: &[Device; 2], seed: u64) {
    let mut model = SplitModel {
        hidden: LinearConfig::new(64, 24).init(first),
        output: LinearConfig::new(24, 10).init(second),
    }
    .map(&mut HostWeights::new(seed));
    let mut optimizer = AdamConfig::new().init();
    let criterion = CrossEntropyLossConfig::new().init(second);
    for step in 0..STEPS {
        let batch = data::train_batch(step, BATCH_SIZE, first);
        let images = (batch.images / 16.0).reshape([BATCH_SIZE, 64]);
        let loss = criterion.forward(
            model.forward(images, second),
            batch.labels.to_device(second),
        );
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, grads);
        show("split model", &loss.into_data());
    }
    show(
        "hidden bias",
        &model.hidden.bias.expect("there is one").val().into_data(),
    );
}

/// A replica of the model on each device gets half of the batch; the gradients meet on the first.
fn split_batch(devices: &[Device; 2], seed: u64) {
    let [first, _] = devices;
    let mut model = Mlp::init(first).map(&mut HostWeights::new(seed));
    let mut optimizer = SgdConfig::new().init();
    for step in 0..STEPS {
        let mut accumulator = GradientsAccumulator::new();
        let mut losses = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let replica = model.clone().fork(device);
            let Batch { images, labels } = data::train_batch(2 * step + index, BATCH_SIZE, device);
            let criterion = CrossEntropyLossConfig::new().init(device);
            let loss = criterion.forward(replica.forward(images), labels);
            let grads = GradientsParams::from_grads(loss.backward(), &replica);
            accumulator.accumulate(&model, grads.to_device(first, &model));
            losses.push(loss.inner().to_device(first));
        }
        model = optimizer.step(0.25, model, accumulator.grads());
        show("split batch", &Tensor::cat(losses, 0).into_data());
    }
}
