//! Whether this replica's pod reaches pods of the peers, and whether addresses are masqueraded on the way: the leader
//! connects to a few pods of each peer, and asks the controllers of peers which source address they see.

mod condition;
mod sources;
mod ways;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use clap::{Args, FromArgMatches as _};
use futures_util::future::join;
use mcs_kube::reach::{Attempt, ProbePeers, Way, connect_all, source::Source};
use prometheus::{GaugeVec, IntGaugeVec, register_gauge_vec_with_registry};

pub use self::ways::advice;
use self::{
    sources::{Asked, Sources},
    ways::{ProbedService, Ways},
};
use crate::core::{
    clock,
    clusterset::{IpFamily, ServiceName},
    control::State,
    feature::{Core, Entry, Feature, Question},
    objects::PeerCondition,
    peers::{Peer, PeerName},
    server::Metrics,
};

/// How long a replica that has just begun to lead reads mailboxes before it connects to pods.
const FIRST: Duration = Duration::from_secs(5);
/// The result of a connection to an endpoint.
const RESULTS: [&str; 2] = ["reached", "silent"];

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    flags: ReachFlags::augment_args,
    start: |matches, wiring| {
        let flags = ReachFlags::from_arg_matches(matches)?;
        wiring.settings.controllers = flags.asked_at(wiring.health);
        Ok(Some(Box::new(Reach::new(&flags, &wiring.published.metrics)?)))
    },
    ..Entry::NONE
};

#[derive(Args)]
#[group(skip)]
struct ReachFlags {
    /// Connect to a few pods of each peer every 25 seconds, for the condition `PodsReachable` of ClusterPeers and its
    /// metrics. Nothing is sent over the connections
    #[arg(long, env = "MCS_PROBE_PEERS", value_name = "WHETHER", default_value = "on")]
    probe_peers: ProbePeers,

    /// The addresses of this pod, one of each IP family. Controllers of peers ask there, where health is served, which source
    /// address this end sees [default: they do not ask]
    #[arg(long = "pod-ip", env = "MCS_POD_IPS", value_name = "IP", value_delimiter = ',')]
    pod_ips: Vec<IpAddr>,

    /// How many seconds pass between these connections
    #[arg(long, value_name = "SECONDS", default_value_t = 25,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    probe_period: u64,
}

impl ReachFlags {
    /// Where this pod says which source address it sees: its addresses, if health is served on all or on these.
    fn asked_at(&self, health: Option<SocketAddr>) -> Vec<SocketAddr> {
        let Some(health) = health else { return vec![] };
        let is_served = |ip: &&IpAddr| health.ip().is_unspecified() || health.ip() == **ip;
        let ips = self.pod_ips.iter().filter(is_served);
        ips.map(|ip| SocketAddr::new(*ip, health.port())).collect()
    }
}

/// The results of one round: of connections to pods, and of questions to controllers.
type Round = (Vec<(ProbedService, Attempt)>, Vec<(Asked, Option<Source>)>);

/// The schedule and the results.
struct Reach {
    ways: Ways,
    sources: Sources,
    /// `None`: no pod is connected to.
    period: Option<Duration>,
    next_at: Instant,
    /// Whether this replica has chosen pods in this term as leader.
    has_begun: bool,
    round: Question<Round>,
    /// The peers that metrics name.
    measured: BTreeSet<PeerName>,
    /// By peer, family and result: endpoints of the last round.
    probed: IntGaugeVec,
    /// By peer and family.
    round_trip: GaugeVec,
}

impl Reach {
    fn new(flags: &ReachFlags, metrics: &Metrics) -> prometheus::Result<Self> {
        let period = Duration::from_secs(flags.probe_period);
        Ok(Self {
            ways: Ways::default(),
            sources: Sources::default(),
            period: (flags.probe_peers == ProbePeers::On).then_some(period),
            next_at: clock::now() + FIRST,
            has_begun: false,
            round: Question::default(),
            measured: BTreeSet::new(),
            probed: metrics.gauges(
                "mcs_controller_peer_probed_endpoints",
                "Endpoints of the peer that were connected to in the last round, by family and result (reached, silent)",
                &["peer", "family", "result"],
            )?,
            round_trip: register_gauge_vec_with_registry!(
                "mcs_controller_peer_round_trip_seconds",
                "The shortest time in which an endpoint of the peer has answered in the last round, by family",
                &["peer", "family"],
                metrics.registry
            )?,
        })
    }

    /// Begins the next round if it is time.
    fn begin(&mut self, core: &Core, now: Instant) {
        let Some(period) = self.period else { return };
        if self.round.is_asked() || now < self.next_at {
            return;
        }
        self.next_at = now + period;
        self.has_begun = true;
        let chosen = self.ways.choose(&core.state.peers, &core.state.own);
        let questions = Sources::to_ask(&core.state.peers);
        if !chosen.is_empty() || !questions.is_empty() {
            self.round.ask(join(connect_all(chosen), sources::ask(questions)));
        }
    }

    /// Sets the metrics of every peer, and forgets those that are gone.
    fn measure(&mut self, core: &Core) {
        let peers: BTreeSet<_> = core.state.peers.all().keys().cloned().collect();
        for gone in self.measured.difference(&peers) {
            self.set(gone, &[]);
        }
        for peer in &peers {
            self.set(peer, &self.ways.of(peer));
        }
        self.measured = peers;
    }

    fn set(&self, peer: &str, ways: &[(IpFamily, &Way<ServiceName>)]) {
        for family in [IpFamily::V4, IpFamily::V6] {
            let way = ways.iter().find(|(other, _)| *other == family).map(|(_, way)| way);
            let family = family.to_string();
            let counts = way.map(|way| [way.counts().0, way.counts().1]);
            for (place, result) in RESULTS.into_iter().enumerate() {
                let labels = [peer, &family, result];
                match counts.and_then(|counts| i64::try_from(counts[place]).ok()) {
                    Some(number) => self.probed.with_label_values(&labels).set(number),
                    // An error means that the peer never had the metric.
                    None => drop(self.probed.remove_label_values(&labels)),
                }
            }
            match way.and_then(|way| way.round_trip()) {
                Some(time) => {
                    self.round_trip.with_label_values(&[peer, &family]).set(time.as_secs_f64());
                }
                None => drop(self.round_trip.remove_label_values(&[peer, &family])),
            }
        }
    }
}

impl Feature for Reach {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.round.poll(cx).map(|(connected, asked)| {
            self.ways.note(connected);
            self.sources.note(asked);
        })
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if core.is_leader {
            self.begin(core, now);
            self.measure(core);
        }
    }

    fn lead(&mut self, _: bool, _: &mut State, now: Instant) {
        (self.ways, self.sources) = (Ways::default(), Sources::default());
        (self.next_at, self.has_begun, self.round) = (now + FIRST, false, Question::default());
        self.probed.reset();
        self.round_trip.reset();
    }

    fn peer_condition(&self, name: &PeerName, peer: &Peer) -> Option<PeerCondition> {
        Some(self.reachable(name, peer))
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.probed.with_label_values(&["west", "IPv4", "reached"]).set(1);
        self.round_trip.with_label_values(&["west", "IPv4"]).set(0.03);
    }
}

#[cfg(test)]
mod tests;
