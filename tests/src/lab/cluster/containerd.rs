//! The container runtime of a node.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{ClusterSetup, cni, daemons::Daemons, images, layout::Node, programs::Programs};
use crate::process;

/// Where it listens, in the node's own `/run`.
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Where it keeps images and containers. A tmpfs is mounted there, since an overlay cannot lie on
/// another, such as the file system of a container that this machine may be.
pub(super) fn root(node: Node) -> PathBuf {
    node.directory().join("containerd")
}

/// Its configuration.
pub(super) fn config(setup: &ClusterSetup<'_>, node: Node) -> anyhow::Result<String> {
    // Cilium's plugin is not among the others.
    let plugins = [setup.plan.cni(node.cluster).plugin(), "portmap"].map(|plugin| {
        let program = setup.programs.find(plugin)?;
        let directory = program.parent().context("a program lies in a directory")?;
        anyhow::Ok(format!("{:?}", directory.display().to_string()))
    });
    let [first, second] = plugins;
    Ok(format!(
        r#"version = 3
root = "{root}"
state = "/run/containerd"

[plugins."io.containerd.cri.v1.runtime"]
# Less than one's own takes CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{first}, {second}]
conf_dir = "{cni}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
"#,
        root = root(node).display(),
        first = first?,
        second = second?,
        cni = cni::directory(node).display(),
        pause = images::PAUSE,
    ))
}

/// Waits until it runs, and gives it the images.
pub(super) fn wait(
    setup: &ClusterSetup<'_>,
    node: Node,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    daemons.wait(&format!("containerd of {node}"), setup.observer, || {
        process::run(ctr(setup.programs, node)?.arg("version"), "")
    })?;
    import(setup.programs, node, &setup.images)
}

/// Gives a node that runs the images of an archive, as OCI or Docker has it.
pub fn import(programs: &Programs, node: Node, archive: &Path) -> anyhow::Result<()> {
    let mut import = ctr(programs, node)?;
    process::run(import.args(["images", "import"]).arg(archive), "").map(drop)
}

/// Gives an image of a node another name too.
pub fn tag(programs: &Programs, node: Node, image: &str, name: &str) -> anyhow::Result<()> {
    let mut tag = ctr(programs, node)?;
    process::run(tag.args(["images", "tag", "--force", image, name]), "").map(drop)
}

fn ctr(programs: &Programs, node: Node) -> anyhow::Result<Command> {
    // The node's /run as this machine sees it.
    let socket = node.directory().join("run/containerd/containerd.sock");
    let mut command = Command::new(programs.find("ctr")?);
    command.arg("--address").arg(socket).args(["--namespace", "k8s.io"]);
    Ok(command)
}
