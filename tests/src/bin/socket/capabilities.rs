//! The capabilities that an agent needs. All other cases start agents with [`CAPABILITIES`] only.

use mcs_tests::{
    agent::{CAPABILITIES, binary, limit},
    cgroup::Cgroup,
};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for missing in CAPABILITIES {
        suite.case(format!("an agent without {missing} says so, and ends"), move |world| {
            ends_without(world, missing)
        });
    }
}

fn ends_without(world: &World, missing: &str) -> Result {
    let role = format!("no-{missing}");
    let manifests = Manifests::create(&world.run)?;
    let bpffs = BpfDirectory::create(&world.run, &role)?;
    let cgroup = Cgroup::create(&world.run, &role)?;
    let others: Vec<_> = CAPABILITIES.into_iter().filter(|name| *name != missing).collect();
    let output = Command::new("setpriv")
        .args(limit(&others))
        .arg(binary()?)
        .args(["run", "--tc=off", "--manifests"])
        .arg(manifests.path())
        .arg("--bpffs")
        .arg(bpffs.path())
        .arg("--cgroup-root")
        .arg(cgroup.path())
        .arg("--run-dir")
        .arg(world.run.directory().join(role))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    let name = format!("lacks CAP_{},", missing.to_uppercase());
    ensure!(said.contains(&name), "it does not say that it {name} but: {said}");
    Ok(())
}
