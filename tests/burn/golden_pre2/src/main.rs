//! Prints golden samples of Burn 0.22.0-pre.2, the release that speaks protocol 1, one JSON object a line.
//!
//! A line is `{"type", "variant", "note", "hex", "json"}`: the value as rmp-serde packs it (the bytes of the
//! remote protocol) and as serde_json writes it. The samples come from [`sampler`], which walks every form of
//! `OperationIr` by the type itself, so no operation can be forgotten; only edge values are listed by hand.
//!
//! `cargo run > ../../golden/golden_protocol1.jsonl`

mod sampler;

use std::io::{BufWriter, StdoutLock, Write};

use burn_backend::tensor::IndexingUpdateOp;
use burn_ir::{GraphBindings, GraphId, OperationIr, ScalarIr, TensorId, TensorIr, TensorStatus};
use burn_std::distributed::ReduceOperation;
use burn_std::quantization::{QuantConfig, QuantPropagation};
use burn_std::quantization::{
    QuantLevel, QuantMode, QuantParam, QuantScheme, QuantStore, QuantValue,
};
use burn_std::{
    BoolStore, DType, DeviceSettings, Distribution, ExecutionError, FloatDType, IntDType, Shape,
    Slice, TensorData,
};
use sampler::{Plan, Point, Sampler};
use serde::{Serialize, de::DeserializeOwned};

const PRESENT: &str = "generated; optional fields present";
const ABSENT: &str = "generated; optional fields absent";

struct Golden {
    out: BufWriter<StdoutLock<'static>>,
}

impl Golden {
    fn line<T: Serialize>(&mut self, ty: &str, variant: &str, note: &str, value: &T) {
        let hex: String = rmp_serde::to_vec(value)
            .unwrap()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let quote = |text: &str| serde_json::to_string(text).unwrap();
        let json = serde_json::to_string(value).unwrap();
        writeln!(
            self.out,
            r#"{{"type":{},"variant":{},"note":{},"hex":"{hex}","json":{json}}}"#,
            quote(ty),
            quote(variant),
            quote(note),
        )
        .unwrap();
    }

    /// A type without operations in it: the first form, then each other choice alone.
    fn forms<T: Serialize + DeserializeOwned>(&mut self, ty: &str) {
        let (value, points) = sample::<T>(Plan::default());
        self.line(ty, outer_variant(ty, &points, 0), PRESENT, &value);
        for change in single_changes(&Plan::default(), &points) {
            let chosen = if change.number == 0 { change.chosen } else { 0 };
            let (value, _) = sample::<T>(change.plan);
            self.line(ty, outer_variant(ty, &points, chosen), &change.note, &value);
        }
    }

    /// Every form of [`OperationIr`]: all options present, all absent, then each other choice alone.
    fn operations(&mut self) {
        let mut path = Some(Vec::new());
        while let Some(at) = path {
            let plan = Plan {
                path: at,
                ..Plan::default()
            };
            let (op, walk) = operation(plan.clone());
            let variant = walk.variant();
            self.line("OperationIr", &variant, PRESENT, &op);
            let options = walk
                .points
                .iter()
                .filter(|p| p.labels[0] == "absent")
                .count();
            if options > 0 {
                let (op, _) = operation(Plan {
                    absent: true,
                    ..plan.clone()
                });
                self.line("OperationIr", &variant, ABSENT, &op);
            }
            for change in single_changes(&plan, &walk.points) {
                if options > 1 || !change.note.ends_with(": absent") {
                    let (op, _) = operation(change.plan);
                    self.line("OperationIr", &variant, &change.note, &op);
                }
            }
            path = next_path(&walk.path);
        }
    }

    fn quantization(&mut self) {
        let base = QuantScheme::default();
        let schemes = [
            ("default: Q8F packed in u32, per tensor", base),
            (
                "per block of 32, F16 scales",
                base.with_level(QuantLevel::block([32]))
                    .with_param(QuantParam::F16),
            ),
            (
                "per block 4x32",
                base.with_level(QuantLevel::block([4, 32])),
            ),
            (
                "five block dims",
                base.with_level(QuantLevel::block([2, 3, 4, 5, 255])),
            ),
            (
                "an all-ones block",
                base.with_level(QuantLevel::block([1, 1])),
            ),
            (
                "two levels, as nvfp4",
                base.with_level(QuantLevel::block_tensor([16], QuantParam::F32))
                    .with_value(QuantValue::E2M1)
                    .with_store(QuantStore::PackedNative(0))
                    .with_param(QuantParam::UE4M3),
            ),
            (
                "two levels, BF16 over F16, native store",
                base.with_level(QuantLevel::block_tensor([2, 8], QuantParam::BF16))
                    .with_value(QuantValue::Q4S)
                    .with_store(QuantStore::Native)
                    .with_param(QuantParam::F16)
                    .with_mode(QuantMode::Symmetric),
            ),
            (
                "packed on another axis",
                base.with_value(QuantValue::Q2F)
                    .with_store(QuantStore::PackedU32(1)),
            ),
        ];
        for (note, scheme) in schemes {
            self.line("QuantScheme", "", note, &scheme);
            self.line("DType", "QFloat", note, &DType::QFloat(scheme));
            let tensor = tensor(7, &[2, 3], TensorStatus::ReadOnly, DType::QFloat(scheme));
            self.line("TensorIr", "QFloat", note, &tensor);
        }
        self.forms::<QuantScheme>("QuantScheme");
        for (note, propagation) in [
            ("Propagate", QuantPropagation::Propagate),
            ("Inhibit", QuantPropagation::Inhibit),
        ] {
            self.line(
                "QuantConfig",
                note,
                "",
                &QuantConfig {
                    scheme: base,
                    propagation,
                },
            );
        }
        for store in [BoolStore::Native, BoolStore::U8, BoolStore::U32] {
            let config = QuantConfig {
                scheme: base,
                propagation: QuantPropagation::Inhibit,
            };
            let settings = DeviceSettings::new(FloatDType::F32, IntDType::I32, store, config);
            self.line(
                "DeviceSettings",
                "",
                "the handshake answer holds it",
                &settings,
            );
        }
    }

    fn scalars(&mut self) {
        for value in [
            0.0,
            -0.0,
            1.5,
            f64::MIN_POSITIVE,
            5e-324,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            0.1_f32 as f64,
        ] {
            self.line(
                "ScalarIr",
                "Float",
                &format!("{value:?}"),
                &ScalarIr::Float(value),
            );
        }
        for value in [
            0,
            127,
            128,
            255,
            256,
            65535,
            65536,
            u32::MAX as u64,
            1 << 32,
            u64::MAX,
        ] {
            self.line("ScalarIr", "UInt", "integer width", &ScalarIr::UInt(value));
        }
        for value in [
            0,
            -1,
            -32,
            -33,
            -128,
            -129,
            -32768,
            -32769,
            i64::MIN,
            i64::MAX,
        ] {
            self.line("ScalarIr", "Int", "integer width", &ScalarIr::Int(value));
        }
        for value in [false, true] {
            self.line("ScalarIr", "Bool", "", &ScalarIr::Bool(value));
        }
        for (note, slice) in [
            ("whole", Slice::new(0, None, 1)),
            ("bounded", Slice::new(1, Some(3), 2)),
            ("negative start, open end", Slice::new(-2, None, 1)),
            ("negative end", Slice::new(0, Some(-1), 1)),
            ("reversed, open", Slice::new(0, None, -1)),
            ("reversed, bounded", Slice::new(2, Some(8), -3)),
            (
                "extremes",
                Slice::new(isize::MIN, Some(isize::MAX), isize::MIN),
            ),
        ] {
            self.line("Slice", "", note, &slice);
        }
        self.forms::<Distribution>("Distribution");
        self.forms::<IndexingUpdateOp>("IndexingUpdateOp");
        self.forms::<ReduceOperation>("ReduceOperation");
        self.forms::<ExecutionError>("ExecutionError");
    }

    fn tensors(&mut self) {
        self.forms::<DType>("DType");
        self.forms::<FloatDType>("FloatDType");
        self.forms::<IntDType>("IntDType");
        self.forms::<BoolStore>("BoolStore");
        self.forms::<TensorIr>("TensorIr");
        for (note, shape) in [
            ("rank 0", vec![]),
            ("zero-size dim", vec![2, 0]),
            ("rank 16", vec![1; 16]),
        ] {
            let tensor = tensor(u64::MAX, &shape, TensorStatus::ReadOnly, DType::F32);
            self.line("TensorIr", "", note, &tensor);
        }
        let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
        for (variant, note, data) in [
            (
                "F32",
                "2x2",
                TensorData::new(vec![1.5_f32, f32::NAN, f32::INFINITY, -0.0], [2, 2]),
            ),
            (
                "I64",
                "rank 0",
                TensorData::new(vec![i64::MIN], Vec::<usize>::new()),
            ),
            (
                "Bool",
                "no elements",
                TensorData::new(Vec::<bool>::new(), [0, 3]),
            ),
            (
                "U8",
                "256 bytes: bin16 header",
                TensorData::new(vec![7_u8; 256], [256]),
            ),
            (
                "QFloat",
                "Q8S per tensor",
                TensorData::quantized(vec![-127_i8, -1, 0, 127], [2, 2], scheme, &[0.5]),
            ),
        ] {
            self.line("TensorData", variant, note, &data);
        }
        self.line("GraphId", "", "", &GraphId(300));
        let bindings = GraphBindings {
            tensors: vec![
                (TensorId::new(1), TensorId::new(400)),
                (TensorId::new(2), TensorId::new(401)),
            ],
            shapes: vec![0, 2, 3, 70000],
            scalars: vec![
                ScalarIr::Float(0.5),
                ScalarIr::Int(-1),
                ScalarIr::UInt(9),
                ScalarIr::Bool(true),
            ],
            ranges: vec![Slice::new(0, Some(4), 1), Slice::new(-1, None, -1)],
        };
        self.line("GraphBindings", "", "", &bindings);
    }
}

fn tensor(id: u64, shape: &[usize], status: TensorStatus, dtype: DType) -> TensorIr {
    TensorIr {
        id: TensorId::new(id),
        shape: Shape::from(shape.to_vec()),
        status,
        dtype,
    }
}

fn sample<T: DeserializeOwned>(plan: Plan) -> (T, Vec<Point>) {
    let mut sampler = Sampler::new(plan);
    let value = T::deserialize(&mut sampler).unwrap();
    (value, sampler.points)
}

/// An operation by `plan`, sampled twice: the operation itself says which of its tensors are outputs.
fn operation(mut plan: Plan) -> (OperationIr, Sampler) {
    let (op, _) = sample::<OperationIr>(plan.clone());
    plan.outputs = op.outputs().map(|tensor| tensor.id.value()).collect();
    let mut sampler = Sampler::new(plan);
    let op = serde::Deserialize::deserialize(&mut sampler).unwrap();
    (op, sampler)
}

/// A plan that differs from another one in one choice.
struct Change {
    plan: Plan,
    number: usize,
    chosen: usize,
    note: String,
}

fn single_changes(base: &Plan, points: &[Point]) -> Vec<Change> {
    let mut changes = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let first = match point.labels[..] {
            ["absent", "present"] | ["false", "true"] => 1,
            _ => 0,
        };
        for chosen in (0..point.labels.len()).filter(|chosen| *chosen != first) {
            let mut plan = base.clone();
            plan.choices.insert(number, chosen);
            let note = format!("{}: {}", point.name, point.labels[chosen]);
            changes.push(Change {
                plan,
                number,
                chosen,
                note,
            });
        }
    }
    changes
}

/// The variant of the enum `ty` itself; nothing for a struct.
fn outer_variant(ty: &str, points: &[Point], chosen: usize) -> &'static str {
    match points.first() {
        Some(point) if point.name == ty => point.labels[chosen],
        _ => "",
    }
}

/// The path after `path` in the tree of operations.
fn next_path(path: &[(usize, usize, &str)]) -> Option<Vec<usize>> {
    let last = path
        .iter()
        .rposition(|(chosen, count, _)| chosen + 1 < *count)?;
    let mut next: Vec<usize> = path[..=last].iter().map(|p| p.0).collect();
    next[last] += 1;
    Some(next)
}

fn main() {
    let mut golden = Golden {
        out: BufWriter::new(std::io::stdout().lock()),
    };
    golden.operations();
    golden.tensors();
    golden.quantization();
    golden.scalars();
}
