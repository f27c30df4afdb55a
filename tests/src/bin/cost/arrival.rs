//! How much longer imports take that arrive one by one than the same imports at once.

use mcs_agent::core::model::ObjectEvent;
use mcs_tests::objects;

use super::change::{agent_with_room, import, slice};
use crate::prelude::*;

const IMPORTS: u32 = 10_000;
/// How many times as long they may take. This suite is built without optimisation and takes 3.1 times; with it, it takes 1.8.
const MOST: f64 = 4.0;
/// The shortest of so many times counts.
const ROUNDS: u32 = 3;

/// Whether it is within its budget.
pub(crate) fn check() -> Result<bool> {
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (shortest, each) in shortest.iter_mut().zip([IMPORTS, 1]) {
            *shortest = (*shortest).min(arrival(each)?);
        }
    }
    let [at_once, one_by_one] = shortest.map(|time| time.as_secs_f64());
    let ratio = one_by_one / at_once;
    println!(
        "\nARRIVAL of {IMPORTS} imports, each with its slice: one by one takes {ratio:.1} / {MOST} times as long as at once"
    );
    if ratio > MOST {
        println!("Over the budget (tests/src/bin/cost/arrival.rs).");
    }
    Ok(ratio <= MOST)
}

/// How long an agent that has read no import takes for all, `each` in a round.
fn arrival(each: u32) -> Result<Duration> {
    let mut agent = agent_with_room(IMPORTS)?;
    agent.take(objects::lists(Vec::new(), Vec::new()))?;
    let mut batches = Vec::new();
    for first in (1..=IMPORTS).step_by(each as usize) {
        let of_batch = (first..first + each).flat_map(|nth| [import(nth), slice(nth, 0)]);
        batches.push(of_batch.map(ObjectEvent::Apply).collect::<Vec<_>>());
    }
    let begun = Instant::now();
    for batch in batches {
        agent.take(batch)?;
    }
    Ok(begun.elapsed())
}
