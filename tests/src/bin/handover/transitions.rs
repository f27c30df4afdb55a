//! Who serves an address changes while clients use it.

use anyhow::ensure;
use mcs_tests::{member::ProxiedNode, suite::Suite};
use rustix::process::Signal;

use crate::world::{Import, Programs, SocketLb, World};

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
    suite.case("the last slice goes", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::WithoutSlices))
    });
    suite.case("the first slice comes", |world| {
        begin(world, Import::WithoutSlices)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::Complete))
    });
    suite.case("the import's status becomes Absent", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::Absent))
    });
    suite.case("the import's status is Absent no more", |world| {
        begin(world, Import::Absent)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::Complete))
    });
    suite.case("the import is deleted, its derived Service stays", |world| {
        begin(world, Import::Complete)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::Deleted))
    });
    suite.case("the import is created", |world| {
        begin(world, Import::Deleted)?;
        world.under_load(Programs::Attached, |world| world.set_import(Import::Complete))
    });
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
fn begin(world: &mut World, import: Import) -> anyhow::Result<()> {
    world.set_agent(true)?;
    world.set_import(import)
}
