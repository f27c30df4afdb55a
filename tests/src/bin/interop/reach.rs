//! Which backends answer at an address.

use mcs_tests::target;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::prelude::*;

/// A set of three backends is missed by less than one run in a million.
const CONNECTIONS: u32 = 40;
/// So many are made also if fewer show all backends.
const LEAST: u32 = 10;
/// How long an answer may take where there was one before, and elsewhere.
const LIMIT: Duration = Duration::from_secs(1);
const LIMIT_OF_UNKNOWN: Duration = Duration::from_millis(200);

/// What became of connections to one address, or of UDP sockets.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reach {
    pub(crate) backends: BTreeSet<SocketAddr>,
    pub(crate) failed: u32,
}

impl Reach {
    /// Connects often, until the backends of `enough` have answered. An address where the first connection fails is
    /// not tried again.
    pub(crate) fn of(ip: IpAddr, protocol: Protocol, enough: Option<&Self>) -> Self {
        let mut reach = Self::default();
        let limit = if enough.is_some_and(Self::works) { LIMIT } else { LIMIT_OF_UNKNOWN };
        for number in 0..CONNECTIONS {
            if let Ok(backend) = answer(ip, protocol, limit) {
                reach.backends.insert(backend);
            } else {
                reach.failed += 1;
                if reach.backends.is_empty() {
                    break;
                }
            }
            let has_all = enough.is_some_and(|enough| enough.backends.is_subset(&reach.backends));
            if has_all && number >= LEAST {
                break;
            }
        }
        reach
    }

    pub(crate) fn works(&self) -> bool {
        self.failed == 0
    }
}

/// The backend that answers a new socket.
fn answer(ip: IpAddr, protocol: Protocol, limit: Duration) -> Result<SocketAddr> {
    let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
    match protocol {
        Protocol::Tcp => {
            let stream = tcp(family)?;
            set_socket_timeout(&stream, Timeout::Recv, Some(limit))?;
            set_socket_timeout(&stream, Timeout::Send, Some(limit))?;
            connect(&stream, SocketAddr::new(ip, target::TCP.0))?;
            identity(&stream)
        }
        Protocol::Udp => {
            let socket = udp(family)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(limit))?;
            connect(&socket, SocketAddr::new(ip, target::UDP.0))?;
            socket.send(b"who are you")?;
            Ok(receive(&socket)?.backend)
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.backends.len(), self.failed) {
            (0, _) => f.write_str("none"),
            (backends, 0) => write!(f, "{backends}"),
            (backends, failed) => write!(f, "{backends}, {failed} failed"),
        }
    }
}
