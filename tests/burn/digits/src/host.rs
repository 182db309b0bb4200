//! Numbers made on the host, so that no result hangs on a device's random numbers.

use burn::module::{ModuleMapper, Param};
use burn::prelude::*;

/// SplitMix64.
pub struct Numbers {
    state: u64,
}

impl Numbers {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The upper 24 bits of the next number.
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 40) as u32
    }

    /// The next number as a float in [-1, 1).
    pub fn uniform(&mut self) -> f32 {
        self.next() as f32 / (1 << 23) as f32 - 1.0
    }

    /// The next number as an integer in [0, bound).
    #[cfg(feature = "bench")]
    pub fn below(&mut self, bound: usize) -> i32 {
        ((self.next() as usize * bound) >> 24) as i32
    }
}

/// Replaces every weight of a module, in the order of its fields.
///
/// Matrices and kernels are uniform within `1 / sqrt(fan in)`, vectors within 0.1: around one where they scale
/// (`gamma`, `running_var`), else around zero.
pub struct HostWeights {
    numbers: Numbers,
    path: Vec<String>,
}

impl HostWeights {
    /// Weights that depend on `seed` and on the module's shapes only.
    pub fn new(seed: u64) -> Self {
        Self {
            numbers: Numbers::new(seed),
            path: Vec::new(),
        }
    }

    fn center_and_radius(&self, dims: &[usize]) -> (f32, f32) {
        let scales = ["gamma", "running_var"];
        match (dims, self.path.last()) {
            (&[_], Some(name)) if scales.contains(&name.as_str()) => (1.0, 0.1),
            (&[_], _) => (0.0, 0.1),
            // Linear weights are (in, out), kernels (out, in per group, height, width).
            (&[fan_in, _], _) => (0.0, 1.0 / (fan_in as f32).sqrt()),
            _ => (
                0.0,
                1.0 / (dims[1..].iter().product::<usize>() as f32).sqrt(),
            ),
        }
    }
}

impl ModuleMapper for HostWeights {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let dims = old.dims();
            let (center, radius) = self.center_and_radius(&dims);
            let values: Vec<f32> = (0..dims.iter().product())
                .map(|_| center + radius * self.numbers.uniform())
                .collect();
            Tensor::from_data(TensorData::new(values, dims), &old.device())
                .set_require_grad(old.is_require_grad())
        })
    }
}
