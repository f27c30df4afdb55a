//! A contender's own copy of everything: client, node and servers.

use std::sync::Arc;

use mcs_tests::{
    agent,
    api_server::Process,
    bpf::Link,
    cgroup::Cgroup,
    cluster::ProxyMode,
    kube_proxy,
    member::Member,
    procfs, site,
    topology::{Node, Subnet},
};

use crate::{
    cilium::{self, Cilium},
    hooks,
    objects::{NOWHERE, VIPS, VIPS_V6},
    prelude::*,
    servers,
};

const CLIENT: Subnet = Subnet(1);
const SERVERS: Subnet = Subnet(9);
/// The subnet between the first lane and the control plane; the others follow.
const FIRST_CONTROL: u8 = 20;
/// The hosts of [`SERVERS`] that are backends.
pub(crate) const BACKENDS: [u8; 10] = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
/// The hosts of [`SERVERS`] that are no backends. One of several may share a hint with an address of a service.
const BYSTANDERS: [u8; 8] = [21, 22, 23, 24, 25, 26, 27, 28];
/// The node's name, in every lane.
pub(crate) const NODE: &str = "node";

/// The addresses of the backends that exist, in every lane.
pub(crate) fn backends() -> Vec<Ipv4Addr> {
    BACKENDS.iter().map(|host| SERVERS.v4(*host)).collect()
}

/// Their addresses of IPv6.
pub(crate) fn backends_v6() -> Vec<Ipv6Addr> {
    BACKENDS.iter().map(|host| SERVERS.v6(*host)).collect()
}

/// The addresses of the servers that are no backends, in every lane.
pub(crate) fn bystanders() -> Vec<Ipv4Addr> {
    BYSTANDERS.iter().map(|host| SERVERS.v4(*host)).collect()
}

/// Their addresses of IPv6.
pub(crate) fn bystanders_v6() -> Vec<Ipv6Addr> {
    BYSTANDERS.iter().map(|host| SERVERS.v6(*host)).collect()
}

/// A port of each, of IPv4.
pub(crate) fn pods(port: Port) -> Vec<SocketAddrV4> {
    backends().into_iter().map(|ip| SocketAddrV4::new(ip, port.target)).collect()
}

/// `client -- node -- servers`, with the same addresses in every lane. The node alone reaches the
/// control plane, and nothing leads out of the machine.
// They have to be removed in this order.
pub(crate) struct Lane {
    pub(crate) contender: Contender,
    daemon: Option<Daemon>,
    /// The programs of [`Contender::Empty`].
    empties: Vec<Link>,
    /// The maps of [`Contender::Cilium`].
    pub(crate) cilium: Option<Cilium>,
    bpffs: BpfDirectory,
    pub(crate) cgroup: Cgroup,
    pub(crate) client: Namespace,
    pub(crate) servers: Namespace,
    pub(crate) node: Arc<Namespace>,
    pub(crate) cpus: Cpus,
}

/// Who programs the node.
enum Daemon {
    Agent(Agent),
    KubeProxy(Process),
}

impl Lane {
    /// The client's address, in every lane.
    pub(crate) const CLIENT: Ipv4Addr = CLIENT.v4(2);

    /// Makes one, with servers, and starts its daemon without waiting for it.
    pub(crate) fn create(
        run: &Run,
        contender: Contender,
        member: &Member,
        cache: &Path,
        cpus: Cpus,
    ) -> Result<Self> {
        let role = |what: &str| format!("{contender}-{what}");
        let node = Node::named(run, &role("node"))?;
        let client = node.link_by(run, &role("client"), "client", CLIENT, &[2])?;
        let hosts: Vec<u8> = BACKENDS.into_iter().chain(BYSTANDERS).collect();
        let servers = node.link_by(run, &role("servers"), "servers", SERVERS, &hosts)?;
        // The servers refuse other ports at once, without a rate limit.
        node.netns.sysctl("ipv4/icmp_ratelimit", "0")?;
        node.netns
            .ip(&format!("route add unreachable {NOWHERE}\nroute add unreachable {VIPS}\n"))?;
        let gateway = CLIENT.v4(1);
        client.ip(&format!(
            "route add {NOWHERE} via {gateway}\n\
             route add {VIPS} via {gateway}\n\
             route add {VIPS_V6} via {}\n",
            CLIENT.v6(1)
        ))?;
        let subnet = Subnet(FIRST_CONTROL + contender as u8);
        member.control.join(&node.netns, &contender.to_string(), subnet)?;

        let cgroup = Cgroup::create(run, &role("cgroup"))?;
        let visit = cgroup.visit()?;
        servers::start(&servers, cpus.server)?;
        drop(visit);
        servers::start_apart(&servers, cpus.server)?;
        let bpffs = BpfDirectory::create(run, contender.name())?;
        let node = Arc::new(node.netns);
        let mut lane = Self {
            contender,
            daemon: None,
            empties: Vec::new(),
            cilium: None,
            bpffs,
            cgroup,
            client,
            servers,
            node,
            cpus,
        };
        lane.daemon = lane.start(run, member)?;
        if contender == Contender::Empty {
            lane.empties = hooks::attach_empties(&lane)?;
        }
        if contender == Contender::Cilium {
            let object = cilium::compile(cache)?;
            lane.cilium = Some(Cilium::attach(&object, lane.cgroup.path())?);
        }
        Ok(lane)
    }

    fn start(&self, run: &Run, member: &Member) -> Result<Option<Daemon>> {
        let proxy = |mode, other| {
            self.kube_proxy(run, member, mode, other).map(Daemon::KubeProxy).map(Some)
        };
        let agent_of = |binary: &Path, flags| {
            self.agent(run, member, binary, flags).map(Daemon::Agent).map(Some)
        };
        let agent = |flags| agent_of(&agent::binary()?, flags);
        let before = |flags| {
            agent_of(&Contender::agent_before().context("no agent before is named")?, flags)
        };
        match self.contender {
            Contender::Direct | Contender::Empty | Contender::Cilium => Ok(None),
            Contender::Sockets => agent(&["--socket-lb=all"]),
            Contender::Packets => agent(&["--socket-lb=off"]),
            Contender::SocketsBefore => before(&["--socket-lb=all"]),
            Contender::PacketsBefore => before(&["--socket-lb=off"]),
            Contender::Nftables => proxy(ProxyMode::Nftables, None),
            Contender::NftablesNewest => proxy(ProxyMode::Nftables, Contender::newest_kube_proxy()),
            Contender::Iptables => proxy(ProxyMode::Iptables, None),
        }
    }

    /// An agent with default flags, except for the devices of pods and the uplink.
    fn agent(&self, run: &Run, member: &Member, binary: &Path, flags: &[&str]) -> Result<Agent> {
        const PLACE: [&str; 5] = [
            "--tc=auto",
            "--tc-devices=client",
            "--uplinks=servers",
            "--node-name=node",
            "--cluster-id=bench",
        ];
        let flags = [flags, &PLACE].concat();
        let role = format!("{}-agent", self.contender);
        let source = Source::Kubeconfig(member.kubeconfig().to_owned());
        let config = site::config(run, &role, source, &flags, &self.bpffs, &self.cgroup)?;
        Agent::start_as(binary, &self.node, config)
    }

    fn kube_proxy(
        &self,
        run: &Run,
        member: &Member,
        mode: ProxyMode,
        other: Option<PathBuf>,
    ) -> Result<Process> {
        let flags = ["--bind-address=127.0.0.1".to_owned()];
        let kubeconfig = member.kubeconfig();
        let config = kube_proxy::Config { other, node: NODE, mode, kubeconfig, flags: &flags };
        kube_proxy::start(run, &format!("{}-kube-proxy", self.contender), &self.node, &config)
    }

    /// Stops its daemon (SIGSTOP). Its programs and rules in the kernel continue to work.
    pub(crate) fn freeze(&self) -> Result {
        self.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub(crate) fn thaw(&self) -> Result {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result {
        match &self.daemon {
            None => Ok(()),
            Some(Daemon::Agent(agent)) => agent.signal(signal),
            Some(Daemon::KubeProxy(process)) => process.signal(signal),
        }
    }

    /// Tells if nobody programs it any more.
    pub(crate) fn is_followed(&self) -> Result {
        self.daemon().map_or(Ok(()), |pid| procfs::cpu_time(pid).map(drop))
    }

    /// The process id of its daemon.
    pub(crate) fn daemon(&self) -> Option<u32> {
        match self.daemon.as_ref()? {
            Daemon::Agent(agent) => Some(agent.pid()),
            Daemon::KubeProxy(process) => Some(process.pid()),
        }
    }

    /// Where a client of this lane reaches a service with this VIP: there, or without anybody at the
    /// backends, one after the other.
    pub(crate) fn reach(&self, vip: Ipv4Addr, port: Port) -> Vec<SocketAddrV4> {
        if self.contender.is_direct() {
            return pods(port);
        }
        vec![SocketAddrV4::new(vip, port.frontend)]
    }

    /// Runs `work` as a client of this lane on a CPU: in the namespace of the client, and in the
    /// lane's cgroup.
    pub(crate) fn as_client<T: Send>(
        &self,
        cpu: usize,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let _visit = self.cgroup.visit()?;
        self.client
            .run(|| {
                cpu::pin(cpu)?;
                work()
            })?
            .with_context(|| format!("a client of {}", self.contender))
    }
}
