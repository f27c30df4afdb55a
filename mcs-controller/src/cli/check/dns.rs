//! Whether the DNS server of a cluster answers names in clusterset.local. deploy/dns says how to set it up.

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::rights::may;
use crate::{
    cli::cluster::{CONFIG_MAPS, Cluster, DEPLOYMENTS},
    objects::MCS_GROUP,
};

const SYSTEM: &str = "kube-system";
const ZONE: &str = "clusterset.local";
/// The ConfigMap of server blocks that some distributions import.
const CUSTOM: &str = "coredns-custom";
/// The first version of CoreDNS with `multicluster`.
const FIRST_VERSION: [u64; 3] = [1, 12, 2];

/// The checks and their results.
pub(super) async fn checks(cluster: &Cluster) -> Vec<(&'static str, anyhow::Result<String>)> {
    vec![
        ("dns version", version(cluster).await),
        ("dns configuration", corefile(cluster).await),
        ("dns rights", rights(cluster).await),
        ("node-local dns", node_local(cluster).await),
    ]
}

async fn version(cluster: &Cluster) -> anyhow::Result<String> {
    let deployment = cluster.get(DEPLOYMENTS, Some(SYSTEM), "coredns").await?;
    let deployment = deployment.with_context(|| {
        format!("there is no Deployment {SYSTEM}/coredns: let your DNS server answer {ZONE} (deploy/dns)")
    })?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let mut images = containers.into_iter().flatten().filter_map(|one| one["image"].as_str());
    let Some((image, version)) = images.find_map(|image| Some((image, parse(image)?))) else {
        return Ok("its image has no version as tag: it takes CoreDNS 1.12.2".to_owned());
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

async fn corefile(cluster: &Cluster) -> anyhow::Result<String> {
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await?;
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
    fn the_zone_is_found_in_imported_servers() {
        let k3s = ".:53 {\n  import /etc/coredns/custom/*.override\n}\nimport /etc/coredns/custom/*.server\n";
        assert!(imports_servers(k3s) && !imports_servers(".:53 {\n  import a.override\n}"));
        let block = "clusterset.local:53 {\n  multicluster clusterset.local\n}";
        assert!(has_server(&json!({ "data": { "mcs.server": block } })));
        assert!(!has_server(&json!({ "data": { "mcs.override": block } })));
        assert!(!has_server(&json!({})));
    }
}
