//! Whether each node reaches pods of other clusters, as its agent says: one row for each node.

use anyhow::{bail, ensure};
use mcs_kube::{
    reasons::ClusterCheck,
    report::{NodeReport, ReachReport},
};

use super::{Finding, Unknown, reports::Reports};

/// What each agent that answers says.
pub(super) fn findings(cluster: &str, reports: &Reports) -> Vec<Finding> {
    let of_nodes =
        reports.said.iter().filter_map(|(node, status)| Some((node, status.own_report()?)));
    let finding = |(node, report): (&String, &NodeReport)| Finding {
        node: Some(node.clone()),
        ..Finding::new(cluster, ClusterCheck::Reach, of_node(node, report.reach.as_deref()))
    };
    of_nodes.map(finding).collect()
}

pub(super) fn of_node(node: &str, ways: Option<&[ReachReport]>) -> anyhow::Result<String> {
    let ways = match ways {
        None => return Ok(format!("{node}: its agent connects to no pod (--probe-peers=off)")),
        Some([]) => return Ok(format!("{node}: its agent knows no pod of another cluster")),
        Some(ways) => ways,
    };
    let problems: Vec<_> = ways.iter().filter_map(ReachReport::problem).collect();
    if !problems.is_empty() {
        bail!("{node}: {}", problems.join("; "));
    }
    let told = ways.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let is_known = ways.iter().all(|way| way.reachable.is_some());
    ensure!(is_known, Unknown(format!("{node}: {told}")));
    Ok(format!("{node}: {told}"))
}

/// One row for all nodes of a cluster that reach every other cluster.
pub(super) fn folded(nodes: &[&Finding]) -> Option<String> {
    let first = nodes.first()?;
    Some(match nodes.len() {
        1 => first.message.clone(),
        count => format!("each of {count} nodes, such as {}", first.message),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::reports::tests::reports, *};

    #[test]
    fn each_node_has_a_row() {
        let way = |cluster: &str, reachable: Value, silent: &[&str]| {
            json!({
                "cluster": cluster, "family": "IPv4", "reachable": reachable, "reached": 1,
                "silent": silent.len(), "round_trip_micros": 900, "silent_endpoints": silent,
            })
        };
        let of = |ways: Value| json!({"report": {"reach": ways}});
        let reports = reports([
            ("n1", of(json!([way("west", json!(true), &[])]))),
            ("n2", of(json!([way("west", json!(true), &[])]))),
            (
                "n3",
                of(json!([
                    way("west", json!(false), &["10.2.0.1:80"]),
                    way("south", json!(true), &[])
                ])),
            ),
            ("n4", of(json!([way("west", Value::Null, &[])]))),
            ("n5", of(Value::Null)),
        ]);
        let all = findings("east", &reports);
        let results: Vec<_> =
            all.iter().map(|one| (one.node.as_deref().unwrap(), one.result())).collect();
        let expected =
            [("n1", "ok"), ("n2", "ok"), ("n3", "FAILED"), ("n4", "skipped"), ("n5", "ok")];
        assert_eq!(results, expected);
        assert!(
            all[2].message.starts_with("n3: this node does not reach pods of cluster west by IPv4")
        );
        let fine: Vec<_> = all[..2].iter().collect();
        let folded = folded(&fine).unwrap();
        assert_eq!(folded, "each of 2 nodes, such as n1: west IPv4 reached in 0.9 ms");
    }
}
