//! The 1,797 handwritten digits of the UCI repository (CC BY 4.0), as scikit-learn ships them.

use burn::prelude::*;
use rand::Rng;
use rand::seq::SliceRandom;

pub const NUM_CLASSES: usize = 10;

const NUM_DIGITS: usize = 1797;
/// Of so many digits one is held out, so that each of the writers, who follow each other, has digits of either kind.
const HELD_OUT: usize = 6;
const SIDE: usize = 8;
const NUM_PIXELS: usize = SIDE * SIDE;
/// Pixels are numbers from 0 to this.
const WHITE: f32 = 16.0;

/// All images, row by row, then all labels; a byte per pixel and per label.
static DIGITS: &[u8; NUM_DIGITS * (NUM_PIXELS + 1)] = include_bytes!("../data/digits.bin");

/// Digits on a device.
pub struct Batch {
    /// (batch, channel = 1, row, column), from 0 to 1.
    pub images: Tensor<4>,
    /// (batch,), from 0 to 9.
    pub labels: Tensor<1, Int>,
}

impl Batch {
    fn new(chosen: &[usize], device: &Device) -> Self {
        let (images, labels) = DIGITS.split_at(NUM_DIGITS * NUM_PIXELS);
        let pixels: Vec<f32> = chosen
            .iter()
            .flat_map(|i| &images[i * NUM_PIXELS..][..NUM_PIXELS])
            .map(|pixel| f32::from(*pixel) / WHITE)
            .collect();
        let labels: Vec<i32> = chosen.iter().map(|i| i32::from(labels[*i])).collect();
        let size = chosen.len();
        Self {
            images: Tensor::from_data(TensorData::new(pixels, [size, 1, SIDE, SIDE]), device),
            labels: Tensor::from_data(TensorData::new(labels, [size]), device),
        }
    }
}

/// How many batches one pass over the digits for training has; what would not fill a last one is left out.
pub fn num_batches(size: usize) -> usize {
    (NUM_DIGITS - NUM_DIGITS.div_ceil(HELD_OUT)) / size
}

/// One pass over the digits for training, in a new order.
pub fn train_batches(
    size: usize,
    rng: &mut impl Rng,
    device: &Device,
) -> impl Iterator<Item = Batch> {
    let mut order: Vec<usize> = (0..NUM_DIGITS).filter(|i| i % HELD_OUT != 0).collect();
    order.shuffle(rng);
    (0..num_batches(size)).map(move |i| Batch::new(&order[i * size..][..size], device))
}

/// The digits that no training step sees.
pub fn held_out(device: &Device) -> Batch {
    let chosen: Vec<usize> = (0..NUM_DIGITS).step_by(HELD_OUT).collect();
    Batch::new(&chosen, device)
}
