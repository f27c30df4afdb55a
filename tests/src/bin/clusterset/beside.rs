//! What else answers or writes beside the controllers: proxies, other controllers, clusters that only import.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    netns::Namespace,
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::conditions,
    events::wait_for_event,
    migrate::derived_name,
    objects::{export, namespaced, service},
    peering,
    silence::{follows_again, imported_service, stays},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a proxy that answers with a page of 1 MiB", meanwhile(page_of_a_proxy));
    suite.case("an API server of a peer that redirects elsewhere", meanwhile(redirects));
    suite.case("a second controller that rewrites conditions and labels", second_controller);
    suite.case("a cluster that only imports sees a conflict", only_imports);
}

/// A proxy that answers every request in the same way. It ends when this is dropped.
struct Proxy {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Answers with this status line and these fields, and a page.
    fn start(netns: &Namespace, head: String, page: String) -> anyhow::Result<Self> {
        let listener = netns.run(|| TcpListener::bind("127.0.0.1:0"))??;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client that goes away is none of its business.
                    Ok((stream, _)) => {
                        counted.fetch_add(1, Ordering::Relaxed);
                        drop(answer(stream, &head, &page));
                    }
                    Err(_) => sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(Self { address, asked, stop, thread: Some(thread) })
    }
}

fn answer(stream: TcpStream, head: &str, page: &str) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        line.clear();
    }
    let stream = stream.get_mut();
    write!(
        stream,
        "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    )?;
    Ok(())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Its thread panics in no case.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn page_of_a_proxy(world: &mut World) -> anyhow::Result<()> {
    let head = "503 Blocked\r\nContent-Type: text/html".to_owned();
    let page = format!("<html>{}</html>", "<p>blocked</p>\n".repeat(70_000));
    let proxy = Proxy::start(world.control.netns(), head, page)?;
    in_place_of_a_peer(world, &proxy)
}

/// As who can write the kubeconfig of a peer would make the controller ask a metadata service.
fn redirects(world: &mut World) -> anyhow::Result<()> {
    let elsewhere = Proxy::start(world.control.netns(), "200 OK".to_owned(), "secret".to_owned())?;
    let head = format!("302 Found\r\nLocation: http://{}/latest/meta-data", elsewhere.address);
    let proxy = Proxy::start(world.control.netns(), head, String::new())?;
    in_place_of_a_peer(world, &proxy)?;
    ensure!(proxy.asked.load(Ordering::Relaxed) > 0, "nobody has asked the API server");
    let asked = elsewhere.asked.load(Ordering::Relaxed);
    ensure!(asked == 0, "the redirection was followed {asked} times");
    Ok(())
}

/// The peer counts as silent, and says so in few words.
fn in_place_of_a_peer(world: &World, proxy: &Proxy) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let mut kubeconfig: Value = serde_json::from_str(&first.kubeconfig("any")?)?;
    kubeconfig["clusters"][0]["cluster"] = json!({ "server": format!("http://{}", proxy.address) });
    peering::store_credentials(second, "peer-c1", &kubeconfig.to_string())?;
    let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
    wait::until("a condition of the peer", || {
        let peer = second.api().get(path)?;
        let found = conditions(&peer);
        ensure!(found.iter().any(|one| one == "Connected=False/Unreadable"), "{found:?}");
        let length = peer["status"].to_string().len();
        ensure!(length < 16 * 1024, "the status has {length} bytes");
        Ok(())
    })?;
    stays(world, &namespace, &before)?;
    let good = first.credentials_for(second.id)?;
    peering::store_credentials(second, "peer-c1", &good)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace)
}

/// Label of a slice: the Service that it belongs to.
const SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// How long the two write, and how often this controller may: once a second would be 17 times.
const CONTEST: Duration = Duration::from_secs(12);
const MOST_WRITES: u32 = 12;

/// As Cilium's operator, with the conditions of exports, and as the reference controller with the slices of imports.
fn second_controller(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let cluster = world.first();
    cluster.export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    cluster.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    let slices = cluster.wait_for_addresses(&namespace, &["10.77.9.17"])?;
    let mut theirs = export(&namespace);
    theirs["status"] = json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "Theirs", "message": "exported by another one",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]});
    let slice = slices.first().context("a slice")?;
    let mut labelled = namespaced(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &namespace,
        slice["metadata"]["name"].as_str().context("a name")?,
    );
    labelled["metadata"]["labels"] = json!({ SLICE_SERVICE: derived_name(&namespace) });
    let (begin, mut conditions_written, mut labels_written) = (Instant::now(), 0, 0);
    while begin.elapsed() < CONTEST {
        let found = conditions(&cluster.api().read(&export(&namespace))?);
        if !found.iter().any(|one| one == "Ready=True/Theirs") {
            cluster.api().apply_status(&theirs)?;
            conditions_written += 1;
        }
        let labels = &cluster.api().read(&labelled)?["metadata"]["labels"];
        if labels.get(SLICE_SERVICE).is_none() {
            cluster.api().apply(&labelled)?;
            labels_written += 1;
        }
        sleep(Duration::from_millis(20));
    }
    for (what, written) in [("conditions", conditions_written), ("labels", labels_written)] {
        tell(format!("{written} writes of {what} by each in {CONTEST:?}"));
        ensure!(written > 5, "the controller gave up after {written} writes of {what}");
        ensure!(written <= MOST_WRITES, "{written} writes of {what}");
    }
    wait_for_event(cluster, &namespace, "ServiceExport", "StatusContested")?;
    wait_for_event(cluster, &namespace, "ServiceImport", "SlicesContested")?;
    let log = cluster.controller.logged()?;
    for objects in ["the conditions of ServiceExports", "EndpointSlices of this controller"] {
        // Who has removed a label is not known once this controller has set it again.
        let line = format!(" rewrites {objects}");
        let told = log.lines().filter(|found| found.contains(&line)).count();
        ensure!(told == 1, "the log says {told} times that {line}");
    }
    cluster.unexport(&namespace)
}

fn only_imports(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let namespace = world.fresh()?;
    let [first, second, third] = &world.clusters[..] else { anyhow::bail!("three clusters") };
    first.export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let mut other = service(&namespace);
    other["spec"]["ports"][0]["port"] = json!(43);
    second.export(&other, Some(&slice_of(&namespace, 1, 1)))?;
    let conflict = |import: &Value| {
        let mut found = import["status"]["conditions"].as_array().into_iter().flatten();
        found.find(|one| one["type"] == "clusterset.mcs-agent.io/Conflict").cloned()
    };
    third.wait_for_import(&namespace, |import| {
        let conflict = conflict(import).context("no condition Conflict")?;
        ensure!(conflict["status"] == "True" && conflict["reason"] == "PortConflict", "{conflict}");
        let message = conflict["message"].as_str().unwrap_or_default();
        ensure!(message.contains("c1") || message.contains("c2"), "{message}");
        Ok(())
    })?;
    second.api().apply(&service(&namespace))?;
    third.wait_for_import(&namespace, |import| {
        ensure!(conflict(import).is_none(), "they agree");
        Ok(())
    })?;
    first.unexport(&namespace)?;
    second.unexport(&namespace)
}
