//! The flows suite: the flow table of the packet path as user space keeps it, on the kernel's maps.
//! No packets are sent.

use crate::prelude::*;

mod command;
mod entries;
mod prelude;
mod resize;
mod stage;
mod sweep;
mod table;

/// What all cases share.
struct World {
    run: Run,
    netns: Namespace,
}

fn main() -> ExitCode {
    let mut suite = Suite::default();
    table::cases(&mut suite);
    sweep::cases(&mut suite);
    resize::cases(&mut suite);
    stage::cases(&mut suite);
    command::cases(&mut suite);
    suite.main("mcs-flows", |run| {
        let netns = Namespace::create(&run, "node")?;
        Ok(World { run, netns })
    })
}
