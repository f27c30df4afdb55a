//! The socket suite: every hook, family and protocol with real sockets, in separate namespaces and
//! cgroups.

use crate::prelude::*;

mod affinity;
mod capabilities;
mod change;
mod counters;
mod datagrams;
mod direct;
mod earlier;
mod foreign;
mod hints;
mod holders;
mod modes;
mod options;
mod pairs;
mod passive;
mod prelude;
mod reconnect;
mod refusal;
mod restart;
mod senders;
mod slots;
mod storage;
mod tcp;
mod tools;
mod trace;
mod udp;
mod uring;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    tcp::cases(&mut suite);
    udp::cases(&mut suite);
    pairs::cases(&mut suite);
    senders::cases(&mut suite);
    earlier::cases(&mut suite);
    reconnect::cases(&mut suite);
    refusal::cases(&mut suite);
    direct::cases(&mut suite);
    counters::cases(&mut suite);
    tools::cases(&mut suite);
    affinity::cases(&mut suite);
    storage::cases(&mut suite);
    foreign::cases(&mut suite);
    modes::cases(&mut suite);
    capabilities::cases(&mut suite);
    change::cases(&mut suite);
    restart::cases(&mut suite);
    hints::cases(&mut suite);
    slots::cases(&mut suite);
    holders::cases(&mut suite);
    options::cases(&mut suite);
    datagrams::cases(&mut suite);
    uring::cases(&mut suite);
    passive::cases(&mut suite);
    trace::cases(&mut suite);
    suite.main("mcs-socket", World::begin)
}

/// What holds for every family and for clients of every place.
type Check = fn(&World, Family, Place) -> Result;

/// Adds a case for each family and place.
fn everywhere(suite: &mut Suite<World>, name: &str, check: Check) {
    for place in Place::CLIENTS {
        for family in Family::ALL {
            let name = format!("{name}, {family}, from the {place}");
            suite.case(name, move |world| check(world, family, place));
        }
    }
}

/// Adds a case for each family, from a pod.
fn each_family(suite: &mut Suite<World>, name: &str, check: Check) {
    for family in Family::ALL {
        let name = format!("{name}, {family}");
        suite.case(name, move |world| check(world, family, Place::Pod));
    }
}
