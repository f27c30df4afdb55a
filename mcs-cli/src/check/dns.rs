//! Whether the DNS server of a cluster answers names in clusterset.local. deploy/dns describes the setup.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::{Unknown, rights::may};
use crate::{
    cluster::{CONFIG_MAPS, Cluster, DEPLOYMENTS, PODS},
    corefile::{self, Corefile},
    dns::{self, SYSTEM, Sources, View},
};
use mcs_controller::core::objects::MCS_GROUP;
use mcs_kube::{names::ZONE, reasons::ClusterCheck};

/// The checks and their results.
pub(super) async fn checks(cluster: &Cluster) -> Vec<(ClusterCheck, anyhow::Result<String>)> {
    let mut all = vec![(ClusterCheck::DnsVersion, version(cluster).await)];
    match Sources::of(cluster).await {
        Ok(sources) => {
            let view = sources.view();
            let domain =
                view.as_ref().map_or("cluster.local", |view| &view.model.domain).to_owned();
            all.push((ClusterCheck::DnsConfiguration, view.and_then(|view| configured(&view))));
            all.push((ClusterCheck::DnsRestart, restarted(cluster).await));
            all.push((ClusterCheck::NodeLocalDns, node_local(cluster, &sources, &domain).await));
        }
        Err(error) => all.push((ClusterCheck::DnsConfiguration, Err(error))),
    }
    all.push((ClusterCheck::DnsRights, rights(cluster).await));
    all
}

async fn version(cluster: &Cluster) -> anyhow::Result<String> {
    let deployment = cluster.get(DEPLOYMENTS, Some(SYSTEM), "coredns").await?;
    let deployment = deployment.with_context(|| {
        format!("there is no Deployment {SYSTEM}/coredns: let your DNS server answer {ZONE} (deploy/dns)")
    })?;
    let found = dns::images(&deployment).find_map(|image| Some((image, dns::version(image)?)));
    let Some((image, version)) = found else {
        let what = "its image has no version as tag: it takes CoreDNS 1.12.2";
        return Err(Unknown(what.to_owned()).into());
    };
    ensure!(
        version >= dns::FIRST_VERSION,
        "{image} is too old: CoreDNS 1.12.2 is the first that can do it"
    );
    Ok(format!("{image} can do it"))
}

fn configured(view: &View<'_>) -> anyhow::Result<String> {
    let block = view.answered()?.with_context(|| {
        format!("no block of CoreDNS has `multicluster {ZONE}`: `mcs dns apply` adds one")
    })?;
    Ok(format!("CoreDNS answers {ZONE}: {block}"))
}

/// Whether the DNS servers have read their present configuration.
async fn restarted(cluster: &Cluster) -> anyhow::Result<String> {
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "coredns").await?.unwrap_or_default();
    let pods = cluster.list_in(PODS, Some(SYSTEM), "k8s-app=kube-dns").await?;
    is_read(&config, &pods)
}

fn is_read(config: &Value, pods: &[Value]) -> anyhow::Result<String> {
    if Corefile::parse(dns::corefile_of(config))?.reloads() {
        return Ok("CoreDNS reads the Corefile again when it changes".to_owned());
    }
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let writes = config["metadata"]["managedFields"].as_array().into_iter().flatten();
    let changed = writes.filter_map(|write| time(&write["time"])).max();
    let started = pods.iter().filter_map(|pod| time(&pod["status"]["startTime"])).min();
    let (Some(changed), Some(started)) = (changed, started) else {
        let lacking = if changed.is_none() {
            "the ConfigMap coredns does not say when it was changed"
        } else {
            "no pod with the label k8s-app=kube-dns has started"
        };
        let advice = "a line `reload` in the Corefile lets CoreDNS read it again";
        return Err(Unknown(format!("not known: {lacking}; {advice}")).into());
    };
    ensure!(
        started >= changed,
        "a pod of CoreDNS has run since {started}, and the Corefile was changed at {changed}: kubectl rollout restart \
         --namespace {SYSTEM} deployment/coredns, or add a line `reload` to the Corefile"
    );
    Ok("its pods have started since the Corefile was changed".to_owned())
}

async fn rights(cluster: &Cluster) -> anyhow::Result<String> {
    const ACCOUNT: &str = "kube-system:coredns";
    ensure!(
        may(cluster, ACCOUNT, ("list", MCS_GROUP, "serviceimports")).await?,
        "CoreDNS may not list ServiceImports: kubectl apply --filename deploy/dns/coredns-rbac.yaml"
    );
    // Its pods that run answer with what they have read; the next one never becomes ready.
    ensure!(
        may(cluster, ACCOUNT, ("list", "discovery.k8s.io", "endpointslices")).await?,
        "CoreDNS may not list EndpointSlices, so no new pod of it becomes ready: give this right back to the account \
         kube-system/coredns, as ClusterRole system:coredns of its installer has it"
    );
    Ok("CoreDNS may list ServiceImports and EndpointSlices".to_owned())
}

async fn node_local(cluster: &Cluster, sources: &Sources, domain: &str) -> anyhow::Result<String> {
    for cache in &sources.caches {
        let sends = corefile::sends_zone(&cache.source.corefile()?, domain);
        ensure!(
            sends.with_context(|| cache.source.to_string())?,
            "NodeLocal DNSCache ({}) sends {ZONE} to the resolver of the node: run `mcs dns apply`, or add the block of \
             deploy/dns/node-local-dns.Corefile",
            cache.source
        );
    }
    if !sources.caches.is_empty() {
        return Ok(format!("NodeLocal DNSCache sends {ZONE} to CoreDNS"));
    }
    if dns::link_local_nameserver(cluster).await?.is_some() {
        return Err(Unknown(
            "pods ask a link-local address, that of a DNS cache that mcs does not know: let it send clusterset.local to CoreDNS"
                .to_owned(),
        )
        .into());
    }
    Ok("the cluster has no NodeLocal DNSCache".to_owned())
}

#[cfg(test)]
mod tests {
    use mcs_kube::{reasons::Coded as _, testing::ScriptedAnswer};
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::{object, scripted};

    #[tokio::test]
    async fn each_part_of_dns_has_a_row() {
        let absent = || ScriptedAnswer::error(404);
        let none = object(json!({"metadata": {}, "items": []}));
        let answers = [absent(), absent(), absent(), none].into_iter();
        let (cluster, _server, _file) =
            scripted("east", answers.chain((0..8).map(|_| absent()))).await;
        let found = checks(&cluster).await;
        let names: Vec<_> = found.iter().map(|(check, _)| check.name()).collect();
        let expected =
            ["dns version", "dns configuration", "dns restart", "node-local dns", "dns rights"];
        assert_eq!(names, expected);
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
        let unknown = |config: &Value, pods: &[Value]| is_read(config, pods).unwrap_err();
        let without = config(". {\n  health\n}", "2026-01-01T12:00:00Z");
        assert!(unknown(&without, &[]).is::<Unknown>(), "no pod");
        let timeless = json!({"data": {"Corefile": ". {\n  health\n}"}});
        assert!(unknown(&timeless, &pods).is::<Unknown>());
        let is_read = |corefile, time| is_read(&config(corefile, time), &pods);
        assert!(is_read(". {\n  health\n}", "2026-01-01T12:00:00Z").is_ok());
        assert!(is_read(". {\n  reload 2s\n}", "2026-01-03T00:00:00Z").is_ok());
        let error = is_read(". {\n  health\n}", "2026-01-03T00:00:00Z").unwrap_err().to_string();
        assert!(error.contains("rollout restart"), "{error}");
    }
}
