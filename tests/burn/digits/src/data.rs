//! The 1,797 handwritten digits, and batches of them made on the host.

use burn::prelude::*;

const IMAGE_SIZE: usize = 64;
const NUM_IMAGES: usize = 1797;
/// The last images are for the accuracy, the others for training.
pub const NUM_TEST: usize = 297;
const NUM_TRAIN: usize = NUM_IMAGES - NUM_TEST;

static DIGITS: &[u8; NUM_IMAGES * (IMAGE_SIZE + 1)] = include_bytes!("../data/digits.bin");

/// Images (batch, 8, 8) with pixels from 0 to 16, and labels (batch,) from 0 to 9.
pub struct Batch {
    pub images: Tensor<3>,
    pub labels: Tensor<1, Int>,
}

/// The batch of training step `step`: the next images in order, from the start again after the last.
pub fn train_batch(step: usize, size: usize, device: &Device) -> Batch {
    let first = step * size;
    batch((first..first + size).map(|i| i % NUM_TRAIN), device)
}

/// The images that no training step sees.
pub fn test_batch(device: &Device) -> Batch {
    batch(NUM_TRAIN..NUM_IMAGES, device)
}

fn batch(chosen: impl Iterator<Item = usize> + Clone, device: &Device) -> Batch {
    let (images, labels) = DIGITS.split_at(NUM_IMAGES * IMAGE_SIZE);
    let pixels: Vec<f32> = chosen
        .clone()
        .flat_map(|i| &images[i * IMAGE_SIZE..][..IMAGE_SIZE])
        .map(|pixel| f32::from(*pixel))
        .collect();
    let labels: Vec<i32> = chosen.map(|i| i32::from(labels[i])).collect();
    let size = labels.len();
    Batch {
        images: Tensor::from_data(TensorData::new(pixels, [size, 8, 8]), device),
        labels: Tensor::from_data(TensorData::new(labels, [size]), device),
    }
}
