//! Requests to the ClusterSetIP, many at a time.

use std::{
    fmt,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use mcs_tests::{manifests::Protocol, netns::Namespace};

use super::{
    client,
    example::{self, Family, Host, PROTOCOLS},
    tally::Tally,
    world::{Place, World},
};
use crate::interrupt::Interrupt;

/// Time between two requests of a client under [`during`].
const INTERVAL: Duration = Duration::from_millis(3);

/// Each failure may be a timeout.
const ENOUGH_FAILURES: usize = 3;

/// A kind of client, and what it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) place: Place,
    pub(super) protocol: Protocol,
    pub(super) family: Family,
}

impl Way {
    /// Every way by sockets that the agent sees.
    pub(super) fn with_hooks() -> impl Iterator<Item = Self> {
        Place::WITH_HOOKS.into_iter().flat_map(Self::from)
    }

    /// Those of clients at `place`.
    pub(super) fn from(place: Place) -> impl Iterator<Item = Self> {
        PROTOCOLS.into_iter().flat_map(move |protocol| {
            Family::ALL.map(|family| Self { place, protocol, family }).into_iter()
        })
    }

    /// The address of the frontend.
    pub(super) fn frontend(self) -> SocketAddr {
        SocketAddr::new(self.family.vip(), example::port(self.protocol))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8}{}  {}", self.place, self.protocol.name(), self.family)
    }
}

/// Asks `count` times, one after the other, or until several requests have failed.
pub(super) fn burst(world: &World, interrupt: &Interrupt, way: Way, count: usize) -> Result<Tally> {
    let _visit = world.visit(way.place)?;
    world.netns(way.place).run(|| {
        let mut tally = Tally::default();
        while tally.total() < count && tally.failed() < ENOUGH_FAILURES {
            interrupt.check()?;
            tally.add(client::ask(way.protocol, way.frontend()));
        }
        Ok(tally)
    })?
}

/// A request made in the background.
pub(super) struct Sample {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) answer: Result<Host>,
}

/// Keeps asking in every way of [`Way::with_hooks`] while `work` is at work. Returns what that returns, and every request.
pub(super) fn during<T>(
    world: &World,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Sample>)> {
    let _visit = world.cgroup.visit()?;
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = Way::with_hooks()
            .map(|way| (way, world.netns(way.place)))
            .map(|(way, netns)| scope.spawn(move || keep_asking(netns, way, done)))
            .collect();
        let result = work();
        done.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for client in clients {
            let asked = client.join().ok().context("a client panicked")?;
            samples.extend(asked?);
        }
        Ok((result?, samples))
    })
}

fn keep_asking(netns: &Namespace, way: Way, done: &AtomicBool) -> Result<Vec<Sample>> {
    netns.enter()?;
    let mut samples = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = client::ask(way.protocol, way.frontend());
        samples.push(Sample { began, ended: Instant::now(), answer });
        thread::sleep(INTERVAL);
    }
    Ok(samples)
}
