//! Load for suites: clients on every CPU, which check who answers.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    panic,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rustix::net::sockopt::set_socket_linger;

use crate::{
    client::{self, Family, ask, connect, connected, identity, receive_nameless},
    netns::Namespace,
};

/// UDP connects per turn: they run the hook but send no packet, so there can be many.
const CONNECTS: usize = 100;

/// What the clients use.
#[derive(Clone, Debug)]
pub struct Load {
    /// Frontends of TCP.
    pub tcp: Vec<(Family, SocketAddr)>,
    /// Frontends of UDP, each used by new sockets and by one that each client keeps, connected and
    /// not.
    pub udp: Vec<(Family, SocketAddr)>,
    /// The backends that may answer.
    pub backends: BTreeSet<SocketAddr>,
}

/// Does `work` while a client on each CPU repeats the load. Any failure, and any answer of another
/// backend, is an error. Returns the number of answers.
pub fn during(
    netns: &Namespace,
    load: &Load,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let answers = AtomicU64::new(0);
    with_clients(netns, |_, stop| load.repeat(stop, &answers), work)?;
    Ok(answers.into_inner())
}

/// Does `work` while a client on each CPU runs in the namespace. It gets the number of clients, and what becomes true when it has
/// to end. Any failure is an error.
pub fn with_clients<T>(
    netns: &Namespace,
    client: impl Fn(usize, &AtomicBool) -> anyhow::Result<()> + Sync,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let clients = thread::available_parallelism()?.get();
    let stop = AtomicBool::new(false);
    let client = || -> anyhow::Result<()> {
        netns.enter()?;
        client(clients, &stop)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let worked = {
            let _stop = StopAtEnd(&stop);
            work()
        };
        for thread in threads {
            thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?;
        }
        worked
    })
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// A client that uses it.
    pub fn client(&self) -> anyhow::Result<Client<'_>> {
        let kept = self.udp.iter().map(|(family, vip)| Ok((client::udp(*family)?, *vip)));
        Ok(Client { load: self, kept: kept.collect::<anyhow::Result<_>>()? })
    }

    fn repeat(&self, stop: &AtomicBool, answers: &AtomicU64) -> anyhow::Result<()> {
        let client = self.client()?;
        while !stop.load(Ordering::Relaxed) {
            answers.fetch_add(client.round()?, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check(&self, backend: SocketAddr) -> anyhow::Result<()> {
        ensure!(self.backends.contains(&backend), "{backend} answered, which was never in the set");
        Ok(())
    }
}

/// Goes through a load.
#[derive(Debug)]
pub struct Client<'a> {
    load: &'a Load,
    kept: Vec<(UdpSocket, SocketAddr)>,
}

impl Client<'_> {
    /// Uses every frontend, and returns how often a backend answered. It is an error if anything
    /// fails, or is answered by another backend.
    pub fn round(&self) -> anyhow::Result<u64> {
        let (load, mut answers) = (self.load, 0);
        for (family, vip) in &load.tcp {
            let stream = connected(*family, *vip).with_context(|| format!("connect {vip}"))?;
            load.check(identity(&stream)?)?;
            // Closes by a reset, so that no port is used up by TIME_WAIT.
            set_socket_linger(&stream, Some(Duration::ZERO))?;
            answers += 1;
        }
        for (family, vip) in &load.udp {
            let socket = client::udp(*family)?;
            for _ in 0..CONNECTS {
                connect(&socket, *vip).with_context(|| format!("UDP connect {vip}"))?;
            }
            socket.send(b"who are you")?;
            load.check(receive_nameless(&socket)?)?;
            answers += 1;
        }
        let new = load.udp.iter().map(|(family, vip)| Ok((client::udp(*family)?, *vip)));
        let new = new.collect::<anyhow::Result<Vec<_>>>()?;
        for (socket, vip) in new.iter().chain(&self.kept) {
            let reply = ask(socket, *vip)?;
            ensure!(reply.source == *vip, "{} is shown instead of {vip}", reply.source);
            load.check(reply.backend)?;
            answers += 1;
        }
        Ok(answers)
    }
}
