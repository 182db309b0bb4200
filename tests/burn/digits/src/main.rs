//! Real Burn programs on the handwritten digits, to be run against a server or in this process.
//!
//! ```text
//! digits client PROGRAM (--url ws://host:port | --device flex) [--steps N] [--read-every N] [--seed N] [--json]
//! digits serve --port P
//! digits bench PROGRAM ...
//! ```
//!
//! `PROGRAM` is `mlp`, `cnn`, `transformer` or `lstm`. A client trains on the device and prints one line per loss that
//! it reads, then one with the accuracy on the last 297 digits. With `--json` the lines are
//! `{"program", "step", "loss", "elapsed_s"}` and `{"program", "step", "accuracy", "correct", "count", "elapsed_s"}`.
//! Weights and batches come from the host. The cargo feature `fusion` makes the client send registered graphs.
//!
//! `serve` is Burn's own remote server with two Flex devices; it ends on Ctrl+C or `SIGTERM`. `bench` times steps: see
//! `bench.rs`.

#[cfg(feature = "bench")]
mod bench;
mod data;
mod host;
#[cfg(feature = "bench")]
mod large;
mod models;

use std::error::Error;
use std::time::Instant;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::remote::RemoteHost;
use burn::server::{RemoteServer, WebSocketTransport};
use host::HostWeights;
use models::{Classifier, Cnn, Mlp, RowLstm, Transformer};

const USAGE: &str = "usage:
  digits client mlp|cnn|transformer|lstm (--url ws://host:port | --device flex) \
[--steps N] [--read-every N] [--seed N] [--json]
  digits serve --port P";

/// The options of `digits client`.
struct Client {
    program: String,
    device: Device,
    steps: Option<usize>,
    read_every: Option<usize>,
    seed: u64,
    json: bool,
}

impl Client {
    fn run<M: Classifier>(&self) {
        let start = Instant::now();
        let device = self.device.clone().autodiff();
        let mut model = M::init(&device).map(&mut HostWeights::new(self.seed));
        let mut optimizer = M::optimizer();
        let criterion = CrossEntropyLossConfig::new().init(&device);
        let steps = self.steps.unwrap_or(M::STEPS);
        let read_every = self.read_every.unwrap_or(M::READ_EVERY);

        for step in 1..=steps {
            let batch = data::train_batch(step - 1, M::BATCH_SIZE, &device);
            let loss = criterion.forward(model.forward(batch.images), batch.labels);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(M::LEARNING_RATE, model, grads);
            if step.is_multiple_of(read_every) {
                let loss: f32 = loss.into_scalar();
                self.report(start, step, &[("loss", loss.to_string())]);
            }
        }

        let batch = data::test_batch(&self.device);
        let guess = model
            .valid()
            .forward(batch.images)
            .argmax(1)
            .reshape([data::NUM_TEST]);
        let correct: i64 = guess.equal(batch.labels).int().sum().into_scalar();
        let values = [
            (
                "accuracy",
                (correct as f64 / data::NUM_TEST as f64).to_string(),
            ),
            ("correct", correct.to_string()),
            ("count", data::NUM_TEST.to_string()),
        ];
        self.report(start, steps, &values);
    }

    fn report(&self, start: Instant, step: usize, values: &[(&str, String)]) {
        let elapsed_s = start.elapsed().as_secs_f64();
        let show = |quote: &str, colon: &str, between: &str| {
            let pairs: Vec<_> = values
                .iter()
                .map(|(name, value)| format!("{quote}{name}{quote}{colon}{value}"))
                .collect();
            pairs.join(between)
        };
        let program = &self.program;
        if self.json {
            let values = show("\"", ": ", ", ");
            println!(
                r#"{{"program": "{program}", "step": {step}, {values}, "elapsed_s": {elapsed_s:.6}}}"#
            );
        } else {
            println!(
                "{program} step {step}: {} ({elapsed_s:.3} s)",
                show("", " ", ", ")
            );
        }
    }
}

fn client(mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let program = args.next().ok_or(USAGE)?;
    let (mut device, mut steps, mut read_every, mut seed, mut json) = (None, None, None, 0, false);
    while let Some(option) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match option.as_str() {
            "--url" => {
                let host = RemoteHost::websocket(&value()?);
                device = Some(Device::remote_options(&host).init()?);
            }
            "--device" if value()? == "flex" => device = Some(Device::flex()),
            "--steps" => steps = Some(value()?.parse()?),
            "--read-every" => read_every = Some(value()?.parse()?),
            "--seed" => seed = value()?.parse()?,
            "--json" => json = true,
            _ => return Err(USAGE.into()),
        }
    }
    let device = device.ok_or(USAGE)?;
    let client = Client {
        program,
        device,
        steps,
        read_every,
        seed,
        json,
    };
    match client.program.as_str() {
        "mlp" => client.run::<Mlp>(),
        "cnn" => client.run::<Cnn>(),
        "transformer" => client.run::<Transformer>(),
        "lstm" => client.run::<RowLstm>(),
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn serve(mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let port = match (args.next().as_deref(), args.next()) {
        (Some("--port"), Some(port)) => port.parse()?,
        _ => return Err(USAGE.into()),
    };
    RemoteServer::new([Device::flex(), Device::flex()]).serve(WebSocketTransport::new(port))?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("client") => client(args),
        Some("serve") => serve(args),
        #[cfg(feature = "bench")]
        Some("bench") => bench::run(args),
        _ => Err(USAGE.into()),
    }
}
