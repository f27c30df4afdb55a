//! The cost of a change in the agent, from the event to the maps. It does not depend on the number of services.

use mcs_agent::core::model::{Object, ObjectEvent, ObjectKey, ServiceImport};
use mcs_tests::objects::{self, FIRST_ENDPOINT, vip};

use super::{agent::Agent, allocator};
use crate::prelude::*;

/// Endpoints of each service.
const ENDPOINTS: u32 = 10;
/// Addresses from the first of a service to the first of the next.
const SPACE: u32 = 1000;
/// Changes before the counted ones, all over the maps: what they leave behind costs nothing.
const BEFORE: u32 = 20_000;
/// Of how many services one changes.
const SIZES: [u32; 2] = [100, 10_000];
/// Changes that are counted. Pages of what the maps hold are shared and copied, which not every change
/// meets.
const CHANGES: u32 = 64;

/// What changes.
#[derive(Clone, Copy)]
enum Sort {
    /// An endpoint of a service.
    Endpoint,
    /// The affinity of an import.
    Import,
    /// An import comes with its slice.
    Comes,
    /// It goes.
    Goes,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Endpoint, Self::Import, Self::Comes, Self::Goes];

    const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "one endpoint",
            Self::Import => "one import",
            Self::Comes => "one import more",
            Self::Goes => "one import less",
        }
    }

    /// What one may take, on average, with any number of services.
    const fn most(self) -> Change {
        match self {
            Self::Endpoint | Self::Import => Change { allocations: 150, bytes: 40_000, steps: 5 },
            Self::Comes | Self::Goes => Change { allocations: 200, bytes: 90_000, steps: 16 },
        }
    }

    fn events(self, nth: u32, more: u32) -> Vec<ObjectEvent> {
        let both = || [import(more), slice(more, 0)].into_iter();
        match self {
            Self::Endpoint => vec![ObjectEvent::Apply(slice(nth, 1))],
            Self::Import => vec![ObjectEvent::Apply(sticky(nth))],
            Self::Comes => both().map(ObjectEvent::Apply).collect(),
            Self::Goes => both().map(|one| ObjectEvent::Delete(one.reference())).collect(),
        }
    }
}

/// What one change takes.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Calls of the allocator.
    allocations: u64,
    /// Bytes that these were about.
    bytes: u64,
    /// Writes to the maps. Those of a change of backends are stores, no system calls.
    steps: u64,
}

/// Whether a change is within its budget at each size.
pub(crate) fn check() -> Result<bool> {
    let mut within = true;
    println!("\n{:<48} {:>16}  {:>19}  {:>8}", "CHANGE", "ALLOCATIONS", "BYTES", "STEPS");
    for services in SIZES {
        for (sort, change) in changes(services)? {
            let Change { allocations, bytes, steps } = change;
            let most = sort.most();
            let all = [(allocations, most.allocations), (bytes, most.bytes), (steps, most.steps)];
            within &= all.iter().all(|(value, most)| value <= most);
            let [allocations, bytes, steps] = all.map(|(value, most)| format!("{value} / {most}"));
            let of =
                format!("{}; {services} services, {} endpoints", sort.name(), services * ENDPOINTS);
            println!("{of:<48} {allocations:>16}  {bytes:>19}  {steps:>8}");
        }
    }
    println!(
        "\nFrom the event to the maps, on average of {CHANGES} changes; beside each what is allowed."
    );
    if !within {
        println!("Over the budget (tests/src/bin/cost/change.rs).");
    }
    Ok(within)
}

fn changes(services: u32) -> Result<Vec<(Sort, Change)>> {
    let mut agent = agent_with_room(services + CHANGES)?;
    let (imports, slices) = (1..=services).map(|nth| (import(nth), slice(nth, 0))).unzip();
    agent.take(objects::lists(imports, slices))?;
    for number in 0..BEFORE {
        // 7919 is prime: all in turn, and none beside the one before.
        let nth = number * 7919 % services + 1;
        agent.take(vec![ObjectEvent::Apply(slice(nth, 2 + number / services))])?;
    }
    Sort::ALL.into_iter().map(|sort| Ok((sort, mean_of(sort, &mut agent, services)?))).collect()
}

/// An agent whose maps have room for so many services.
pub(crate) fn agent_with_room(services: u32) -> Result<Agent> {
    Agent::new(Capacity {
        vips: services,
        frontends: services,
        endpoints: services * ENDPOINTS,
        clusters: 4,
        imports: services,
    })
}

fn mean_of(sort: Sort, agent: &mut Agent, services: u32) -> Result<Change> {
    let mut sum = Change::default();
    for number in 1..=CHANGES {
        let events = sort.events(number * (services / CHANGES).max(1), services + number);
        let before = allocator::calls();
        sum.steps += agent.take(events)?;
        let after = allocator::calls();
        sum.allocations += after.count - before.count;
        sum.bytes += after.bytes - before.bytes;
    }
    let mean = |sum: u64| sum.div_ceil(u64::from(CHANGES));
    let Change { allocations, bytes, steps } = sum;
    Ok(Change { allocations: mean(allocations), bytes: mean(bytes), steps: mean(steps) })
}

fn name(nth: u32) -> String {
    format!("service-{nth:06}")
}

pub(crate) fn import(nth: u32) -> Object {
    objects::import(ObjectKey::new("shop", name(nth)), vip(nth))
}

/// An import whose clients stay with their backends.
fn sticky(nth: u32) -> Object {
    match import(nth) {
        Object::Import(import) => Object::Import(ServiceImport {
            session_affinity: Some("ClientIP".to_owned()),
            ..import
        }),
        slice @ Object::Slice(_) => slice,
    }
}

/// The slice of a service, with another first address in each generation.
pub(crate) fn slice(nth: u32, generation: u32) -> Object {
    let base = FIRST_ENDPOINT + nth * SPACE;
    let first = base + if generation == 0 { 0 } else { ENDPOINTS + generation };
    let addresses = [first].into_iter().chain(base + 1..base + ENDPOINTS);
    let name = name(nth);
    objects::slice(ObjectKey::new("shop", format!("{name}-a")), &name, "east", addresses)
}
