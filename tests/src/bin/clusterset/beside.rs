//! What answers in the place of a peer's API server.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use anyhow::ensure;
use mcs_tests::{netns::Namespace, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::conditions,
    peering,
    silence::{follows_again, imported_service, stays},
    world::World,
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a proxy that answers with a page of 1 MiB", meanwhile(page_of_a_proxy));
    suite.case("an API server of a peer that redirects elsewhere", meanwhile(redirects));
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
    follows_again(world, &namespace, &before)
}
