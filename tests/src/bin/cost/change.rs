//! The cost of a change in the agent, from the event to the maps. It does not depend on the number of services.

use mcs_agent::core::model::{Object, ObjectEvent, ObjectKey};
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

/// What one change may take, on average, with any number of services.
const MOST: Change = Change { allocations: 150, bytes: 40_000, steps: 5 };

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
    println!("\n{:<42} {:>16}  {:>18}  {:>8}", "ONE ENDPOINT OF", "ALLOCATIONS", "BYTES", "STEPS");
    for services in SIZES {
        let Change { allocations, bytes, steps } = change(services)?;
        let all = [(allocations, MOST.allocations), (bytes, MOST.bytes), (steps, MOST.steps)];
        within &= all.iter().all(|(value, most)| value <= most);
        let [allocations, bytes, steps] = all.map(|(value, most)| format!("{value} / {most}"));
        let of = format!("{services} services, {} endpoints", services * ENDPOINTS);
        println!("{of:<42} {allocations:>16}  {bytes:>18}  {steps:>8}");
    }
    println!(
        "\nFrom the event to the maps, on average of {CHANGES} changes; beside each what is allowed."
    );
    if !within {
        println!("Over the budget (tests/src/bin/cost/change.rs).");
    }
    Ok(within)
}

fn change(services: u32) -> Result<Change> {
    let endpoints = services * ENDPOINTS;
    let capacity =
        Capacity { vips: services, frontends: services, endpoints, clusters: 4, imports: services };
    let mut agent = Agent::new(capacity)?;
    let (imports, slices) = (1..=services).map(|nth| (import(nth), slice(nth, 0))).unzip();
    agent.take(objects::lists(imports, slices))?;
    for number in 0..BEFORE {
        // 7919 is prime: all in turn, and none beside the one before.
        let nth = number * 7919 % services + 1;
        agent.take(vec![ObjectEvent::Apply(slice(nth, 2 + number / services))])?;
    }
    let mut sum = Change::default();
    for number in 1..=CHANGES {
        let nth = number * (services / CHANGES).max(1);
        let event = ObjectEvent::Apply(slice(nth, 1));
        let before = allocator::calls();
        sum.steps += agent.take(vec![event])?;
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

fn import(nth: u32) -> Object {
    objects::import(ObjectKey::new("shop", name(nth)), vip(nth))
}

/// The slice of a service, with another first address in each generation.
fn slice(nth: u32, generation: u32) -> Object {
    let base = FIRST_ENDPOINT + nth * SPACE;
    let first = base + if generation == 0 { 0 } else { ENDPOINTS + generation };
    let addresses = [first].into_iter().chain(base + 1..base + ENDPOINTS);
    let name = name(nth);
    objects::slice(ObjectKey::new("shop", format!("{name}-a")), &name, "east", addresses)
}
