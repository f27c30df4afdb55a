//! `mcs probe`: whether endpoints of other clusters answer where it runs. `mcs check` runs it in pods of the controller's
//! image, as `mcs probe`.

use std::{
    fmt, fs, net::SocketAddr, path::PathBuf, process::ExitCode, str::FromStr, time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use futures_util::{StreamExt as _, future::join, stream};
pub use mcs_kube::reach::{Outcome, source::Source};
use mcs_kube::{
    program::{self, FormatArgs},
    reach::{self, dns, source},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::core::feature::{Entry, Verb};

/// The feature in the list: a command that `mcs check` runs.
pub(crate) const ENTRY: Entry = Entry {
    verb: Some(Verb {
        command: || {
            let about = "`mcs check` runs it in pods of the controller's image";
            let command = ProbeCommand::augment_args(Command::new("probe"));
            command.about(about).long_about(None).hide(true)
        },
        run: |matches| run(&ProbeCommand::from_arg_matches(matches)?),
    }),
    ..Entry::NONE
};

/// The connections that are tried at a time.
const AT_A_TIME: usize = 64;
/// The pause after a failed connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Connect to endpoints of other clusters.
///
/// Opens a TCP connection to each address, sends nothing, and closes it. `check` runs it in a pod. Exits with 1 if an
/// address is not reached; one that refuses is reached. `--ask` tells whether source addresses are masqueraded on the way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs probe 10.2.1.5:8080 [fd02::5]:8080
  mcs probe web.shop.svc.clusterset.local:80 --wait 30
  mcs probe --ask 10.2.0.7:16460")]
pub struct ProbeCommand {
    /// Addresses or names, with a port
    #[arg(required_unless_present = "ask", value_name = "HOST:PORT")]
    addresses: Vec<ProbeTarget>,

    /// Ask a controller of another cluster, where it serves health, which source address it sees; repeatable
    #[arg(long, value_name = "IP:PORT")]
    ask: Vec<SocketAddr>,

    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,

    /// Try again each second, for this many seconds, what does not accept the connection
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,

    /// Also write the results into this file, as JSON
    #[arg(long, value_name = "FILE")]
    outcomes: Option<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,
}

/// The target of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum ProbeTarget {
    /// An address of a pod, or a VIP.
    Address(SocketAddr),
    /// A name with a port, which is looked up at each attempt.
    Name(String),
}

impl FromStr for ProbeTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        match text.rsplit_once(':') {
            Some((name, port))
                if !name.is_empty() && !name.contains(':') && port.parse::<u16>().is_ok() =>
            {
                Ok(Self::Name(text.to_owned()))
            }
            _ => Err("write it as 10.2.1.5:8080, [fd02::5]:8080 or NAME:8080"),
        }
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// The results, in the order of the arguments.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The outcomes of connections.
    pub outcomes: Vec<Outcome>,
    /// What the controllers see that were asked; `None`: it did not say.
    pub sources: Vec<Option<Source>>,
    /// Whether a large answer of them arrives; `None`: it is not known.
    #[serde(default)]
    pub large: Vec<Option<bool>>,
}

/// One line of the output.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Connected { address: &'a ProbeTarget, outcome: Outcome },
    Asked { address: &'a SocketAddr, source: Option<Source> },
}

impl Line<'_> {
    fn row(&self) -> Vec<String> {
        match self {
            Self::Connected { address, outcome } => {
                vec![address.to_string(), outcome.text().to_owned()]
            }
            Self::Asked { address, source } => {
                let seen = source.map(|Source { own, seen }| {
                    if own == seen {
                        format!("sees {seen}, the address of this end")
                    } else {
                        format!("sees {seen} instead of {own}")
                    }
                });
                let unsaid = "does not say what it sees";
                vec![address.to_string(), seen.unwrap_or_else(|| unsaid.to_owned())]
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The outcomes cannot be written.
pub fn run(command: &ProbeCommand) -> anyhow::Result<ExitCode> {
    let limit = Duration::from_secs(command.timeout);
    let wait = Duration::from_secs(command.wait);
    let found = async {
        let (outcomes, (sources, large)) =
            join(probe(&command.addresses, limit, wait), ask(&command.ask, limit)).await;
        Ok(Found { outcomes, sources, large })
    };
    let found = program::block_on(found)?;
    if let Some(file) = &command.outcomes {
        fs::write(file, serde_json::to_vec(&found)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let connected = command.addresses.iter().zip(&found.outcomes);
    let connected = connected.map(|(address, &outcome)| Line::Connected { address, outcome });
    let asked = command.ask.iter().zip(&found.sources);
    let asked = asked.map(|(address, &source)| Line::Asked { address, source });
    let lines: Vec<_> = connected.chain(asked).collect();
    command.format.show(&lines, |lines, style| {
        style.table(&["ADDRESS", "RESULT"], lines.iter().map(Line::row))
    })?;
    let is_fine = found.outcomes.into_iter().all(Outcome::is_reached);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Connects to each target, for as long as `wait` until it accepts. The outcomes are in the order of the targets.
pub async fn probe(targets: &[ProbeTarget], limit: Duration, wait: Duration) -> Vec<Outcome> {
    let attempts = targets.iter().map(|target| connect_within(target, limit, wait));
    stream::iter(attempts).buffered(AT_A_TIME).collect().await
}

/// Asks each controller which source address it sees, and then for a large answer.
pub async fn ask(
    controllers: &[SocketAddr],
    limit: Duration,
) -> (Vec<Option<Source>>, Vec<Option<bool>>) {
    let asked = controllers.iter().map(async |&address| {
        let source = source::ask(address, limit).await;
        let large = match source {
            Some(_) => source::ask_large(address, limit).await,
            None => None,
        };
        (source, large)
    });
    stream::iter(asked).buffered(AT_A_TIME).unzip().await
}

async fn connect_within(target: &ProbeTarget, limit: Duration, wait: Duration) -> Outcome {
    let end = Instant::now() + wait;
    loop {
        let outcome = connect(target, limit).await;
        if outcome == Outcome::Answered || Instant::now() + PAUSE > end {
            return outcome;
        }
        sleep(PAUSE).await;
    }
}

async fn connect(target: &ProbeTarget, limit: Duration) -> Outcome {
    let address = match target {
        ProbeTarget::Address(address) => *address,
        ProbeTarget::Name(name) => {
            let found = timeout(limit, tokio::net::lookup_host(name)).await;
            let found = found.ok().and_then(Result::ok).and_then(|mut found| found.next());
            let Some(address) = found else {
                let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
                return dns::failure(host, limit).await;
            };
            address
        }
    };
    reach::connect(address, limit).await.outcome
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_refusal_is_an_answer_of_the_pod() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let targets = [open.local_addr().unwrap(), closed].map(ProbeTarget::Address);
        let limit = Duration::from_secs(1);
        let probe = async { Ok(probe(&targets, limit, Duration::ZERO).await) };
        let outcomes = program::block_on(probe).unwrap();
        assert_eq!(outcomes, [Outcome::Answered, Outcome::Refused]);
        assert!(outcomes.into_iter().all(Outcome::is_reached));
    }

    #[test]
    fn what_accepts_late_is_reached_within_the_wait() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1500));
            TcpListener::bind(address).unwrap()
        });
        let targets = [format!("localhost:{}", address.port()).parse().unwrap()];
        let probe = async { Ok(probe(&targets, PAUSE, 20 * PAUSE).await) };
        assert_eq!(program::block_on(probe).unwrap(), [Outcome::Answered]);
        drop(late.join().unwrap());
    }

    #[test]
    fn a_target_is_an_address_or_a_name() {
        for (text, is_name) in
            [("10.0.0.1:80", false), ("[fd00::1]:80", false), ("web.shop:80", true)]
        {
            let target: ProbeTarget = text.parse().unwrap();
            assert_eq!(matches!(target, ProbeTarget::Name(_)), is_name);
            assert_eq!(target.to_string(), text);
        }
        for text in ["10.0.0.1", "fd00::1", "web:http", ":80"] {
            assert!(text.parse::<ProbeTarget>().is_err(), "{text}");
        }
    }
}
