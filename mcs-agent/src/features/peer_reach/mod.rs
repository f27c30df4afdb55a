//! Whether this node reaches pods of other clusters: it connects to a few of them each minute, from its own address. Nothing is
//! sent over the connections. What they show changes nothing that the agent serves, unless a cluster is silent and its operator
//! wants nodes to eject it then. Such a cluster is asked each 15 seconds, also its pods that were reached lately.
//!
//! The load on pods: a node connects to two endpoints a minute of each source cluster and IP family, and to a pod that was reached
//! not again for ten minutes. So N nodes open at most N/10 connections a minute to a pod, however few pods there are: 1,000 nodes
//! 1.7 a second, 5,000 nodes 8. Of a cluster with many pods it is 2N a minute to all of them together. Only a pod that is lost
//! gets one a minute from each node that notices, and one in two minutes while a round has reached none.

mod output;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::ready,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use mcs_kube::reach::{Attempt, Sample, Way, connect_all};
pub use mcs_kube::{reach::ProbePeers, report::ReachReport};
use tokio::time::Instant;

use crate::core::{
    feature::{Act, Core, Definition, Feature, Follow, Sections, Wait},
    model::{DesiredState, FrontendId, Protocol, Traffic, Unreachable},
    rules::IpFamily,
};

/// The reach of peers in the list of features.
pub const FEATURE: Definition = Definition {
    start: |_, core| {
        let reach = Reach::new(core.installed.config.probe_peers);
        Ok(Some(Box::new(PeerReach { reach, event: None })))
    },
    clusters: output::clusters,
    parts: |all| all.expect::<Option<Vec<ReachReport>>>(SECTION),
    lines: output::lines,
    failings: output::failings,
    metrics: output::metrics,
    ..Definition::named("peer_reach")
};

/// Its part of the report.
const SECTION: &str = ReachReport::SECTION;

/// How often a round begins. Each agent begins at a moment of its own.
const PERIOD: Duration = Duration::from_mins(1);
/// The same for clusters that this node may eject.
const URGENT: Duration = Duration::from_secs(15);
/// How many endpoints of a source cluster and an IP family are connected to in a round.
const ENDPOINTS: usize = 2;
/// How long a pod that was reached is not connected to again.
const REST: Duration = Duration::from_mins(10);
/// How many ways there are at most: the first by the name of the source cluster.
const WAYS: usize = 500;

/// A source cluster and an IP family.
type WayId = (Arc<str>, IpFamily);
type Round = Vec<((WayId, FrontendId), Attempt)>;

/// Connects to pods of other clusters, and knows what became of it.
pub struct Reach {
    ways: BTreeMap<WayId, Way<FrontendId>>,
    /// When pods answered, or were silent while others answered.
    rests: HashMap<IpAddr, Instant>,
    /// When the next round begins; `None`: never.
    next_at: Option<Instant>,
    /// When one begins that asks all clusters.
    all_at: Instant,
    round: Option<Pin<Box<dyn Future<Output = Round> + Send>>>,
}

/// Whether a cluster is asked in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Later,
    /// But for pods that rest.
    Usual,
    /// Also pods that rest.
    Urgent,
}

impl Turn {
    const fn usual(is_its_turn: bool) -> Self {
        if is_its_turn { Self::Usual } else { Self::Later }
    }
}

/// What [`Reach::next`] waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReachEvent {
    /// The caller begins a round.
    Due,
    /// A round has ended, and the report may have changed.
    Ended,
}

impl Reach {
    /// Knows nothing yet.
    pub fn new(probe: ProbePeers) -> Self {
        let next_at = Instant::now() + PERIOD.mul_f64(fastrand::f64());
        Self {
            ways: BTreeMap::new(),
            rests: HashMap::new(),
            next_at: (probe == ProbePeers::On).then_some(next_at),
            all_at: next_at,
            round: None,
        }
    }

    /// Waits until a round is due, or has ended. If the future is dropped before, the next call goes on waiting.
    pub async fn next(&mut self) -> ReachEvent {
        if let Some(round) = &mut self.round {
            let ended = round.await;
            self.round = None;
            self.note(ended, Instant::now());
            return ReachEvent::Ended;
        }
        mcs_kube::program::until(self.next_at).await;
        ReachEvent::Due
    }

    /// If this node may eject a cluster, the next round begins soon.
    pub fn hurry(&mut self, traffic: &Traffic) {
        if traffic.ejectable().next().is_some() {
            let soon = Instant::now() + URGENT;
            self.next_at = self.next_at.map(|at| at.min(soon));
        }
    }

    /// Begins a round. `own` is the id of this cluster, to whose pods nobody asks the way. `traffic` says which clusters this
    /// node may eject.
    pub fn begin(&mut self, desired: &DesiredState, own: Option<&str>, traffic: &Traffic) {
        let now = Instant::now();
        let is_for_all = now >= self.all_at;
        if is_for_all {
            self.all_at = now + PERIOD;
        }
        self.next_at = Some(self.all_at);
        self.hurry(traffic);
        let chosen = self.choose(desired, own, now, |cluster| {
            if traffic.may_eject(cluster) { Turn::Urgent } else { Turn::usual(is_for_all) }
        });
        self.round = Some(Box::pin(connect_all(chosen)));
    }

    fn choose(
        &mut self,
        desired: &DesiredState,
        own: Option<&str>,
        now: Instant,
        turn: impl Fn(&str) -> Turn,
    ) -> Vec<((WayId, FrontendId), SocketAddr)> {
        self.rests.retain(|_, at| now < *at + REST);
        let mut services = services(desired, own);
        while services.len() > WAYS {
            services.pop_last();
        }
        self.ways.retain(|way, _| services.contains_key(way));
        let mut round = Vec::new();
        for (id, services) in services {
            let turn = turn(&id.0);
            if turn == Turn::Later {
                continue;
            }
            let endpoints = |service: &FrontendId| {
                let backends = desired.frontends.get(service).map(|frontend| &frontend.backends);
                let of_cluster = backends.into_iter().flatten().filter(|one| one.cluster == id.0);
                of_cluster.map(|backend| backend.address).collect()
            };
            let rests = |ip| turn != Turn::Urgent && self.rests.contains_key(&ip);
            let way = self.ways.entry(id.clone()).or_default();
            let chosen = way.choose(services, endpoints, rests, ENDPOINTS);
            round.extend(
                chosen.into_iter().map(|(service, address)| ((id.clone(), service), address)),
            );
        }
        round
    }

    fn note(&mut self, round: Round, now: Instant) {
        let mut rounds: BTreeMap<WayId, Vec<_>> = BTreeMap::new();
        for ((id, service), attempt) in round {
            rounds.entry(id).or_default().push((service, attempt));
        }
        for (id, round) in rounds {
            let Some(way) = self.ways.get_mut(&id) else { continue };
            let before = way.is_whole();
            way.note(round.clone());
            let (is_whole, (_, silent)) = (way.is_whole(), way.counts());
            // A pod that is lost is asked each minute, so that the end of it is noticed. The others rest meanwhile.
            if is_whole == Some(true) || silent > 0 {
                let others = round
                    .iter()
                    .filter(|(_, one)| one.outcome.is_reached() || !way.is_lost(one.address));
                self.rests.extend(others.map(|(_, one)| (one.address.ip(), now)));
            }
            if before != is_whole {
                log(&id, way);
            }
        }
    }

    /// How a cluster is to be ejected: in the families in which several rounds have reached none of its pods.
    pub fn silent(&self, cluster: &str) -> Option<Unreachable> {
        let is_silent =
            |way: &Way<FrontendId>| way.is_whole() == Some(false) && way.counts().0 == 0;
        let ways = self.ways.iter().filter(|((of, _), _)| **of == *cluster);
        let (silent, others): (Vec<_>, Vec<_>) = ways.partition(|(_, way)| is_silent(way));
        match silent.as_slice() {
            [] => None,
            [((_, IpFamily::V4), _)] if !others.is_empty() => Some(Unreachable::EjectedV4),
            [((_, IpFamily::V6), _)] if !others.is_empty() => Some(Unreachable::EjectedV6),
            _ => Some(Unreachable::Ejected),
        }
    }

    /// What is known, by source cluster and family.
    pub fn report(&self) -> Option<Vec<ReachReport>> {
        let reports = self.ways.iter().map(|(id, way)| report(id, way));
        self.next_at.map(|_| reports.collect())
    }
}

/// Some of the frontends that have backends in each other cluster, by IP family. Only TCP says whether somebody is there.
fn services(desired: &DesiredState, own: Option<&str>) -> BTreeMap<WayId, Sample<FrontendId>> {
    let mut services: BTreeMap<WayId, Sample<FrontendId>> = BTreeMap::new();
    let tcp = desired.frontends.iter().filter(|(id, _)| id.protocol == Protocol::Tcp);
    for (id, frontend) in tcp {
        let clusters = frontend.clusters().map(|run| run.cluster);
        let others = clusters.filter(|one| !one.is_empty() && Some(&***one) != own);
        for cluster in others.collect::<BTreeSet<_>>() {
            services.entry((Arc::clone(cluster), IpFamily::of(id.ip))).or_default().add(*id);
        }
    }
    services
}

struct PeerReach {
    reach: Reach,
    event: Option<ReachEvent>,
}

impl PeerReach {
    /// Looks which clusters are silent and none of whose pods this node reaches, and says what has changed.
    fn judge_clusters(&mut self, core: &mut Core) -> Follow {
        let before = core.engine.ejected_clusters().clone();
        let traffic = &core.engine.node().facts.traffic;
        self.reach.hurry(traffic);
        // Nobody asks pods of a cluster that is not used. So it is not used again before its controller is heard.
        let how = |cluster: &str| match (before.get(cluster), self.reach.silent(cluster)) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.copied().or(now),
        };
        let ejected: BTreeMap<_, _> = traffic
            .ejectable()
            .filter_map(|cluster| Some((cluster.clone(), how(cluster)?)))
            .collect();
        for (cluster, how) in ejected.iter().filter(|(id, how)| before.get(*id) != Some(how)) {
            let family = how.family();
            tracing::warn!(
                "cluster {cluster} is silent, and none of its pods answers this node{family}: new clients and UDP clients get \
                 other clusters"
            );
        }
        for cluster in before.keys().filter(|id| !ejected.contains_key(*id)) {
            tracing::info!("new clients get cluster {cluster} again");
        }
        if core.engine.set_ejected_clusters(ejected) { Follow::Round } else { Follow::Nothing }
    }
}

impl Feature for PeerReach {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async { self.event = Some(self.reach.next().await) })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        let follow = match self.event.take() {
            Some(ReachEvent::Due) => {
                let facts = &core.engine.node().facts;
                self.reach.begin(
                    core.engine.desired(),
                    facts.cluster_id.as_deref(),
                    &facts.traffic,
                );
                Follow::Nothing
            }
            Some(ReachEvent::Ended) => self.judge_clusters(core).max(Follow::Report),
            None => Follow::Nothing,
        };
        Box::pin(ready(follow))
    }

    fn after_objects(&mut self, core: &mut Core) {
        // A round follows.
        self.judge_clusters(core);
    }

    fn each_second(&mut self, core: &mut Core) -> Follow {
        self.judge_clusters(core)
    }

    fn report(&self, _: &Core, sections: &mut Sections) {
        sections.set(SECTION, &self.reach.report());
    }
}

/// The way to the pods of a source cluster in one IP family.
fn report((cluster, family): &WayId, way: &Way<FrontendId>) -> ReachReport {
    let (reached, silent) = way.counts();
    let is_broken = way.is_whole() == Some(false);
    let silent_endpoints = way.lost().0.iter().filter(|_| is_broken);
    ReachReport {
        cluster: cluster.to_string(),
        family: family.name().to_owned(),
        reachable: way.is_whole(),
        reached,
        silent,
        round_trip_micros: way
            .round_trip()
            .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        silent_endpoints: silent_endpoints.map(|(address, _)| *address).collect(),
    }
}

/// Logs that the way has turned.
fn log(id: &WayId, way: &Way<FrontendId>) {
    let report = report(id, way);
    if let Some(problem) = report.problem() {
        tracing::warn!("{problem}");
    } else {
        tracing::info!("this node reaches pods of cluster {} by {}", id.0, id.1.name());
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::reach::Outcome;

    use super::*;
    use crate::core::model::{Backend, Frontend, ObjectKey};

    /// Frontends of TCP, each with these backends of west; each has one of the own cluster too.
    fn desired(frontends: &[&[&str]]) -> DesiredState {
        let mut desired = DesiredState::default();
        for (backends, number) in frontends.iter().zip(1u8..) {
            let ip = if backends.iter().any(|one| one.starts_with('[')) {
                "fdee::1".parse().unwrap()
            } else {
                IpAddr::from([241, 0, 0, number])
            };
            let backend =
                |text: &&str| Backend { address: text.parse().unwrap(), cluster: "west".into() };
            let mut backends: Vec<_> = backends.iter().map(backend).collect();
            backends
                .push(Backend { address: "10.1.0.1:80".parse().unwrap(), cluster: "east".into() });
            let frontend = Frontend::plain(ObjectKey::new("shop", "web"), backends);
            let id = |protocol| FrontendId { ip, port: 80, protocol };
            desired.frontends.insert(id(Protocol::Udp), frontend.clone());
            desired.frontends.insert(id(Protocol::Tcp), frontend);
        }
        desired
    }

    /// What is connected to in each of the next minutes, if every pod ends so.
    fn rounds(reach: &mut Reach, desired: &DesiredState, outcomes: &[Outcome]) -> Vec<usize> {
        let mut now = Instant::now();
        let mut counts = Vec::new();
        for &outcome in outcomes {
            let chosen = reach.choose(desired, Some("east"), now, |_| Turn::Usual);
            counts.push(chosen.len());
            let attempt = |(target, address)| {
                (target, Attempt { address, outcome, took: Duration::from_millis(1) })
            };
            reach.note(chosen.into_iter().map(attempt).collect(), now);
            now += PERIOD;
        }
        counts
    }

    #[tokio::test]
    async fn a_pod_that_was_reached_rests_for_ten_minutes() {
        let mut reach = Reach::new(ProbePeers::On);
        let one = desired(&[&["10.2.0.1:80"], &["10.2.0.1:80"]]);
        let answered = [Outcome::Answered; 12];
        assert_eq!(rounds(&mut reach, &one, &answered), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(reach.report().unwrap()[0].reachable, Some(true));
        let mut reach = Reach::new(ProbePeers::On);
        let many: Vec<_> = (1..=50).map(|number| format!("10.2.0.{number}:80")).collect();
        let many = desired(&[&many.iter().map(String::as_str).collect::<Vec<_>>()]);
        assert_eq!(rounds(&mut reach, &many, &answered), [ENDPOINTS; 12]);
        assert_eq!(rounds(&mut reach, &desired(&[]), &answered), [0; 12]);
        assert_eq!(reach.report().unwrap(), [], "the cluster is gone");
    }

    #[tokio::test]
    async fn a_silent_pod_is_asked_each_minute_until_it_answers_twice() {
        let mut reach = Reach::new(ProbePeers::On);
        let one = desired(&[&["10.2.0.1:80"], &["[fd02::1]:80"]]);
        let silent = [Outcome::Timeout; 3];
        assert_eq!(rounds(&mut reach, &one, &silent), [2; 3]);
        let report = reach.report().unwrap();
        let families: Vec<_> = report.iter().map(|way| (&*way.family, way.reachable)).collect();
        assert_eq!(families, [("IPv4", Some(false)), ("IPv6", Some(false))]);
        assert_eq!(report[1].silent_endpoints, ["[fd02::1]:80".parse().unwrap()]);
        assert_eq!(rounds(&mut reach, &one, &[Outcome::Refused; 4]), [2, 2, 0, 0]);
        assert!(reach.report().unwrap().iter().all(|way| way.problem().is_none()));
    }

    #[tokio::test]
    async fn a_pod_behind_a_policy_fails_no_check_and_rests() {
        let mut reach = Reach::new(ProbePeers::On);
        let two = desired(&[&["10.2.0.1:80"], &["10.2.0.2:80"]]);
        let mut now = Instant::now();
        let mut asked = 0;
        for _ in 0..20 {
            let chosen = reach.choose(&two, Some("east"), now, |_| Turn::Usual);
            asked += chosen.len();
            let attempt = |(target, address): (_, SocketAddr)| {
                let is_open = address.ip().to_string() == "10.2.0.1";
                let outcome = if is_open { Outcome::Answered } else { Outcome::Timeout };
                (target, Attempt { address, outcome, took: Duration::from_millis(1) })
            };
            reach.note(chosen.into_iter().map(attempt).collect(), now);
            now += PERIOD;
        }
        assert!(asked <= 6, "{asked} connections in 20 minutes");
        let report = reach.report().unwrap();
        assert_eq!((report[0].reachable, report[0].problem()), (Some(true), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_may_be_ejected_is_asked_more_often() {
        let mut reach = Reach::new(ProbePeers::On);
        let one = desired(&[&["10.2.0.1:80"], &["[fd02::1]:80"]]);
        let calm = Traffic::default();
        let urgent = Traffic::parse(r#"{"west":{"unreachable":"eject"}}"#).unwrap();
        rounds(&mut reach, &one, &[Outcome::Answered]);
        assert_eq!((reach.silent("west"), reach.silent("north")), (None, None));
        let (mut calm_pauses, mut pauses) = (vec![], vec![]);
        for traffic in [&calm, &urgent, &urgent, &urgent, &urgent, &urgent, &calm] {
            assert_eq!(reach.next().await, ReachEvent::Due);
            let began = Instant::now();
            reach.begin(&one, Some("east"), traffic);
            reach.round = None;
            let pause = |reach: &Reach| (reach.next_at.unwrap() - began).as_secs_f64().round();
            reach.hurry(&calm);
            calm_pauses.push(pause(&reach));
            reach.hurry(&urgent);
            pauses.push(pause(&reach));
        }
        assert_eq!(calm_pauses, [60.0, 15.0, 15.0, 15.0, 15.0, 15.0, 30.0]);
        assert_eq!(pauses, [15.0; 7]);
        let now = Instant::now();
        assert!(reach.choose(&one, Some("east"), now, |_| Turn::Usual).is_empty(), "they rest");
        for family in [0, 1] {
            for _ in 0..3 {
                let chosen = reach.choose(&one, Some("east"), now, |_| Turn::Urgent);
                let attempt = |(target, address): (_, SocketAddr)| {
                    let is_lost = family == 1 || address.is_ipv4();
                    let outcome = if is_lost { Outcome::Timeout } else { Outcome::Answered };
                    (target, Attempt { address, outcome, took: Duration::from_millis(1) })
                };
                reach.note(chosen.into_iter().map(attempt).collect(), now);
            }
            let expected = [Unreachable::EjectedV4, Unreachable::Ejected][family];
            assert_eq!(reach.silent("west"), Some(expected));
        }
    }

    #[tokio::test]
    async fn who_opts_out_connects_to_nobody() {
        let mut reach = Reach::new(ProbePeers::Off);
        let next = tokio::time::timeout(Duration::from_millis(10), reach.next());
        assert!(next.await.is_err());
        assert_eq!(reach.report(), None);
    }
}
