//! `mcs probe`: whether endpoints of other clusters answer where it runs. `mcs check` runs it in pods of the controller's
//! image, as `mcs probe`.

use std::{fs, io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;
use futures_util::{StreamExt as _, stream};
use mcs_kube::program::{self, FormatArgs};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

/// How many connections are tried at a time.
const AT_A_TIME: usize = 64;

/// Connect to endpoints of other clusters.
///
/// Opens a TCP connection to each address, sends nothing, and closes it. `check` runs it in a pod. Exits with 1 if an
/// address is not reached; one that refuses is reached.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs probe 10.2.1.5:8080 [fd02::5]:8080")]
pub struct ProbeCommand {
    /// Addresses of pods with a port
    #[arg(required = true, value_name = "IP:PORT")]
    addresses: Vec<SocketAddr>,

    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,

    /// Also write the outcomes into this file, as a JSON list
    #[arg(long, value_name = "FILE")]
    outcomes: Option<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,
}

/// How an attempt to connect ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The pod accepts the connection.
    Answered,
    /// The pod, or a firewall in its name, refuses the connection. Packets travel both ways.
    Refused,
    /// No answer: packets are lost on the way there or back.
    Timeout,
    /// A router or this node says that there is no way.
    Unreachable,
    /// This machine does not let the connection begin.
    Failed,
}

impl Outcome {
    /// Whether packets travel both ways.
    pub const fn is_reached(self) -> bool {
        matches!(self, Self::Answered | Self::Refused)
    }

    /// What is said of an address with this outcome.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Answered => "answers",
            Self::Refused => "refuses",
            Self::Timeout => "does not answer",
            Self::Unreachable => "is unreachable",
            Self::Failed => "cannot be tried",
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

/// One line of the output.
#[derive(Debug, Serialize)]
struct Attempt {
    address: SocketAddr,
    outcome: Outcome,
}

/// Runs the command.
///
/// # Errors
/// The outcomes cannot be written.
pub fn run(command: &ProbeCommand) -> anyhow::Result<ExitCode> {
    let limit = Duration::from_secs(command.timeout);
    let outcomes = program::block_on(async { Ok(probe(&command.addresses, limit).await) })?;
    if let Some(file) = &command.outcomes {
        fs::write(file, serde_json::to_vec(&outcomes)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let attempts: Vec<_> = command
        .addresses
        .iter()
        .zip(&outcomes)
        .map(|(&address, &outcome)| Attempt { address, outcome })
        .collect();
    command.format.show(&attempts, |attempts, style| {
        let row = |one: &Attempt| vec![one.address.to_string(), one.outcome.text().to_owned()];
        style.table(&["ADDRESS", "RESULT"], attempts.iter().map(row))
    })?;
    let is_fine = outcomes.into_iter().all(Outcome::is_reached);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Connects to each address. The outcomes are in the order of the addresses.
pub async fn probe(addresses: &[SocketAddr], limit: Duration) -> Vec<Outcome> {
    let attempts = addresses.iter().map(|&address| connect(address, limit));
    stream::iter(attempts).buffered(AT_A_TIME).collect().await
}

async fn connect(address: SocketAddr, limit: Duration) -> Outcome {
    match timeout(limit, TcpStream::connect(address)).await {
        Err(_) => Outcome::Timeout,
        Ok(Ok(_)) => Outcome::Answered,
        Ok(Err(error)) => Outcome::of(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_refusal_is_an_answer_of_the_pod() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let addresses = [open.local_addr().unwrap(), closed];
        let limit = Duration::from_secs(1);
        let outcomes = program::block_on(async { Ok(probe(&addresses, limit).await) }).unwrap();
        assert_eq!(outcomes, [Outcome::Answered, Outcome::Refused]);
        assert!(outcomes.into_iter().all(Outcome::is_reached));
    }

    #[test]
    fn lost_packets_and_missing_routes_differ() {
        for (kind, outcome) in [
            (io::ErrorKind::TimedOut, Outcome::Timeout),
            (io::ErrorKind::HostUnreachable, Outcome::Unreachable),
            (io::ErrorKind::NetworkUnreachable, Outcome::Unreachable),
            (io::ErrorKind::PermissionDenied, Outcome::Failed),
        ] {
            assert_eq!(Outcome::of(&kind.into()), outcome);
            assert!(!outcome.is_reached());
        }
    }
}
