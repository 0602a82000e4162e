//! Reads JSON into our types and says what is wrong by the key's path, never by its value.
//!
//! `serde_json`'s own errors repeat what they found; these name only its kind. Keys that no type asks for are collected
//! instead of being dropped unseen.

use std::{cell::RefCell, fmt};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde_json::Value;

/// A key whose value has another type than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistyped {
    path: String,
    text: String,
}

impl fmt::Display for Mistyped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "the whole file"
        } else {
            &self.path
        };
        write!(f, "{path}: {}", self.text)
    }
}

impl std::error::Error for Mistyped {}

impl Mistyped {
    fn new(path: &str, expected: &str, found: &Value) -> Self {
        Self {
            path: path.to_owned(),
            text: format!("expected {expected}, found {}", kind(found)),
        }
    }

    fn at(self, path: &str) -> Self {
        if self.path.is_empty() {
            Self {
                path: path.to_owned(),
                ..self
            }
        } else {
            self
        }
    }
}

impl de::Error for Mistyped {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: String::new(),
            text: message.to_string(),
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found something else"))
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::custom("expected a whole number in range, found one out of range")
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format_args!(
            "expected one of {}, found another word",
            expected.join(", ")
        ))
    }
}

/// Reads `value` as a `T`, and the paths of the keys that `T` doesn't know.
///
/// # Errors
/// The first value of a wrong type.
pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> Result<(T, Vec<String>), Mistyped> {
    let unknown = RefCell::new(Vec::new());
    let decoded = T::deserialize(At {
        value,
        path: String::new(),
        unknown: &unknown,
    })?;
    Ok((decoded, unknown.into_inner()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// One value of the file and where it stands.
#[derive(Clone)]
struct At<'a> {
    value: &'a Value,
    path: String,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'a> At<'a> {
    fn wrong<T>(&self, expected: &str) -> Result<T, Mistyped> {
        Err(Mistyped::new(&self.path, expected, self.value))
    }

    fn child(&self, name: &str, value: &'a Value) -> Self {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        At {
            value,
            path,
            unknown: self.unknown,
        }
    }

    fn whole<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        if let Some(number) = self.value.as_u64() {
            visitor.visit_u64(number)
        } else if let Some(number) = self.value.as_i64() {
            visitor.visit_i64(number)
        } else {
            self.wrong("a whole number")
        }
    }
}

macro_rules! whole {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> { self.whole(visitor) })*
    };
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Mistyped;

    whole!(deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
           deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::Number(number) if number.is_f64() => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            Value::Number(_) => self.whole(visitor),
            Value::String(text) => visitor.visit_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        let Value::Bool(bool) = self.value else {
            return self.wrong("true or false");
        };
        visitor.visit_bool(*bool)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        let Value::String(text) = self.value else {
            return self.wrong("a string");
        };
        visitor.visit_str(text)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistyped> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        let Value::Array(items) = self.value else {
            return self.wrong("a list");
        };
        visitor.visit_seq(Items {
            at: self,
            items,
            next: 0,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        let Value::Object(map) = self.value else {
            return self.wrong("an object");
        };
        // As in Go's decoder, a null is as good as an absent key.
        let entries = map.iter().filter(|(_, value)| !value.is_null()).collect::<Vec<_>>();
        visitor.visit_map(Entries {
            at: self,
            entries: entries.into_iter(),
            value: None,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistyped> {
        self.deserialize_map(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistyped> {
        self.unknown.borrow_mut().push(self.path);
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

struct Items<'a> {
    at: At<'a>,
    items: &'a [Value],
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Mistyped;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistyped> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let path = format!("{}[{}]", self.at.path, self.next);
        self.next += 1;
        let at = At {
            value: item,
            path: path.clone(),
            unknown: self.at.unknown,
        };
        seed.deserialize(at).map(Some).map_err(|error| error.at(&path))
    }
}

struct Entries<'a> {
    at: At<'a>,
    entries: std::vec::IntoIter<(&'a String, &'a Value)>,
    value: Option<At<'a>>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Mistyped;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistyped> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(self.at.child(key, value));
        seed.deserialize(key.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistyped> {
        let at = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("a value without its key"))?;
        let path = at.path.clone();
        seed.deserialize(at).map_err(|error| error.at(&path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Inner {
        max_pods: Option<u32>,
        names: Vec<String>,
        labels: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        on: bool,
        inner: Inner,
    }

    #[test]
    fn a_wrong_type_is_named_by_path_and_kind_alone() {
        for (value, text) in [
            (
                json!({"inner": {"maxPods": "canary"}}),
                "inner.maxPods: expected a whole number, found a string",
            ),
            (
                json!({"inner": {"maxPods": 1.5}}),
                "inner.maxPods: expected a whole number, found a number with a fraction",
            ),
            (
                json!({"inner": {"maxPods": -1}}),
                "inner.maxPods: expected a whole number in range, found one out of range",
            ),
            (
                json!({"inner": {"names": ["a", {}]}}),
                "inner.names[1]: expected a string, found an object",
            ),
            (
                json!({"inner": {"names": "canary"}}),
                "inner.names: expected a list, found a string",
            ),
            (
                json!({"inner": {"labels": {"a": true}}}),
                "inner.labels.a: expected a string, found a boolean",
            ),
            (json!({"inner": "canary"}), "inner: expected an object, found a string"),
            (json!({"on": "true"}), "on: expected true or false, found a string"),
            (json!(["canary"]), "the whole file: expected an object, found a list"),
        ] {
            assert_eq!(decode::<Outer>(&value).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn null_is_as_good_as_absent_and_unknown_keys_are_collected() {
        let value = json!({"new": {"x": 1}, "on": null, "inner": {"maxPods": 7, "names": ["a"], "other": []}});
        let (outer, unknown) = decode::<Outer>(&value).unwrap();
        let inner = Inner {
            max_pods: Some(7),
            names: vec!["a".into()],
            ..Inner::default()
        };
        assert_eq!(outer, Outer { on: false, inner });
        assert_eq!(unknown, ["new", "inner.other"]);
    }
}
