//! What one command tries, and what becomes of it. `mcs check` lets pods and agents do it, with the words of a command line.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use futures_util::{StreamExt as _, future::join3, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::{
    Outcome, connect, dns, echo,
    source::{self, Source},
};

/// The connections that are tried at a time.
const AT_A_TIME: usize = 64;
/// The pause after a failed connection.
const PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for an answer, in seconds.
const SECONDS: u64 = 3;

/// What is tried.
#[derive(Clone, Debug, Args)]
pub struct Targets {
    /// Addresses or names, with a port
    #[arg(required_unless_present = "ask", value_name = "HOST:PORT")]
    pub addresses: Vec<Target>,

    /// Ask a controller of another cluster, where it serves health, which source address it sees; repeatable
    #[arg(long, value_name = "IP:PORT")]
    pub ask: Vec<SocketAddr>,

    /// Try whether packets as full as those of a connection to this address pass; repeatable
    #[arg(long, value_name = "IP:PORT", hide = true)]
    pub full: Vec<SocketAddr>,

    /// Look names up at this DNS server [default: those of this machine]
    #[arg(long, value_name = "IP")]
    pub dns_server: Option<IpAddr>,

    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS,
        value_parser = clap::value_parser!(u64).range(1..=60))]
    pub timeout: u64,

    /// Try again each second, for this many seconds, what does not accept the connection
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
}

/// The target of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Target {
    /// An address of a pod, or a VIP.
    Address(SocketAddr),
    /// A name with a port, which is looked up at each attempt.
    Name(String),
}

impl FromStr for Target {
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

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// The results, in the order of the targets.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The outcomes of connections.
    pub outcomes: Vec<Outcome>,
    /// What the controllers see that were asked; `None`: it did not say.
    pub sources: Vec<Option<Source>>,
    /// Whether a large answer of them arrives; `None`: it is not known.
    #[serde(default)]
    pub large: Vec<Option<bool>>,
    /// Whether full packets pass; `None`: it is not known.
    #[serde(default)]
    pub full: Vec<Option<bool>>,
}

impl Found {
    /// Whether there is a result of each target.
    pub const fn is_of(&self, targets: &Targets) -> bool {
        self.outcomes.len() == targets.addresses.len()
            && self.sources.len() == targets.ask.len()
            && self.full.len() == targets.full.len()
    }
}

impl Targets {
    /// Each once, by the DNS servers of the machine.
    pub const fn new(addresses: Vec<Target>, ask: Vec<SocketAddr>) -> Self {
        Self { addresses, ask, full: vec![], dns_server: None, timeout: SECONDS, wait: 0 }
    }

    /// Whether there is nothing to try.
    pub const fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ask.is_empty()
    }

    /// The words of a command line with them, which an earlier version knows where it can.
    pub fn words(&self) -> Vec<String> {
        let wait = (self.wait > 0).then(|| format!("--wait={}", self.wait));
        let server = self.dns_server.map(|server| format!("--dns-server={server}"));
        let ask = self.ask.iter().map(|address| format!("--ask={address}"));
        let full = self.full.iter().map(|address| format!("--full={address}"));
        let addresses = self.addresses.iter().map(ToString::to_string);
        wait.into_iter().chain(server).chain(ask).chain(full).chain(addresses).collect()
    }

    /// Tries all of them.
    pub async fn probe(&self) -> Found {
        let limit = Duration::from_secs(self.timeout);
        let outcomes = self.addresses.iter().map(|target| self.connect(target, limit));
        let outcomes = stream::iter(outcomes).buffered(AT_A_TIME).collect();
        let asked = self.ask.iter().map(|address| source::ask_both(*address, limit));
        let asked = stream::iter(asked).buffered(AT_A_TIME).unzip();
        let full = self.full.iter().map(|address| echo::full(*address, limit));
        let full = stream::iter(full).buffered(AT_A_TIME).collect();
        let (outcomes, (sources, large), full) = join3(outcomes, asked, full).await;
        Found { outcomes, sources, large, full }
    }

    /// Connects for as long as `wait`, until it is accepted.
    async fn connect(&self, target: &Target, limit: Duration) -> Outcome {
        let end = Instant::now() + Duration::from_secs(self.wait);
        loop {
            let outcome = match self.address(target, limit).await {
                Ok(address) => connect(address, limit).await.outcome,
                Err(outcome) => outcome,
            };
            if outcome == Outcome::Answered || Instant::now() + PAUSE > end {
                return outcome;
            }
            sleep(PAUSE).await;
        }
    }

    async fn address(&self, target: &Target, limit: Duration) -> Result<SocketAddr, Outcome> {
        let name = match target {
            Target::Address(address) => return Ok(*address),
            Target::Name(name) => name,
        };
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let found = dns::look_up(host, self.dns_server, limit).await?;
        let first = found.first().ok_or(Outcome::DnsEmpty)?;
        Ok(SocketAddr::new(*first, port.parse().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::{Command, FromArgMatches as _};

    use super::*;
    use crate::program;

    fn outcomes(addresses: Vec<Target>, wait: u64) -> Vec<Outcome> {
        let targets = Targets { wait, ..Targets::new(addresses, vec![]) };
        program::block_on(async { Ok(targets.probe().await.outcomes) }).unwrap()
    }

    #[test]
    fn a_refusal_is_an_answer_of_the_pod() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let targets = [open.local_addr().unwrap(), closed].map(Target::Address);
        let outcomes = outcomes(targets.into(), 0);
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
        let target = format!("localhost:{}", address.port()).parse().unwrap();
        assert_eq!(outcomes(vec![target], 20), [Outcome::Answered]);
        drop(late.join().unwrap());
    }

    #[test]
    fn a_target_is_an_address_or_a_name() {
        for (text, is_name) in
            [("10.0.0.1:80", false), ("[fd00::1]:80", false), ("web.shop:80", true)]
        {
            let target: Target = text.parse().unwrap();
            assert_eq!(matches!(target, Target::Name(_)), is_name);
            assert_eq!(target.to_string(), text);
        }
        for text in ["10.0.0.1", "fd00::1", "web:http", ":80"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_words_of_targets_are_read_again() {
        let targets = Targets {
            dns_server: Some("fd00::a".parse().unwrap()),
            wait: 7,
            full: vec!["10.2.0.8:80".parse().unwrap()],
            ..Targets::new(
                vec!["web.shop:80".parse().unwrap(), "[fd00::1]:80".parse().unwrap()],
                vec!["10.2.0.7:16460".parse().unwrap()],
            )
        };
        let command = Targets::augment_args(Command::new("probe").no_binary_name(true));
        let matches = command.try_get_matches_from(targets.words()).unwrap();
        let read = Targets::from_arg_matches(&matches).unwrap();
        assert_eq!(format!("{read:?}"), format!("{targets:?}"));
        assert!(Targets::new(vec![], vec![]).is_empty());
    }
}
