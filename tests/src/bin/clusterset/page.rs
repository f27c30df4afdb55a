//! The page of the controller, and `mcs ui`, which leads to it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{browser::Browser, process, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    controller::{self, NAMESPACE},
    objects::{self, namespaced, service},
    world::{World, slice_of},
};

const ADDRESS: &str = "127.0.0.1:17460";
/// The services of the first cluster, each in a namespace: how many pods it has.
const EXPORTS: [(&str, &str, u8); 4] =
    [("shop", "cart", 3), ("shop", "checkout", 2), ("bank", "ledger", 1), ("tools", "builds", 1)];
/// The second cluster lacks it.
const LACKING: &str = "tools";
const PHONE: u16 = 390;

pub(crate) fn cases(suite: &mut Suite<World>) {
    let name = "the page of the controller says how peers and imports are, and mcs ui leads to it";
    suite.case(name, with_page(page));
    suite
        .full("a browser shows the page of the controller, which fits a phone", with_page(browser));
}

/// An object of a case, of another service.
fn named(object: &Value, name: &str) -> anyhow::Result<Value> {
    let text = object.to_string().replace(&format!("\"{}", objects::NAME), &format!("\"{name}"));
    Ok(serde_json::from_str(&text)?)
}

/// The case, while the controller of the second cluster has a page, with imports in several states.
fn with_page(
    case: fn(&World) -> anyhow::Result<()>,
) -> impl Fn(&mut World) -> anyhow::Result<()> + Send {
    move |world| {
        let flags = ["--page", &format!("--health-address={ADDRESS}")];
        world.clusters[1].controller.restart_with(&flags)?;
        let result = prepare(world).and_then(|()| case(world));
        let cleaned = clean(world);
        world.clusters[1].controller.restart_with(&[])?;
        result.and(cleaned)
    }
}

fn prepare(world: &World) -> anyhow::Result<()> {
    let [first, second] = [world.first(), world.second()];
    for (namespace, name, pods) in EXPORTS {
        first.add_namespace(namespace)?;
        if namespace != LACKING {
            second.add_namespace(namespace)?;
        }
        for object in [service(namespace), slice_of(namespace, 0, pods), objects::export(namespace)]
        {
            first.api().apply(&named(&object, name)?)?;
        }
    }
    // Of both clusters; and a pod outside the ranges that the second cluster knows.
    for object in [service("shop"), slice_of("shop", 1, 1), objects::export("shop")] {
        second.api().apply(&named(&object, "cart")?)?;
    }
    let mut stray = named(&slice_of("bank", 0, 1), "ledger")?;
    stray["metadata"]["name"] = json!("ledger-stray");
    stray["endpoints"][0]["addresses"] = json!(["10.99.0.1"]);
    first.api().apply(&stray)?;
    second.api().apply(&south())
}

fn clean(world: &World) -> anyhow::Result<()> {
    let [first, second] = [world.first(), world.second()];
    second.api().delete(&south())?;
    for (namespace, name, _) in EXPORTS {
        first.api().delete(&named(&objects::export(namespace), name)?)?;
    }
    second.api().delete(&named(&objects::export("shop"), "cart")?)
}

/// A peer without credentials.
fn south() -> Value {
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1", "kind": "ClusterPeer",
        "metadata": {"name": "south"},
        "spec": {
            "clusterId": "south",
            "kubeconfigSecretRef": {"name": "peer-south"},
            "podCIDRs": ["10.79.9.0/24"],
        },
    })
}

/// What the server says to curl.
fn get(world: &World, path: &str, flags: &[&str]) -> anyhow::Result<String> {
    let url = format!("http://{ADDRESS}{path}");
    let always = ["--silent", "--fail-with-body", "--max-time", "5", &url];
    world.control.netns().output("curl", &[&always[..], flags].concat())
}

fn wait_for_page(world: &World) -> anyhow::Result<String> {
    wait::until("the page", || {
        let page = get(world, "/page", &["--include"])?;
        for words in [
            "mcs-controller of cluster c2",
            "shop/cart",
            "75.0&nbsp;% c1: 3",
            "25.0&nbsp;% c2: 1",
            "▲&nbsp;no_namespace",
            "✕&nbsp;outside_pod_ranges",
            "peer-south",
        ] {
            ensure!(page.contains(words), "no {words} in {page}");
        }
        Ok(page)
    })
}

fn page(world: &World) -> anyhow::Result<()> {
    let found = wait_for_page(world)?.to_lowercase();
    ensure!(found.contains("content-security-policy: default-src 'none'"), "{found}");
    let one = get(world, "/page?import=bank/ledger", &[])?;
    ensure!(one.contains("bank/ledger") && !one.contains("shop/cart"), "{one}");
    shown_by_ui(world)
}

fn browser(world: &World) -> anyhow::Result<()> {
    let browser = Browser::find()?;
    wait_for_page(world)?;
    let url = format!("http://{ADDRESS}/page");
    let document = browser.document(world.control.netns(), &url)?;
    ensure!(document.contains("<title>mcs-controller of cluster c2</title>"), "{document}");
    let [page, style] = ["/page", "/page.css"].map(|path| get(world, path, &[]));
    let width = browser.width(world.control.netns(), &page?, &style?, PHONE)?;
    ensure!(width == PHONE, "it is {width} pixels wide in a window of {PHONE}");
    Ok(())
}

/// `mcs ui` finds the replica and its port, and says where the page is.
fn shown_by_ui(world: &World) -> anyhow::Result<()> {
    let second = world.second();
    let mut pod = namespaced("v1", "Pod", NAMESPACE, "mcs-controller-0");
    pod["metadata"]["labels"] = json!({"app.kubernetes.io/name": "mcs-controller"});
    pod["spec"] = json!({
        "nodeName": "node-1",
        "containers": [{
            "name": "mcs-controller", "image": "none",
            "ports": [{"name": "health", "containerPort": 17460}],
            "livenessProbe": {"httpGet": {"path": "/livez", "port": "health"}},
        }],
        "terminationGracePeriodSeconds": 0,
    });
    second.api().apply(&namespaced("v1", "ServiceAccount", NAMESPACE, "default"))?;
    wait::until("the account of pods", || second.api().apply(&pod))?;
    let mut status = namespaced("v1", "Pod", NAMESPACE, "mcs-controller-0");
    status["status"] = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    });
    second.api().apply_status(&status)?;
    let kubectl = play_kubectl(second.directory())?;
    let mut path = vec![kubectl.clone()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut ui = controller::command_line(world.control.netns())?;
    ui.args(["ui", "--controller", "--kubeconfig"]).arg(second.administrator()?);
    ui.env("PATH", env::join_paths(path)?).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut ui = ui.spawn().context("cannot start mcs")?;
    let mut line = String::new();
    BufReader::new(ui.stdout.take().context("no output")?).read_line(&mut line)?;
    process::run(Command::new("kill").args(["-INT", &ui.id().to_string()]), "")?;
    let ended = ui.wait()?;
    second.api().delete(&pod)?;
    let expected =
        format!("http://{ADDRESS}/page  ({NAMESPACE}/mcs-controller-0; Ctrl-C ends it)\n");
    ensure!(line == expected, "it says {line:?}");
    ensure!(ended.success(), "it has ended with {ended}");
    let words = fs::read_to_string(kubectl.join("words"))?;
    ensure!(
        words.contains("port-forward --address 127.0.0.1 --namespace mcs-controller pod/mcs-controller-0 :17460"),
        "kubectl was called with {words}"
    );
    Ok(())
}

/// A kubectl for programs that are on this machine anyway.
fn play_kubectl(directory: &Path) -> anyhow::Result<PathBuf> {
    let directory = directory.join("forwarding");
    fs::create_dir(&directory)?;
    let kubectl = directory.join("kubectl");
    let words = directory.join("words");
    let script = format!(
        "#!/bin/sh\necho \"$*\" > {}\necho 'Forwarding from {ADDRESS} -> 17460'\nexec sleep 60\n",
        words.display()
    );
    fs::write(&kubectl, script)?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}
