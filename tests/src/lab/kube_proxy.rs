//! Starts kube-proxy on a node that is a network namespace.

use std::{env, os::unix::fs::symlink, sync::Arc};

use crate::{
    api_server::Process,
    cluster::{Programs, ProxyMode},
    prelude::*,
};

/// What a kube-proxy is started with.
pub struct Config<'a> {
    /// Another program than that of the newest Kubernetes of the clusters.
    pub other: Option<PathBuf>,
    /// The name of its Node.
    pub node: &'a str,
    /// How it programs the kernel.
    pub mode: ProxyMode,
    /// Where its API server is, and who it is there.
    pub kubeconfig: &'a Path,
    /// More flags.
    pub flags: &'a [String],
}

/// Starts it in a node's namespace, without waiting for it. `role` names it within the run.
pub fn start(
    run: &Run,
    role: &str,
    netns: &Arc<Namespace>,
    config: &Config<'_>,
) -> Result<Process> {
    let directory = run.directory().join(role);
    fs::create_dir(&directory)?;
    let programs = Programs::from_env();
    let binary = config.other.clone().map_or_else(|| programs.find("kube-proxy"), Ok)?;
    let mut flags = vec![
        // Where it looks for iptables.
        format!("PATH={}", legacy_first(&programs, &directory.join("legacy"))?),
        binary.display().to_string(),
        format!("--kubeconfig={}", config.kubeconfig.display()),
        format!("--proxy-mode={}", config.mode),
        format!("--hostname-override={}", config.node),
        // The size of the connection table is the machine's.
        "--conntrack-max-per-core=0".to_owned(),
        "--oom-score-adj=0".to_owned(),
    ];
    flags.extend_from_slice(config.flags);
    Process::start(&programs, "env", &flags, netns, run.cgroup(), &directory)
}

/// A `PATH` in which those programs of iptables come first that have tables of their own, if they are
/// installed: the others, on top of nftables, take minutes for thousands of services.
fn legacy_first(programs: &Programs, directory: &Path) -> Result<String> {
    fs::create_dir(directory)?;
    for family in ["iptables", "ip6tables"] {
        for what in ["", "-save", "-restore"] {
            if let Ok(legacy) = programs.find(&format!("{family}-legacy{what}")) {
                symlink(legacy, directory.join(format!("{family}{what}")))?;
            }
        }
    }
    let path = env::var("PATH").context("no PATH")?;
    Ok(format!("{}:{path}", directory.display()))
}
