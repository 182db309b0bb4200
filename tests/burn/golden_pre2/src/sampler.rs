//! A serde deserializer that invents a value of any type from the type's own shape.
//!
//! Every enum, option and bool that it meets is a *choice point*. The first choice is taken unless a
//! [`Plan`] says otherwise, and each point met is recorded, so that a caller can walk through all
//! forms of a type without naming one of them.

use std::collections::HashMap;

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor, value::Error};

/// What the sampler shall choose where the first choice is not wanted.
#[derive(Clone, Default)]
pub struct Plan {
    /// Which variant the enums that select an operation take, in the order in which they are met.
    pub path: Vec<usize>,
    /// Choice per point, by its number.
    pub choices: HashMap<usize, usize>,
    /// All options absent.
    pub absent: bool,
    /// Ids that the operation declares as outputs.
    pub outputs: Vec<u64>,
}

/// One choice that was made.
#[derive(Clone)]
pub struct Point {
    /// Type name of an enum, or the field name of an option or a bool.
    pub name: &'static str,
    /// Labels of all choices.
    pub labels: Vec<&'static str>,
}

/// State of one walk through a type.
#[derive(Default)]
pub struct Sampler {
    plan: Plan,
    /// Enums that select an operation: variant taken, number of variants, name of the variant.
    pub path: Vec<(usize, usize, &'static str)>,
    /// All other choices met.
    pub points: Vec<Point>,
    records: Vec<&'static str>,
    field: &'static str,
    next_id: u64,
    next_int: u64,
    next_float: f64,
}

impl Sampler {
    /// A sampler that follows `plan`.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            next_float: 0.5,
            ..Self::default()
        }
    }

    /// `BaseFloat.Slice`, say.
    pub fn variant(&self) -> String {
        let names: Vec<_> = self.path.iter().map(|(_, _, name)| *name).collect();
        names.join(".")
    }

    fn kind(&self) -> &'static str {
        self.path.last().map_or("", |p| p.2)
    }

    fn within(&self, record: &str) -> bool {
        self.records.contains(&record)
    }

    fn choose(&mut self, name: &'static str, labels: &[&'static str], first: usize) -> usize {
        let number = self.points.len();
        let labels = labels.to_vec();
        self.points.push(Point { name, labels });
        self.plan.choices.get(&number).copied().unwrap_or(first)
    }

    fn enum_variant(&mut self, name: &'static str, variants: &'static [&'static str]) -> usize {
        let find = |wanted| variants.iter().position(|v| *v == wanted).unwrap();
        let family = self.path.first().map_or("", |p| p.2);
        match name {
            _ if name.ends_with("OperationIr") => {
                let chosen = self.plan.path.get(self.path.len()).copied().unwrap_or(0);
                self.path.push((chosen, variants.len(), variants[chosen]));
                chosen
            }
            "TensorStatus" if self.plan.outputs.contains(&self.next_id) => find("NotInit"),
            "TensorStatus" if self.next_id.is_multiple_of(2) => find("ReadWrite"),
            "TensorStatus" => find("ReadOnly"),
            // The data type of a tensor follows its family and role; so does the one beside a family.
            "DType" if self.within("TensorIr") => match (self.kind(), self.field) {
                ("Quantize", "out") | ("Dequantize", "input") => find("QFloat"),
                (_, "mask") => find("Bool"),
                (_, field) if field.contains("indices") || field == "targets" => find("I32"),
                _ => find(family_dtype(family)),
            },
            "DType" if !self.path.is_empty() => find(family_dtype(family)),
            "BoolStore" if !self.path.is_empty() => find("Native"),
            _ => self.choose(name, variants, 0),
        }
    }

    fn rank(&self) -> usize {
        match self.kind() {
            kind if kind.contains("1d") => 3,
            kind if kind.contains("2d") || kind.contains("4d") || kind == "Attention" => 4,
            kind if kind.contains("3d") => 5,
            _ => 2,
        }
    }

    fn int(&mut self) -> u64 {
        self.next_int += 1;
        self.next_int
    }

    fn float(&mut self) -> f64 {
        let value = self.next_float;
        self.next_float = if value > 0.0 {
            -value - 0.75
        } else {
            0.75 - value
        };
        value
    }
}

fn family_dtype(family: &str) -> &'static str {
    match family {
        "BaseBool" | "Bool" => "Bool",
        "BaseInt" | "NumericInt" | "Int" => "I32",
        _ => "F32",
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $value:ident $ty:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.$value() as $ty)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Sampler {
    type Error = Error;

    numbers! {
        deserialize_i8 visit_i8 int i8, deserialize_i16 visit_i16 int i16,
        deserialize_i32 visit_i32 int i32, deserialize_u8 visit_u8 int u8,
        deserialize_u16 visit_u16 int u16, deserialize_u32 visit_u32 int u32,
        deserialize_f32 visit_f32 float f32, deserialize_f64 visit_f64 float f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a type that does not say what it is"))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.records.last() == Some(&"TensorId") {
            self.next_id += 1;
            return visitor.visit_u64(self.next_id);
        }
        visitor.visit_u64(self.int())
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.records.last() == Some(&"Slice") {
            // `end` is an option: its own name has been replaced by then.
            let (start, end, step) = (self.int() as i64 % 3, 7, 2);
            return visitor.visit_i64(match self.field {
                "start" => start,
                "step" => step,
                _ => end,
            });
        }
        visitor.visit_i64(self.int() as i64)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let chosen = self.choose(self.field, &["false", "true"], 1);
        visitor.visit_bool(chosen == 1)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char('c')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("text")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("text")
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(&[1, 2, 3, 4])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(&[1, 2, 3, 4])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let first = usize::from(!self.plan.absent);
        match self.choose(self.field, &["absent", "present"], first) {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.within("Shape") {
            let dims = 2..2 + self.rank() as u64;
            return visitor.visit_seq(de::value::SeqDeserializer::new(dims));
        }
        let fields = &["", ""];
        visitor.visit_seq(Items {
            sampler: self,
            fields,
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let fields = &[""; 16][..len];
        visitor.visit_seq(Items {
            sampler: self,
            fields,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("no map occurs in the tensor language"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // The names below a tensor do not tell its role, the field that holds it does.
        let role = self.field;
        let fields = if matches!(name, "TensorIr" | "TensorId" | "Shape") {
            &[""; 16][..fields.len()]
        } else {
            fields
        };
        self.records.push(name);
        let value = visitor.visit_seq(Items {
            sampler: self,
            fields,
        });
        self.records.pop();
        self.field = role;
        value
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let chosen = self.enum_variant(name, variants);
        self.records.push(name);
        let depth = self.records.len();
        let value = visitor.visit_enum(Variant {
            sampler: &mut *self,
            chosen,
        });
        self.records.truncate(depth - 1);
        value
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

struct Items<'a> {
    sampler: &'a mut Sampler,
    /// Names of the values to come; an empty one keeps the name of the field around it.
    fields: &'a [&'static str],
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((field, rest)) = self.fields.split_first() else {
            return Ok(None);
        };
        self.fields = rest;
        if !field.is_empty() {
            self.sampler.field = field;
        }
        seed.deserialize(&mut *self.sampler).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

struct Variant<'a> {
    sampler: &'a mut Sampler,
    chosen: usize,
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let index: de::value::U32Deserializer<Error> = (self.chosen as u32).into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.sampler)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_tuple(self.sampler, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_struct(self.sampler, "", fields, visitor)
    }
}
