//! The lifecycle suite: clients under load while agents come and go, maps grow and writes fail.
//! Each case counts failures under load from every CPU, and prints the count.

use crate::prelude::*;

mod attachment;
mod audit;
mod bound;
mod cleanup;
mod faults;
mod foreign;
mod growth;
mod half_minutes;
mod junk;
mod load;
mod memory;
mod objects;
mod oom;
mod orphan;
mod others;
mod prelude;
mod process;
mod refusal;
mod refused;
mod restart;
mod rollback;
mod stale;
mod steady;
mod traces;
mod versions;
mod world;

fn main() -> ExitCode {
    if let Some(code) = refusal::play() {
        return code;
    }
    let mut suite = Suite::default();
    restart::cases(&mut suite);
    oom::cases(&mut suite);
    growth::cases(&mut suite);
    bound::cases(&mut suite);
    versions::cases(&mut suite);
    faults::cases(&mut suite);
    refused::cases(&mut suite);
    rollback::cases(&mut suite);
    stale::cases(&mut suite);
    orphan::cases(&mut suite);
    junk::cases(&mut suite);
    cleanup::cases(&mut suite);
    foreign::cases(&mut suite);
    audit::cases(&mut suite);
    half_minutes::cases(&mut suite);
    steady::cases(&mut suite);
    suite.main("mcs-life", world::begin)
}
