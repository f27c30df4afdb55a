//! The parts of a report that features write.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The parts of a report that features write, by their names in JSON. A feature knows what its own mean.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sections(BTreeMap<String, Value>);

impl Sections {
    /// Whether no feature has said anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a part.
    pub fn set(&mut self, name: &str, part: &impl Serialize) {
        self.0.insert(name.to_owned(), value(part));
    }

    /// Adds an entry to a part that is a list.
    pub fn add(&mut self, name: &str, entry: &impl Serialize) {
        let list = self.0.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(value(entry));
        }
    }

    /// A part, if the report has it in this form.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.0.get(name)?).ok()
    }

    /// Fails if the report has a part, and not in this form: another version has written it.
    pub fn expect<T: DeserializeOwned>(&self, name: &str) -> Result<(), serde_json::Error> {
        self.0.get(name).map_or(Ok(()), |part| T::deserialize(part).map(drop))
    }
}

/// A part has text as keys and no numbers that JSON lacks, so it can be written.
fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}
