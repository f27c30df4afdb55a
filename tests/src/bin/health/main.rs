//! The health suite: what an agent serves over HTTP about its health, and the alerts on it.

#![expect(clippy::float_cmp, reason = "samples that are compared are counts")]

use crate::prelude::*;

mod addresses;
mod explain;
mod failing;
mod faults;
mod figures;
mod http;
mod imports;
mod latency;
mod mistakes;
mod page;
mod prelude;
mod promtool;
mod queries;
mod readiness;
mod schema;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    readiness::cases(&mut suite);
    figures::cases(&mut suite);
    imports::cases(&mut suite);
    latency::cases(&mut suite);
    promtool::cases(&mut suite);
    queries::cases(&mut suite);
    schema::cases(&mut suite);
    mistakes::cases(&mut suite);
    addresses::cases(&mut suite);
    failing::cases(&mut suite);
    explain::cases(&mut suite);
    faults::cases(&mut suite);
    page::cases(&mut suite);
    suite.main("mcs-health", world::begin)
}
