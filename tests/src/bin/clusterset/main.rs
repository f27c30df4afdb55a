//! The clusterset suite: controllers on real API servers, which export and import between two and three clusters.

use std::process::ExitCode;

use mcs_tests::{controller, suite::Suite};

mod ask;
mod beside;
mod check;
mod clients;
mod cluster;
mod conformance;
mod connectivity;
mod corefiles;
mod credentials;
mod dns;
mod hostile;
mod hub;
mod leaves;
mod memory;
mod migrate;
mod objects;
mod orders;
mod page;
mod peering;
mod proxied;
mod publisher;
mod reach;
mod rebuilt;
mod refused;
mod replicas;
mod rules;
mod scale;
mod selectors;
mod sharing;
mod silence;
mod skew;
mod source;
mod tenants;
mod traffic;
mod trust;
mod world;

use self::world::World;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    // These come before anybody has started a controller again: one that starts deletes nothing before its peers have renewed their
    // Leases, which they do every 10 seconds.
    check::cases(&mut suite);
    ask::cases(&mut suite);
    traffic::cases(&mut suite);
    orders::cases(&mut suite);
    rebuilt::cases(&mut suite);
    leaves::cases(&mut suite);
    // These start controllers again.
    proxied::cases(&mut suite);
    source::cases(&mut suite);
    page::cases(&mut suite);
    tenants::cases(&mut suite);
    conformance::cases(&mut suite);
    rules::cases(&mut suite);
    dns::cases(&mut suite);
    corefiles::cases(&mut suite);
    connectivity::cases(&mut suite);
    silence::cases(&mut suite);
    publisher::cases(&mut suite);
    refused::cases(&mut suite);
    skew::cases(&mut suite);
    credentials::cases(&mut suite);
    beside::cases(&mut suite);
    trust::cases(&mut suite);
    hostile::cases(&mut suite);
    reach::cases(&mut suite);
    selectors::cases(&mut suite);
    migrate::cases(&mut suite);
    sharing::cases(&mut suite);
    hub::cases(&mut suite);
    replicas::cases(&mut suite);
    memory::cases(&mut suite);
    scale::cases(&mut suite);
    suite.main("mcs-set", World::begin)
}
