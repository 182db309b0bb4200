//! The referee: Meganeura's own graph passes and sessions, asked over a pipe, and its model graphs, written to files.
//!
//! # Frames
//!
//! Without arguments, standard input is a row of requests, standard output a row of answers: one answer per request, in
//! order, flushed at once. Both are frames: a little-endian u32 length, then that many bytes of msgpack, structs as
//! maps or as arrays. The end of input ends the process.
//!
//! A request is `{"graph": graph, "passes": [name, ..], "run": run or nil, "text": bool}`: the passes are applied to
//! the graph, and the result is compiled as it is and run, or, without a run, answered, as its text if asked.
//!
//! | field | content |
//! |---|---|
//! | `graph` | as `record` lays it out |
//! | `passes` | of `Differentiate`, `FuseGroupNormSilu`, `Optimize`, `Toposort` |
//! | `run` | `{"parameters": {name: bytes}, "steps": [{"inputs": {name: bytes}, "optimizer": optimizer}, ..]}` |
//! | optimizer | nil, `{"Sgd": rate}` or `{"Adam": [rate, beta1, beta2, eps]}`, for this step |
//!
//! An answer is one of
//!
//! | answer | meaning |
//! |---|---|
//! | `{"graph": bytes}` | what the passes made, as msgpack, structs as arrays |
//! | `{"text": text}` | the same as `Display` shows it |
//! | `{"steps": [{"outputs": [bytes, ..], "parameters": {name: bytes}, "gradients": {name: bytes}}, ..]}` | after each step |
//! | `{"panic": {"message", "location"}}` | Meganeura gave up |
//! | `{"invalid": text}` | the request does not decode |
//!
//! `gradients` pairs parameters with the outputs after the first, so it means something for differentiated graphs only.
//!
//! # Files
//!
//! `meganeura-referee dump FOLDER` writes every model graph as `NAME.json`, and those of more than `JSON_LIMIT` bytes
//! as `NAME.msgpack.gz`.

#[path = "../../../frames.rs"]
mod frames;
mod models;
mod passes;
mod record;
mod run;

use std::fs;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Mutex;

use flate2::{Compression, GzBuilder};
use meganeura::graph::Graph;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use passes::Pass;
use record::Record;
use run::{Run, State};

/// A graph whose JSON is longer is written as msgpack, compressed.
const JSON_LIMIT: usize = 40_000;

/// What the panic hook saw last.
static LAST_PANIC: Mutex<Option<Panic>> = Mutex::new(None);

#[derive(Deserialize)]
struct Request {
    graph: Record,
    passes: Vec<Pass>,
    run: Option<Run>,
    #[serde(default)]
    text: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Graph(ByteBuf),
    Text(String),
    Steps(Vec<State>),
    Panic(Panic),
    Invalid(String),
}

#[derive(Serialize)]
struct Panic {
    message: String,
    location: String,
}

impl Request {
    fn answer(self) -> Answer {
        let graph = passes::apply(Graph::from(self.graph), &self.passes);
        match self.run {
            Some(run) => Answer::Steps(run.on(&graph)),
            None if self.text => Answer::Text(graph.to_string()),
            None => Answer::Graph(ByteBuf::from(packed(&Record::from(&graph)))),
        }
    }
}

/// A graph as msgpack, structs as arrays.
fn packed(record: &Record) -> Vec<u8> {
    rmp_serde::to_vec(record).expect("a graph in memory")
}

/// The result of `run`, or its panic.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panic> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|_| {
        let seen = LAST_PANIC.lock().unwrap().take();
        seen.expect("the hook saw the panic")
    })
}

/// Keeps message and place of a panic instead of printing them.
fn keep_panic(info: &panic::PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without a text");
    let place = info.location().map_or(String::new(), ToString::to_string);
    // Keep the crate's folder and what is in it: the place shall read the same on every machine.
    let source = place.rfind("/src/").unwrap_or(0);
    let start = place[..source].rfind('/').map_or(0, |slash| slash + 1);
    *LAST_PANIC.lock().unwrap() = Some(Panic {
        message: message.to_owned(),
        location: place[start..].to_owned(),
    });
}

fn serve() -> io::Result<()> {
    panic::set_hook(Box::new(keep_panic));
    frames::answer_each(|frame| {
        let answer = match rmp_serde::from_slice::<Request>(frame) {
            Ok(request) => caught(|| request.answer()).unwrap_or_else(Answer::Panic),
            Err(error) => Answer::Invalid(error.to_string()),
        };
        rmp_serde::to_vec_named(&answer).map_err(io::Error::other)
    })
}

fn dump(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, make) in models::all() {
        let record = Record::from(&make());
        let json = serde_json::to_string(&record)?;
        if json.len() <= JSON_LIMIT {
            fs::write(folder.join(format!("{name}.json")), json + "\n")?;
        } else {
            let file = fs::File::create(folder.join(format!("{name}.msgpack.gz")))?;
            let mut writer = GzBuilder::new().write(file, Compression::best());
            writer.write_all(&packed(&record))?;
            writer.finish()?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(),
        ["dump", folder] => dump(Path::new(folder)),
        _ => Err(io::Error::other("usage: meganeura-referee [dump FOLDER]")),
    }
}
