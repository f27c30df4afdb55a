//! Which backends answer at an address.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use mcs_tests::client::{Family, connect, identity, tcp};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// A set of three backends is missed by less than one run in a million.
const CONNECTIONS: u32 = 40;
const LIMIT: Duration = Duration::from_secs(1);

/// What became of connections to one address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reach {
    pub(crate) backends: BTreeSet<SocketAddr>,
    pub(crate) failed: u32,
}

impl Reach {
    /// Connects often. An address where the first connection fails is not tried again.
    pub(crate) fn of(ip: IpAddr) -> anyhow::Result<Self> {
        let mut reach = Self::default();
        for _ in 0..CONNECTIONS {
            let stream = tcp(Family::V4)?;
            set_socket_timeout(&stream, Timeout::Recv, Some(LIMIT))?;
            set_socket_timeout(&stream, Timeout::Send, Some(LIMIT))?;
            let answer = connect(&stream, SocketAddr::new(ip, 80)).ok();
            if let Some(backend) = answer.and_then(|()| identity(&stream).ok()) {
                reach.backends.insert(backend);
            } else {
                reach.failed += 1;
                if reach.backends.is_empty() {
                    break;
                }
            }
        }
        Ok(reach)
    }

    pub(crate) fn works(&self) -> bool {
        self.failed == 0
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
