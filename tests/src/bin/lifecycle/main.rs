//! The lifecycle suite: what becomes of clients while agents come and go, maps grow and writes fail.
//! Each case counts failures under load from every CPU, and prints the count.

use std::process::ExitCode;

use mcs_tests::suite::Suite;

mod bound;
mod faults;
mod growth;
mod load;
mod process;
mod restart;
mod steady;
mod versions;
mod world;

use self::world::World;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    restart::cases(&mut suite);
    growth::cases(&mut suite);
    bound::cases(&mut suite);
    versions::cases(&mut suite);
    faults::cases(&mut suite);
    steady::cases(&mut suite);
    suite.main(World::begin)
}
