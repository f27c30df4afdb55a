//! Who serves an address changes while clients use it.

use crate::{
    prelude::*,
    world::{Programs, SocketLb},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the agent is installed", |world| {
        world.set_agent(false)?;
        world.set_import(Import::Complete)?;
        world.under_load(Programs::Attached, |world| world.set_agent(true))
    });
    suite.case("the agent is restarted", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Attached, |world| {
            world.on_each(|node| {
                node.stop()?;
                node.start_again()
            })
        })
    });
    suite.case("the agent is stopped", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Attached, |world| world.on_each(ProxiedNode::stop))?;
        world.on_each(ProxiedNode::start_again)
    });
    for (name, before, after) in [
        ("the last slice goes", Import::Complete, Import::WithoutSlices),
        ("the first slice comes", Import::WithoutSlices, Import::Complete),
        ("the import's status becomes Absent", Import::Complete, Import::Absent),
        ("the import's status is Absent no more", Import::Absent, Import::Complete),
        ("the import is deleted, its derived Service stays", Import::Complete, Import::Deleted),
        ("the import is created", Import::Deleted, Import::Complete),
    ] {
        suite.case(name, move |world| {
            begin(world, before)?;
            world.under_load(Programs::Attached, |world| world.set_import(after))
        });
    }
    suite.case("the agent is uninstalled", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Removed, |world| {
            world.on_each(|node| {
                node.stop()?;
                node.begin_cleanup()
            })?;
            World::watch();
            world.end_tcp()?;
            world.on_each(ProxiedNode::end_cleanup)
        })
    });
    suite.case("the uninstallation is cut short, and the agent comes back", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Removed, |world| {
            world.on_each(ProxiedNode::stop)?;
            for signal in [Signal::KILL, Signal::TERM] {
                world.on_each(ProxiedNode::begin_cleanup)?;
                world.nodes.iter_mut().try_for_each(|proxied| {
                    let cleanup = proxied.node.cleanup()?;
                    ensure!(cleanup.waits() == (proxied.socket_lb == SocketLb::Off), "{proxied}");
                    cleanup.interrupt(signal)
                })?;
            }
            world.on_each(ProxiedNode::start_again)?;
            world.set_import(Import::Complete)
        })
    });
}

/// The state before a transition.
fn begin(world: &mut World, import: Import) -> Result {
    world.set_agent(true)?;
    world.set_import(import)
}
