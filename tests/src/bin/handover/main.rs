//! The handover suite: addresses pass between kube-proxy and the agent, and back, while clients use them.

use crate::prelude::*;

mod client;
mod clients;
mod conversation;
mod policy;
mod prelude;
mod tally;
mod transitions;
mod world;

fn main() -> ExitCode {
    if let Some(vips) = client::vips() {
        return client::main(&vips);
    }
    let mut suite = Suite::default();
    transitions::cases(&mut suite);
    policy::cases(&mut suite);
    suite.main("mcs-hand", World::begin)
}
