//! A node that kube-proxy serves, with pods, with backends beyond its uplink, and with room for an agent.

use std::sync::Arc;

use super::{Member, service::DerivedService};
use crate::{
    agent::{CAPABILITY_FOR_STALE_UDP, Cleanup, Config},
    api_server::Process,
    cgroup::Cgroup,
    cluster::ProxyMode,
    kube_proxy,
    prelude::*,
    server::{Serve, Servers},
    site,
    target::REMOTE,
    topology::{
        Node,
        pod::{Layout, Pod},
    },
};

/// The host of [`REMOTE`] that the node's default routes lead to. It forwards nothing.
const GATEWAY: u8 = 2;
/// The pods of node N are from subnet 100 + 4 N on, those of all nodes in this range.
const FIRST_PODS: u8 = 100;
const PODS: &str = "--cluster-cidr=10.77.96.0/19,fd77:0:0:60::/59";
/// The link of node N to the control plane is subnet 20 + N.
const FIRST_CONTROL: u8 = 20;

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In a pod.
    Pod,
    /// In the node's network.
    Host,
}

impl Place {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Pod, Self::Host];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pod",
            Self::Host => "host",
        })
    }
}

/// A node of a [`Member`]. The agent is not there before [`ProxiedNode::install`].
// They have to be removed in this order.
pub struct ProxiedNode {
    cleanup: Option<Cleanup>,
    agent: Option<Agent>,
    config: Config,
    _bpffs: BpfDirectory,
    /// Socket programs of the agent see the sockets that are made in there.
    pub cgroup: Cgroup,
    _proxy: Process,
    _servers: Servers,
    /// A pod for clients, and another one.
    pub pods: [Pod; 2],
    _remote: Namespace,
    /// The node's namespace.
    pub netns: Arc<Namespace>,
    /// The mode of kube-proxy.
    pub mode: ProxyMode,
}

impl ProxiedNode {
    /// The remote pods, as host numbers: [`DerivedService::new`] takes some of them.
    pub const REMOTE_PODS: [u8; 4] = [11, 12, 13, 14];

    /// The addresses of a remote pod.
    pub fn remote_pod(host: u8) -> [IpAddr; 2] {
        REMOTE.both(host)
    }

    /// Makes the node with this number, at most 6, and starts its kube-proxy without waiting for it.
    /// `flags` are those of its agent.
    pub fn create(
        run: &Run,
        member: &Member,
        number: u8,
        mode: ProxyMode,
        flags: &[&str],
    ) -> Result<Self> {
        let name = format!("node-{number}");
        let node = Node::named(run, &name)?;
        let remote = link_remote(run, &node, number)?;
        let ips = Self::REMOTE_PODS.into_iter().flat_map(Self::remote_pod);
        let serve: [Serve; 2] = [(Server::tcp_echo, TCP.1), (Server::udp_echo, UDP.1)];
        let servers = Servers::start(&remote, ips, &serve)?;
        let pod =
            |host| Pod::create(run, &node, Layout::Routed, Subnet(FIRST_PODS + 4 * number), host);
        let pods = [pod(2)?, pod(3)?];
        member.control.join(&node.netns, &name, Subnet(FIRST_CONTROL + number))?;
        let addresses = REMOTE.both(1).map(|ip| json!({ "type": "InternalIP", "address": ip }));
        // Not by apply, which takes one address of a type.
        member.server.api.create_many(&[json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name },
            "status": { "addresses": addresses },
        })])?;
        let netns = Arc::new(node.netns);
        let kubeconfig = member.kubeconfig();
        let flag = [PODS.to_owned()];
        let proxy = kube_proxy::Config { other: None, node: &name, mode, kubeconfig, flags: &flag };
        let proxy = kube_proxy::start(run, &format!("kube-proxy-{number}"), &netns, &proxy)?;
        let (config, cgroup, bpffs) = place_of_agent(run, kubeconfig, &name, flags)?;
        Ok(Self {
            cleanup: None,
            agent: None,
            config,
            _bpffs: bpffs,
            cgroup,
            _proxy: proxy,
            _servers: servers,
            pods,
            _remote: remote,
            netns,
            mode,
        })
    }

    /// Starts the agent, and waits until it is healthy.
    pub fn install(&mut self) -> Result {
        ensure!(self.agent.is_none(), "an agent is there");
        let mut agent = Agent::start(&self.netns, self.config.clone())?;
        agent.wait_until_healthy()?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Stops the agent, if one is there, and removes everything of it.
    pub fn uninstall(&mut self) -> Result {
        let Some(mut agent) = self.agent.take() else { return Ok(()) };
        agent.stop()?;
        let output = agent.cleanup()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cleanup: {}", complaint.trim());
        Ok(())
    }

    /// Begins to remove everything of the agent, which has been stopped. The cleanup waits for connections.
    pub fn begin_cleanup(&mut self) -> Result {
        self.cleanup = Some(self.agent()?.begin_cleanup()?);
        Ok(())
    }

    /// The cleanup, which has to be under way.
    pub fn cleanup(&mut self) -> Result<Cleanup> {
        self.cleanup.take().context("no cleanup is under way")
    }

    /// Waits until the cleanup has removed everything of the agent.
    pub fn end_cleanup(&mut self) -> Result {
        self.cleanup()?.wait()?;
        self.agent = None;
        Ok(())
    }

    /// The agent, which has to be there.
    pub fn agent(&self) -> Result<&Agent> {
        self.agent.as_ref().context("no agent is installed")
    }

    /// Stops the agent. Its dataplane stays.
    pub fn stop(&mut self) -> Result {
        self.agent.as_mut().context("no agent is installed")?.stop()
    }

    /// Starts the agent again, and waits until it is healthy.
    pub fn start_again(&mut self) -> Result {
        let agent = self.agent.as_mut().context("no agent is installed")?;
        let flags: Vec<_> = self.config.flags.iter().map(String::as_str).collect();
        agent.come_back(&flags)
    }

    /// The namespace of clients.
    pub fn clients(&self, place: Place) -> &Namespace {
        match place {
            Place::Pod => &self.pods[0].netns,
            Place::Host => &self.netns,
        }
    }

    /// A command of a client, which the agent's programs see.
    pub fn command(&self, place: Place, program: &Path) -> Command {
        let mut command = self.clients(place).command("/bin/sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]);
        command.arg(self.cgroup.path().join("cgroup.procs")).arg(program);
        command
    }

    /// Does `work` as a client that the agent's programs see.
    pub fn as_client<T: Send>(
        &self,
        place: Place,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let _visit = self.cgroup.visit()?;
        self.clients(place).run(work)?
    }

    /// Waits until somebody answers a pod at each TCP frontend of a service.
    pub fn wait_until_served(&self, service: &DerivedService) -> Result {
        Family::ON_WIRE.into_iter().try_for_each(|family| {
            let vip = service.at(family, Protocol::Tcp);
            wait::until(&format!("{vip} to be served by kube-proxy ({})", self.mode), || {
                self.pods[1].netns.run(|| identity(&connected(family, vip)?))?.map(drop)
            })
        })
    }
}

/// Where remote pods are, beyond the node's interface `uplink`, which its default routes lead to.
fn link_remote(run: &Run, node: &Node, number: u8) -> Result<Namespace> {
    let hosts: Vec<_> = [GATEWAY].into_iter().chain(ProxiedNode::REMOTE_PODS).collect();
    let remote = node.link_by(run, &format!("remote-{number}"), "uplink", REMOTE, &hosts)?;
    node.netns.ip(&format!(
        "route add default via {}\nroute add default via {}\n",
        REMOTE.v4(GATEWAY),
        REMOTE.v6(GATEWAY)
    ))?;
    Ok(remote)
}

/// What the node's agent is started with: as the chart starts it, except for the devices of pods.
fn place_of_agent(
    run: &Run,
    kubeconfig: &Path,
    node: &str,
    flags: &[&str],
) -> Result<(Config, Cgroup, BpfDirectory)> {
    let name = format!("--node-name={node}");
    let cluster = format!("--cluster-id={}", Member::CLUSTER);
    let own = ["--tc=auto", "--tc-devices=routed-*", &name, &cluster];
    let source = Source::Kubeconfig(kubeconfig.to_owned());
    let flags = [&own, flags].concat();
    let (mut config, cgroup, bpffs) = site::place(run, &format!("agent-{node}"), source, &flags)?;
    config.capabilities.push(CAPABILITY_FOR_STALE_UDP);
    Ok((config, cgroup, bpffs))
}
