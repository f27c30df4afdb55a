//! Whether the DNS server of a cluster answers names in clusterset.local. deploy/dns says how to set it up.

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::{Unknown, rights::may};
use crate::cluster::{CONFIG_MAPS, Cluster, DEPLOYMENTS, PODS};
use mcs_controller::objects::MCS_GROUP;

const SYSTEM: &str = "kube-system";
const ZONE: &str = "clusterset.local";
/// The ConfigMap of server blocks that some distributions import.
const CUSTOM: &str = "coredns-custom";
/// The first version of CoreDNS with `multicluster`.
const FIRST_VERSION: [u64; 3] = [1, 12, 2];

/// The checks and their results.
pub(super) async fn checks(cluster: &Cluster) -> Vec<(&'static str, anyhow::Result<String>)> {
    let mut all = vec![("dns version", version(cluster).await)];
    match cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await {
        Ok(config) => {
            all.push(("dns configuration", corefile(cluster, config.as_ref()).await));
            all.push(("dns restart", restarted(cluster, &config.unwrap_or_default()).await));
        }
        Err(error) => all.push(("dns configuration", Err(error))),
    }
    all.push(("dns rights", rights(cluster).await));
    all.push(("node-local dns", node_local(cluster).await));
    all
}

async fn version(cluster: &Cluster) -> anyhow::Result<String> {
    let deployment = cluster.get(DEPLOYMENTS, Some(SYSTEM), "coredns").await?;
    let deployment = deployment.with_context(|| {
        format!("there is no Deployment {SYSTEM}/coredns: let your DNS server answer {ZONE} (deploy/dns)")
    })?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let mut images = containers.into_iter().flatten().filter_map(|one| one["image"].as_str());
    let Some((image, version)) = images.find_map(|image| Some((image, parse(image)?))) else {
        return Err(Unknown("its image has no version as tag: it takes CoreDNS 1.12.2").into());
    };
    ensure!(
        version >= FIRST_VERSION,
        "{image} is too old: CoreDNS 1.12.2 is the first that can do it"
    );
    Ok(format!("{image} can do it"))
}

/// The version in the tag of an image.
fn parse(image: &str) -> Option<[u64; 3]> {
    let tag = image.split('@').next()?.rsplit_once(':')?.1;
    let mut parts = tag.trim_start_matches('v').split(['.', '-']).map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?])
}

async fn corefile(cluster: &Cluster, config: Option<&Value>) -> anyhow::Result<String> {
    let config = config.with_context(|| format!("there is no ConfigMap {SYSTEM}/coredns"))?;
    let text = config["data"]["Corefile"].as_str().unwrap_or_default();
    if serves_zone(text) {
        return Ok(format!("the Corefile has `multicluster {ZONE}`"));
    }
    if imports_servers(text)
        && let Some(custom) = cluster.get(CONFIG_MAPS, Some(SYSTEM), CUSTOM).await?
        && has_server(&custom)
    {
        return Ok(format!("{CUSTOM}, which the Corefile imports, has `multicluster {ZONE}`"));
    }
    bail!(
        "the Corefile has no line `multicluster {ZONE}`: add the server block of deploy/dns/Corefile"
    )
}

/// Whether the DNS servers have read their configuration since it was changed.
async fn restarted(cluster: &Cluster, config: &Value) -> anyhow::Result<String> {
    let pods = cluster.list_in(PODS, Some(SYSTEM), "k8s-app=kube-dns").await?;
    is_read(config, &pods)
}

fn is_read(config: &Value, pods: &[Value]) -> anyhow::Result<String> {
    let text = config["data"]["Corefile"].as_str().unwrap_or_default();
    if text.lines().any(|line| line.split_whitespace().next() == Some("reload")) {
        return Ok("CoreDNS reads the Corefile again when it changes".to_owned());
    }
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let writes = config["metadata"]["managedFields"].as_array().into_iter().flatten();
    let changed = writes.filter_map(|write| time(&write["time"])).max();
    let started = pods.iter().filter_map(|pod| time(&pod["status"]["startTime"])).min();
    if let (Some(changed), Some(started)) = (changed, started) {
        ensure!(
            started >= changed,
            "a pod of CoreDNS has run since {started}, and the Corefile was changed at {changed}: kubectl rollout restart \
             --namespace {SYSTEM} deployment/coredns, or add a line `reload` to the Corefile"
        );
    }
    Ok("its pods have started since the Corefile was changed".to_owned())
}

/// Whether the Corefile imports server blocks from [`CUSTOM`], as those of k3s and AKS do.
fn imports_servers(corefile: &str) -> bool {
    corefile.lines().map(str::trim).any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("import") && words.any(|word| word.ends_with(".server"))
    })
}

/// Whether a file of server blocks in this ConfigMap serves the zone.
fn has_server(custom: &Value) -> bool {
    let files = custom["data"].as_object().into_iter().flatten();
    files
        .filter(|(file, _)| file.ends_with(".server"))
        .any(|(_, text)| text.as_str().is_some_and(serves_zone))
}

fn serves_zone(corefile: &str) -> bool {
    corefile.lines().map(str::trim).any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("multicluster") && words.any(|word| word.trim_end_matches('.') == ZONE)
    })
}

async fn rights(cluster: &Cluster) -> anyhow::Result<String> {
    let allowed =
        may(cluster, "kube-system:coredns", ("list", MCS_GROUP, "serviceimports")).await?;
    ensure!(
        allowed,
        "CoreDNS may not list ServiceImports: kubectl apply --filename deploy/dns/coredns-rbac.yaml"
    );
    Ok("CoreDNS may list ServiceImports".to_owned())
}

async fn node_local(cluster: &Cluster) -> anyhow::Result<String> {
    let Some(config) = cluster.get(CONFIG_MAPS, Some(SYSTEM), "node-local-dns").await? else {
        return Ok("the cluster has no NodeLocal DNSCache".to_owned());
    };
    let text = config["data"]["Corefile"].as_str().unwrap_or_default();
    ensure!(
        text.lines().any(|line| line.trim_start().starts_with(ZONE)),
        "NodeLocal DNSCache sends {ZONE} to the resolver of the node: add the block of \
         deploy/dns/node-local-dns.Corefile"
    );
    Ok(format!("NodeLocal DNSCache sends {ZONE} to CoreDNS"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_of_images_are_read() {
        for (image, expected) in [
            ("registry.k8s.io/coredns/coredns:v1.12.2", Some([1, 12, 2])),
            ("localhost:5000/coredns:1.9.0-alpine@sha256:00", Some([1, 9, 0])),
            ("coredns:latest", None),
            ("coredns", None),
        ] {
            assert_eq!(parse(image), expected, "{image}");
        }
        assert!([1, 9, 9] < FIRST_VERSION && [1, 12, 2] >= FIRST_VERSION);
    }

    #[test]
    fn the_zone_is_found_in_a_corefile() {
        assert!(serves_zone(
            "clusterset.local:53 {\n  kubernetes clusterset.local {\n    multicluster clusterset.local.\n"
        ));
        assert!(!serves_zone(
            ".:53 {\n  kubernetes cluster.local\n  # multicluster clusterset.local\n}"
        ));
    }

    #[test]
    fn a_pod_that_is_older_than_the_corefile_is_told() {
        let config = |corefile: &str, time: &str| {
            json!({
                "data": {"Corefile": corefile},
                "metadata": {"managedFields": [{"time": "2026-01-01T00:00:00Z"}, {"time": time}]},
            })
        };
        let pods = [json!({"status": {"startTime": "2026-01-02T00:00:00Z"}})];
        let is_read = |corefile, time| is_read(&config(corefile, time), &pods);
        assert!(is_read(". {\n  health\n}", "2026-01-01T12:00:00Z").is_ok());
        assert!(is_read(". {\n  reload 2s\n}", "2026-01-03T00:00:00Z").is_ok());
        let error = is_read(". {\n  health\n}", "2026-01-03T00:00:00Z").unwrap_err().to_string();
        assert!(error.contains("rollout restart"), "{error}");
    }

    #[test]
    fn the_zone_is_found_in_imported_servers() {
        let k3s = ".:53 {\n  import /etc/coredns/custom/*.override\n}\nimport /etc/coredns/custom/*.server\n";
        assert!(imports_servers(k3s) && !imports_servers(".:53 {\n  import a.override\n}"));
        let block = "clusterset.local:53 {\n  multicluster clusterset.local\n}";
        assert!(has_server(&json!({ "data": { "mcs.server": block } })));
        assert!(!has_server(&json!({ "data": { "mcs.override": block } })));
        assert!(!has_server(&json!({})));
    }
}
