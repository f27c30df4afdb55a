//! What traffic to no VIP pays after a year: a million addresses were backends meanwhile, and the agent has rebuilt its address
//! filter.

use mcs_agent::core::kernel::dataplane::FilterWords;
use mcs_common::{Address, AddressKinds, BUCKETS_PER_WORD};

use crate::prelude::*;

/// Addresses that come and go.
const ADDRESSES: u32 = 1_000_000;
/// Backends at a time.
const PRESENT: u32 = 1_000;
/// The agent looks at the filter after this many.
const EVERY: u32 = 100;
/// Addresses that never were backends.
const OTHERS: u32 = 100_000;
/// Of a thousand of them, for how many the programs may take one for a backend.
const MOST: u32 = 20;

/// Whether the budgets of `budget::MISSES` hold on average over all addresses.
pub(crate) fn check(figures: &Figures) -> bool {
    let filter = age();
    let is_taken = |number: &u32| filter.get(&address(ADDRESSES + number)).may_be_backend();
    let taken = (0..OTHERS).filter(is_taken).count() as u64;
    let share = (taken * 1_000).div_ceil(OTHERS.into());
    let mut within = share <= u64::from(MOST);
    println!("\n{:<44} {:>12}", "AFTER A YEAR", "EXECUTED");
    for MissFigure { budget, executed, .. } in of(figures, AddressKinds::NONE) {
        let to_backend = of(figures, AddressKinds::BACKEND);
        let Some(more) = to_backend.into_iter().find(|one| one.budget.program == budget.program)
        else {
            continue;
        };
        let mean = executed + (more.executed - executed) * taken / u64::from(OTHERS);
        within &= mean <= budget.executed;
        let with = format!("{:<14} {}", budget.program, budget.input);
        let cost = format!("{mean} / {}", budget.executed);
        println!("{with:<44} {cost:>12}");
    }
    println!(
        "\nOn average over addresses, after {ADDRESSES} backends, {PRESENT} at a time. {share} / {MOST} of 1000 other addresses \
         count as backends."
    );
    if !within {
        println!("Over the budget (tests/src/bin/cost/age.rs).");
    }
    within
}

/// The runs for sockets with an address of these kinds.
fn of(figures: &Figures, kinds: AddressKinds) -> Vec<&MissFigure> {
    figures.misses.iter().filter(|one| one.budget.input.hint() == kinds).collect()
}

/// The filter of an agent after all of the addresses. A rebuild leaves what is present.
fn age() -> FilterWords {
    let words = Capacity::default().hint_buckets() / BUCKETS_PER_WORD;
    let mut filter = FilterWords::new(words);
    for number in 0..ADDRESSES {
        filter.set(&address(number), AddressKinds::BACKEND);
        if number % EVERY == 0 && filter.density().is_dense(PRESENT) {
            filter = FilterWords::new(words);
            let present = number.saturating_sub(PRESENT)..=number;
            present.for_each(|number| filter.set(&address(number), AddressKinds::BACKEND));
        }
    }
    filter
}

/// Those of 10.0.0.0/8 in turn.
fn address(number: u32) -> Address {
    Ipv4Addr::from_bits(0x0a00_0000 | number).into()
}
