//! What a hostile peer puts into its mailbox: its own objects with fields that say something else.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{kinds::Kind, schema};

/// How many fields of an object are forged at most.
const FIELDS: usize = 3;

/// An object with forged fields that an API server takes.
pub(super) fn forged(kind: &Kind, object: &Value, rng: &mut Rng) -> Option<Value> {
    let mut forged = object.clone();
    for _ in 0..rng.usize(1..=FIELDS) {
        let parts: &[&str] = match kind.name {
            "EndpointSlice" => &["endpoints", "ports", "addressType"],
            _ => &["spec"],
        };
        let part = parts[rng.usize(..parts.len())];
        forge(&mut forged[part], part, rng);
    }
    (forged != *object && schema::refusal(kind, &forged).is_none()).then_some(forged)
}

/// Changes a field, or one below it. When it was exported stays: the oldest export decides for all.
fn forge(value: &mut Value, name: &str, rng: &mut Rng) {
    match value {
        Value::Array(all) if !all.is_empty() => match rng.u32(..4) {
            0 => all.push(all[0].clone()),
            1 => drop(all.pop()),
            _ => {
                let place = rng.usize(..all.len());
                forge(&mut all[place], name, rng);
            }
        },
        Value::Object(fields) if !fields.is_empty() => {
            let place = rng.usize(..fields.len());
            if let Some((name, below)) =
                fields.iter_mut().nth(place).filter(|(name, _)| *name != "exportedAt")
            {
                forge(below, name, rng);
            }
        }
        _ => *value = other(name, rng),
    }
}

/// Something else for a field of this name.
fn other(name: &str, rng: &mut Rng) -> Value {
    let all = match name {
        "addresses" | "ips" => {
            json!([
                "10.1.0.1",
                "10.2.0.2",
                "10.96.0.1",
                "127.0.0.1",
                "0.0.0.0",
                "fd01::1",
                "241.0.0.1",
                "10.3.0.0"
            ])
        }
        "port" => json!([0, 1, 53, 81, 65535, 70000, -1, null]),
        "protocol" => json!(["UDP", "SCTP", "", "tcp", null]),
        "addressType" => json!(["IPv6", "FQDN", "IPv4"]),
        "clusterId" => json!(["c1", "c2", "c9"]),
        "namespace" => json!(["kube-system", "default", "cart", "mcs-mailbox", "mcs-controller"]),
        "name" => json!(["web", "api", "db", "http", "", "a.b", "x"]),
        "type" => json!(["Headless", "ClusterSetIP"]),
        "ipFamilies" => json!(["IPv6", "IPv4"]),
        "slices" => json!(["web-ipv4", "api-ipv4", "nothing"]),
        "audience" => json!(["c1", "c9"]),
        _ => {
            json!([
                null,
                true,
                false,
                "",
                "Local",
                "None",
                "ClientIP",
                "x",
                -1,
                0,
                1_000_000_000_000_u64,
                {},
                []
            ])
        }
    };
    let all = all.as_array().cloned().unwrap_or_default();
    all[rng.usize(..all.len())].clone()
}
