//! The container runtime of a node.

use std::{path::PathBuf, process::Command};

use anyhow::Context as _;

use super::{Workshop, cni, daemons::Daemons, images, layout::Node};
use crate::process;

/// Where it listens, in the node's own `/run`.
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Where it keeps images and containers. A tmpfs is mounted there, since an overlay cannot lie on
/// another, such as the file system of a container that this machine may be.
pub(super) fn root(node: Node) -> PathBuf {
    node.directory().join("containerd")
}

/// Its configuration.
pub(super) fn config(workshop: &Workshop<'_>, node: Node) -> anyhow::Result<String> {
    let plugins = workshop.programs.find(&workshop.plan.cni.to_string())?;
    let plugins = plugins.parent().context("a program lies in a directory")?;
    Ok(format!(
        r#"version = 3
root = "{root}"
state = "/run/containerd"

[plugins."io.containerd.cri.v1.runtime"]
# Less than one's own takes CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
"#,
        root = root(node).display(),
        plugins = plugins.display(),
        cni = cni::directory(node).display(),
        pause = images::PAUSE,
    ))
}

/// Waits until it runs, and gives it the images.
pub(super) fn import(
    workshop: &Workshop<'_>,
    node: Node,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    let program = workshop.programs.find("ctr")?;
    // The node's /run as this machine sees it.
    let socket = node.directory().join("run/containerd/containerd.sock");
    let ctr = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("--address").arg(&socket).args(["--namespace", "k8s.io"]).args(words);
        command
    };
    daemons.wait(&format!("containerd of {node}"), workshop.observer, || {
        process::run(&mut ctr(&["version"]), "")
    })?;
    process::run(ctr(&["images", "import"]).arg(&workshop.images), "").map(drop)
}
