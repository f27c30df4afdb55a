//! HTTP proxies: `mcs` reaches API servers as kubectl does, and a controller reaches its peers without one.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    netns::Namespace,
    suite::{Suite, tell},
};
use serde_json::{Value, json};

use crate::{controller, silence::imported_service, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("mcs reaches API servers through proxies as kubectl does", command_line);
    suite.case("a controller reaches its peers without the proxy of its environment", peers);
}

/// Nobody listens there.
const NOBODY: &str = "http://127.0.0.1:9";

/// A proxy that opens tunnels by CONNECT, and keeps the heads of these requests.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(netns: &Namespace) -> anyhow::Result<Self> {
        let heads = Arc::default();
        let kept = Arc::clone(&heads);
        // Threads stay in the namespace of the one that starts them.
        let address = netns.run(move || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let kept = Arc::clone(&kept);
                    thread::spawn(move || tunnel(&stream, &kept));
                }
            });
            io::Result::Ok(address)
        })??;
        Ok(Self { address, heads })
    }

    /// The requests since the last call.
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn tunnel(client: &TcpStream, heads: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let target = target.ok_or(io::ErrorKind::InvalidData)?.to_owned();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
    let server = TcpStream::connect(target)?;
    let mut to_client = client;
    to_client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let copied = io::copy(&mut &server, &mut &*client);
            let _ = client.shutdown(Shutdown::Both);
            copied
        });
        io::copy(&mut reader, &mut &server)?;
        server.shutdown(Shutdown::Both)
    })
}

/// What `mcs status` says of a cluster with these variables: an error, or null.
fn status(world: &World, kubeconfig: &Path, variables: &[(&str, &str)]) -> anyhow::Result<Value> {
    let mut command = controller::command_line(&world.node.netns)?;
    for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command.args(["status", "-o", "json"]).arg(kubeconfig).envs(variables.iter().copied());
    let output = command.output()?;
    let clusters: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(clusters[0]["error"].clone())
}

fn command_line(world: &mut World) -> anyhow::Result<()> {
    let proxy = Proxy::start(&world.node.netns)?;
    let url = format!("http://{}", proxy.address);
    let administrator = world.second().administrator()?;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&administrator)?)?;
    let server = config["clusters"][0]["cluster"]["server"].as_str().context("a server")?;
    let server = server.trim_start_matches("https://").to_owned();
    let (host, _) = server.rsplit_once(':').context("a port")?;
    let asks = format!("CONNECT {server} HTTP/1.1\r\n");

    let error = status(world, &administrator, &[("HTTPS_PROXY", &url)])?;
    let taken = proxy.taken();
    ensure!(error.is_null() && !taken.is_empty(), "{error}: {taken:?}");
    ensure!(taken.iter().all(|head| head.starts_with(&asks)), "{taken:?}");
    tell(format!("{} tunnels", taken.len()));
    let range = format!("example.org,{host}/24");
    for exempt in [host, &server, &range, "*"] {
        let variables = [("HTTPS_PROXY", &*url), ("NO_PROXY", exempt)];
        let error = status(world, &administrator, &variables)?;
        let taken = proxy.taken();
        ensure!(error.is_null() && taken.is_empty(), "NO_PROXY={exempt}: {error}: {taken:?}");
    }
    let with_password = url.replace("://", "://me:p%40ss@");
    let error = status(world, &administrator, &[("https_proxy", &with_password)])?;
    let said = proxy.taken().concat();
    ensure!(error.is_null(), "{error}");
    ensure!(said.contains("Proxy-Authorization: Basic bWU6cEBzcw==\r\n"), "{said}");

    // The field counts before the variables, whatever NO_PROXY says.
    config["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    let proxied = world.second().directory().join("proxied.kubeconfig");
    fs::write(&proxied, config.to_string())?;
    let error = status(world, &proxied, &[("HTTPS_PROXY", NOBODY), ("NO_PROXY", "*")])?;
    ensure!(error.is_null() && !proxy.taken().is_empty(), "{error}");

    for (value, expected) in [
        ("ftp://10.0.0.1", "HTTPS_PROXY names no proxy that can be used"),
        (NOBODY, "no connection through the proxy http://127.0.0.1:9/ (HTTPS_PROXY)"),
    ] {
        let error = status(world, &administrator, &[("HTTPS_PROXY", value)])?;
        ensure!(error.to_string().contains(expected), "HTTPS_PROXY={value}: {error}");
    }
    Ok(())
}

fn peers(world: &mut World) -> anyhow::Result<()> {
    let own = world.second().server.address().to_string();
    let variables = [("HTTPS_PROXY", NOBODY), ("NO_PROXY", &*own)];
    world.clusters[1].controller.restart_in(&variables)?;
    let imported = imported_service(world);
    world.clusters[1].controller.restart_in(&[])?;
    let (namespace, _) = imported?;
    world.first().unexport(&namespace)?;
    world.second().wait_for_nothing(&namespace)
}
