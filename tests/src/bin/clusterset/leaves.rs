//! A cluster leaves its clusterset by `mcs down`, while the others stay. A script plays helm, as no release is in these clusters.

use std::{env, fs, os::unix::fs::PermissionsExt as _};

use anyhow::ensure;
use mcs_tests::suite::Suite;

use crate::{
    cluster::Cluster,
    controller::{self, MAILBOX},
    objects::{PORTS, service, slice},
    rebuilt::{ID, PODS, forgotten, said, start},
    world::{POD_RANGES, World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a cluster that leaves takes its imports away, and the others forget it", leaves);
}

fn leaves(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let spare = world.spare.take();
    let (second, peer) = (world.second(), world.second().administrator()?);
    // Another case has made it and linked it, if that has run.
    let cluster = spare.map_or_else(|| start(world, ID, PODS[1], 5), Ok)?;
    let kubeconfig = cluster.administrator()?;
    let peers = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers";
    let mut link = controller::command_line(world.control.netns())?;
    link.arg("link")
        .arg(&kubeconfig)
        .arg(&peer)
        .arg(format!("--pod-cidr={ID}={}/24", PODS[1].v4(0)));
    let linked = link.arg(format!("--pod-cidr=c2={}", POD_RANGES[1])).output()?;
    ensure!(linked.status.success(), "{}", said(&linked));
    cluster.add_namespace(&namespace)?;
    let own = slice(&namespace, &["10.77.42.11".to_owned()], PORTS);
    cluster.export(&service(&namespace), Some(&own))?;
    second.export(&service(&namespace), Some(&slice_of(&namespace, 1, 1)))?;
    cluster.wait_for_addresses(&namespace, &["10.77.42.11", "10.77.9.33"])?;
    second.wait_for_addresses(&namespace, &["10.77.42.11", "10.77.9.33"])?;

    let directory = cluster.directory().join("tools");
    fs::create_dir(&directory)?;
    fs::write(directory.join("helm"), "#!/bin/sh\nexit 0\n")?;
    fs::set_permissions(directory.join("helm"), fs::Permissions::from_mode(0o755))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([directory].into_iter().chain(env::split_paths(&path)))?;
    let down = || -> anyhow::Result<String> {
        let mut down = controller::command_line(world.control.netns())?;
        let output = down.args(["down", "--yes"]).arg(&kubeconfig).env("PATH", &path).output()?;
        ensure!(output.status.success(), "{}", said(&output));
        Ok(said(&output))
    };
    // Nothing takes imports away or writes them again.
    let Cluster { server, controller, .. } = cluster;
    drop(controller);
    let text = down()?;
    ensure!(text.contains(&format!("mcs forget {ID}")) && text.contains("c2"), "{text}");
    for left in [
        peers.to_owned(),
        "/apis/multicluster.x-k8s.io/v1beta1/serviceimports".to_owned(),
        format!("/apis/discovery.k8s.io/v1/namespaces/{MAILBOX}/endpointslices"),
        format!("/apis/coordination.k8s.io/v1/namespaces/{MAILBOX}/leases"),
        format!("/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices"),
    ] {
        let found = server.api.get(&left)?;
        ensure!(found["items"].as_array().is_some_and(Vec::is_empty), "{left}: {found}");
    }
    let export = "/apis/multicluster.x-k8s.io/v1beta1/namespaces";
    server.api.get(&format!("{export}/{namespace}/serviceexports/hello"))?;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let slices = server.api.get(&slices)?;
    ensure!(slices["items"].as_array().is_some_and(|all| all.len() == 1), "{slices}");

    // As after an `up` that was interrupted before the cluster had its id.
    let id = "/apis/about.k8s.io/v1beta1/clusterproperties/cluster.clusterset.k8s.io";
    server.api.delete(&server.api.get(id)?)?;
    down()?;
    second.api().get(&format!("{peers}/{ID}"))?;
    forgotten(world, &namespace, &["10.77.9.33"])?;
    second.unexport(&namespace)
}
