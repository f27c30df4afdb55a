//! One of the two clusters, with the suite's pods in it.

use mcs_tests::cluster::Kubectl;

use crate::{prelude::*, target};

/// Where everything of the suite is.
pub(crate) const NAMESPACE: &str = "mcs-e2e";
/// The Deployment of servers, their headless Service, and their label `app`.
pub(crate) const SERVER: &str = "server";
/// How many servers there are.
const REPLICAS: u8 = 2;
/// The ports of the servers.
pub(crate) const TCP: u16 = 8080;
pub(crate) const UDP: u16 = 5353;

/// How long a cluster may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The pods of the suite.
const PODS: &str = include_str!("pods.yaml");

/// A cluster, seen by its kubeconfig.
pub(crate) struct Member {
    /// Its id in the ClusterSet.
    pub(crate) name: String,
    pub(crate) kubectl: Kubectl,
    /// Its first node, if its nodes are on this machine.
    pub(crate) node: Option<Node>,
    /// For what helm wants to remember.
    directory: PathBuf,
}

impl Member {
    /// Asks who it is, and starts the pods without waiting for them.
    pub(crate) fn begin(
        programs: &Programs,
        kubeconfig: &Path,
        directory: &Path,
        image: &str,
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
        Ok(Self { name, kubectl, node, directory: directory.to_owned() })
    }

    /// Its nodes that are on this machine.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.node.into_iter().flat_map(|node| cluster::nodes(node.cluster)).collect()
    }

    /// Waits until all pods are ready.
    pub(crate) fn wait(&self) -> Result {
        let words = ["wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s"];
        self.run(&words)?;
        self.scale(REPLICAS)
    }

    /// Runs kubectl in the suite's namespace.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let namespace = ["--namespace", NAMESPACE];
        process::run(self.kubectl.command().args(namespace).args(words), "")
    }

    /// What `kubectl get` says of something in the suite's namespace.
    pub(crate) fn get(&self, words: &[&str]) -> Result<Value> {
        self.kubectl.get(&[&["--namespace", NAMESPACE], words].concat())
    }

    /// Creates objects, or makes them what is given.
    pub(crate) fn apply(&self, objects: &[Value]) -> Result {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.kubectl.apply(&list.to_string())
    }

    /// Scales the servers to `replicas`, and waits until these and no others are ready.
    pub(crate) fn scale(&self, replicas: u8) -> Result {
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
    pub(crate) fn servers(&self) -> Result<Vec<IpAddr>> {
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
    pub(crate) fn backends(&self) -> Result<Vec<SocketAddr>> {
        let at = |ip| [TCP, UDP].map(|port| SocketAddr::new(ip, port));
        Ok(self.servers()?.into_iter().flat_map(at).collect())
    }

    /// A Service of the cluster itself with the servers behind it, and its addresses.
    pub(crate) fn service(&self, name: &str) -> Result<Vec<IpAddr>> {
        self.service_of(name, json!({ "ipFamilyPolicy": "PreferDualStack" }))
    }

    /// The same, with these families.
    pub(crate) fn service_of(&self, name: &str, families: Value) -> Result<Vec<IpAddr>> {
        let mut spec = families;
        spec["selector"] = json!({ "app": SERVER });
        spec["ports"] = json!([
            { "name": "tcp", "port": target::TCP, "targetPort": TCP },
            { "name": "udp", "port": target::UDP, "targetPort": UDP, "protocol": "UDP" },
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
    pub(crate) fn export(&self, name: &str) -> Result {
        self.apply(&[json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceExport",
            "metadata": { "namespace": NAMESPACE, "name": name },
        })])
    }

    /// helm, for this cluster.
    pub(crate) fn helm(&self, program: &Path) -> Command {
        let mut helm = Command::new(program);
        if self.node.is_some() {
            // No proxy is between it and the cluster.
            helm.env_clear().env("HOME", &self.directory);
        }
        helm.arg("--kubeconfig").arg(self.kubectl.kubeconfig());
        helm
    }
}
