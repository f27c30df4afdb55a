//! Server-side apply: who owns which field of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The lists whose entries are fields of their own, with what names an entry.
const KEYED: [(&str, &str); 2] = [("conditions", "type"), ("clusters", "cluster")];

/// The way to a field.
type Path = Vec<Step>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Field(String),
    /// The entry of a list whose key has this value.
    Entry(&'static str, String),
}

/// The fields of each manager.
#[derive(Clone, Default, Debug)]
pub(super) struct Owners(BTreeMap<String, BTreeSet<Path>>);

impl Owners {
    /// Applies fields to an object. Fields that the manager applied before and does not any more go. An error without
    /// `force`: the manager who owns one of the fields with another value.
    pub(super) fn apply(
        &mut self,
        object: &mut Value,
        manager: &str,
        fields: &Value,
        force: bool,
    ) -> Result<(), String> {
        let mut wanted = BTreeMap::new();
        collect(fields, &mut vec![], &mut wanted);
        // Who applies a map without fields says nothing of the fields of others.
        let differs = |path: &Path| {
            let (there, wanted) = (at(object, path), wanted.get(path));
            there != wanted && !(is_map(there) && is_map(wanted))
        };
        let taken: BTreeSet<_> = wanted.keys().filter(|path| differs(path)).cloned().collect();
        let others = || self.0.iter().filter(|(other, _)| *other != manager);
        if let Some((other, _)) = others().find(|(_, owned)| !owned.is_disjoint(&taken))
            && !force
        {
            return Err(other.clone());
        }
        let former = self.0.remove(manager).unwrap_or_default();
        for owned in self.0.values_mut() {
            owned.retain(|path| !taken.contains(path));
        }
        for path in former.iter().filter(|path| !wanted.contains_key(*path)) {
            let is_of_others = self.0.values().any(|owned| owned.contains(path));
            if !is_of_others && !at(object, path).is_some_and(has_fields) {
                remove(object, path);
            }
        }
        for path in &taken {
            set(object, path, wanted[path].clone());
        }
        self.0.insert(manager.to_owned(), wanted.into_keys().collect());
        Ok(())
    }
}

fn is_map(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_object)
}

fn has_fields(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty())
}

/// The fields of `value`, which is at `path`. What names the object is nobody's.
fn collect(value: &Value, path: &mut Path, fields: &mut BTreeMap<Path, Value>) {
    let steps: Vec<(Step, &Value)> = match (value, key(path)) {
        (Value::Object(map), _) if !map.is_empty() => {
            map.iter().map(|(name, value)| (Step::Field(name.clone()), value)).collect()
        }
        (Value::Array(entries), Some(key)) => {
            let named = |entry: &Value| entry[key].as_str().unwrap_or_default().to_owned();
            entries.iter().map(|entry| (Step::Entry(key, named(entry)), entry)).collect()
        }
        _ => {
            fields.insert(path.clone(), value.clone());
            return;
        }
    };
    for (step, value) in steps {
        path.push(step);
        if !is_name(path) {
            collect(value, path, fields);
        }
        path.pop();
    }
}

/// The key of the entries of the list at this path, if it is a list with keys.
fn key(path: &Path) -> Option<&'static str> {
    let Some(Step::Field(last)) = path.last() else { return None };
    KEYED.iter().find(|(list, _)| list == last).map(|(_, key)| *key)
}

fn is_name(path: &Path) -> bool {
    let names: Vec<_> = path
        .iter()
        .map(|step| match step {
            Step::Field(name) => name.as_str(),
            Step::Entry(..) => "",
        })
        .collect();
    matches!(
        names[..],
        ["apiVersion" | "kind"] | ["metadata", "name" | "namespace" | "uid" | "resourceVersion"]
    )
}

fn is_entry(entry: &Value, key: &str, value: &str) -> bool {
    entry[key] == value
}

fn at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Entry(key, of) => value.as_array()?.iter().find(|entry| is_entry(entry, key, of)),
    })
}

fn set(object: &mut Value, path: &Path, value: Value) {
    let mut place = object;
    for step in path {
        place = match step {
            Step::Field(name) => {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[name]
            }
            Step::Entry(key, of) => {
                if !place.is_array() {
                    *place = json!([]);
                }
                let Value::Array(entries) = place else { return };
                let known = entries.iter().position(|entry| is_entry(entry, key, of));
                let index = known.unwrap_or_else(|| {
                    entries.push(json!({ *key: of }));
                    entries.len() - 1
                });
                &mut entries[index]
            }
        };
    }
    *place = value;
}

/// Removes a field, and what holds nothing else.
fn remove(value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => {
            if let Some(below) = map.get_mut(name) {
                remove(below, rest);
                let is_empty = below.as_object().is_some_and(serde_json::Map::is_empty)
                    || below.as_array().is_some_and(Vec::is_empty);
                if rest.is_empty() || is_empty {
                    map.remove(name);
                }
            }
        }
        (Step::Entry(key, of), Value::Array(entries)) => {
            if let Some(index) = entries.iter().position(|entry| is_entry(entry, key, of)) {
                remove(&mut entries[index], rest);
                if entries[index].as_object().is_none_or(serde_json::Map::is_empty) {
                    entries.remove(index);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_goes_with_the_last_who_applied_it() {
        let (mut owners, mut object) = (Owners::default(), json!({"metadata": {"name": "web"}}));
        let both = json!({"metadata": {"name": "web", "labels": {"a": "1", "b": "2"}}});
        owners.apply(&mut object, "one", &both, false).unwrap();
        let a = json!({"metadata": {"labels": {"a": "1"}}});
        owners.apply(&mut object, "other", &a, false).unwrap();
        let none = json!({"metadata": {"name": "web"}});
        owners.apply(&mut object, "one", &none, false).unwrap();
        assert_eq!(object, json!({"metadata": {"name": "web", "labels": {"a": "1"}}}));
        owners.apply(&mut object, "other", &none, false).unwrap();
        assert_eq!(object, none);
    }

    #[test]
    fn a_field_of_another_is_taken_by_force_alone() {
        let (mut owners, mut object) = (Owners::default(), json!({}));
        owners.apply(&mut object, "one", &json!({"spec": {"ips": ["10.0.0.1"]}}), false).unwrap();
        let other = json!({"spec": {"ips": ["10.0.0.2"]}});
        let error = owners.apply(&mut object, "other", &other, false).unwrap_err();
        assert_eq!((error.as_str(), &object["spec"]["ips"][0]), ("one", &json!("10.0.0.1")));
        owners.apply(&mut object, "other", &other, true).unwrap();
        owners.apply(&mut object, "one", &json!({}), false).unwrap();
        assert_eq!(object, other);
    }

    #[test]
    fn a_map_without_fields_takes_none_away() {
        let (mut owners, mut object) = (Owners::default(), json!({}));
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        for (manager, of) in [("one", json!({})), ("other", json!({"a": "1"})), ("one", json!({}))]
        {
            owners.apply(&mut object, manager, &labels(of), false).unwrap();
        }
        assert_eq!(object, labels(json!({"a": "1"})));
        owners.apply(&mut object, "one", &json!({}), false).unwrap();
        assert_eq!(object, labels(json!({"a": "1"})));
    }

    #[test]
    fn conditions_of_two_managers_stand_beside_each_other() {
        let condition =
            |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
        let (mut owners, mut object) = (Owners::default(), json!({}));
        owners.apply(&mut object, "one", &condition("Ready"), false).unwrap();
        owners.apply(&mut object, "other", &condition("Accepted"), false).unwrap();
        assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 2);
        owners.apply(&mut object, "one", &condition("Valid"), false).unwrap();
        let kinds: Vec<_> = object["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["type"])
            .collect();
        assert_eq!(kinds, ["Accepted", "Valid"]);
    }
}
