//! Real Burn programs of many kinds, to be run against servers or in this process.
//!
//! ```text
//! programs PROGRAM (--url ws://host:port ... | --device flex) [--seed N] [--dtype f16|bf16] [--weights FILE --ids FILE]
//! ```
//!
//! `PROGRAM` is `unet`, `classify`, `ints`, `threads`, `devices` or `minilm`; each is described in the module of its
//! name. Each prints the tensors that it computes, one JSON line each:
//! `{"name", "dtype", "shape", "values"}`, values row by row.
//!
//! `devices` takes the first two devices of a server, or the first of each of two servers where there are two `--url`.
//! `--dtype` sets the device's default type. `minilm` reads its weights from a safetensors file and its sentences, as
//! ids, from a text file. Weights and batches come from the host. The cargo feature `fusion` makes the client send
//! registered graphs.

mod classify;
#[path = "../../digits/src/data.rs"]
mod data;
mod devices;
#[path = "../../digits/src/host.rs"]
mod host;
mod ints;
mod minilm;
#[allow(dead_code)] // How `digits` trains them.
#[path = "../../digits/src/models.rs"]
mod models;
mod report;
mod threads;
mod unet;

use std::error::Error;
use std::path::PathBuf;

use burn::prelude::*;
use burn::remote::RemoteHost;
use burn::tensor::FloatDType;

const USAGE: &str = "usage:
  programs unet|classify|ints|threads|devices|minilm (--url ws://host:port ... | --device flex) \
[--seed N] [--dtype f16|bf16] [--weights FILE --ids FILE]";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says.
#[derive(Default)]
struct Options {
    urls: Vec<String>,
    flex: bool,
    dtype: Option<FloatDType>,
    seed: u64,
    weights: PathBuf,
    ids: PathBuf,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(option) = args.next() {
            let value = args.next().ok_or(USAGE)?;
            match (option.as_str(), value.as_str()) {
                ("--url", _) => options.urls.push(value),
                ("--device", "flex") => options.flex = true,
                ("--dtype", "f16") => options.dtype = Some(FloatDType::F16),
                ("--dtype", "bf16") => options.dtype = Some(FloatDType::BF16),
                ("--seed", _) => options.seed = value.parse()?,
                ("--weights", _) => options.weights = value.into(),
                ("--ids", _) => options.ids = value.into(),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }

    /// Of one server the device at a place, of several servers the first device of the server at that place.
    fn device(&self, place: usize) -> Result<Device> {
        let (url, index) = match self.urls.as_slice() {
            _ if self.flex => return self.with_dtype(Device::flex()),
            [url] => (url, place),
            urls => (urls.get(place).ok_or(USAGE)?, 0),
        };
        let host = RemoteHost::websocket(url);
        self.with_dtype(Device::remote_options(&host).device_index(index).init()?)
    }

    fn with_dtype(&self, mut device: Device) -> Result<Device> {
        if let Some(dtype) = self.dtype {
            device.configure(dtype)?;
        }
        Ok(device)
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let program = args.next().ok_or(USAGE)?;
    let options = Options::parse(args)?;
    let device = options.device(0)?;
    match program.as_str() {
        "unet" => unet::run(&device, options.seed),
        "classify" => classify::run(&device, options.seed),
        "ints" => ints::run(&device, options.seed),
        "threads" => threads::run(&device, options.seed)?,
        "devices" => devices::run(&[device, options.device(1)?], options.seed),
        "minilm" => minilm::run(&device, &options.weights, &options.ids)?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
