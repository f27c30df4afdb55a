//! What the cases share: an API server with the objects of thirty clusters, and a namespace for the followers.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use mcs_tests::{
    api_server::{ApiServer, ControlPlane, Process, rights},
    manifests::{Protocol, Service},
    netns::Namespace,
    process, procfs,
    run::Run,
    topology::{Node, Subnet},
    wait,
};
use serde_json::{Value, json};

use crate::{
    crowd::{Crowd, Kind},
    followers::{MARKED, NODE, marked_address},
};

const NODES: Subnet = Subnet(9);
/// Source clusters.
const CLUSTERS: u8 = 30;
/// Each with a slice of every cluster.
const SERVICES: u16 = 10;
/// Endpoints of a slice, but for the large one.
const ENDPOINTS: u8 = 4;
/// Endpoints of the large slice.
const LARGE: u8 = 100;
/// By when a second API server serves everything.
const SERVERS: Duration = Duration::from_mins(1);
/// So many connections lead to both of two API servers.
const CONNECTIONS: usize = 12;

// They have to be removed in this order.
pub(crate) struct World {
    /// The agents that the cases share, once one of the cases has started them.
    pub(crate) agents: Option<Crowd>,
    pub(crate) server: ApiServer,
    control: ControlPlane,
    nodes: Namespace,
    _node: Node,
    _run: Run,
    /// The slices of one endpoint address family, without the marked and the large one.
    pub(crate) slices: Vec<Value>,
    large: Value,
    /// The bytes that a change of it had in JSON: see [`as_json`].
    pub(crate) large_as_json: u64,
    marked: Service,
    mark: u16,
}

/// What following has cost since [`World::meter`].
pub(crate) struct Meter {
    bytes: u64,
    server: Duration,
}

/// Bytes that followers received, and the CPU time of their API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) server: Duration,
}

impl World {
    /// Starts everything but followers.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let node = Node::create(&run)?;
        let nodes = node.link(&run, "nodes", NODES, &[2])?;
        let control = ControlPlane::linked(&run, &node)?;
        // What watches resume from is compacted meanwhile.
        let flags = ["--etcd-compaction-interval=30s", "--permit-port-sharing=true"];
        let server = control.member("fleet", 6443, &flags)?;
        server
            .api
            .apply(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } }))?;
        server.grant_agents()?;
        grant_kube_proxy(&server)?;

        let services = services();
        let slices = |service: &Service| {
            service.slices().into_iter().filter(|slice| slice["addressType"] == "IPv4")
        };
        let all: Vec<_> = services.iter().flat_map(slices).collect();
        let imports: Vec<_> = services.iter().map(Service::import).collect();
        server.api.create_many(&imports)?;
        server.api.create_many(&all)?;
        let large = Service::new("large", [Ipv4Addr::new(10, 79, 255, 1).into()])
            .port(Protocol::Tcp, 80, 8080)
            .endpoints("east", (0..LARGE).map(|host| Ipv4Addr::new(10, 159, 0, host).into()));
        let marked = Service::new("marked", [Ipv4Addr::new(10, 79, 255, 2).into()]).port(
            Protocol::Tcp,
            80,
            8080,
        );
        let mut large = slices(&large).next().context("no large slice")?;
        make_copy(&mut large);
        server.api.apply(&large)?;
        let large_as_json = as_json(server.api.read(&large)?);
        // The controller clears them with its next write.
        large["metadata"]["managedFields"] = json!([{}]);
        server.api.replace(&large)?;
        Ok(Self {
            agents: None,
            server,
            control,
            nodes,
            _node: node,
            _run: run,
            slices: all,
            large,
            large_as_json,
            marked,
            mark: 0,
        })
    }

    /// Starts followers, without waiting for them.
    pub(crate) fn start(&self, kind: Kind, count: usize) -> anyhow::Result<Crowd> {
        self.start_with(kind, &self.kubeconfig(kind), count)
    }

    /// Starts followers of the API server of this kubeconfig, without waiting for them.
    pub(crate) fn start_with(
        &self,
        kind: Kind,
        kubeconfig: &Path,
        count: usize,
    ) -> anyhow::Result<Crowd> {
        Crowd::start(&self.nodes, kind, kubeconfig, count)
    }

    /// The kubeconfig of these followers, of the API server that they share.
    pub(crate) fn kubeconfig(&self, kind: Kind) -> PathBuf {
        match kind {
            Kind::Agents => self.server.agents_kubeconfig(),
            Kind::KubeProxies => self.server.directory().join("kube-proxy.kubeconfig"),
        }
    }

    /// Starts an API server without HTTP/2 and without streamed lists, of a cluster of its own with as many objects.
    pub(crate) fn old_server(&self) -> anyhow::Result<ApiServer> {
        let flags = ["--disable-http2-serving=true", "--feature-gates=WatchList=false"];
        let server = self.control.api_server("old", 6444, &flags)?;
        self.control.install_types(&server)?;
        let imports: Vec<_> = services().iter().map(Service::import).collect();
        server.api.create_many(&imports)?;
        server.api.create_many(&self.slices)?;
        server.grant_agents()?;
        Ok(server)
    }

    /// Changes the marked slice. Returns the number of the change.
    pub(crate) fn change_marked(&mut self) -> anyhow::Result<u16> {
        self.mark += 1;
        let address = IpAddr::from(marked_address(self.mark));
        let service = self.marked.clone().endpoints("east", [address]);
        let slices = service.slices();
        let mut v4 = slices.into_iter().filter(|slice| slice["addressType"] == "IPv4");
        let mut slice = v4.next().context("no marked slice")?;
        slice["metadata"]["name"] = json!(MARKED);
        self.server.api.apply(&slice)?;
        Ok(self.mark)
    }

    /// Changes one endpoint of the large slice.
    pub(crate) fn change_large(&mut self) -> anyhow::Result<()> {
        let ready = &mut self.large["endpoints"][0]["conditions"]["ready"];
        *ready = json!(*ready == json!(false));
        self.server.api.replace(&self.large)
    }

    /// Starts a second API server at the address of the first one, and waits until both serve everything.
    pub(crate) fn second_server(&self) -> anyhow::Result<Process> {
        let second = self.server.twin()?;
        self.wait_for_servers()?;
        Ok(second)
    }

    /// Waits until all API servers serve everything: a new connection leads to any of them.
    pub(crate) fn wait_for_servers(&self) -> anyhow::Result<()> {
        wait::within(SERVERS, "all API servers to serve everything", || {
            for _ in 0..CONNECTIONS {
                let api = self.server.another_client()?;
                api.is_ready()?;
                // An API server begins to follow what a definition defines when somebody asks for it.
                api.get("/apis/multicluster.x-k8s.io/v1beta1/serviceimports?limit=1")?;
                api.get("/apis/about.k8s.io/v1beta1/clusterproperties?limit=1")?;
            }
            Ok(())
        })
    }

    /// Keeps followers from making connections, or lets them again.
    pub(crate) fn bar(&self, is_barred: bool) -> anyhow::Result<()> {
        let verb = if is_barred { "add" } else { "delete" };
        self.nodes.ip(&format!("route {verb} prohibit {}\n", self.control.address()))
    }

    /// Drops all packets of the connections that followers have now. Ports do not tell them from new ones, which may have the
    /// same; conntrack, which begins with the rules, does: it has seen no SYN of them.
    pub(crate) fn silence(&self) -> anyhow::Result<()> {
        self.nodes.sysctl("netfilter/nf_conntrack_tcp_loose", "0")?;
        let rules = ["input", "output"].map(|hook| {
            format!(
                "chain {hook} {{ type filter hook {hook} priority 0; ct state invalid drop; }}\n"
            )
        });
        let rules = format!("table ip silence {{\n{}}}\n", rules.concat());
        process::run(self.nodes.command("nft").args(["-f", "-"]), &rules).map(drop)
    }

    /// Lets packets pass again.
    pub(crate) fn end_silence(&self) -> anyhow::Result<()> {
        self.nodes.output("nft", &["delete", "table", "ip", "silence"]).map(drop)
    }

    /// Lets etcd forget all versions but the latest.
    pub(crate) fn compact(&self) -> anyhow::Result<()> {
        self.control.compact()
    }

    /// What following costs from now on.
    pub(crate) fn meter(&self) -> anyhow::Result<Meter> {
        Ok(Meter { bytes: self.received()?, server: procfs::cpu_time(self.server.pid())? })
    }

    /// What it has cost since then. The API server did not start again meanwhile.
    pub(crate) fn cost(&self, since: &Meter) -> anyhow::Result<Cost> {
        let now = self.meter()?;
        Ok(Cost { bytes: now.bytes - since.bytes, server: now.server.saturating_sub(since.server) })
    }

    /// Bytes that all followers have received.
    pub(crate) fn received(&self) -> anyhow::Result<u64> {
        let text = self.nodes.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let bytes = line.and_then(|line| line.split_whitespace().next());
        Ok(bytes.context("no eth0")?.parse()?)
    }

    /// The TCP connections that followers have made.
    pub(crate) fn connections(&self) -> anyhow::Result<u64> {
        let count = |name| self.nodes.run(|| procfs::network_counter("snmp", "Tcp", name))?;
        Ok(count("ActiveOpens")?.saturating_sub(count("AttemptFails")?))
    }

    /// How many lists and watches the API server has answered with 500 or more.
    pub(crate) fn server_errors(&self) -> anyhow::Result<u64> {
        let metrics = self.server.api.text("/metrics")?;
        let answers = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        let followers = |line: &&str| {
            ["LIST", "WATCH"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        };
        let errors = answers.filter(followers).filter(|line| line.contains("code=\"5"));
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        Ok(errors.filter_map(count).sum())
    }
}

/// The bytes that a change of a slice had before copies left out conditions and `managedFields`, in JSON: the line of a watch.
fn as_json(mut slice: Value) -> u64 {
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        endpoint["conditions"] = json!({ "ready": true, "serving": true, "terminating": false });
    }
    json!({ "type": "MODIFIED", "object": slice }).to_string().len() as u64
}

/// Makes a slice what the controller writes for one of another cluster.
fn make_copy(slice: &mut Value) {
    let metadata = &mut slice["metadata"];
    metadata["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("mcs-controller");
    metadata["labels"]["service.kubernetes.io/headless"] = json!("");
    metadata["annotations"] = json!({
        "clusterset.mcs-agent.io/source-slice": "large-x7k2p",
        "clusterset.mcs-agent.io/source-generation": "42",
        "clusterset.mcs-agent.io/written": "1764164000.1234",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-11-26T12:00:00Z",
    });
    for (number, endpoint) in slice["endpoints"].as_array_mut().into_iter().flatten().enumerate() {
        endpoint["conditions"] = json!({ "ready": true });
        endpoint["zone"] = json!(format!("us-east-1{}", ["a", "b", "c"][number % 3]));
    }
}

fn services() -> Vec<Service> {
    let service = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let vip = Ipv4Addr::new(10, 79, high, low);
        let service =
            Service::new(format!("web-{number}"), [vip.into()]).port(Protocol::Tcp, 80, 8080);
        (0..CLUSTERS).fold(service, |service, cluster| {
            let pods = (0..ENDPOINTS).map(|pod| {
                let [high, low] = (number * u16::from(ENDPOINTS) + u16::from(pod)).to_be_bytes();
                Ipv4Addr::new(10, 100 + cluster, high, low).into()
            });
            service.endpoints(&format!("c{cluster}"), pods)
        })
    };
    (0..SERVICES).map(service).collect()
}

/// The rights that Kubernetes gives kube-proxy.
fn grant_kube_proxy(server: &ApiServer) -> anyhow::Result<()> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "kube-proxy", "namespace": "mcs-system" },
    });
    server.api.apply(&account)?;
    let role = ("ClusterRole", "system:node-proxier");
    server.api.apply(&rights::binding(None, "kube-proxy", role, ("mcs-system", "kube-proxy")))?;
    let token = server.directory().join("kube-proxy.token");
    server.write_token(&account, &token)?;
    server.write_kubeconfig(&server.directory().join("kube-proxy.kubeconfig"), &token)
}
