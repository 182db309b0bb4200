//! Four threads share one model and its tensors: each works out the gradients of its part of the batch.

use std::thread;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsAccumulator, GradientsParams, SgdConfig};
use burn::prelude::*;

use crate::Result;
use crate::data::{self, Batch};
use crate::host::HostWeights;
use crate::models::{Classifier, Mlp};
use crate::report::show;

const NUM_THREADS: usize = 4;
const BATCH_SIZE: usize = 64;
const STEPS: usize = 4;
const LEARNING_RATE: f64 = 0.5;

/// The loss (1,) of some images, and the gradients of the weights, which other threads use as well.
///
/// Burn 0.22.1 can lose gradients (tracel-ai/burn#5573), or wait for ever, where threads share a graph of operations:
/// each thread starts one of its own, from the same tensors.
fn loss_and_gradients(weights: Mlp, batch: Batch) -> (Tensor<1>, GradientsParams) {
    let (images, labels) = (batch.images.autodiff(), batch.labels.autodiff());
    let model = weights.train();
    let criterion = CrossEntropyLossConfig::new().init(&images.device());
    let loss = criterion.forward(model.forward(images), labels);
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    (loss.inner(), grads)
}

/// Prints the loss of each step, read by this thread, and the logits of some images, read by each of the threads.
pub fn run(device: &Device, seed: u64) -> Result<()> {
    let training = device.clone().autodiff();
    let mut model = Mlp::init(&training).map(&mut HostWeights::new(seed));
    let mut optimizer = SgdConfig::new().init();
    for step in 0..STEPS {
        let batch = data::train_batch(step, BATCH_SIZE, device);
        let images = batch.images.chunk(NUM_THREADS, 0);
        let labels = batch.labels.chunk(NUM_THREADS, 0);
        let workers: Vec<_> = images
            .into_iter()
            .zip(labels)
            .map(|(images, labels)| {
                let weights = model.valid();
                thread::spawn(move || loss_and_gradients(weights, Batch { images, labels }))
            })
            .collect();

        let mut accumulator = GradientsAccumulator::new();
        let mut losses = Vec::new();
        for worker in workers {
            let (loss, grads) = worker.join().map_err(|_| "a thread panicked")?;
            accumulator.accumulate(&model, grads);
            losses.push(loss);
        }
        // The gradients are added up; their mean is what a step takes.
        let learning_rate = LEARNING_RATE / NUM_THREADS as f64;
        model = optimizer.step(learning_rate, model, accumulator.grads());
        show("losses", &Tensor::cat(losses, 0).into_data());
    }

    let images = data::test_batch(device).images;
    let model = model.valid();
    let readers: Vec<_> = (0..NUM_THREADS)
        .map(|index| {
            let (model, images) = (
                model.clone(),
                images.clone().slice([index * 3..index * 3 + 3]),
            );
            thread::spawn(move || model.forward(images).into_data())
        })
        .collect();
    for reader in readers {
        let logits = reader.join().map_err(|_| "a thread panicked")?;
        show("logits", &logits);
    }
    Ok(())
}
