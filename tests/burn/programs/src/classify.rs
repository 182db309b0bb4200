//! Two nets that learn the digits in the device's default type, for types of two bytes.
//!
//! They learn by SGD: the squares of gradients that Adam keeps are zero in f16, and it divides by their roots.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;

use crate::data;
use crate::host::HostWeights;
use crate::models::{Classifier, Cnn, Transformer};
use crate::report::show;

const BATCH_SIZE: usize = 16;
const STEPS: usize = 4;
const LEARNING_RATE: f64 = 0.1;

/// Prints the loss of each step, then the logits of some images.
pub fn run(device: &Device, seed: u64) {
    train::<Cnn>("cnn", device, seed);
    train::<Transformer>("transformer", device, seed);
}

fn train<M: Classifier>(name: &str, device: &Device, seed: u64) {
    let training = device.clone().autodiff();
    let mut model = M::init(&training).map(&mut HostWeights::new(seed));
    let mut optimizer = SgdConfig::new().init();
    let criterion = CrossEntropyLossConfig::new().init(&training);
    for step in 0..STEPS {
        let batch = data::train_batch(step, BATCH_SIZE, &training);
        let loss = criterion.forward(model.forward(batch.images), batch.labels);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(LEARNING_RATE, model, grads);
        show(&format!("{name} loss"), &loss.into_data());
    }
    let images = data::test_batch(device).images.slice([0..16]);
    let logits = model.valid().forward(images);
    show(&format!("{name} logits"), &logits.into_data());
}
