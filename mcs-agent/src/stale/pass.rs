use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    path::Path,
    time::{Duration, Instant},
};

use mcs_common::{ConnectedValue, ReverseKey};

use super::{Survey, namespaces::NetNamespace};
use crate::{
    bpf::own_netns_cookie,
    dataplane::{UdpConnection, UdpConnections},
    netlink::{ConnectedUdp, Destroyed, SocketDiag},
};

/// What one pass over all network namespaces did.
#[derive(Debug, Default)]
pub struct Pass {
    /// Sockets destroyed.
    pub destroyed: u64,
    /// Sockets that are closed, or out of reach; they are off the list.
    pub gone: u64,
    /// What went wrong, each with its namespace or socket.
    pub failures: Vec<String>,
    /// Those of which no socket was found.
    pub missed: Missed,
    /// Network namespaces that were found.
    pub namespaces: usize,
    /// Processes that do not let us see theirs.
    pub closed: usize,
    /// How long it took.
    pub took: Duration,
}

/// Connections of which a pass has found no socket, for the first time.
#[derive(Debug, Default)]
pub struct Missed(HashSet<ReverseKey>);

impl Missed {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Destroys the sockets of these connections. The current thread moves through the namespaces, and is not
/// to be used for anything else afterwards.
///
/// A connection may be listed before it is made, so one of which no socket is found is only forgotten if
/// it was missed before.
pub fn destroy(
    state: &Path,
    connections: &[UdpConnection],
    missed_before: &Missed,
) -> io::Result<Pass> {
    let began = Instant::now();
    let mut hunt = Hunt {
        list: UdpConnections::open(state)?,
        wanted: connections.iter().map(|connection| (connection.key, connection.value)).collect(),
        port: only(connections.iter().map(|connection| connection.key.backend.port)),
        pass: Pass::default(),
    };
    let survey = Survey::new();
    for namespace in &survey.namespaces {
        if hunt.wanted.is_empty() {
            break;
        }
        if let Err(error) = hunt.visit(namespace) {
            hunt.pass.failures.push(format!("cannot look into a network namespace: {error}"));
        }
    }
    hunt.forget(missed_before)?;
    Ok(Pass {
        namespaces: survey.namespaces.len(),
        closed: survey.closed,
        took: began.elapsed(),
        ..hunt.pass
    })
}

struct Hunt {
    list: UdpConnections,
    /// Those of which no socket has been found yet.
    wanted: HashMap<ReverseKey, ConnectedValue>,
    /// The port of all backends, if it is the same.
    port: Option<u16>,
    pass: Pass,
}

impl Hunt {
    fn visit(&mut self, namespace: &NetNamespace) -> io::Result<()> {
        namespace.enter()?;
        let cookie = namespace_cookie()?;
        let is_here = |value: &ConnectedValue| cookie.is_none_or(|own| own == value.netns_cookie);
        if !self.wanted.values().any(is_here) {
            return Ok(());
        }
        let diag = SocketDiag::open()?;
        for socket in diag.connected_udp(self.port)? {
            let key = ReverseKey { cookie: socket.cookie(), backend: socket.peer() };
            if self.wanted.get(&key).is_some_and(is_here)
                && let Some(value) = self.wanted.remove(&key)
            {
                self.end(&diag, &socket, &UdpConnection { key, value });
            }
        }
        Ok(())
    }

    fn end(&mut self, diag: &SocketDiag, socket: &ConnectedUdp, connection: &UdpConnection) {
        match self.try_end(diag, socket, connection) {
            Ok(Destroyed::Done) => self.pass.destroyed += 1,
            Ok(Destroyed::Gone) => self.pass.gone += 1,
            Err(error) => {
                let peer = connection.key.backend;
                let failure = format!(
                    "cannot destroy a UDP socket that is connected to {}: {error}",
                    std::net::SocketAddr::new(peer.addr.to_ip(), peer.port)
                );
                self.pass.failures.push(failure);
            }
        }
    }

    fn try_end(
        &mut self,
        diag: &SocketDiag,
        socket: &ConnectedUdp,
        connection: &UdpConnection,
    ) -> io::Result<Destroyed> {
        // It may have been connected anew since the list was read, by itself to the same backend.
        if !self.list.has(connection)? {
            return Ok(Destroyed::Gone);
        }
        // Before its owner can connect it anew, which is listed again.
        self.list.remove(&connection.key)?;
        diag.destroy(socket)
    }

    fn forget(&mut self, missed_before: &Missed) -> io::Result<()> {
        for key in self.wanted.keys() {
            if missed_before.0.contains(key) {
                self.list.remove(key)?;
                self.pass.gone += 1;
            } else {
                self.pass.missed.0.insert(*key);
            }
        }
        Ok(())
    }
}

/// The cookie of the current thread's network namespace. `None` before Linux 5.14, which does not tell;
/// the cookies of sockets are unique among all namespaces (since 5.4).
fn namespace_cookie() -> io::Result<Option<u64>> {
    match own_netns_cookie() {
        Ok(cookie) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value, if all are the same.
fn only<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: BTreeSet<T> = values.collect();
    if values.len() == 1 { values.pop_first() } else { None }
}
