//! Runs a graph in a session of the crate and reads everything that can be read from it.

use std::collections::BTreeMap;

use meganeura::compile::{self, BufferRef, ExecutionPlan};
use meganeura::graph::Graph;
use meganeura::runtime::Session;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Elements, little-endian, 4 bytes each.
pub type Values = BTreeMap<String, ByteBuf>;

#[derive(Deserialize)]
pub struct Run {
    /// Uploaded before the first step; what is not named is zero.
    parameters: Values,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    /// Uploaded before the step; what is not named keeps its value.
    inputs: Values,
    optimizer: Option<Optimizer>,
}

#[derive(Clone, Copy, Deserialize)]
enum Optimizer {
    Sgd(f32),
    Adam(f32, f32, f32, f32),
}

/// What a session holds after a step.
#[derive(Serialize)]
pub struct State {
    outputs: Vec<ByteBuf>,
    parameters: Values,
    gradients: Values,
}

impl Run {
    /// Compiles `graph` as it is and takes the steps.
    pub fn on(self, graph: &Graph) -> Vec<State> {
        let mut session = Session::new(compile::compile(graph));
        assert!(
            session.device_information().is_software_emulated,
            "the referee runs on a software device only, this is {}",
            session.device_information().device_name
        );
        for (name, bytes) in &self.parameters {
            session.set_parameter(name, &floats(bytes));
        }
        self.steps
            .iter()
            .map(|step| step.take(&mut session))
            .collect()
    }
}

impl Step {
    fn take(&self, session: &mut Session) -> State {
        for (name, bytes) in &self.inputs {
            // The crate copies bits, so this serves for u32 too.
            session.set_input(name, &floats(bytes));
        }
        match self.optimizer {
            Some(Optimizer::Sgd(rate)) => session.set_learning_rate(rate),
            Some(Optimizer::Adam(rate, beta1, beta2, eps)) => {
                session.set_adam(rate, beta1, beta2, eps);
            }
            None => {}
        }
        session.step();
        session.wait();
        State::of(session)
    }
}

impl State {
    fn of(session: &Session) -> Self {
        let plan = session.plan();
        let outputs = plan.output_buffers.iter();
        let parameters = plan.param_buffers.iter();
        let pairs = plan.param_buffers.iter().zip(&plan.param_grad_pairs);
        Self {
            outputs: outputs.map(|buffer| read(session, *buffer)).collect(),
            parameters: parameters
                .map(|(name, buffer)| (name.clone(), read(session, *buffer)))
                .collect(),
            gradients: pairs
                .map(|((name, _), (_, gradient))| (name.clone(), read(session, *gradient)))
                .collect(),
        }
    }
}

fn read(session: &Session, buffer: BufferRef) -> ByteBuf {
    let mut values = vec![0.0; len(session.plan(), buffer)];
    session.read_buffer(buffer, &mut values);
    ByteBuf::from(
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}

fn len(plan: &ExecutionPlan, buffer: BufferRef) -> usize {
    plan.buffers[buffer.0 as usize] / size_of::<f32>()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(size_of::<f32>());
    words
        .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}
