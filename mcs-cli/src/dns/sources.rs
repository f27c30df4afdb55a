//! The texts that configure the DNS of a cluster: ConfigMaps of CoreDNS and of the caches on its nodes.

use std::net::IpAddr;

use anyhow::Context as _;
use mcs_controller::core::objects::FIELD_MANAGER;
use serde_json::Value;

use super::{CUSTOM, SYSTEM};
use crate::{
    cluster::{CONFIG_MAPS, Cluster, DAEMON_SETS, containers},
    corefile::{self, Corefile, Model, State},
};

/// The key of a ConfigMap with a whole Corefile.
const COREFILE: &str = "Corefile";
/// Our key of the ConfigMap for server blocks.
const CUSTOM_KEY: &str = "clusterset.server";
/// The image of NodeLocal DNSCache, whatever its DaemonSet is called.
const CACHE_IMAGE: &str = "k8s-dns-node-cache";
/// The values of `k8s-app` of NodeLocal DNSCache: those of Kubernetes and of Kubespray.
const CACHE_LABELS: [&str; 2] = ["node-local-dns", "nodelocaldns"];

/// A key of a ConfigMap.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: String,
    /// The ConfigMap, if it is there.
    pub(super) config: Value,
}

impl Source {
    async fn read(
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> anyhow::Result<Self> {
        let config = cluster.get(CONFIG_MAPS, Some(namespace), name).await?.unwrap_or_default();
        let [namespace, name, key] = [namespace, name, key].map(str::to_owned);
        Ok(Self { namespace, name, key, config })
    }

    /// Its text, if the ConfigMap has the key.
    pub(super) fn text(&self) -> Option<&str> {
        self.config["data"][&self.key].as_str()
    }

    /// Parses its text. An absent one is empty.
    pub(crate) fn corefile(&self) -> anyhow::Result<Corefile<'_>> {
        Corefile::parse(self.text().unwrap_or_default()).with_context(|| self.to_string())
    }

    /// The release of helm that has written the text. An edit of `mcs` is no part of a release. The chart writes our key for
    /// additions alone (`dns.custom`): a Corefile of helm's has the block from `mcs`, whoever has edited it since.
    pub(super) fn release(&self) -> Option<&str> {
        if (&*self.name, &*self.key) != (CUSTOM, CUSTOM_KEY) {
            return None;
        }
        if self.writers().any(|(manager, _)| manager == FIELD_MANAGER) {
            return None;
        }
        self.config["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str()
    }

    /// Another manager that applies the key, and so may write it again.
    pub(super) fn applied_by(&self) -> Option<&str> {
        let mut writers = self.writers();
        let other = writers.find(|(manager, is_apply)| *is_apply && *manager != FIELD_MANAGER)?;
        Some(other.0)
    }

    /// The managers of the key, and whether each applies it.
    fn writers(&self) -> impl Iterator<Item = (&str, bool)> {
        let field = format!("f:{}", self.key);
        let entries = self.config["metadata"]["managedFields"].as_array().into_iter().flatten();
        entries.filter_map(move |entry| {
            entry["fieldsV1"]["f:data"].get(&field)?;
            Some((entry["manager"].as_str()?, entry["operation"] == "Apply"))
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigMap {}/{}", self.namespace, self.name)?;
        if self.key == COREFILE { Ok(()) } else { write!(f, ", key {}", self.key) }
    }
}

/// A NodeLocal DNSCache.
pub(crate) struct Cache {
    pub(super) daemon_set: String,
    pub(crate) source: Source,
}

/// What configures the DNS of a cluster.
pub(crate) struct Sources {
    pub(crate) main: Source,
    /// All keys of the ConfigMap for additions.
    pub(super) custom: Vec<Source>,
    /// Our key there, which may be absent.
    pub(super) own: Source,
    pub(crate) caches: Vec<Cache>,
}

impl Sources {
    pub(crate) async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let main = Source::read(cluster, SYSTEM, "coredns", COREFILE).await?;
        let own = Source::read(cluster, SYSTEM, CUSTOM, CUSTOM_KEY).await?;
        let keys = own.config["data"].as_object().into_iter().flatten();
        let custom = keys.map(|(key, _)| Source { key: key.clone(), ..own.clone() }).collect();
        let mut caches = Vec::new();
        for place in caches_among(&cluster.list(DAEMON_SETS).await?) {
            let Place { namespace, daemon_set, config_map, key } = place;
            let source = Source::read(cluster, &namespace, &config_map, &key).await?;
            caches.push(Cache { daemon_set, source });
        }
        Ok(Self { main, custom, own, caches })
    }

    /// Each text, with a name for a file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (String, &str)> {
        let caches = self.caches.iter().map(|cache| &cache.source);
        let all = std::iter::once(&self.main).chain(&self.custom).chain(caches);
        all.filter_map(|source| {
            let Source { namespace, name, key, .. } = source;
            Some((format!("{namespace}-{name}-{key}"), source.text()?))
        })
    }

    /// The files with server blocks that CoreDNS reads, parsed.
    ///
    /// # Errors
    /// One cannot be parsed, or the domain of the cluster has not one block.
    pub(crate) fn view(&self) -> anyhow::Result<View<'_>> {
        self.main.text().with_context(|| format!("there is no {}", self.main))?;
        let main = self.main.corefile()?;
        let imported = self.custom.iter().filter(|source| main.imports(&source.key));
        let files = imported.map(|source| Ok((source, source.corefile()?)));
        let files = files.collect::<anyhow::Result<Vec<_>>>()?;
        let all: Vec<_> = [&main].into_iter().chain(files.iter().map(|(_, file)| file)).collect();
        let model = corefile::model(&all).with_context(|| self.main.to_string())?;
        Ok(View { sources: self, main, files, model })
    }
}

/// The files with server blocks that CoreDNS reads.
pub(crate) struct View<'a> {
    sources: &'a Sources,
    pub(crate) main: Corefile<'a>,
    /// Those that the Corefile imports.
    files: Vec<(&'a Source, Corefile<'a>)>,
    pub(crate) model: Model,
}

impl View<'_> {
    /// The block that answers the zone, if one does.
    ///
    /// # Errors
    /// Another DNS answers the zone.
    pub(crate) fn answered(&self) -> anyhow::Result<Option<String>> {
        let state = |source: &Source, file: &Corefile<'_>| {
            corefile::state(file, &self.model).with_context(|| source.to_string())
        };
        let mut found = None;
        let main = (&self.sources.main, &self.main);
        for (source, file) in
            [main].into_iter().chain(self.files.iter().map(|(source, file)| (*source, file)))
        {
            if let State::Block(header) = state(source, file)? {
                found = Some(format!("`{header}` in {source}"));
            }
        }
        // What is imported into a block can send the zone elsewhere too.
        for source in &self.sources.custom {
            if self.main.imports_below(&source.key) {
                let text = format!(". {{\n{}\n}}\n", source.text().unwrap_or_default());
                let file = Corefile::parse(&text).with_context(|| source.to_string())?;
                state(source, &file)?;
            }
        }
        Ok(found)
    }

    /// Where a block for the zone goes, and whether it is the Corefile itself.
    pub(super) fn target(&self) -> (&Source, bool) {
        let is_main = !self.main.imports(CUSTOM_KEY);
        (if is_main { &self.sources.main } else { &self.sources.own }, is_main)
    }
}

/// Where the configuration of a cache is.
#[derive(PartialEq, Eq, Debug)]
struct Place {
    namespace: String,
    daemon_set: String,
    config_map: String,
    key: String,
}

/// Where the configuration of each NodeLocal DNSCache is.
fn caches_among(daemon_sets: &[Value]) -> Vec<Place> {
    daemon_sets.iter().filter_map(cache).collect()
}

fn cache(daemon_set: &Value) -> Option<Place> {
    let pods = &daemon_set["spec"]["template"];
    let is_cache = |container: &Value| {
        container["image"].as_str().is_some_and(|image| image.contains(CACHE_IMAGE))
    };
    let label = pods["metadata"]["labels"]["k8s-app"].as_str();
    if !containers(daemon_set).any(is_cache)
        && !label.is_some_and(|app| CACHE_LABELS.contains(&app))
    {
        return None;
    }
    let volumes = pods["spec"]["volumes"].as_array().into_iter().flatten();
    // The ConfigMap `kube-dns` has stub zones for all DNS servers of the cluster.
    let maps = volumes.map(|volume| &volume["configMap"]).filter(|map| map["name"] != "kube-dns");
    let named = maps.filter_map(|map| {
        let items = map["items"].as_array().into_iter().flatten();
        let mut keys = items.filter_map(|item| item["key"].as_str());
        let key = keys.find(|key| key.starts_with(COREFILE));
        Some((map["name"].as_str()?, key))
    });
    let named: Vec<_> = named.collect();
    let (config_map, key) = named.iter().find(|(_, key)| key.is_some()).or(named.first())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Place {
        namespace: text(&daemon_set["metadata"]["namespace"]),
        daemon_set: text(&daemon_set["metadata"]["name"]),
        config_map: (*config_map).to_owned(),
        key: key.unwrap_or(COREFILE).to_owned(),
    })
}

/// The link-local address that the kubelets of a cluster by kubeadm give to pods as their DNS server: that of a cache.
pub(crate) async fn link_local_nameserver(cluster: &Cluster) -> anyhow::Result<Option<IpAddr>> {
    let config = cluster.get(CONFIG_MAPS, Some(SYSTEM), "kubelet-config").await?;
    let config = config.unwrap_or_default();
    Ok(config["data"]["kubelet"].as_str().and_then(link_local))
}

/// The link-local address among those of `clusterDNS` in a configuration of the kubelet.
fn link_local(kubelet: &str) -> Option<IpAddr> {
    let kubelet: Value = serde_saphyr::from_str(kubelet).ok()?;
    let servers = kubelet["clusterDNS"].as_array().into_iter().flatten();
    servers.filter_map(|server| server.as_str()?.parse().ok()).find(|address| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon_set(name: &str, label: &str, image: &str, volumes: &Value) -> Value {
        json!({
            "metadata": {"namespace": "kube-system", "name": name},
            "spec": {"template": {
                "metadata": {"labels": {"k8s-app": label}},
                "spec": {"containers": [{"image": image}], "volumes": volumes},
            }},
        })
    }

    #[test]
    fn a_cache_is_found_whatever_its_name() {
        let kubespray = json!([
            {"name": "config-volume", "configMap": {
                "name": "nodelocaldns", "items": [{"key": "Corefile", "path": "Corefile.base"}],
            }},
            {"name": "xtables-lock", "hostPath": {"path": "/run/xtables.lock"}},
        ]);
        let second = json!([{"configMap": {
            "name": "nodelocaldns", "items": [{"key": "Corefile-second", "path": "Corefile.base"}],
        }}]);
        let kubernetes = json!([
            {"configMap": {"name": "kube-dns", "optional": true}},
            {"configMap": {"name": "node-local-dns"}},
        ]);
        let image = "registry.k8s.io/dns/k8s-dns-node-cache:1.25.0";
        let found = caches_among(&[
            daemon_set("nodelocaldns", "nodelocaldns", image, &kubespray),
            daemon_set("nodelocaldns-second", "nodelocaldns-second", image, &second),
            daemon_set("cache", "node-local-dns", "example.org/node-cache:1", &kubernetes),
            daemon_set("other", "other", "example.org/k8s-dns-node-cache:1", &json!([])),
            daemon_set("kube-proxy", "kube-proxy", "kube-proxy:v1.34.0", &kubernetes),
        ]);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.daemon_set.as_str(), one.config_map.as_str(), one.key.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("nodelocaldns", "nodelocaldns", "Corefile"),
                ("nodelocaldns-second", "nodelocaldns", "Corefile-second"),
                ("cache", "node-local-dns", "Corefile"),
            ]
        );
    }

    #[test]
    fn who_writes_a_key_is_told() {
        let field = json!({"f:data": {"f:Corefile": {}, "f:clusterset.server": {}}});
        let write = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": field});
        let of = |name: &str, key: &str, writes: &[Value]| {
            let annotations = json!({"meta.helm.sh/release-name": "mcs"});
            let metadata = json!({"annotations": annotations, "managedFields": writes});
            let [namespace, name, key] = [SYSTEM, name, key].map(str::to_owned);
            Source { namespace, name, key, config: json!({"metadata": metadata}) }
        };
        let source = |writes: &[Value]| of(CUSTOM, CUSTOM_KEY, writes);
        let own = write(FIELD_MANAGER, "Update");
        let [edit, helm, flux] =
            [("kubectl-edit", "Update"), ("helm", "Update"), ("flux", "Apply")]
                .map(|(manager, operation)| write(manager, operation));
        let of_helm = source(&[edit.clone(), helm.clone()]);
        assert_eq!((of_helm.release(), of_helm.applied_by()), (Some("mcs"), None));
        let coredns = of("coredns", COREFILE, &[edit.clone(), helm.clone()]);
        assert_eq!(coredns.release(), None, "the chart does not write it");
        let edited = source(&[edit, helm, own, flux]);
        assert_eq!((edited.release(), edited.applied_by()), (None, Some("flux")));
    }

    #[test]
    fn a_nameserver_of_pods_that_is_link_local_is_found() {
        let of = |server: &str| link_local(&format!("kind: K\nclusterDNS:\n- {server}\n"));
        assert_eq!(of("169.254.25.10"), Some("169.254.25.10".parse().unwrap()));
        assert_eq!(of("10.96.0.10"), None);
        assert_eq!(link_local("kind: K"), None);
    }
}
