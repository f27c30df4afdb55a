//! The ClusterProperties by which the operator of a cluster sets what clients get, and those that cannot be used.

use mcs_controller::features::traffic_property::{SETTINGS, setting_problem};
use serde_json::Value;

use crate::cluster::{Cluster, PROPERTIES};

/// Which values cannot be used, and why.
pub(crate) async fn problems(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    Ok(of(&cluster.list_if_served(PROPERTIES).await?))
}

fn of(properties: &[Value]) -> Vec<String> {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let problem = |property: &Value| {
        let name = text(&property["metadata"]["name"]);
        let problem = setting_problem(&name, &text(&property["spec"]["value"]))?;
        Some(format!("ClusterProperty {name}: {problem}"))
    };
    properties.iter().filter_map(problem).collect()
}

/// The check.
pub(crate) async fn check(cluster: &Cluster) -> anyhow::Result<String> {
    verdict(&problems(cluster).await?)
}

fn verdict(problems: &[String]) -> anyhow::Result<String> {
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("; "));
    let kinds = SETTINGS.map(|name| name.split_once('.').map_or(name, |(kind, _)| kind));
    Ok(format!("{} of this cluster can be used, if they are set", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_cannot_be_used_are_named() {
        let property =
            |name: &str, value: &str| json!({"metadata": {"name": name}, "spec": {"value": value}});
        let drain = |value: &str| property("drain.clusterset.mcs-agent.io", value);
        let found = of(&[drain("True"), property("region.example.com", "True")]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.contains("drain.clusterset.mcs-agent.io: \"True\" is neither"), "{found}");
        assert!(verdict(std::slice::from_ref(found)).is_err());
        assert_eq!(
            verdict(&of(&[drain("true")])).unwrap(),
            "weight, drain, preference, cluster-selectors-fallback of this cluster can be used, if they are set"
        );
    }
}
