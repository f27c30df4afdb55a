//! Suite `cni`: the agent by its chart beside real CNIs. Clients use a ClusterSetIP by sockets and by packets while the CNI's part
//! and ours are replaced, and frames to it are counted outside the nodes.

use clap::Parser;
use mcs_tests::suite;

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

/// Run the agent beside real CNIs
#[derive(Parser)]
// Another group has the name of this struct.
#[group(skip)]
struct Args {
    #[command(flatten)]
    suite: suite::Args,
    /// Leave the clusters in place
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut suite = Suite::default();
    cases::cases(&mut suite);
    table::cases(&mut suite);
    suite.run(args.suite, move || World::begin(args.keep))
}
