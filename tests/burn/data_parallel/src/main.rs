//! Linear regression by gradient descent, on one device or on several that share each batch.
//!
//! ```text
//! data_parallel (--url ws://host:port --devices N | --flex) [--steps N]
//! ```
//!
//! Each device has a thread, a part of the batch and its own weights; gradients and losses are joined with Burn's
//! `all_reduce`, so that the weights stay equal. Prints the losses of each device in order, one JSON list per line,
//! then its weights.

use std::error::Error;
use std::thread;

use burn::prelude::*;
use burn::remote::RemoteHost;
use burn::tensor::distributed::{ReduceOperation, all_reduce};

const BATCH: usize = 24;
const INPUTS: usize = 5;
const LEARNING_RATE: f32 = 0.25;
const USAGE: &str = "data_parallel (--url ws://host:port --devices N | --flex) [--steps N]";

/// Numbers in [-1, 1) that look random: multiples of the golden ratio.
fn numbers(count: usize, offset: usize) -> Vec<f32> {
    let number = |n: usize| ((n + offset) as f64 * 0.618_033_988_749_895).fract() * 2.0 - 1.0;
    (0..count).map(|n| number(n) as f32).collect()
}

/// The mean of a tensor over the devices; with one device the tensor itself.
fn mean_over(devices: &[Device], part: Tensor<2>) -> Tensor<2> {
    if devices.len() == 1 {
        return part;
    }
    all_reduce(part, ReduceOperation::Mean, devices.to_vec()).resolve()
}

/// Trains on the part of the batch at `position`; returns the loss of each step, then the weights.
fn train(devices: &[Device], position: usize, steps: usize) -> Vec<Vec<f32>> {
    let device = &devices[position];
    let rows = BATCH / devices.len();
    let part = position * rows..(position + 1) * rows;
    let all = TensorData::new(numbers(BATCH * INPUTS, 1), [BATCH, INPUTS]);
    let wanted = TensorData::new(numbers(INPUTS, 1000), [INPUTS, 1]);
    let inputs = Tensor::<2>::from_data(all, device).slice([part, 0..INPUTS]);
    let targets = inputs.clone().matmul(Tensor::from_data(wanted, device));

    let mut weights = Tensor::<2>::zeros([INPUTS, 1], device);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let off = inputs.clone().matmul(weights.clone()) - targets.clone();
        let gradient = inputs.clone().transpose().matmul(off.clone()) * (2.0 / rows as f32);
        let loss = (off.clone() * off).mean_dim(0);
        losses.push(mean_over(devices, loss));
        weights = weights - mean_over(devices, gradient) * LEARNING_RATE;
    }
    let losses = Tensor::cat(losses, 0).into_data().iter().collect();
    vec![losses, weights.into_data().iter().collect()]
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut url, mut count, mut steps, mut flex) = (String::new(), 1, 8, false);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match option.as_str() {
            "--flex" => flex = true,
            "--url" => url = args.next().ok_or(USAGE)?,
            "--devices" => count = args.next().ok_or(USAGE)?.parse()?,
            "--steps" => steps = args.next().ok_or(USAGE)?.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let mut devices = Vec::new();
    for index in 0..count {
        devices.push(if flex {
            Device::flex()
        } else {
            Device::remote_options(&RemoteHost::websocket(&url))
                .device_index(index)
                .init()?
        });
    }
    let workers: Vec<_> = (0..count)
        .map(|position| {
            let devices = devices.clone();
            thread::spawn(move || train(&devices, position, steps))
        })
        .collect();
    for worker in workers {
        for line in worker.join().map_err(|_| "a thread panicked")? {
            println!("{line:?}");
        }
    }
    Ok(())
}
