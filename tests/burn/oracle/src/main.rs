//! The oracle: runs recorded operations through Burn's own `TensorInterpreter` on the Flex backend.
//!
//! # Frames
//!
//! Standard input is a row of cases, standard output a row of answers: one answer per case, in order, flushed at
//! once. Both are frames: a little-endian u32 length, then that many bytes of msgpack. The end of input ends the
//! process. The reader of the answers has to run beside the writer of the cases, or both pipes fill up.
//!
//! A case is `[seed, tensors, aliases, ops, reads]`:
//!
//! | field | content |
//! |---|---|
//! | `seed` | u64 or nil; the generator is one for the whole process, so seed each case that draws |
//! | `tensors` | `[[id, TensorData], ..]`, uploaded in order |
//! | `aliases` | `[[new id, source id], ..]`, made after the uploads |
//! | `ops` | `[OperationIr, ..]` as rmp-serde packs them (structs as arrays) |
//! | `reads` | `[TensorIr, ..]`, read after the last operation; a `ReadWrite` one frees its id |
//!
//! An answer is one of
//!
//! | answer | meaning |
//! |---|---|
//! | `{"ok": [TensorData or {"error": text}, ..], "live": [id, ..]}` | one entry per read |
//! | `{"panic": {"message", "location", "stage", "op_index"}, "live": [id, ..]}` | Burn gave up; `stage` is `tensor`, `alias` or `op`, `op_index` counts in it |
//! | `{"invalid": text}` | the case does not decode |
//!
//! `live` has, in ascending order, those ids named by the case that hold a tensor at the end. Each case has an interpreter of its own, so
//! a panic does not reach the next one. A failed allocation aborts the process; whoever feeds it starts it again.

#[path = "../../../frames.rs"]
mod frames;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

use burn_backend::{TensorData, read_sync};
use burn_flex::{Flex, FlexDevice};
use burn_ir::{CustomOpIr, OperationIr, ScalarIr, TensorId, TensorIr};
use burn_router::{CustomOpRegistry, TensorInterpreter};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// Id of the custom operation that looks into the handle container.
const LIVE: &str = "oracle.live";

/// What the panic hook saw last: message and place.
static LAST_PANIC: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

#[derive(Deserialize)]
struct Case {
    seed: Option<u64>,
    tensors: Vec<(u64, TensorData)>,
    aliases: Vec<(u64, u64)>,
    ops: Vec<OperationIr>,
    reads: Vec<TensorIr>,
}

enum Answer {
    Ok { ok: Vec<Value>, live: Vec<u64> },
    Panic { panic: Panic, live: Vec<u64> },
    Invalid { invalid: String },
}

/// A read tensor, or why it could not be read: `{"error": text}`.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Data(TensorData),
    Error(BTreeMap<&'static str, String>),
}

impl Value {
    fn error(text: String) -> Self {
        Self::Error(BTreeMap::from([("error", text)]))
    }
}

struct Panic {
    message: String,
    location: String,
    stage: &'static str,
    op_index: usize,
}

// Answers are maps by hand: rmp-serde packs all structs the same way, and the tensors in them have to be arrays.
impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Ok { ok, live } => {
                map.serialize_entry("ok", ok)?;
                map.serialize_entry("live", live)?;
            }
            Self::Panic { panic, live } => {
                map.serialize_entry("panic", panic)?;
                map.serialize_entry("live", live)?;
            }
            Self::Invalid { invalid } => map.serialize_entry("invalid", invalid)?,
        }
        map.end()
    }
}

impl Serialize for Panic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("location", &self.location)?;
        map.serialize_entry("stage", self.stage)?;
        map.serialize_entry("op_index", &self.op_index)?;
        map.end()
    }
}

impl Case {
    /// All ids that the case names.
    fn ids(&self) -> BTreeSet<u64> {
        let uploads = self.tensors.iter().map(|(id, _)| *id);
        let aliases = self
            .aliases
            .iter()
            .flat_map(|(new, source)| [*new, *source]);
        let ops = self.ops.iter().flat_map(|op| op.nodes());
        let described = ops.chain(&self.reads).map(|tensor| tensor.id.value());
        uploads.chain(aliases).chain(described).collect()
    }

    fn run(self) -> Answer {
        let mut session = Session::new();
        let ids = self.ids();
        if let Some(seed) = self.seed {
            session.interpreter.seed(seed);
        }
        match session.prepare(self.tensors, self.aliases, self.ops) {
            Ok(()) => {
                let ok = self
                    .reads
                    .into_iter()
                    .map(|read| session.read(read))
                    .collect();
                let live = session.live(&ids);
                Answer::Ok { ok, live }
            }
            Err(panic) => {
                let live = session.live(&ids);
                Answer::Panic { panic, live }
            }
        }
    }
}

/// One interpreter with a window into its handle container.
struct Session {
    interpreter: TensorInterpreter<Flex>,
    live: Arc<Mutex<Vec<u64>>>,
}

impl Session {
    fn new() -> Self {
        let live = Arc::new(Mutex::new(Vec::new()));
        let mut custom_ops = CustomOpRegistry::<Flex>::new();
        let found = live.clone();
        custom_ops.register(LIVE, move |handles, op, _device| {
            let ids = op.scalars.iter().map(|id| id.elem::<u64>());
            let held = ids.filter(|id| handles.has_handle(&TensorId::new(*id)));
            *found.lock().unwrap() = held.collect();
        });
        let interpreter = TensorInterpreter::with_custom_ops(FlexDevice, custom_ops);
        Self { interpreter, live }
    }

    /// Uploads, aliases and operations, up to the first panic.
    fn prepare(
        &mut self,
        tensors: Vec<(u64, TensorData)>,
        aliases: Vec<(u64, u64)>,
        ops: Vec<OperationIr>,
    ) -> Result<(), Panic> {
        let interpreter = &mut self.interpreter;
        each("tensor", tensors, |(id, data)| {
            interpreter.register_tensor_data_id(TensorId::new(id), data);
        })?;
        each("alias", aliases, |(new, source)| {
            interpreter.register_alias(TensorId::new(new), TensorId::new(source));
        })?;
        each("op", ops, |op| interpreter.register_op(op))
    }

    fn read(&mut self, tensor: TensorIr) -> Value {
        let read = || read_sync(self.interpreter.read_tensor_async(tensor));
        match caught(read) {
            Ok(Ok(data)) => Value::Data(data),
            Ok(Err(error)) => Value::error(error.to_string()),
            Err((message, location)) => Value::error(format!("{message} ({location})")),
        }
    }

    /// Those of `ids` that hold a tensor.
    fn live(&mut self, ids: &BTreeSet<u64>) -> Vec<u64> {
        let scalars = ids.iter().map(|id| ScalarIr::UInt(*id)).collect();
        let op = CustomOpIr::with_scalars(LIVE, &[], &[], scalars);
        self.interpreter.register_op(OperationIr::Custom(op));
        self.live.lock().unwrap().clone()
    }
}

/// Calls `run` on each item; a panic ends it and says at which.
fn each<T>(stage: &'static str, items: Vec<T>, mut run: impl FnMut(T)) -> Result<(), Panic> {
    for (op_index, item) in items.into_iter().enumerate() {
        caught(|| run(item)).map_err(|(message, location)| Panic {
            message,
            location,
            stage,
            op_index,
        })?;
    }
    Ok(())
}

/// The result of `run`, or message and place of its panic.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, (String, String)> {
    panic::catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| std::mem::take(&mut *LAST_PANIC.lock().unwrap()))
}

/// Keeps message and place of a panic instead of printing them.
fn keep_panic(info: &panic::PanicHookInfo<'_>) {
    let message = info
        .payload_as_str()
        .unwrap_or("a panic without a text")
        .to_owned();
    let place = info.location().map_or(String::new(), ToString::to_string);
    // Drop the folder of cargo's registry: the place shall read the same on every machine.
    let place = match place.split_once("/registry/src/") {
        Some((_, inside)) => inside
            .split_once('/')
            .map_or(inside, |(_, path)| path)
            .to_owned(),
        None => place,
    };
    *LAST_PANIC.lock().unwrap() = (message, place);
}

fn main() -> io::Result<()> {
    panic::set_hook(Box::new(keep_panic));
    frames::answer_each(|frame| {
        let answer = match caught(|| rmp_serde::from_slice::<Case>(frame)) {
            Ok(Ok(case)) => case.run(),
            Ok(Err(error)) => Answer::Invalid {
                invalid: error.to_string(),
            },
            Err((message, _)) => Answer::Invalid { invalid: message },
        };
        rmp_serde::to_vec(&answer).map_err(io::Error::other)
    })
}
