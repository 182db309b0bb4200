//! Times training steps.
//!
//! ```text
//! digits bench PROGRAM (--url ws://host:port | --device flex|ndarray) [--steps N] [--read-every N] [--seed N]
//!     [--batch N] [--layers N] [--width N] [--length N] [--vocabulary N]
//! ```
//!
//! `PROGRAM` is `digits-mlp`, `digits-cnn`, `digits-transformer` or `digits-lstm`, whose batches are the digits, or
//! `mlp`, `cnn` or `decoder`, whose batches are random numbers made before the clock starts. Each step brings a batch
//! to the device, updates the weights, and reads the loss if its number is a multiple of `--read-every`. One JSON line
//! per step: `{"step", "ended_s", "loss"}`, `ended_s` in seconds since 1970 and `loss` null where it was not read.
//! The line before the first step is step 0.

use std::error::Error;
use std::time::SystemTime;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::remote::RemoteHost;

use crate::data;
use crate::host::HostWeights;
use crate::large::{Decoder, DeepCnn, HostBatch, Sizes, WideMlp, image_batch, text_batch};
use crate::models::{Classifier, Cnn, Mlp, RowLstm, Transformer};

const USAGE: &str = "usage:
  digits bench digits-mlp|digits-cnn|digits-transformer|digits-lstm|mlp|cnn|decoder \
(--url ws://host:port | --device flex|ndarray) [--steps N] [--read-every N] [--seed N] \
[--batch N] [--layers N] [--width N] [--length N] [--vocabulary N]";

/// Batches that are made, one after the other and over again.
const NUM_BATCHES: usize = 4;
const LEARNING_RATE: f64 = 1e-3;

/// The options of `digits bench`.
struct Bench {
    program: String,
    device: Device,
    steps: usize,
    read_every: usize,
    seed: u64,
    sizes: Sizes,
}

impl Bench {
    /// Trains `model`; `loss_of` gets it and the number of the step, from 0.
    fn train<M: Module>(
        &self,
        model: M,
        mut optimizer: ModuleOptimizer,
        learning_rate: f64,
        loss_of: impl Fn(&M, usize) -> Tensor<1>,
    ) -> Result<(), Box<dyn Error>> {
        let mut model = model.map(&mut HostWeights::new(self.seed));
        report(0, None)?;
        for step in 1..=self.steps {
            let loss = loss_of(&model, step - 1);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(learning_rate, model, grads);
            let value = step
                .is_multiple_of(self.read_every)
                .then(|| loss.into_scalar::<f32>());
            report(step, value)?;
        }
        Ok(())
    }

    fn digits<M: Classifier>(&self) -> Result<(), Box<dyn Error>> {
        let device = self.device.clone().autodiff();
        let criterion = CrossEntropyLossConfig::new().init(&device);
        self.train(
            M::init(&device),
            M::optimizer(),
            M::LEARNING_RATE,
            |model: &M, step| {
                let batch = data::train_batch(step, M::BATCH_SIZE, &device);
                criterion.forward(model.forward(batch.images), batch.labels)
            },
        )
    }

    fn run(&self) -> Result<(), Box<dyn Error>> {
        let device = self.device.clone().autodiff();
        let criterion: CrossEntropyLoss = CrossEntropyLossConfig::new().init(&device);
        let batches: Vec<HostBatch> = (0..NUM_BATCHES as u64)
            .map(|n| self.batch(1000 + n))
            .collect();
        let targets = |step: usize| {
            Tensor::<1, Int>::from_data(batches[step % NUM_BATCHES].targets.clone(), &device)
        };
        let inputs = |step: usize| batches[step % NUM_BATCHES].inputs.clone();
        match self.program.as_str() {
            "digits-mlp" => self.digits::<Mlp>(),
            "digits-cnn" => self.digits::<Cnn>(),
            "digits-transformer" => self.digits::<Transformer>(),
            "digits-lstm" => self.digits::<RowLstm>(),
            "mlp" => self.train(
                WideMlp::init(&device),
                AdamConfig::new().init(),
                LEARNING_RATE,
                |model: &WideMlp, step| {
                    let images = Tensor::from_data(inputs(step), &device);
                    criterion.forward(model.forward(images), targets(step))
                },
            ),
            "cnn" => self.train(
                DeepCnn::init(&device),
                AdamConfig::new().init(),
                LEARNING_RATE,
                |model: &DeepCnn, step| {
                    let images = Tensor::from_data(inputs(step), &device);
                    criterion.forward(model.forward(images), targets(step))
                },
            ),
            "decoder" => self.train(
                Decoder::init(&self.sizes, &device),
                AdamWConfig::new().init(),
                LEARNING_RATE,
                |model: &Decoder, step| {
                    let words = Tensor::from_data(inputs(step), &device);
                    criterion.forward(model.forward(words), targets(step))
                },
            ),
            _ => Err(USAGE.into()),
        }
    }

    fn batch(&self, seed: u64) -> HostBatch {
        let batch = self.sizes.batch;
        match self.program.as_str() {
            "mlp" => image_batch(seed, [batch, 784]),
            "cnn" => image_batch(seed, [batch, 3, 32, 32]),
            _ => text_batch(seed, &self.sizes),
        }
    }
}

fn report(step: usize, loss: Option<f32>) -> Result<(), Box<dyn Error>> {
    let ended_s = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs_f64();
    let loss = loss.map_or("null".to_owned(), |value| value.to_string());
    println!(r#"{{"step": {step}, "ended_s": {ended_s:.6}, "loss": {loss}}}"#);
    Ok(())
}

/// Does what the command line behind `bench` says.
pub fn run(mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let program = args.next().ok_or(USAGE)?;
    let (mut device, mut steps, mut read_every, mut seed) = (None, 20, 1, 0);
    let mut sizes = Sizes {
        batch: match program.as_str() {
            "mlp" => 128,
            "cnn" => 64,
            _ => 16,
        },
        layers: 2,
        width: 512,
        length: 256,
        vocabulary: 8192,
    };
    while let Some(option) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match option.as_str() {
            "--url" => {
                let host = RemoteHost::websocket(&value);
                device = Some(Device::remote_options(&host).init()?);
            }
            "--device" if value == "flex" => device = Some(Device::flex()),
            #[allow(deprecated)] // Burn 0.22.1 still has it, and it is what many compare with
            "--device" if value == "ndarray" => device = Some(Device::ndarray()),
            "--steps" => steps = value.parse()?,
            "--read-every" => read_every = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--batch" => sizes.batch = value.parse()?,
            "--layers" => sizes.layers = value.parse()?,
            "--width" => sizes.width = value.parse()?,
            "--length" => sizes.length = value.parse()?,
            "--vocabulary" => sizes.vocabulary = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let device = device.ok_or(USAGE)?;
    Bench {
        program,
        device,
        steps,
        read_every,
        seed,
        sizes,
    }
    .run()
}
