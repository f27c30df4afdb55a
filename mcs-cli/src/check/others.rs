//! Whether another controller of the Multi-Cluster Services API runs beside this one.

use anyhow::bail;
use kube::api::ListParams;
use mcs_kube::reasons::ClusterCheck;
use serde_json::Value;

use super::Warning;
use crate::cluster::{CONFIG_MAPS, Cluster, Kind};

const POLICY_BINDINGS: Kind = (
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
);
/// The policy of the chart that keeps others from imports of this controller.
const POLICY: &str = "mcs-imported-objects";

/// The check of Cilium's operator. `None`: it has no part in imports.
pub(super) async fn cilium(cluster: &Cluster) -> Option<(ClusterCheck, anyhow::Result<String>)> {
    let result = match found(cluster).await {
        Ok(None) => return None,
        Ok(Some((config, is_guarded))) => judged(&config, is_guarded),
        Err(error) => Err(error),
    };
    Some((ClusterCheck::OtherControllers, result))
}

/// The ConfigMap that turns on its MCS-API, and whether the admission policy is in force.
async fn found(cluster: &Cluster) -> anyhow::Result<Option<(String, bool)>> {
    // Cilium can be in any namespace.
    let params = ListParams::default().fields("metadata.name=cilium-config");
    let configs = cluster.list_by(CONFIG_MAPS, None, &params).await?;
    let Some(config) = configs.iter().find(|config| has_mcs_api(config)) else { return Ok(None) };
    let namespace = config["metadata"]["namespace"].as_str().unwrap_or_default();
    let is_guarded = cluster.get(POLICY_BINDINGS, None, POLICY).await?.is_some();
    Ok(Some((format!("{namespace}/cilium-config"), is_guarded)))
}

fn has_mcs_api(config: &Value) -> bool {
    config["data"]["clustermesh-enable-mcs-api"] == "true"
}

fn judged(config: &str, is_guarded: bool) -> anyhow::Result<String> {
    if is_guarded {
        return Err(Warning(format!(
            "Cilium's MCS-API is on (ConfigMap {config}): both controllers write conditions of ServiceExports. The admission policy \
             keeps Cilium's operator from the imports of this one. Turn clustermesh.mcsapi.enabled off after a migration"
        ))
        .into());
    }
    bail!(
        "Cilium's MCS-API is on (ConfigMap {config}): its operator deletes every ServiceImport that no cluster of its mesh exports, \
         also those of this controller. Set admissionPolicy=true in the chart, or turn clustermesh.mcsapi.enabled off"
    )
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::{object, scripted};

    #[tokio::test]
    async fn it_has_a_row_where_its_api_is_on() {
        let config = |value: &str| {
            let metadata = json!({"namespace": "kube-system", "name": "cilium-config"});
            json!({"metadata": metadata, "data": {"clustermesh-enable-mcs-api": value}})
        };
        for (value, expected) in [("false", None), ("true", Some(ClusterCheck::OtherControllers))] {
            let configs = object(json!({"metadata": {}, "items": [config(value)]}));
            let answers = [configs, ScriptedAnswer::error(404)];
            let (cluster, _server, _file) = scripted("east", answers).await;
            assert_eq!(cilium(&cluster).await.map(|(check, _)| check), expected, "{value}");
        }
    }

    #[test]
    fn cilium_is_a_danger_to_imports_without_the_policy() {
        let config = |value: &str| json!({"data": {"clustermesh-enable-mcs-api": value}});
        assert!(has_mcs_api(&config("true")));
        assert!(!has_mcs_api(&config("false")) && !has_mcs_api(&json!({"data": {}})));
        let guarded = judged("kube-system/cilium-config", true).unwrap_err();
        assert!(guarded.is::<Warning>(), "{guarded}");
        let bare = judged("kube-system/cilium-config", false).unwrap_err();
        assert!(!bare.is::<Warning>());
        assert!(bare.to_string().contains("deletes every ServiceImport"), "{bare}");
    }
}
