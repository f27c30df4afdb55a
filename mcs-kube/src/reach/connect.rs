//! One TCP connection, and how it ends.

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

/// How long an endpoint has to answer. The kernel asks a second time after one second.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// How many connections are tried at a time.
const AT_A_TIME: usize = 16;

/// The outcome of an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The pod accepts the connection.
    Answered,
    /// The pod, or a firewall in its name, refuses the connection. Packets pass in both directions.
    Refused,
    /// No answer: packets are lost on the way there or back.
    Timeout,
    /// A router or this node reports that there is no route.
    Unreachable,
    /// This machine does not let the connection begin.
    Failed,
    /// A program at the socket refuses it. Before Linux 5.18 those of the agent can say no other word than this one.
    Denied,
    /// The name server knows no such name (NXDOMAIN).
    Unresolved,
    /// It knows the name, and no address of it.
    DnsEmpty,
    /// It answers with an error, such as SERVFAIL.
    DnsFailed,
    /// No name server answers.
    DnsSilent,
}

impl Outcome {
    /// Whether packets pass in both directions.
    pub const fn is_reached(self) -> bool {
        matches!(self, Self::Answered | Self::Refused)
    }

    /// Whether DNS has given no address.
    pub const fn is_of_dns(self) -> bool {
        matches!(self, Self::Unresolved | Self::DnsEmpty | Self::DnsFailed | Self::DnsSilent)
    }

    /// The verb for an address with this outcome.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Answered => "answers",
            Self::Refused => "refuses",
            Self::Timeout => "does not answer",
            Self::Unreachable => "is unreachable",
            Self::Failed => "cannot be tried",
            Self::Denied => "is refused at the socket",
            Self::Unresolved => "is no name that DNS knows",
            Self::DnsEmpty => "has no address in DNS",
            Self::DnsFailed => "cannot be looked up: DNS answers with an error, such as SERVFAIL",
            Self::DnsSilent => "cannot be looked up: DNS does not answer",
        }
    }

    fn of(error: &io::Error) -> Self {
        if Errno::from_io_error(error) == Some(Errno::PERM) {
            return Self::Denied;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout,
            // The kernel answers "invalid argument" for a route of type blackhole.
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::InvalidInput => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

/// An attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Its target.
    pub address: SocketAddr,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its duration.
    pub took: Duration,
}

/// Opens a connection and closes it.
pub async fn connect(address: SocketAddr, limit: Duration) -> Attempt {
    let begin = Instant::now();
    let outcome = match timeout(limit, TcpStream::connect(address)).await {
        Err(_) => Outcome::Timeout,
        Ok(Ok(_)) => Outcome::Answered,
        Ok(Err(error)) => Outcome::of(&error),
    };
    Attempt { address, outcome, took: begin.elapsed() }
}

/// Opens connections to addresses of services, a few at a time.
pub async fn connect_all<S>(chosen: Vec<(S, SocketAddr)>) -> Vec<(S, Attempt)> {
    let attempts = chosen
        .into_iter()
        .map(|(service, address)| async move { (service, connect(address, TIMEOUT).await) });
    stream::iter(attempts).buffered(AT_A_TIME).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_agent_is_told_from_a_route_that_prohibits() {
        let of = |errno: Errno| Outcome::of(&errno.into());
        assert_eq!((of(Errno::PERM), of(Errno::ACCESS)), (Outcome::Denied, Outcome::Failed));
        assert!(!Outcome::Denied.is_reached(), "it is no answer of a pod");
    }

    #[test]
    fn lost_packets_and_missing_routes_differ() {
        for (kind, outcome) in [
            (io::ErrorKind::TimedOut, Outcome::Timeout),
            (io::ErrorKind::HostUnreachable, Outcome::Unreachable),
            (io::ErrorKind::NetworkUnreachable, Outcome::Unreachable),
            (io::ErrorKind::InvalidInput, Outcome::Unreachable),
            (io::ErrorKind::PermissionDenied, Outcome::Failed),
        ] {
            assert_eq!(Outcome::of(&kind.into()), outcome);
            assert!(!outcome.is_reached());
        }
    }
}
