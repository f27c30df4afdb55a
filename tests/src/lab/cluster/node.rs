//! A node: containerd, kubelet and kube-proxy in namespaces of their own.
//!
//! Network, mounts, cgroups and host name are the node's, as on a machine: `/run`, `/var/log`,
//! `/sys/fs/bpf` and `/sys/fs/cgroup` in there are nobody else's, and whatever is mounted goes with
//! the node's last process. Its first process does nothing but hold the namespaces.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{
    ClusterSetup, Cni, Kubernetes,
    certificates::{Authority, User},
    cilium, cni, containerd,
    daemons::{self, Daemons},
    flannel, kubeconfig,
    kubectl::Kubectl,
    layout::{Node, list},
};

/// The name of the first process.
const HOLDER: &str = "namespaces";

/// Sysctls that kubelet sets, with the values it wants. They are the machine's: a node sees these
/// files instead, and nothing is changed.
const TUNABLES: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// A node whose daemons run.
pub(super) struct RunningNode {
    node: Node,
    daemons: Daemons,
}

/// Starts a node of a cluster whose API server is ready, and waits until its containerd is ready
/// too.
pub(super) fn start(
    setup: &ClusterSetup<'_>,
    node: Node,
    authority: &Authority,
) -> anyhow::Result<RunningNode> {
    let directory = node.directory();
    let mut daemons = hold(setup, node)?;

    let config = directory.join("containerd.toml");
    fs::write(&config, containerd::config(setup, node)?)?;
    let cni = setup.plan.cni(node.cluster);
    fs::create_dir_all(cni::directory(node))?;
    let is_later = setup.plan.cni_comes_later(node.cluster);
    if !cni.has_daemon() && !is_later {
        cni::install(cni, node)?;
    }
    let flags = ["--config".to_owned(), config.display().to_string()];
    daemons.start("containerd", &setup.programs.find("containerd")?, flags)?;
    containerd::wait(setup, node, &mut daemons)?;

    kubelet(setup, node, authority, &mut daemons)?;
    match cni {
        Cni::Flannel => flannel::start(setup, node, &mut daemons)?,
        Cni::Cilium => {
            cilium::prepare(setup, node, &mut daemons)?;
            if !is_later {
                cni::install(cni, node)?;
            }
        }
        _ => {}
    }
    kube_proxy(setup, node, authority, &mut daemons)?;
    Ok(RunningNode { node, daemons })
}

impl Node {
    /// Kills one of its daemons.
    pub fn stop(self, daemon: &str) -> anyhow::Result<()> {
        let cgroup = self.cgroup()?.join(daemon);
        fs::write(cgroup.join("cgroup.kill"), "1").with_context(|| cgroup.display().to_string())
    }

    /// Connects its pods, where the plan has left that for later.
    pub fn install_cni(self, cni: Cni) -> anyhow::Result<()> {
        cni::install(cni, self)
    }

    /// Starts a daemon again that was killed, without waiting for it.
    pub fn start(self, daemon: &str) -> anyhow::Result<()> {
        daemons::run(&self.directory().join(daemon).with_extension("sh")).map(drop)
    }
}

impl RunningNode {
    /// Waits until the cluster takes the node for ready.
    pub(super) fn wait(mut self, setup: &ClusterSetup<'_>) -> anyhow::Result<()> {
        let name = self.node.to_string();
        let kubectl = Kubectl::new(setup.programs, self.node.cluster)?;
        self.daemons.wait(&format!("{name} to be ready"), setup.observer, || {
            let node = kubectl.get(&["node", &name])?;
            let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            let ready = ready.context("no condition Ready")?;
            ensure!(ready["status"] == "True", "{}", ready["message"]);
            Ok(())
        })
    }
}

/// Tells the Node the ranges of its pods. Most CNIs here take them from the layout instead.
pub(super) fn assign_ranges(
    setup: &ClusterSetup<'_>,
    node: Node,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    let [v4, v6] = node.pods();
    let ranges = json!({ "spec": { "podCIDR": v4, "podCIDRs": [v4, v6] } }).to_string();
    let kubectl = Kubectl::new(setup.programs, node.cluster)?;
    daemons.wait(&format!("{node} to exist"), setup.observer, || {
        kubectl.run(&["patch", "node", &node.to_string(), "--patch", &ranges])
    })?;
    Ok(())
}

/// Makes the node's namespaces, and starts the process that holds them.
fn hold(setup: &ClusterSetup<'_>, node: Node) -> anyhow::Result<Daemons> {
    let directory = node.directory();
    let netns = setup.wan.node(node)?;
    let cgroup = Path::new(node.cluster.set.name()).join(node.to_string());
    let join = setup.hierarchies.create(&cgroup)?;
    let net = format!("--net={}", netns.path().display());
    let enter = ["nsenter", &net, "unshare", "--mount", "--uts", "--cgroup"];
    let mut daemons = Daemons::create(
        directory.clone(),
        setup.hierarchies.unified.join(&cgroup),
        join,
        enter.map(OsString::from).into(),
    )?;
    let script = directory.join("mounts");
    fs::write(&script, mounts(setup, node)?)?;
    let pid_file = directory.join("pid");
    let flags = ["-e".to_owned(), script.display().to_string(), pid_file.display().to_string()];
    daemons.start_above(HOLDER, Path::new("/bin/sh"), flags)?;
    let pid = daemons.wait(&format!("the namespaces of {node}"), setup.observer, || {
        Ok(fs::read_to_string(&pid_file)?.trim().parse::<u32>()?)
    })?;
    let target = format!("--target={pid}");
    let enter = ["nsenter", &target, "--mount", "--uts", "--cgroup", "--net"];
    daemons.enter_by(enter.map(OsString::from).into());
    daemons.write_entrance(&node.entrance())?;
    let mut path = OsString::from("PATH=");
    path.push(setup.programs.search_path()?);
    let environment = ["env".into(), "-i".into(), path];
    daemons.enter_by(enter.map(OsString::from).into_iter().chain(environment).collect());
    Ok(daemons)
}

/// What the first process of the node does before it waits, as a shell script that takes the file
/// to write its process id to.
fn mounts(setup: &ClusterSetup<'_>, node: Node) -> anyhow::Result<String> {
    let (directory, set) = (node.directory(), node.cluster.set);
    let [own_run, log, sysctl] = ["run", "log", "sysctl"].map(|name| directory.join(name));
    for directory in [&own_run.join(set.name()), &log, &sysctl] {
        fs::create_dir_all(directory)?;
    }
    let mut tunables = String::new();
    for (name, value) in TUNABLES {
        let file = sysctl.join(name.replace('/', "."));
        fs::write(&file, format!("{value}\n"))?;
        writeln!(tunables, "mount --bind {} /proc/sys/{name}", file.display())?;
    }
    Ok(format!(
        "echo {node} >/proc/sys/kernel/hostname\n\
         umount --recursive /sys\n\
         mount -t sysfs sysfs /sys\n\
         {hierarchies}\
         mount -t bpf bpf /sys/fs/bpf\n\
         mount --bind {set} {own_run}/{name}\n\
         mount --rbind {own_run} /run\n\
         mount --bind {log} /var/log\n\
         mkdir -p {root}\n\
         mount -t tmpfs tmpfs {root}\n\
         {tunables}\
         mount --make-rshared /\n\
         mkdir {leaf}\n\
         echo 0 >{leaf}/cgroup.procs\n\
         echo $$ >\"$1\"\n\
         exec sleep infinity\n",
        hierarchies = setup.hierarchies.mount_commands(),
        set = set.directory().display(),
        name = set.name(),
        own_run = own_run.display(),
        log = log.display(),
        root = containerd::root(node).display(),
        leaf = setup.hierarchies.unified.join(HOLDER).display(),
    ))
}

fn kubelet(
    setup: &ClusterSetup<'_>,
    node: Node,
    authority: &Authority,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    let directory = node.directory();
    let (config, root) = (directory.join("kubelet.json"), directory.join("kubelet"));
    let resolv_conf = directory.join("resolv.conf");
    // Nothing outside can be asked.
    fs::write(&resolv_conf, "")?;
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": { "x509": { "clientCAFile": authority.certificate() } },
        "cgroupDriver": "cgroupfs",
        "clusterDNS": node.cluster.dns(),
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": containerd::ENDPOINT,
        "enforceNodeAllocatable": [],
        // The disk is the machine's, and an image that was removed from it cannot be pulled.
        "evictionHard": { "memory.available": "0%", "nodefs.available": "0%" },
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "failCgroupV1": false,
        "failSwapOn": false,
        // Lowering it takes CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "resolvConf": resolv_conf,
        "volumePluginDir": directory.join("volume-plugins"),
    });
    fs::write(&config, format!("{text:#}\n"))?;
    let user = format!("system:node:{node}");
    let flags = [
        identity(node, authority, "kubelet", &User { name: &user, group: Some("system:nodes") })?,
        format!("--config={}", config.display()),
        format!("--root-dir={}", root.display()),
        format!("--cert-dir={}", root.join("pki").display()),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", list(node.addresses())),
        format!("--node-labels=topology.kubernetes.io/zone={}", node.zone()),
    ];
    daemons.start("kubelet", &setup.kubernetes(node.cluster, "kubelet")?, flags)
}

fn kube_proxy(
    setup: &ClusterSetup<'_>,
    node: Node,
    authority: &Authority,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    let user = User { name: "system:kube-proxy", group: None };
    let mut flags = vec![
        identity(node, authority, "kube-proxy", &user)?,
        format!("--proxy-mode={}", setup.plan.proxy(node.cluster)),
        format!("--cluster-cidr={}", list(node.cluster.pods())),
        format!("--hostname-override={node}"),
        // The size of the connection table is the machine's.
        "--conntrack-max-per-core=0".to_owned(),
        "--oom-score-adj=0".to_owned(),
    ];
    if setup.plan.kubernetes(node.cluster) == Kubernetes::Oldest {
        // Off by default before 1.31.
        flags.push("--feature-gates=NFTablesProxyMode=true".to_owned());
    }
    daemons.start("kube-proxy", &setup.kubernetes(node.cluster, "kube-proxy")?, flags)
}

/// The flag with the kubeconfig of one of the node's daemons.
fn identity(
    node: Node,
    authority: &Authority,
    daemon: &str,
    user: &User<'_>,
) -> anyhow::Result<String> {
    let path: PathBuf = node.directory().join(format!("{daemon}.kubeconfig"));
    kubeconfig::write(authority, node.cluster, &path, user)?;
    Ok(format!("--kubeconfig={}", path.display()))
}
