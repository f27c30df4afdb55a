//! Suite `cni`: the agent by its chart beside real CNIs. Clients use a ClusterSetIP by sockets and by packets while the CNI's part
//! and ours are replaced, and frames to it are counted outside the nodes.

use crate::prelude::*;

mod cases;
mod clients;
mod load;
mod prelude;
mod setting;
mod snapshot;
mod table;
mod wire;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    cases::cases(&mut suite);
    table::cases(&mut suite);
    suite.on_clusters(World::begin)
}
