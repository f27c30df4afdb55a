//! The memory that the agent's engine takes at most while the first list reaches the maps.

use mcs_tests::objects;

use super::{agent::Agent, allocator};
use crate::prelude::*;

const SERVICES: u32 = 1000;
/// Of each service.
const ENDPOINTS: u32 = 1000;

/// Bytes for each endpoint, with those of the maps, which are in memory here.
const MOST: u64 = 240;

/// Whether it is within its budget.
pub(crate) fn check() -> Result<bool> {
    let bytes = bytes_per_endpoint()?;
    println!(
        "\nFIRST LIST of {} endpoints: at most {bytes} / {MOST} bytes for each at a time",
        SERVICES * ENDPOINTS
    );
    if bytes > MOST {
        println!("Over the budget (tests/src/bin/cost/first_list.rs).");
    }
    Ok(bytes <= MOST)
}

fn bytes_per_endpoint() -> Result<u64> {
    let endpoints = SERVICES * ENDPOINTS;
    let mut agent = Agent::new(Capacity {
        vips: SERVICES,
        frontends: SERVICES,
        endpoints,
        clusters: 10,
        imports: SERVICES,
    })?;
    let before = allocator::begin_peak();
    agent.take(objects::many(SERVICES, ENDPOINTS))?;
    Ok((allocator::calls().peak - before).div_ceil(u64::from(endpoints)))
}
