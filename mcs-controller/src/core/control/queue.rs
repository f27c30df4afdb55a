//! The queue of services to write. Services that one peer has changed wait in a lane of their own: a peer that changes
//! thousands delays the others by one service.
//!
//! Each lane has a bucket of tokens, so that churn in one cluster does not load the API servers of the others. A token is a
//! write of up to 32 KiB. A cluster pays for its slices, and for the imports of services of its lane. This cluster's tenants have
//! a lane too, for what waits for their tokens.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use crate::core::{
    apply::TokenBucket,
    clock,
    clusterset::{ClusterId, ServiceName},
};

/// The delays after failures: half a second at first, twice as long each time, a minute at most.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_mins(1);
/// The services that are written at a time. The first service of a lane may exceed this, up to twice as many.
pub(super) const AT_A_TIME: usize = 16;
/// The share of one peer, so that a slow API server leaves room for the others.
const OF_A_PEER: usize = 8;

/// A plan that takes longer than this counts as costly: a service with thousands of slices.
const COSTLY: Duration = Duration::from_millis(1);
/// After a costly plan the services of that peer rest this many times as long, so that they take a tenth of the thread.
const REST: u32 = 9;
/// They rest no longer than this: a machine that stood still is not the peer's fault.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// The most tokens that a cluster saves up.
const BURST: u32 = 500;
/// This cluster's tenants have this many times the tokens of a peer.
const OWN: u32 = 5;

/// The cluster in whose lane a service waits. `None`: a lane without limits, for what this cluster or several clusters have
/// changed.
pub(super) type Cause = Option<ClusterId>;

/// A queue of services. A service is at most once in each lane, and not handed out while it is busy.
#[derive(Debug)]
pub(crate) struct Queue {
    /// This cluster.
    own: ClusterId,
    /// The tokens of a peer in a second.
    rate: u32,
    lanes: HashMap<Cause, Lane>,
    /// The lanes in which services wait, the next one first.
    turns: VecDeque<Cause>,
    /// The services whose writes are under way, with the lanes that they were in.
    busy: HashMap<ServiceName, Cause>,
    /// The service that was handed out last, and its lane.
    last: Option<(ServiceName, Cause)>,
    /// Failures in a row.
    failed: HashMap<ServiceName, u32>,
    /// When to retry after a failure.
    retries: Timetable,
    /// Services that wait for a time without a failure.
    deferred: Timetable,
}

#[derive(Debug)]
struct Lane {
    waiting: VecDeque<ServiceName>,
    queued: HashSet<ServiceName>,
    busy: usize,
    bucket: TokenBucket,
    /// Until when its services rest.
    rests: Instant,
}

impl Lane {
    /// How long until a service may be handed out.
    fn wait(&self, now: Instant) -> Duration {
        self.bucket.wait(now).max(self.rests.saturating_duration_since(now))
    }

    fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting.is_empty()
    }
}

/// Services with time and lane, ordered by time: there can be thousands, and each event asks for the first.
#[derive(Debug, Default)]
struct Timetable {
    times: HashMap<ServiceName, (Instant, Cause)>,
    ordered: BTreeSet<(Instant, ServiceName)>,
}

impl Timetable {
    fn set(&mut self, name: ServiceName, at: Instant, cause: Cause) {
        self.remove(&name);
        self.times.insert(name.clone(), (at, cause));
        self.ordered.insert((at, name));
    }

    fn remove(&mut self, name: &ServiceName) {
        if let Some((name, (at, _))) = self.times.remove_entry(name) {
            self.ordered.remove(&(at, name));
        }
    }

    fn first(&self) -> Option<Instant> {
        self.ordered.first().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Instant) -> Option<(ServiceName, Cause)> {
        self.first().filter(|at| *at <= now)?;
        let (_, name) = self.ordered.pop_first()?;
        let (_, cause) = self.times.remove(&name)?;
        Some((name, cause))
    }
}

impl Queue {
    /// A queue of this cluster, in which each peer has this many tokens a second.
    pub(crate) fn new(own: ClusterId, rate: u32) -> Self {
        Self {
            own,
            rate,
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            busy: HashMap::new(),
            last: None,
            failed: HashMap::new(),
            retries: Timetable::default(),
            deferred: Timetable::default(),
        }
    }

    /// Adds a service that this cluster has changed, unless it waits already.
    pub(crate) fn add(&mut self, name: ServiceName) {
        self.add_of(None, name);
    }

    /// Adds a service that a peer has changed, unless it waits already for that reason.
    pub(super) fn add_of(&mut self, cause: Cause, name: ServiceName) {
        let lane = self.lane(&cause);
        if lane.queued.insert(name.clone()) {
            lane.waiting.push_back(name);
            if lane.waiting.len() == 1 {
                self.turns.push_back(cause);
            }
        }
    }

    fn lane(&mut self, cause: &Cause) -> &mut Lane {
        let now = clock::now();
        let share = if cause.as_ref() == Some(&self.own) { OWN } else { 1 };
        self.lanes.entry(cause.clone()).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            queued: HashSet::new(),
            busy: 0,
            bucket: TokenBucket::full(BURST * share, self.rate.saturating_mul(share), now),
            rests: now,
        })
    }

    /// The next service that is not busy. The lanes take turns.
    pub(crate) fn next(&mut self) -> Option<ServiceName> {
        for _ in 0..self.turns.len() {
            let cause = self.turns.pop_front()?;
            let name = self.take_from(&cause);
            if self.lanes.get(&cause).is_some_and(|lane| !lane.waiting.is_empty()) {
                self.turns.push_back(cause.clone());
            }
            if let Some(name) = name {
                self.last = Some((name.clone(), cause));
                return Some(name);
            }
        }
        None
    }

    fn take_from(&mut self, cause: &Cause) -> Option<ServiceName> {
        let lane = self.lanes.get_mut(cause)?;
        if !lane.wait(clock::now()).is_zero() {
            return None;
        }
        let most = match (cause, lane.busy) {
            (_, 0) => 2 * AT_A_TIME,
            (Some(_), OF_A_PEER..) => 0,
            _ => AT_A_TIME,
        };
        if self.busy.len() >= most {
            return None;
        }
        let place = lane.waiting.iter().position(|name| !self.busy.contains_key(name))?;
        let name = lane.waiting.remove(place)?;
        lane.queued.remove(&name);
        Some(name)
    }

    /// Notes how long it took to plan a service, which was just handed out.
    pub(super) fn note_cost(&mut self, name: &ServiceName, took: Duration, now: Instant) {
        let cause = self.cause(name);
        if took > COSTLY && cause.is_some() {
            self.lane(&cause).rests = now + took.saturating_mul(REST).min(LONGEST_REST);
        }
    }

    /// The lane of a service that was just handed out.
    fn cause(&self, name: &ServiceName) -> Cause {
        self.last.as_ref().filter(|(last, _)| last == name).and_then(|(_, cause)| cause.clone())
    }

    /// Who pays for the import of a service that was just handed out.
    pub(super) fn payer(&self, name: &ServiceName) -> ClusterId {
        self.cause(name).unwrap_or_else(|| self.own.clone())
    }

    /// Whether a cluster has no token.
    pub(super) fn has_spent(&self, cluster: &ClusterId, now: Instant) -> bool {
        let lane = self.lanes.get(&Some(cluster.clone()));
        lane.is_some_and(|lane| !lane.bucket.wait(now).is_zero())
    }

    /// Takes tokens of a cluster, even if it has fewer.
    pub(super) fn spend(&mut self, cluster: ClusterId, tokens: f64, now: Instant) {
        self.lane(&Some(cluster)).bucket.spend(tokens, now);
    }

    /// How many services wait because a cluster has no tokens, or few.
    pub(super) fn waiting_for_tokens(&self, cluster: &ClusterId, now: Instant) -> usize {
        let lane = self.lanes.get(&Some(cluster.clone()));
        lane.filter(|lane| lane.bucket.is_low(now)).map_or(0, |lane| lane.waiting.len())
    }

    /// Whether a service waits in any lane.
    pub(super) fn has(&self, name: &ServiceName) -> bool {
        self.lanes.values().any(|lane| lane.queued.contains(name))
    }

    /// Marks a service whose writes have begun.
    pub(super) fn begin(&mut self, name: ServiceName) {
        // The end of the writes decides about a retry.
        self.retries.remove(&name);
        let cause = self.cause(&name);
        self.lane(&cause).busy += 1;
        self.busy.insert(name, cause);
    }

    /// Its writes have ended, or there are none. After a failure the service returns later.
    pub(crate) fn end(&mut self, name: &ServiceName, failed: bool, now: Instant) {
        let cause = self.busy.remove(name);
        if let Some(lane) = cause.as_ref().and_then(|cause| self.lanes.get_mut(cause)) {
            lane.busy -= 1;
        }
        if failed {
            let failures = self.failed.get(name).copied().unwrap_or_default();
            let delay = FIRST_DELAY.saturating_mul(1 << failures.min(10)).min(LONGEST_DELAY);
            self.failed.insert(name.clone(), failures + 1);
            self.retries.set(name.clone(), now + delay, cause.flatten());
        } else {
            self.failed.remove(name);
            self.retries.remove(name);
        }
    }

    /// Defers the service, which was just handed out.
    pub(super) fn defer(&mut self, name: ServiceName, until: Instant) {
        let cause = self.cause(&name);
        self.deferred.set(name, until, cause);
    }

    /// When the next service comes that is deferred, or whose lane waits for tokens or rests.
    pub(super) fn next_deferred(&self, now: Instant) -> Option<Instant> {
        let lanes = self.lanes.values().filter(|lane| !lane.waiting.is_empty());
        let waits = lanes.map(|lane| lane.wait(now)).filter(|wait| !wait.is_zero());
        self.deferred.first().into_iter().chain(waits.min().map(|wait| now + wait)).min()
    }

    /// Adds the services whose delay is over, and forgets lanes that nobody uses.
    pub(super) fn retry(&mut self, now: Instant) {
        self.lanes.retain(|_, lane| {
            !lane.is_idle() || !lane.bucket.is_full(now) || !lane.wait(now).is_zero()
        });
        while let Some((name, cause)) =
            self.retries.take_due(now).or_else(|| self.deferred.take_due(now))
        {
            self.add_of(cause, name);
        }
    }

    /// The number of services that wait.
    pub(crate) fn waiting(&self) -> i64 {
        let waiting: usize = self.lanes.values().map(|lane| lane.waiting.len()).sum();
        i64::try_from(waiting + self.deferred.times.len()).unwrap_or(i64::MAX)
    }

    /// Whether every service was handed out since it was added.
    pub(super) fn is_drained(&self) -> bool {
        self.lanes.values().all(|lane| lane.waiting.is_empty())
    }

    /// Whether every service of a lane was handed out, and its writes have ended. Those that wait for a time do not count.
    pub(super) fn is_idle(&self, cause: &Cause) -> bool {
        self.lanes.get(cause).is_none_or(Lane::is_idle)
    }

    /// The services whose writes are under way.
    pub(super) fn busy(&self) -> impl Iterator<Item = &ServiceName> {
        self.busy.keys()
    }

    /// Every service that waits for any reason, or whose writes are under way.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ServiceName> {
        let waiting = self.lanes.values().flat_map(|lane| &lane.waiting).chain(self.busy.keys());
        waiting.chain(self.failed.keys()).chain(self.deferred.times.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{cluster, name};

    fn service(of: &str, number: usize) -> ServiceName {
        name(&format!("shop/{of}-{number}"))
    }

    const RATE: u32 = 100;

    /// A queue in which `services` services wait, all changed by one peer.
    fn flooded(services: usize) -> Queue {
        let mut queue = Queue::new(cluster("own"), RATE);
        for number in 0..services {
            queue.add_of(Some(cluster("hostile")), service("hostile", number));
        }
        queue
    }

    #[test]
    fn a_peer_that_changes_thousands_delays_others_by_one() {
        let mut queue = flooded(30_000);
        queue.add_of(Some(cluster("quiet")), service("quiet", 0));
        queue.add(service("own", 0));
        // It may have changed the same service.
        queue.add_of(Some(cluster("quiet")), service("hostile", 20_000));
        let first: Vec<_> = (0..6).filter_map(|_| queue.next()).collect();
        let expected = [
            service("hostile", 0),
            service("quiet", 0),
            service("own", 0),
            service("hostile", 1),
            service("hostile", 20_000),
            service("hostile", 2),
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn writes_of_a_peer_leave_room_for_others() {
        let mut queue = flooded(100);
        let begin_all = |queue: &mut Queue| {
            let mut begun = vec![];
            while let Some(name) = queue.next() {
                queue.begin(name.clone());
                begun.push(name);
            }
            begun
        };
        assert_eq!(begin_all(&mut queue).len(), OF_A_PEER);
        (0..100).for_each(|number| queue.add(service("own", number)));
        assert_eq!(begin_all(&mut queue).len(), AT_A_TIME - OF_A_PEER);
        queue.add_of(Some(cluster("quiet")), service("quiet", 0));
        assert_eq!(begin_all(&mut queue), [service("quiet", 0)], "the first one of its lane");
        queue.end(&service("hostile", 3), false, Instant::now());
        assert_eq!(begin_all(&mut queue), [], "there are as many as before");
        queue.end(&service("quiet", 0), false, Instant::now());
        assert_eq!(begin_all(&mut queue).len(), 1);
        for number in 0..100 {
            queue.add_of(Some(cluster(&format!("p{number}"))), service("other", number));
        }
        assert_eq!(begin_all(&mut queue).len(), AT_A_TIME, "of 100 peers");
    }

    #[test]
    fn what_waits_for_a_time_comes_in_the_order_of_times() {
        let (mut queue, now) = (flooded(30_000), Instant::now());
        let at = |number: usize| now + Duration::from_millis((number * 7919 % 30_000) as u64);
        for number in 0..30_000 {
            let name = queue.next().unwrap();
            queue.defer(name.clone(), now);
            queue.defer(name, at(number));
            assert!(queue.next_deferred(now) <= Some(at(number)));
        }
        assert_eq!((queue.waiting(), queue.next()), (30_000, None));
        assert_eq!(queue.next_deferred(now), Some(now));
        queue.retry(now + Duration::from_millis(2));
        let due: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let expected = [0, 1, 2].map(|time| {
            service("hostile", (0..30_000).find(|number| number * 7919 % 30_000 == time).unwrap())
        });
        assert_eq!(due, expected);
        assert_eq!(queue.next_deferred(now), Some(now + Duration::from_millis(3)));
    }

    #[test]
    fn a_service_that_fails_comes_again_when_its_delay_is_over() {
        let (mut queue, start) = (flooded(1), Instant::now());
        let name = service("hostile", 0);
        let mut now = start;
        for delay in [500, 1000, 2000] {
            assert_eq!(queue.next(), Some(name.clone()));
            queue.begin(name.clone());
            queue.end(&name, true, now);
            queue.retry(now + Duration::from_millis(delay - 1));
            assert_eq!(queue.next(), None);
            now += Duration::from_millis(delay);
            queue.retry(now);
        }
        assert_eq!(queue.next(), Some(name.clone()));
        queue.begin(name.clone());
        queue.retry(now + LONGEST_DELAY);
        queue.end(&name, false, now);
        queue.retry(now + LONGEST_DELAY);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.names().count(), 0);
    }

    #[test]
    fn a_peer_whose_services_are_costly_rests_and_others_do_not() {
        let mut queue = flooded(3);
        queue.add_of(Some(cluster("quiet")), service("quiet", 0));
        queue.add_of(Some(cluster("quiet")), service("quiet", 1));
        let now = Instant::now();
        let name = queue.next().unwrap();
        queue.note_cost(&name, Duration::from_secs(10), now);
        assert_eq!(name, service("hostile", 0));
        for number in [0, 1] {
            let name = queue.next().unwrap();
            assert_eq!(name, service("quiet", number));
            queue.note_cost(&name, Duration::from_micros(20), now);
        }
        assert_eq!(queue.next(), None);
        let rested = now + LONGEST_REST;
        assert_eq!(queue.next_deferred(now), Some(rested), "the machine may have stood still");
        std::thread::sleep(LONGEST_REST);
        assert_eq!(queue.next_deferred(Instant::now()), None);
        assert_eq!(queue.next(), Some(service("hostile", 1)));
        queue.note_cost(&service("hostile", 1), Duration::from_millis(20), Instant::now());
        assert_eq!(queue.next(), None);
        queue.add(service("hostile", 2));
        assert_eq!(queue.next(), Some(service("hostile", 2)), "this cluster has changed it too");
    }

    #[test]
    fn a_lane_without_tokens_waits_for_itself_alone() {
        let (mut queue, now) = (flooded(2), Instant::now());
        let hostile = cluster("hostile");
        queue.spend(hostile.clone(), f64::from(BURST), now);
        assert!(queue.has_spent(&hostile, now) && !queue.has_spent(&cluster("quiet"), now));
        assert_eq!(queue.waiting_for_tokens(&hostile, now), 2);
        queue.add_of(Some(cluster("quiet")), service("quiet", 0));
        queue.add(service("hostile", 1));
        assert_eq!(queue.next(), Some(service("quiet", 0)));
        assert_eq!(queue.next(), Some(service("hostile", 1)), "others have changed it too");
        assert_eq!(queue.next(), None);
        assert_eq!(queue.next_deferred(now), Some(now + Duration::from_millis(10)));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(queue.next(), Some(service("hostile", 0)));
        assert_eq!(queue.payer(&service("hostile", 0)), hostile);
        assert_eq!(queue.next(), Some(service("hostile", 1)));
    }

    #[test]
    fn tenants_of_this_cluster_have_five_times_the_tokens_of_a_peer() {
        let mut queue = flooded(0);
        let clusters =
            [("hostile", 500.0), ("own", 2500.0)].map(|(id, burst)| (cluster(id), burst));
        for (cluster, _) in &clusters {
            queue.spend(cluster.clone(), 0.0, Instant::now());
        }
        let now = Instant::now();
        for (cluster, burst) in &clusters {
            queue.spend(cluster.clone(), burst - 1.0, now);
            assert!(!queue.has_spent(cluster, now), "{cluster}");
            queue.spend(cluster.clone(), 1.0, now);
            assert!(queue.has_spent(cluster, now), "{cluster}");
        }
        let later = |milliseconds| now + Duration::from_millis(milliseconds);
        let spent = |at| clusters.each_ref().map(|(cluster, _)| queue.has_spent(cluster, at));
        assert_eq!([1, 3, 11].map(|at| spent(later(at))), [[true; 2], [true, false], [false; 2]]);
        queue.retry(later(4000));
        assert_eq!(queue.lanes.len(), 2, "their buckets are not full");
        queue.retry(later(6000));
        assert!(queue.lanes.is_empty());
    }
}
