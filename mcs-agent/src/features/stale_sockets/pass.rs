//! One pass: destroying sockets in all network namespaces.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    path::Path,
    time::{Duration, Instant},
};

use mcs_common::{ConnectedValue, ReverseKey};

use crate::core::{
    kernel::{
        bpf::own_netns_cookie,
        netlink::{ConnectedSocket, DestroyOutcome, SocketDiag},
        sockets::{Connection, Connections, NetNamespace, NetNamespaces},
    },
    model::Protocol,
};

/// What one pass over all network namespaces did.
#[derive(Debug, Default)]
pub struct StalePass {
    /// Sockets destroyed.
    pub destroyed: u64,
    /// Sockets that were closed before. They are no longer listed.
    pub closed_before: u64,
    /// Every error, with its namespace or socket.
    pub failures: Vec<String>,
    /// UDP connections of which it found no socket.
    pub unmatched: Unmatched,
    /// Connections of sockets in network namespaces that were not found.
    pub out_of_reach: u64,
    /// Network namespaces that were found.
    pub namespaces: usize,
    /// Processes whose namespace the agent cannot see.
    pub unseen_processes: usize,
    /// How long it took.
    pub took: Duration,
}

/// UDP connections of which a pass has found no socket, for the first time.
#[derive(Debug, Default)]
pub struct Unmatched(HashSet<ReverseKey>);

impl Unmatched {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Destroys the sockets of these connections. The current thread moves through the namespaces, so it must not do
/// anything else afterwards.
///
/// The programs list a connection before the kernel makes it. So a UDP connection without a socket stays listed
/// until the second pass that finds none. A TCP connection stays listed until its socket is closed.
pub fn destroy(
    state: &Path,
    protocol: Protocol,
    connections: &[Connection],
    unmatched_before: &Unmatched,
) -> io::Result<StalePass> {
    let began = Instant::now();
    let mut pass = PassInProgress {
        protocol,
        list: Connections::open(state)?,
        wanted: connections.iter().map(|connection| (connection.key, connection.value)).collect(),
        port: only(connections.iter().map(|connection| connection.key.backend.port)),
        entered: Some(HashSet::new()),
        result: StalePass::default(),
    };
    let found = NetNamespaces::find();
    for namespace in &found.namespaces {
        if pass.wanted.is_empty() {
            break;
        }
        if let Err(error) = pass.visit(namespace) {
            pass.result.failures.push(format!("cannot look into a network namespace: {error}"));
        }
    }
    pass.leave_out_of_reach();
    pass.unlist_unmatched(unmatched_before)?;
    Ok(StalePass {
        namespaces: found.namespaces.len(),
        unseen_processes: found.unseen_processes,
        took: began.elapsed(),
        ..pass.result
    })
}

struct PassInProgress {
    protocol: Protocol,
    list: Connections,
    /// Connections of which no socket has been found yet.
    wanted: HashMap<ReverseKey, ConnectedValue>,
    /// The port of all backends, if it is the same.
    port: Option<u16>,
    /// The cookies of the network namespaces that were entered; `None` if the kernel does not tell.
    entered: Option<HashSet<u64>>,
    result: StalePass,
}

impl PassInProgress {
    fn visit(&mut self, namespace: &NetNamespace) -> io::Result<()> {
        namespace.enter()?;
        let cookie = namespace_cookie()?;
        if let (Some(cookie), Some(entered)) = (cookie, &mut self.entered) {
            entered.insert(cookie);
        } else {
            self.entered = None;
        }
        let is_here = |value: &ConnectedValue| cookie.is_none_or(|own| own == value.netns_cookie);
        if !self.wanted.values().any(is_here) {
            return Ok(());
        }
        let diag = SocketDiag::open()?;
        for socket in diag.connected(self.protocol, self.port)? {
            let key = ReverseKey { cookie: socket.cookie(), backend: socket.peer() };
            if self.wanted.get(&key).is_some_and(is_here)
                && let Some(value) = self.wanted.remove(&key)
            {
                self.end(&diag, &socket, &Connection { key, value });
            }
        }
        Ok(())
    }

    fn end(&mut self, diag: &SocketDiag, socket: &ConnectedSocket, connection: &Connection) {
        match self.try_end(diag, socket, connection) {
            Ok(DestroyOutcome::Destroyed) => self.result.destroyed += 1,
            Ok(DestroyOutcome::Closed) => self.result.closed_before += 1,
            Err(error) => {
                let peer = connection.key.backend;
                let failure = format!(
                    "cannot destroy a {} socket that is connected to {}: {error}",
                    self.protocol,
                    std::net::SocketAddr::new(peer.addr.to_ip(), peer.port)
                );
                self.result.failures.push(failure);
            }
        }
    }

    fn try_end(
        &mut self,
        diag: &SocketDiag,
        socket: &ConnectedSocket,
        connection: &Connection,
    ) -> io::Result<DestroyOutcome> {
        // Its owner may have connected it again since the list was read, to the same backend.
        if !self.list.has(self.protocol, connection)? {
            return Ok(DestroyOutcome::Closed);
        }
        if self.protocol == Protocol::Udp {
            // Before the destruction: after it the owner can connect the socket again, which is listed again.
            self.list.remove(&connection.key)?;
        }
        diag.destroy(socket)
    }

    /// Sockets in namespaces that were not entered stay as they are, and are looked for again at the next pass. A socket whose
    /// namespace was removed is closed, and no longer listed.
    fn leave_out_of_reach(&mut self) {
        if let Some(entered) = &self.entered {
            let before = self.wanted.len();
            self.wanted.retain(|_, value| entered.contains(&value.netns_cookie));
            self.result.out_of_reach = (before - self.wanted.len()) as u64;
        }
    }

    fn unlist_unmatched(&mut self, unmatched_before: &Unmatched) -> io::Result<()> {
        if self.protocol == Protocol::Tcp {
            return Ok(());
        }
        for key in self.wanted.keys() {
            if unmatched_before.0.contains(key) {
                self.list.remove(key)?;
                self.result.closed_before += 1;
            } else {
                self.result.unmatched.0.insert(*key);
            }
        }
        Ok(())
    }
}

/// The cookie of the current thread's network namespace. `None` before Linux 5.14, which does not tell;
/// the cookies of sockets are unique among all namespaces (since 5.4).
pub(super) fn namespace_cookie() -> io::Result<Option<u64>> {
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
