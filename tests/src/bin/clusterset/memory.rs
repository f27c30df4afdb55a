//! What imported endpoints cost kube-proxy and CoreDNS: resident memory with the labels and blocks that are shipped, and
//! without.

use std::{sync::Arc, thread::sleep, time::Duration};

use anyhow::Context as _;
use mcs_tests::{
    cluster::ProxyMode,
    kube_proxy,
    netns::Namespace,
    procfs::Status,
    suite::{Suite, tell},
};
use serde_json::{Value, json};

use crate::{dns::Dns, objects::namespaced, world::World};

const SLICES: usize = 1000;
/// Endpoints of a slice.
const ENDPOINTS: usize = 100;
const NAMESPACE: &str = "memory";
/// The Node of kube-proxy.
const NODE: &str = "proxied";
/// A single block for all zones, as documentation elsewhere has it.
const ONE_BLOCK: &str = "\
.:53 {
    errors
    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
        multicluster clusterset.local
        pods insecure
    }
}
";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.full("memory of kube-proxy and CoreDNS", memory);
}

fn memory(world: &mut World) -> anyhow::Result<()> {
    // It would delete what it has not imported.
    world.clusters[1].controller.kill()?;
    let second = world.second();
    second.add_namespace(NAMESPACE)?;
    second.api().create_many(&[json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE },
        "status": { "addresses": [{ "type": "InternalIP", "address": "10.77.5.1" }] },
    })])?;
    let measure = |what: &str| -> anyhow::Result<()> {
        let proxy = kube_proxy_resident(world)?;
        let two = Dns::another(world, second, None).and_then(|dns| resident(dns.pid()))?;
        let one = Dns::another(world, second, Some(ONE_BLOCK));
        let one = one.and_then(|dns| resident(dns.pid()))?;
        tell(format!(
            "{what}: kube-proxy {proxy} MiB, CoreDNS {two} MiB with two blocks, {one} MiB with one"
        ));
        Ok(())
    };
    measure("no imported endpoints")?;
    for labels in [json!({}), json!({ "service.kubernetes.io/headless": "" })] {
        let objects: Vec<_> = (0..SLICES).map(|number| slice(number, &labels)).collect();
        second.api().apply_many(&objects)?;
        let is_shipped = labels.get("service.kubernetes.io/headless").is_some();
        let label = if is_shipped { "with" } else { "without" };
        measure(&format!(
            "{} imported endpoints {label} the label service.kubernetes.io/headless",
            SLICES * ENDPOINTS
        ))?;
    }
    world.clusters[1].controller.start_again()
}

fn slice(number: usize, labels: &Value) -> Value {
    let service = format!("s{}", number / 5);
    let mut slice = namespaced(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        NAMESPACE,
        &format!("{service}-west-{number}"),
    );
    slice["metadata"]["labels"] = json!({
        "endpointslice.kubernetes.io/managed-by": "mcs-controller",
        "multicluster.kubernetes.io/service-name": service,
        "multicluster.kubernetes.io/source-cluster": "west",
    });
    for (key, value) in labels.as_object().into_iter().flatten() {
        slice["metadata"]["labels"][key] = value.clone();
    }
    slice["addressType"] = json!("IPv4");
    slice["ports"] = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    let endpoint = |one: usize| {
        json!({
            "addresses": [format!("20.{}.{}.{}", number / 250, number % 250, one + 1)],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "zone": format!("zone-{}", one % 3),
        })
    };
    slice["endpoints"] = (0..ENDPOINTS).map(endpoint).collect();
    slice
}

/// Starts kube-proxy, and returns what it keeps, in MiB.
fn kube_proxy_resident(world: &World) -> anyhow::Result<u64> {
    let kubeconfig = world.second().administrator()?;
    let netns = Arc::new(Namespace::open(world.node.netns.name())?);
    let config = kube_proxy::Config {
        other: None,
        node: NODE,
        mode: ProxyMode::Nftables,
        kubeconfig: &kubeconfig,
        flags: &["--cluster-cidr=10.77.0.0/16".to_owned()],
    };
    let role = format!("kube-proxy-{}", world.fresh()?);
    let process = kube_proxy::start(&world.run, &role, &netns, &config)?;
    resident(process.pid()).context("kube-proxy")
}

/// What a process keeps after a while, in MiB.
fn resident(pid: u32) -> anyhow::Result<u64> {
    sleep(Duration::from_secs(45));
    Ok(Status::of(pid)?.number("VmRSS")? / 1024)
}
