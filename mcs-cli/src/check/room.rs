//! Whether agents have room for what the imports of a cluster ask for. All agents of a cluster have one chart, and read the same
//! imports.

use std::collections::BTreeSet;

use super::{
    listed,
    reports::{Rejection, Reports},
};

const CAPACITY: &str = "capacity";

/// What agents have no room for.
pub(super) fn lacking(reports: &Reports) -> Option<String> {
    let (mut nodes, mut imports, mut example) = (BTreeSet::new(), BTreeSet::new(), None);
    let mut are_all = true;
    for (node, status) in &reports.said {
        let Some(report) = status.report() else { continue };
        let lacking = report.rejections.iter().filter(|one| one.reason == CAPACITY);
        let lacking: Vec<_> = lacking.collect();
        let counted = report.rejection_counts.get(CAPACITY).copied().unwrap_or_default();
        are_all &= counted <= lacking.len();
        for Rejection { object, message, .. } in lacking {
            nodes.insert(&**node);
            imports.insert(format!("{}/{}", object.namespace, object.name));
            example.get_or_insert(message);
        }
    }
    let named: Vec<_> = imports.into_iter().collect();
    let nodes: Vec<_> = nodes.into_iter().collect();
    Some(format!(
        "agents have no room for all of {}{} ServiceImports (nodes asked: {}): {}: {}. Raise capacity.memory of the chart",
        if are_all { "" } else { "at least " },
        named.len(),
        nodes.join(", "),
        listed(&named),
        example?
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::reports::tests::reports, *};

    #[test]
    fn imports_without_room_are_named() {
        let status = |rejections: Value, count: u64| {
            let report = json!({"rejections": rejections, "rejection_counts": {"capacity": count}});
            json!({"degraded": [], "report": report})
        };
        let rejection = |name: &str, reason: &str| {
            json!({
                "object": {"kind": "ServiceImport", "namespace": "shop", "name": name},
                "reason": reason, "message": "ClusterSetIP 241.0.0.1 does not fit",
            })
        };
        let full = |count| {
            status(json!([rejection("web", "capacity"), rejection("cart", "vip_invalid")]), count)
        };
        let fine = || status(json!([rejection("cart", "vip_invalid")]), 0);
        assert_eq!(lacking(&reports([("n1", fine())])), None);
        let found = lacking(&reports([("n1", full(1)), ("n2", fine()), ("n3", full(1))])).unwrap();
        assert!(found.contains("of 1 ServiceImports (nodes asked: n1, n3): shop/web: "), "{found}");
        assert!(found.contains("241.0.0.1 does not fit") && !found.contains("cart"), "{found}");
        let found = lacking(&reports([("n1", full(281))])).unwrap();
        assert!(found.contains("all of at least 1 ServiceImports"), "the list is cut: {found}");
    }
}
