//! What an API server refuses for its form.

use std::{net::IpAddr, sync::LazyLock};

use jiff::Timestamp;
use mcs_kube::objects::definitions;
use serde_json::{Value, json};

use super::kinds::Kind;

/// The most bytes of all annotations.
const ANNOTATIONS: usize = 256 << 10;
/// The most endpoints of a slice, the most addresses of one of them, and the most ports.
const ENDPOINTS: usize = 1000;
const ADDRESSES: usize = 100;

/// Why an API server would refuse an object of this kind.
pub(super) fn refusal(kind: &Kind, object: &Value) -> Option<String> {
    let problem = metadata(kind, &object["metadata"]).or_else(|| match kind.name {
        "EndpointSlice" => slice(object),
        "Event" => event(object),
        "Lease" => lease(&object["spec"]),
        "ServiceImport" => import(object),
        "ServiceExport" => conditions(object),
        _ => own(kind, object),
    });
    problem.map(|problem| format!("{} {}: {problem}", kind.name, object["metadata"]["name"]))
}

fn metadata(kind: &Kind, metadata: &Value) -> Option<String> {
    let name = metadata["name"].as_str().unwrap_or_default();
    let is_good = match kind.name {
        "Namespace" | "Service" => is_label(name),
        _ => name.len() <= 253 && name.split('.').all(is_label),
    };
    if !is_good {
        return Some("the name is wrong".to_owned());
    }
    for (key, value) in fields(&metadata["labels"]) {
        if !is_key(key) || !value.as_str().is_some_and(is_value) {
            return Some(format!("the label {key}={value} is wrong"));
        }
    }
    let annotations = || fields(&metadata["annotations"]);
    if let Some((key, _)) = annotations().find(|(key, value)| !is_key(key) || !value.is_string()) {
        return Some(format!("the annotation {key} is wrong"));
    }
    let bytes: usize =
        annotations().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    (bytes > ANNOTATIONS).then(|| format!("{bytes} bytes of annotations"))
}

fn slice(object: &Value) -> Option<String> {
    let family = object["addressType"].as_str().unwrap_or_default();
    let endpoints = || list(&object["endpoints"]);
    if endpoints().count() > ENDPOINTS {
        return Some("too many endpoints".to_owned());
    }
    for endpoint in endpoints() {
        let addresses = list(&endpoint["addresses"]);
        let count = addresses.clone().count();
        let is_good = |one: &Value| {
            let ip: Option<IpAddr> = one.as_str().and_then(|one| one.parse().ok());
            ip.is_some_and(|ip| ip.is_ipv6() == (family == "IPv6"))
        };
        if count == 0 || count > ADDRESSES || !addresses.clone().all(is_good) {
            return Some(format!("the addresses {} are wrong", endpoint["addresses"]));
        }
        if endpoint["hostname"].as_str().is_some_and(|name| !is_label(name)) {
            return Some(format!("the hostname {} is wrong", endpoint["hostname"]));
        }
    }
    let mut names: Vec<_> =
        list(&object["ports"]).map(|port| port["name"].as_str().unwrap_or_default()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    (names.len() < count || count > ADDRESSES).then(|| "the names of ports are wrong".to_owned())
}

fn event(object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    for (field, most) in
        [("reason", 128), ("action", 128), ("reportingInstance", 128), ("note", 1024)]
    {
        if text(field).len() > most || text(field).is_empty() {
            return Some(format!("{field} has {} bytes", text(field).len()));
        }
    }
    if !is_key(text("reportingController")) || !matches!(text("type"), "Normal" | "Warning") {
        return Some("reportingController or type is wrong".to_owned());
    }
    (!is_time(&object["eventTime"])).then(|| "eventTime is wrong".to_owned())
}

fn lease(spec: &Value) -> Option<String> {
    let is_empty = spec["holderIdentity"].as_str().is_some_and(str::is_empty);
    let is_wrong = |field: &str| !spec[field].is_null() && !is_time(&spec[field]);
    (is_empty || is_wrong("renewTime") || is_wrong("acquireTime")).then(|| format!("{spec}"))
}

fn import(object: &Value) -> Option<String> {
    let spec = &object["spec"];
    let is_type = matches!(spec["type"].as_str(), Some("ClusterSetIP" | "Headless"));
    let has_protocol =
        |port: &Value| matches!(port["protocol"].as_str(), Some("TCP" | "UDP" | "SCTP"));
    let has_number =
        |port: &Value| port["port"].as_u64().is_some_and(|port| (1..65536).contains(&port));
    let ports = list(&spec["ports"]).all(|port| has_protocol(port) && has_number(port));
    let is_good = object["spec"].is_null() || is_type && ports && list(&spec["ips"]).count() <= 2;
    if !is_good {
        return Some(format!("{spec}"));
    }
    conditions(object)
}

fn conditions(object: &Value) -> Option<String> {
    list(&object["status"]["conditions"]).find_map(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        let reason = text("reason");
        let is_reason = reason.starts_with(|first: char| first.is_ascii_alphabetic())
            && reason.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
            && reason.len() <= 1024
            && reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c));
        let is_good = is_reason
            && is_key(text("type"))
            && matches!(text("status"), "True" | "False" | "Unknown")
            && one["message"].as_str().is_some_and(|message| message.len() <= 32768)
            && is_time(&one["lastTransitionTime"]);
        (!is_good).then(|| format!("the condition {one} is wrong"))
    })
}

/// By the definition of a type of the project's own.
fn own(kind: &Kind, object: &Value) -> Option<String> {
    static DEFINITIONS: LazyLock<Value> = LazyLock::new(|| json!(definitions()));
    let definition = list(&DEFINITIONS).find(|one| one["spec"]["names"]["kind"] == kind.name)?;
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    ["spec", "status"].iter().find_map(|part| {
        let (of, value) = (&schema["properties"][part], &object[part]);
        if value.is_null() { None } else { by_schema(of, value, part) }
    })
}

fn by_schema(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    let is_null = value.is_null() && schema["nullable"] == true;
    if !(is_type || is_null) {
        return Some(format!("{path} is {value}"));
    }
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(all) => all.len(),
        Value::Object(all) => all.len(),
        _ => 0,
    };
    let bound = |names: [&str; 3]| names.iter().find_map(|name| schema[*name].as_u64());
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    if bound(["maxLength", "maxItems", "maxProperties"]).is_some_and(|most| size > most)
        || bound(["minLength", "minItems", "minProperties"]).is_some_and(|least| size < least)
    {
        return Some(format!("{path} has the size {size}"));
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        return Some(format!("{path} is {value}"));
    }
    if schema["format"] == "date-time" && !value.is_null() && !is_time(value) {
        return Some(format!("{path} is {value}"));
    }
    if let Some(field) =
        list(&schema["required"]).filter_map(Value::as_str).find(|field| value[*field].is_null())
    {
        return Some(format!("{path} lacks {field}"));
    }
    let mut items = list(value).filter_map(|item| by_schema(&schema["items"], item, path));
    items.next().or_else(|| {
        fields(value).find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Null)
                    if schema["x-kubernetes-preserve-unknown-fields"] != true =>
                {
                    (schema["type"] == "object")
                        .then(|| format!("{path} is not declared in schema"))
                }
                (Value::Null, schema) | (schema, _) => by_schema(schema, value, &path),
            }
        })
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|time| time.parse::<Timestamp>().is_ok())
}

fn is_label(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 63
        && name.starts_with(is_good)
        && name.ends_with(is_good)
        && name.chars().all(|c| is_good(c) || c == '-')
}

fn is_value(value: &str) -> bool {
    value.is_empty()
        || value.len() <= 63
            && value.starts_with(|c: char| c.is_ascii_alphanumeric())
            && value.ends_with(|c: char| c.is_ascii_alphanumeric())
            && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_key(key: &str) -> bool {
    let (prefix, name) =
        key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty()
        && is_value(name)
        && prefix.is_none_or(|prefix| prefix.split('.').all(is_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_wrong_form_is_refused() {
        let named = |more: Value| {
            let mut object = json!({ "metadata": { "name": "web", "namespace": "shop" } });
            for (field, value) in fields(&more) {
                object[field] = value.clone();
            }
            object
        };
        let long = "x".repeat(64);
        let endpoint =
            |ip: &str| json!({ "addressType": "IPv4", "endpoints": [{ "addresses": [ip] }] });
        let condition = |reason: &str| {
            let time = "2026-01-01T00:00:00Z";
            json!({ "status": { "conditions": [{
                "type": "Ready", "status": "True", "reason": reason, "message": "", "lastTransitionTime": time,
            }] } })
        };
        for (kind, object, problem) in [
            ("EndpointSlice", named(endpoint("10.1.0.1")), ""),
            ("EndpointSlice", named(endpoint("fd01::1")), "addresses"),
            ("EndpointSlice", json!({ "metadata": { "name": "Web" } }), "name"),
            (
                "EndpointSlice",
                json!({ "metadata": { "name": "a", "labels": { "a": long } } }),
                "label",
            ),
            ("ServiceExport", named(condition("Ready")), ""),
            ("ServiceExport", named(condition("not ready")), "condition"),
            ("ServiceImport", named(json!({ "spec": { "type": "ExternalName" } })), "type"),
            ("Lease", named(json!({ "spec": { "holderIdentity": "" } })), "holderIdentity"),
            ("Event", named(json!({ "reason": "" })), "reason"),
            ("ExportedService", named(json!({ "spec": { "unheard": 1 } })), "lacks"),
        ] {
            let said = refusal(Kind::named(kind).unwrap(), &object).unwrap_or_default();
            assert_eq!(problem.is_empty(), said.is_empty(), "{kind} {object}: {said}");
            assert!(said.contains(problem), "{kind}: {said}");
        }
    }
}
