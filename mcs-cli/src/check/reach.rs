//! Whether each node reaches pods of other clusters, as its agent says: one row for each node.

use anyhow::ensure;
use mcs_kube::{reasons::ClusterCheck, report::ReachReport};

use super::{Finding, Unknown, reports::Reports};

/// What each agent says, or why it says nothing.
pub(super) fn findings(cluster: &str, reports: &Reports) -> Vec<Finding> {
    let said = reports.said.iter().filter_map(|(node, status)| Some((node, status.own_report()?)));
    let said = said.map(|(node, report)| (node, of_node(report.reach.as_deref())));
    let unsaid = reports.unsaid.iter();
    let unsaid = unsaid.map(|(node, why)| (node, Err(Unknown(why.clone()).into())));
    let row =
        |(node, judged): (&String, _)| Finding::of_node(cluster, node, ClusterCheck::Reach, judged);
    said.chain(unsaid).map(row).collect()
}

pub(super) fn of_node(ways: Option<&[ReachReport]>) -> anyhow::Result<String> {
    let ways = match ways {
        None => return Ok("its agent connects to no pod (--probe-peers=off)".to_owned()),
        Some([]) => return Ok("its agent knows no pod of another cluster".to_owned()),
        Some(ways) => ways,
    };
    let problems: Vec<_> = ways.iter().filter_map(ReachReport::problem).collect();
    ensure!(problems.is_empty(), problems.join("; "));
    let told = ways.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let is_known = ways.iter().all(|way| way.reachable.is_some());
    ensure!(is_known, Unknown(told));
    Ok(told)
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
        let mut reports = reports([
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
        reports.unsaid.push(("n6".to_owned(), "no answer within 5 s".to_owned()));
        let all = findings("east", &reports);
        let results: Vec<_> =
            all.iter().map(|one| (one.node.as_deref().unwrap(), one.result())).collect();
        let expected = [
            ("n1", "ok"),
            ("n2", "ok"),
            ("n3", "FAILED"),
            ("n4", "skipped"),
            ("n5", "ok"),
            ("n6", "skipped"),
        ];
        assert_eq!(results, expected);
        assert!(
            all[2].message.starts_with("n3: this node does not reach pods of cluster west by IPv4")
        );
        assert_eq!(all[5].message, "n6: no answer within 5 s");
    }
}
