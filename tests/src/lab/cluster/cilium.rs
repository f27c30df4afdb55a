//! Cilium's agent on the nodes of a cluster, without its operator: nodes, ranges and definitions come from here.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};

use super::{
    ClusterSetup, cni,
    daemons::Daemons,
    kubectl::Kubectl,
    layout::{Cluster, Node},
    node,
};
use crate::{netns::Namespace, process, wait};

/// The family of programs, and the agent among them.
const FAMILY: &str = "cilium";
const AGENT: &str = "daemon";
/// The name of the daemon.
const DAEMON: &str = "cilium-agent";
/// The compiler of Debian that is of the version which Cilium names.
const COMPILER: &str = "/usr/lib/llvm-19/bin";
/// Where the agent says whether all is well.
const HEALTH_PORT: u16 = 9879;
/// How long it may take to compile its programs and connect all pods.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Options of every node. Routes of the wide area network lead to pods.
const OPTIONS: [(&str, &str); 16] = [
    ("agent-health-port", "9879"),
    ("cluster-name", "default"),
    ("cni-exclusive", "false"),
    ("devices", "eth0"),
    ("enable-endpoint-health-checking", "false"),
    ("enable-health-checking", "false"),
    ("enable-hubble", "false"),
    ("enable-ipv4-masquerade", "false"),
    ("enable-ipv6", "true"),
    ("enable-ipv6-masquerade", "false"),
    ("enable-l7-proxy", "false"),
    ("identity-allocation-mode", "crd"),
    ("ipam", "kubernetes"),
    ("kube-proxy-replacement", "false"),
    ("routing-mode", "native"),
    ("auto-direct-node-routes", "false"),
];

/// Gives a cluster the types of Cilium.
pub(super) fn install_types(setup: &ClusterSetup<'_>, cluster: Cluster) -> anyhow::Result<()> {
    let definitions = setup.programs.source(FAMILY)?.join("pkg/k8s/apis/cilium.io/client/crds");
    let kubectl = Kubectl::new(setup.programs, cluster)?;
    for version in ["v2", "v2alpha1"] {
        for file in fs::read_dir(definitions.join(version))? {
            let file = file?.path();
            if file.extension().is_some_and(|end| end == "yaml") {
                kubectl.apply(&fs::read_to_string(file)?)?;
            }
        }
    }
    Ok(())
}

/// Readies the agent of a node whose kubelet runs. It writes the configuration of its plugin when it is ready.
pub(super) fn prepare(
    setup: &ClusterSetup<'_>,
    node: Node,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    node::assign_ranges(setup, node, daemons)?;
    let library = node.directory().join("cilium");
    fs::create_dir_all(&library)?;
    // The agent writes headers beside its templates.
    let templates = setup.programs.source(FAMILY)?.join("bpf");
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--no-preserve=mode"]).arg(templates).arg(&library);
    process::run(&mut copy, "")?;

    fs::create_dir_all(options(node))?;
    let path = |path: PathBuf| path.display().to_string();
    let own = [
        ("k8s-kubeconfig-path", path(node.cluster.kubeconfig())),
        ("lib-dir", path(library)),
        ("cgroup-root", path(setup.hierarchies.unified.clone())),
        ("write-cni-conf-when-ready", path(cni::directory(node).join("cilium.conflist"))),
    ];
    let common = OPTIONS.map(|(option, value)| (option, value.to_owned()));
    for (option, value) in common.into_iter().chain(own) {
        fs::write(options(node).join(option), value)?;
    }
    let (program, _) = setup.programs.of_family(FAMILY, AGENT)?;
    let mut search = std::ffi::OsString::from(format!("PATH={COMPILER}:"));
    search.push(setup.programs.search_path()?);
    let words = [
        search.into_string().ok().context("a directory of programs is not UTF-8")?,
        format!("K8S_NODE_NAME={node}"),
        path(program),
        format!("--config-dir={}", options(node).display()),
    ];
    daemons.prepare(DAEMON, &setup.programs.find("env")?, words)
}

/// The directory with a file for each option.
fn options(node: Node) -> PathBuf {
    node.directory().join("cilium-options")
}

impl Node {
    /// Sets an option of Cilium's agent. A start of the agent reads it.
    pub fn set_cilium(self, option: &str, value: &str) -> anyhow::Result<()> {
        Ok(fs::write(options(self).join(option), value)?)
    }

    /// Ends Cilium's agent if it runs, starts it, and waits until it is well.
    pub fn start_cilium(self) -> anyhow::Result<()> {
        if self.cgroup()?.join(DAEMON).exists() {
            self.stop(DAEMON)?;
            wait::until("the agent to be gone", || {
                ensure!(health(self).is_err(), "it still answers");
                Ok(())
            })?;
        }
        self.start(DAEMON)?;
        wait::within(PATIENCE, &format!("Cilium of {self}"), || health(self))
    }
}

/// An error unless the agent says that all is well.
fn health(node: Node) -> anyhow::Result<()> {
    let answer = Namespace::open(&node.netns())?.run(|| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, HEALTH_PORT));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        write!(
            stream,
            "GET /healthz HTTP/1.1\r\nHost: {address}\r\nbrief: true\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    })??;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    Ok(())
}
