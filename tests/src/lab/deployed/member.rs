//! A cluster with the suite's pods in it.

use super::target;
use crate::{
    cluster::{self, Kubectl, Node, Programs},
    prelude::*,
};

/// Where everything of the suite is.
pub const NAMESPACE: &str = "mcs-e2e";
/// The Deployment of servers, their headless Service, and their label `app`.
pub const SERVER: &str = "server";
/// How many servers there are.
const REPLICAS: u8 = 2;
/// The ports of the servers.
pub mod ports {
    /// That of TCP.
    pub const TCP: u16 = 8080;
    /// That of UDP.
    pub const UDP: u16 = 5353;
}

/// How long a cluster may take for anything.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The pods of the suite.
const PODS: &str = include_str!("pods.yaml");

/// A cluster, seen by its kubeconfig.
pub struct Member {
    /// Its id in the ClusterSet.
    pub name: String,
    /// Asks its API server.
    pub kubectl: Kubectl,
    /// Its first node, if its nodes are on this machine.
    pub node: Option<Node>,
    /// For what helm wants to remember.
    directory: PathBuf,
    /// The program of clients, where it is to run on nodes of this machine.
    traffic: Option<PathBuf>,
}

impl Member {
    /// Asks who it is, and starts the pods without waiting for them. `traffic`: the program of clients that are no pods.
    pub fn begin(
        programs: &Programs,
        kubeconfig: &Path,
        directory: &Path,
        image: &str,
        traffic: Option<&Path>,
    ) -> Result<Self> {
        let local = cluster::of_kubeconfig(kubeconfig);
        let kubectl = if let Some(cluster) = local {
            Kubectl::new(programs, cluster)?
        } else {
            Kubectl::with(programs, kubeconfig.to_owned(), directory.join("kubectl"))?
        };
        let property = ["clusterproperty.about.k8s.io", "cluster.clusterset.k8s.io"];
        let property = kubectl.get(&property).context("its id in the ClusterSet")?;
        let name = property["spec"]["value"].as_str().context("an id without value")?.to_owned();
        // One that is on its way out is not to be used again.
        let words = ["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=90s"];
        kubectl.run(&words)?;
        let pods = PODS.replace("$NAMESPACE", NAMESPACE).replace("$IMAGE", image);
        let pods = pods.replace("$PATIENCE", &wait::factor().to_string());
        kubectl.apply(&pods.replace("$REPLICAS", &REPLICAS.to_string()))?;
        let node = local.and_then(|cluster| cluster::nodes(cluster).next());
        let (directory, traffic) = (directory.to_owned(), traffic.map(Path::to_owned));
        Ok(Self { name, kubectl, node, directory, traffic })
    }

    /// Its nodes that are on this machine.
    pub fn nodes(&self) -> Vec<Node> {
        self.node.into_iter().flat_map(|node| cluster::nodes(node.cluster)).collect()
    }

    /// Waits until all pods are ready.
    pub fn wait(&self) -> Result {
        let words = ["wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s"];
        self.run(&words)?;
        self.scale(REPLICAS)
    }

    /// Runs kubectl in the suite's namespace.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let namespace = ["--namespace", NAMESPACE];
        process::run(self.kubectl.command().args(namespace).args(words), "")
    }

    /// What `kubectl get` says of something in the suite's namespace.
    pub fn get(&self, words: &[&str]) -> Result<Value> {
        self.kubectl.get(&[&["--namespace", NAMESPACE], words].concat())
    }

    /// Creates objects, or makes them what is given.
    pub fn apply(&self, objects: &[Value]) -> Result {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.kubectl.apply(&list.to_string())
    }

    /// Scales the servers to `replicas`, and waits until these and no others are ready.
    pub fn scale(&self, replicas: u8) -> Result {
        self.run(&["scale", "deployment", SERVER, &format!("--replicas={replicas}")])?;
        wait::within(PATIENCE, &format!("{replicas} servers in {}", self.name), || {
            let ready = self.servers()?;
            let v4 = ready.iter().filter(|ip| ip.is_ipv4()).count();
            let v6 = ready.len() - v4;
            let replicas = usize::from(replicas);
            ensure!(v4.max(v6) == replicas && (v4.min(v6) == 0 || v4 == v6), "{ready:?}");
            Ok(())
        })
    }

    /// The addresses of the servers that are ready, as their Service's slices say.
    pub fn servers(&self) -> Result<Vec<IpAddr>> {
        let label = format!("kubernetes.io/service-name={SERVER}");
        let slices = self.get(&["endpointslices", "--selector", &label])?;
        let slices = slices["items"].as_array().into_iter().flatten();
        let endpoints = slices.filter_map(|slice| slice["endpoints"].as_array()).flatten();
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let addresses = ready.filter_map(|endpoint| endpoint["addresses"].as_array()).flatten();
        let mut addresses = addresses
            .map(|address| Ok(address.as_str().context("an address is text")?.parse()?))
            .collect::<Result<Vec<_>>>()?;
        addresses.sort();
        Ok(addresses)
    }

    /// Who answers at these addresses.
    pub fn backends(&self) -> Result<Vec<SocketAddr>> {
        let at = |ip| [ports::TCP, ports::UDP].map(|port| SocketAddr::new(ip, port));
        Ok(self.servers()?.into_iter().flat_map(at).collect())
    }

    /// A Service of the cluster itself with the servers behind it, and its addresses.
    pub fn service(&self, name: &str) -> Result<Vec<IpAddr>> {
        self.service_of(name, json!({ "ipFamilyPolicy": "PreferDualStack" }))
    }

    /// The same, with these families.
    pub fn service_of(&self, name: &str, families: Value) -> Result<Vec<IpAddr>> {
        let mut spec = families;
        spec["selector"] = json!({ "app": SERVER });
        spec["ports"] = json!([
            { "name": "tcp", "port": target::TCP, "targetPort": ports::TCP },
            { "name": "udp", "port": target::UDP, "targetPort": ports::UDP, "protocol": "UDP" },
        ]);
        self.apply(&[json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "namespace": NAMESPACE, "name": name },
            "spec": spec,
        })])?;
        let service = self.get(&["service", name])?;
        Ok(serde_json::from_value(service["spec"]["clusterIPs"].clone())?)
    }

    /// Exports a Service to the clusterset.
    pub fn export(&self, name: &str) -> Result {
        self.apply(&[json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceExport",
            "metadata": { "namespace": NAMESPACE, "name": name },
        })])
    }

    /// The program of clients that are no pods.
    pub(super) fn traffic(&self) -> Result<&Path> {
        self.traffic.as_deref().context("no program for clients that are no pods")
    }

    /// The network of a pod whose node is on this machine.
    pub fn network_of(&self, pod: &str) -> Result<Namespace> {
        let pod = self.get(&["pod", pod])?;
        let container = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = container.and_then(|id| id.rsplit('/').next()).context("no container runs")?;
        // A container's cgroup has its id.
        let is_in_it = |process: &Path| {
            let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            cgroups.contains(id).then(|| process.join("ns/net"))
        };
        let mut processes = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
        let network = processes.find_map(|process| is_in_it(&process));
        Namespace::open(&network.context("no process of the pod")?.display().to_string())
    }

    /// helm, for this cluster.
    pub fn helm(&self, program: &Path) -> Command {
        let mut helm = Command::new(program);
        if self.node.is_some() {
            // No proxy is between it and the cluster.
            helm.env_clear().env("HOME", &self.directory);
        }
        helm.arg("--kubeconfig").arg(self.kubectl.kubeconfig());
        helm
    }
}
