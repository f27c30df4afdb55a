//! A manifests directory, and ServiceImports with EndpointSlices to put into it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, iter,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::Run;

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As Kubernetes and the agent write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Port {
    protocol: Protocol,
    number: u16,
    target: u16,
}

impl Port {
    fn name(self) -> String {
        format!("{}-{}", self.protocol.name(), self.number).to_lowercase()
    }
}

/// Frontends, as address, port and protocol, and where each leads.
pub type Frontends = BTreeMap<(IpAddr, u16, Protocol), BTreeSet<SocketAddr>>;

/// Why new clients do not get an endpoint that serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aside {
    /// Hints keep it for another zone than [`ZONE`].
    OfOtherZone,
    /// It terminates, and still serves.
    Draining,
}

/// The zone of an agent for which [`Aside::OfOtherZone`] holds.
pub const ZONE: &str = "here";

/// A ServiceImport and its EndpointSlices.
#[derive(Clone, Debug)]
pub struct Service {
    namespace: String,
    name: String,
    vips: Vec<IpAddr>,
    ports: Vec<Port>,
    affinity_seconds: Option<u32>,
    local: bool,
    passive_health: bool,
    border: Option<(Vec<String>, String)>,
    endpoints: BTreeMap<String, Vec<IpAddr>>,
    aside: BTreeMap<IpAddr, Aside>,
}

impl Service {
    /// A service of namespace `default` with these ClusterSetIPs and nothing else yet.
    pub fn new(name: impl Into<String>, vips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            namespace: "default".to_owned(),
            name: name.into(),
            vips: vips.into_iter().collect(),
            ports: Vec::new(),
            affinity_seconds: None,
            local: false,
            passive_health: false,
            border: None,
            endpoints: BTreeMap::new(),
            aside: BTreeMap::new(),
        }
    }

    /// Moves it to another namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Adds a port that leads to port `target` of the endpoints.
    #[must_use]
    pub fn port(mut self, protocol: Protocol, port: u16, target: u16) -> Self {
        self.ports.push(Port { protocol, number: port, target });
        self
    }

    /// Asks for ClientIP affinity.
    #[must_use]
    pub const fn affinity(mut self, seconds: u32) -> Self {
        self.affinity_seconds = Some(seconds);
        self
    }

    /// Asks for `internalTrafficPolicy: Local`. No endpoint is on a node, so that none is local.
    #[must_use]
    pub const fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// Asks for passive health, or does not any more.
    #[must_use]
    pub const fn passive_health(mut self, is_on: bool) -> Self {
        self.passive_health = is_on;
        self
    }

    /// The cluster selectors of its owner match these clusters. Where none of them can serve, `fallback` says who does.
    #[must_use]
    pub fn bordered(mut self, clusters: &[&str], fallback: &str) -> Self {
        let clusters = clusters.iter().map(|one| (*one).to_owned()).collect();
        self.border = Some((clusters, fallback.to_owned()));
        self
    }

    /// Replaces the ready endpoints of one cluster; each address serves the VIPs of its family. The slices of
    /// a cluster without a name carry no label for it, as those of the mcs-api reference controller.
    #[must_use]
    pub fn endpoints(mut self, cluster: &str, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.endpoints.insert(cluster.to_owned(), ips.into_iter().collect());
        self
    }

    /// Keeps new clients from these endpoints.
    #[must_use]
    pub fn aside(mut self, why: Aside, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.aside = ips.into_iter().map(|ip| (ip, why)).collect();
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The frontends and backends that an agent should make of it.
    pub fn frontends(&self) -> Frontends {
        let mut frontends = Frontends::new();
        for vip in &self.vips {
            for port in &self.ports {
                let inside = self.endpoints.iter().filter(|(cluster, _)| self.may_serve(cluster));
                let ips = inside.flat_map(|(_, ips)| ips);
                let ips = ips.filter(|ip| ip.is_ipv4() == vip.is_ipv4());
                let ips = ips.filter(|ip| !self.local && !self.aside.contains_key(ip));
                let backends = ips.map(|ip| SocketAddr::new(*ip, port.target)).collect();
                frontends.insert((*vip, port.number, port.protocol), backends);
            }
        }
        frontends
    }

    /// Whether a cluster is inside of the border, if there is one.
    fn may_serve(&self, cluster: &String) -> bool {
        self.border.as_ref().is_none_or(|(inside, _)| inside.contains(cluster))
    }

    fn manifest(&self) -> Value {
        let items: Vec<_> = iter::once(self.import()).chain(self.slices()).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }

    /// The EndpointSlices, two of each cluster.
    pub fn slices(&self) -> Vec<Value> {
        let of_cluster = |(cluster, ips): (&String, &Vec<IpAddr>)| {
            let (v4, v6): (Vec<_>, Vec<_>) = ips.iter().partition(|ip| ip.is_ipv4());
            [self.slice(cluster, "IPv4", &v4), self.slice(cluster, "IPv6", &v6)]
        };
        self.endpoints.iter().flat_map(of_cluster).collect()
    }

    /// The ServiceImport.
    pub fn import(&self) -> Value {
        let ports: Vec<_> = self
            .ports
            .iter()
            .map(|port| json!({"name": port.name(), "protocol": port.protocol.name(), "port": port.number}))
            .collect();
        let mut spec = json!({"type": "ClusterSetIP", "ips": self.vips, "ports": ports});
        if let Some(seconds) = self.affinity_seconds {
            spec["sessionAffinity"] = "ClientIP".into();
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        if self.local {
            spec["internalTrafficPolicy"] = "Local".into();
        }
        let mut import = json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceImport",
            "metadata": {"namespace": self.namespace, "name": self.name},
            "spec": spec,
        });
        if self.passive_health {
            import["metadata"]["annotations"] =
                json!({"traffic.clusterset.mcs-agent.io/passive-health": "on"});
        }
        if let Some((clusters, fallback)) = &self.border {
            import["metadata"]["annotations"]["traffic.clusterset.mcs-agent.io/cluster-selectors-fallback"] =
                fallback.as_str().into();
            import["status"] = json!({"clusterSelectorResults": [{"clusters": clusters}]});
        }
        import
    }

    fn endpoint(&self, ip: &IpAddr) -> Value {
        let mut endpoint = json!({"addresses": [ip]});
        let aside = self.aside.get(ip);
        if aside == Some(&Aside::Draining) {
            endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
        }
        // Hints count if every endpoint has some.
        if self.aside.values().any(|aside| *aside == Aside::OfOtherZone) {
            let zone = if aside.is_some() { "elsewhere" } else { ZONE };
            endpoint["hints"] = json!({"forZones": [{"name": zone}]});
        }
        endpoint
    }

    fn slice(&self, cluster: &str, family: &str, ips: &[&IpAddr]) -> Value {
        let ports: Vec<_> = self
            .ports
            .iter()
            .map(|port| json!({"name": port.name(), "protocol": port.protocol.name(), "port": port.target}))
            .collect();
        let endpoints: Vec<_> = ips.iter().map(|ip| self.endpoint(ip)).collect();
        let mut slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": self.namespace,
                "name": format!("{}-{cluster}-{}", self.name, family.to_lowercase()),
                "labels": {
                    "multicluster.kubernetes.io/service-name": self.name,
                },
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": ports,
        });
        if !cluster.is_empty() {
            slice["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] =
                cluster.into();
        }
        slice
    }
}

/// A directory that an agent reads. It is removed when this is dropped.
#[derive(Debug)]
pub struct Manifests {
    directory: TempDir,
}

impl Manifests {
    /// Creates an empty directory.
    pub fn create(run: &Run) -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("manifests-").tempdir_in(run.directory())?;
        Ok(Self { directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a service into a file of its name, at once.
    pub fn write(&self, service: &Service) -> anyhow::Result<()> {
        self.put(&service.name, &service.manifest())
    }

    /// Writes a manifest into a file of this name, at once.
    pub fn put(&self, name: &str, manifest: &Value) -> anyhow::Result<()> {
        // The agent does not read a file that ends like this.
        let fresh = self.path().join(format!("{name}.new"));
        fs::write(&fresh, manifest.to_string())?;
        Ok(fs::rename(fresh, self.file(name))?)
    }

    /// Removes a service's file.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.file(name))?)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.path().join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn endpoints_serve_the_vips_of_their_family() {
        let service = Service::new("web", [ip("10.0.0.1"), ip("fd00::1")])
            .port(Protocol::Tcp, 80, 8080)
            .endpoints("east", [ip("10.1.0.1")])
            .endpoints("west", [ip("10.2.0.1"), ip("fd02::1")]);
        let expected = Frontends::from([
            (
                (ip("10.0.0.1"), 80, Protocol::Tcp),
                ["10.1.0.1:8080", "10.2.0.1:8080"].map(|text| text.parse().unwrap()).into(),
            ),
            ((ip("fd00::1"), 80, Protocol::Tcp), ["[fd02::1]:8080".parse().unwrap()].into()),
        ]);
        assert_eq!(service.frontends(), expected);
        // The import, and two slices of each cluster.
        assert_eq!(service.manifest()["items"].as_array().unwrap().len(), 5);
    }
}
