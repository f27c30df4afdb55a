//! The end-to-end suite: the agent as it is deployed, on the nodes of two real clusters, with pods
//! as clients and servers.
//!
//! It needs only two kubeconfigs. Without them it starts two clusters. On clusters that run elsewhere it
//! skips what needs a process on their nodes.

use clap::Parser;
use mcs_tests::{cluster::TRAFFIC, suite};

use crate::prelude::*;

mod ask;
mod canary;
mod capabilities;
mod changes;
mod chart_mcs;
mod clusters;
mod faults;
mod foreign;
mod mounts;
mod neighbours;
mod pictures;
mod prelude;
mod proxyless;
mod reach;
mod submariner;
mod uninstall;
mod world;

/// Run the end-to-end suite
#[derive(Parser)]
// Another group has the name of this struct.
#[group(skip)]
struct Args {
    #[command(flatten)]
    suite: suite::Args,
    /// Two clusters to run on, with flat routing between their pods; the suite installs the agent there, and removes it
    /// in the end [default: the suite starts two]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Vec<PathBuf>,
    /// Values of the chart, such as where the agent's image is
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// The image of clients and servers
    #[arg(long, value_name = "NAME", default_value = TRAFFIC)]
    traffic_image: String,
    /// Leave everything in place
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut suite = Suite::default();
    reach::cases(&mut suite);
    neighbours::cases(&mut suite);
    submariner::cases(&mut suite);
    foreign::cases(&mut suite);
    changes::cases(&mut suite);
    capabilities::cases(&mut suite);
    mounts::cases(&mut suite);
    canary::cases(&mut suite);
    proxyless::cases(&mut suite);
    uninstall::cases(&mut suite);
    chart_mcs::cases(&mut suite);
    suite.run(args.suite.clone(), move || World::begin(&args))
}
