//! The queue of services to write. Services that one peer has changed wait in a lane of their own: a peer that changes
//! thousands delays the others by one service.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use crate::clusterset::{ClusterId, ServiceName};

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

/// The peer that has changed a service; `None`: this cluster, or several clusters.
pub(super) type Cause = Option<ClusterId>;

/// A queue of services. A service is at most once in each lane, and not handed out while it is busy.
#[derive(Debug, Default)]
pub(super) struct Queue {
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

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<ServiceName>,
    queued: HashSet<ServiceName>,
    busy: usize,
    /// Until when its services rest.
    rests: Option<Instant>,
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
    /// Adds a service that this cluster has changed, unless it waits already.
    pub(super) fn add(&mut self, name: ServiceName) {
        self.add_of(None, name);
    }

    /// Adds a service that a peer has changed, unless it waits already for that reason.
    pub(super) fn add_of(&mut self, cause: Cause, name: ServiceName) {
        let lane = self.lanes.entry(cause.clone()).or_default();
        if !lane.queued.insert(name.clone()) {
            return;
        }
        if lane.waiting.is_empty() {
            self.turns.push_back(cause);
        }
        lane.waiting.push_back(name);
    }

    /// The next service that is not busy. The lanes take turns.
    pub(super) fn next(&mut self) -> Option<ServiceName> {
        for _ in 0..self.turns.len() {
            let cause = self.turns.pop_front()?;
            let name = self.take_from(&cause);
            if self.lanes.get(&cause).is_some_and(|lane| !lane.waiting.is_empty()) {
                self.turns.push_back(cause.clone());
            }
            if let Some(name) = name {
                self.drop_if_empty(&cause);
                self.last = Some((name.clone(), cause));
                return Some(name);
            }
        }
        None
    }

    fn take_from(&mut self, cause: &Cause) -> Option<ServiceName> {
        let lane = self.lanes.get_mut(cause)?;
        if lane.rests.is_some_and(|until| Instant::now() < until) {
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

    fn drop_if_empty(&mut self, cause: &Cause) {
        let rests = |lane: &Lane| lane.rests.is_some_and(|until| Instant::now() < until);
        let is_empty = |lane: &Lane| lane.busy == 0 && lane.waiting.is_empty() && !rests(lane);
        if self.lanes.get(cause).is_some_and(is_empty) {
            self.lanes.remove(cause);
        }
    }

    /// Notes how long it took to plan a service, which was just handed out.
    pub(super) fn note_cost(&mut self, name: &ServiceName, took: Duration, now: Instant) {
        let cause = self.cause(name);
        if took > COSTLY && cause.is_some() {
            self.lanes.entry(cause).or_default().rests =
                Some(now + took.saturating_mul(REST).min(LONGEST_REST));
        }
    }

    /// The lane of a service that was just handed out.
    fn cause(&self, name: &ServiceName) -> Cause {
        self.last.as_ref().filter(|(last, _)| last == name).and_then(|(_, cause)| cause.clone())
    }

    /// Marks a service whose writes have begun.
    pub(super) fn begin(&mut self, name: ServiceName) {
        // The end of the writes decides about a retry.
        self.retries.remove(&name);
        let cause = self.cause(&name);
        self.lanes.entry(cause.clone()).or_default().busy += 1;
        self.busy.insert(name, cause);
    }

    /// Its writes have ended, or there are none. After a failure the service returns later.
    pub(super) fn end(&mut self, name: &ServiceName, failed: bool, now: Instant) {
        let cause = self.busy.remove(name);
        if let Some(cause) = &cause {
            if let Some(lane) = self.lanes.get_mut(cause) {
                lane.busy -= 1;
            }
            self.drop_if_empty(cause);
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

    /// When the next deferred or resting service comes.
    pub(super) fn next_deferred(&self) -> Option<Instant> {
        let resting = self.lanes.values().filter(|lane| !lane.waiting.is_empty());
        let rested = resting.filter_map(|lane| lane.rests).min();
        self.deferred.first().into_iter().chain(rested).min()
    }

    /// Adds the services whose delay is over, and ends rests.
    pub(super) fn retry(&mut self, now: Instant) {
        for lane in self.lanes.values_mut() {
            lane.rests = lane.rests.filter(|until| *until > now);
        }
        while let Some((name, cause)) =
            self.retries.take_due(now).or_else(|| self.deferred.take_due(now))
        {
            self.add_of(cause, name);
        }
    }

    /// The number of services that wait.
    pub(super) fn waiting(&self) -> i64 {
        let waiting: usize = self.lanes.values().map(|lane| lane.waiting.len()).sum();
        i64::try_from(waiting + self.deferred.times.len()).unwrap_or(i64::MAX)
    }

    /// Whether every service was handed out since it was added.
    pub(super) fn is_drained(&self) -> bool {
        self.lanes.values().all(|lane| lane.waiting.is_empty())
    }

    /// Whether every service of a lane was handed out, and its writes have ended. Those that wait for a time do not count.
    pub(super) fn is_idle(&self, cause: &Cause) -> bool {
        let lane = self.lanes.get(cause);
        lane.is_none_or(|lane| lane.busy == 0 && lane.waiting.is_empty())
    }

    /// Every service that waits for any reason, or whose writes are under way.
    pub(super) fn names(&self) -> impl Iterator<Item = &ServiceName> {
        let waiting = self.lanes.values().flat_map(|lane| &lane.waiting).chain(self.busy.keys());
        waiting.chain(self.failed.keys()).chain(self.deferred.times.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::{cluster, name};

    fn service(of: &str, number: usize) -> ServiceName {
        name(&format!("shop/{of}-{number}"))
    }

    /// A queue in which `services` services wait, all changed by one peer.
    fn flooded(services: usize) -> Queue {
        let mut queue = Queue::default();
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
            assert!(queue.next_deferred() <= Some(at(number)));
        }
        assert_eq!((queue.waiting(), queue.next()), (30_000, None));
        assert_eq!(queue.next_deferred(), Some(now));
        queue.retry(now + Duration::from_millis(2));
        let due: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let expected = [0, 1, 2].map(|time| {
            service("hostile", (0..30_000).find(|number| number * 7919 % 30_000 == time).unwrap())
        });
        assert_eq!(due, expected);
        assert_eq!(queue.next_deferred(), Some(now + Duration::from_millis(3)));
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
        assert_eq!(queue.next_deferred(), Some(rested), "the machine may have stood still");
        std::thread::sleep(LONGEST_REST);
        assert_eq!(queue.next_deferred(), Some(rested), "nobody has noticed yet");
        queue.retry(Instant::now());
        assert_eq!(queue.next_deferred(), None);
        assert_eq!(queue.next(), Some(service("hostile", 1)));
        queue.note_cost(&service("hostile", 1), Duration::from_millis(20), Instant::now());
        assert_eq!(queue.next(), None);
        queue.add(service("hostile", 2));
        assert_eq!(queue.next(), Some(service("hostile", 2)), "this cluster has changed it too");
    }
}
