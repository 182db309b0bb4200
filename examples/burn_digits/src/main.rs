//! Learns to read handwritten digits, on a burn-xla server or in this process.
//!
//! ```text
//! burn_digits [--device remote|flex] [--url ws://127.0.0.1:3000] [--epochs 8] [--seed 0] [--no-dropout]
//!             [--save digits.bpk] [--curve FILE]
//! ```
//!
//! Prints the mean loss and the accuracy on 300 held-out digits after each epoch, saves the model, loads it again and
//! counts once more. `--curve` writes the loss of each step, one a line. Initial weights and the order of the digits
//! come from `--seed` and this machine, dropout from the device: with `--no-dropout` two devices draw the same curve.

mod data;
mod model;

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::remote::RemoteHost;
use model::{Net, NetConfig};
use rand::SeedableRng;
use rand::rngs::StdRng;

const BATCH_SIZE: usize = 50;
const LEARNING_RATE: f64 = 1e-2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says.
struct Options {
    device: String,
    url: String,
    epochs: usize,
    seed: u64,
    no_dropout: bool,
    save: PathBuf,
    curve: Option<PathBuf>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            device: "remote".into(),
            url: "ws://127.0.0.1:3000".into(),
            epochs: 8,
            seed: 0,
            no_dropout: false,
            save: "digits.bpk".into(),
            curve: None,
        };
        while let Some(option) = args.next() {
            let mut value = || args.next().ok_or(format!("{option} needs a value"));
            match option.as_str() {
                "--device" => options.device = value()?,
                "--url" => options.url = value()?,
                "--epochs" => options.epochs = value()?.parse()?,
                "--seed" => options.seed = value()?.parse()?,
                "--no-dropout" => options.no_dropout = true,
                "--save" => options.save = value()?.into(),
                "--curve" => options.curve = Some(value()?.into()),
                _ => return Err(format!("{option} is no option; see src/main.rs").into()),
            }
        }
        Ok(options)
    }

    fn device(&self) -> Result<Device> {
        match self.device.as_str() {
            "remote" => Ok(Device::remote_options(&RemoteHost::websocket(&self.url)).init()?),
            "flex" => Ok(Device::flex()),
            other => Err(format!("--device is remote or flex, not {other}").into()),
        }
    }
}

/// How many of the held-out digits the model reads right, in percent.
fn percent_correct(model: &Net, device: &Device) -> f64 {
    let batch = data::held_out(device);
    let guesses = model.forward(batch.images).argmax(1).flatten(0, 1);
    let correct: f64 = guesses.equal(batch.labels).float().mean().into_scalar();
    100.0 * correct
}

/// Returns the trained model and the loss of each step.
fn train(config: &NetConfig, options: &Options, device: &Device) -> Result<(Net, Vec<f32>)> {
    // Each device draws other random numbers: the weights are drawn on this one and loaded.
    let host = Device::flex();
    host.seed(options.seed);
    let weights = config.init(&host).into_record();
    let mut rng = StdRng::seed_from_u64(options.seed);

    let training = device.clone().autodiff();
    let mut model = config.init(&training).load_record(weights);
    let mut optimizer = AdamConfig::new().init();
    let num_steps = options.epochs * data::num_batches(BATCH_SIZE);
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(LEARNING_RATE, num_steps).init()?;
    let criterion = CrossEntropyLossConfig::new().init(&training);

    let start = Instant::now();
    let mut curve = Vec::with_capacity(num_steps);
    for epoch in 1..=options.epochs {
        let mut losses = Vec::new();
        for batch in data::train_batches(BATCH_SIZE, &mut rng, &training) {
            let loss = criterion.forward(model.forward(batch.images), batch.labels);
            losses.push(loss.clone().inner());
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(schedule.step(), model, grads);
        }
        // The losses of an epoch are read at once: each read waits for the device.
        let losses: Vec<f32> = Tensor::cat(losses, 0).into_data().try_into_vec()?;
        let mean = losses.iter().sum::<f32>() / losses.len() as f32;
        let percent = percent_correct(&model.valid(), device);
        let elapsed_s = start.elapsed().as_secs_f64();
        println!(
            "epoch {epoch}: loss {mean:.4}, {percent:.1} % of the held-out digits right, {elapsed_s:.1} s"
        );
        curve.extend(losses);
    }
    Ok((model.valid(), curve))
}

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let mut config = NetConfig::new();
    if options.no_dropout {
        config = config.with_dropout(0.0);
    }
    let device = options.device()?;
    let (model, curve) = train(&config, &options, &device)?;
    if let Some(path) = &options.curve {
        let lines: Vec<String> = curve.iter().map(|loss| format!("{loss}\n")).collect();
        std::fs::write(path, lines.concat())?;
    }

    model.save_file(&options.save)?;
    let model = config.init(&device).try_load_file(&options.save)?;
    let percent = percent_correct(&model, &device);
    let path = options.save.display();
    println!("loaded again from {path}: {percent:.1} %");
    Ok(())
}
