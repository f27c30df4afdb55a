//! The images that the nodes have. Nothing is pulled.

use std::{path::Path, process::Command};

use super::programs::Programs;
use crate::{
    oci::{self, Content, Image},
    process,
};

/// What every pod's first container is: it sleeps.
pub(super) const PAUSE: &str = "mcs-tests.invalid/pause:1";
/// A shell and what belongs to it, for clients and servers of tests.
pub const TOOLS: &str = "mcs-tests.invalid/tools:1";
/// The DNS server of the cluster.
pub(super) const COREDNS: &str = "mcs-tests.invalid/coredns:v1.15.0";

/// Clients and servers of the end-to-end suite.
pub const TRAFFIC: &str = "localhost/mcs-traffic:1";

/// Writes an archive with [`TRAFFIC`]. `program` is the binary `traffic`, built static.
pub fn write_traffic(program: &Path, archive: &Path) -> anyhow::Result<()> {
    let files = vec![("traffic".into(), Content::Program(program.to_owned()))];
    let entrypoint = &["/traffic"];
    oci::write(archive, &[Image { name: TRAFFIC, entrypoint, files, ..Image::default() }])
}

/// Writes an archive with what every cluster has.
pub(super) fn write(archive: &Path, programs: &Programs) -> anyhow::Result<()> {
    let busybox = programs.find("busybox")?;
    let list = process::run(Command::new(&busybox).arg("--list"), "")?;
    let tools = || {
        let applets = list.lines().filter(|&name| name != "busybox");
        let link = |name: &str| (Path::new("bin").join(name), Content::Link("busybox".into()));
        let mut files = vec![
            ("bin".into(), Content::Directory),
            ("bin/busybox".into(), Content::Program(busybox.clone())),
            ("tmp".into(), Content::Shared),
        ];
        files.extend(applets.map(link));
        files
    };
    let image = |name, entrypoint, files| Image { name, entrypoint, files, ..Image::default() };
    let coredns = vec![("coredns".into(), Content::Program(programs.find("coredns")?))];
    oci::write(
        archive,
        &[
            image(PAUSE, &["/bin/sleep", "2147483647"], tools()),
            image(TOOLS, &["/bin/sh"], tools()),
            image(COREDNS, &["/coredns"], coredns),
        ],
    )
}
