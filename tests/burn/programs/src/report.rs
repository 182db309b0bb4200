//! What a program prints.

use burn::prelude::*;
use burn::tensor::DType;

/// Prints a tensor as one line of JSON: its type, its shape, and its values row by row.
pub fn show(name: &str, data: &TensorData) {
    let values: Vec<String> = match data.dtype() {
        DType::Bool(_) => data.iter::<bool>().map(|v| v.to_string()).collect(),
        dtype if dtype.is_float() => data.iter::<f64>().map(|v| v.to_string()).collect(),
        _ => data.iter::<i64>().map(|v| v.to_string()).collect(),
    };
    let (dtype, shape, values) = (data.dtype(), data.shape().as_slice(), values.join(", "));
    println!(
        r#"{{"name": "{name}", "dtype": "{dtype:?}", "shape": {shape:?}, "values": [{values}]}}"#
    );
}
