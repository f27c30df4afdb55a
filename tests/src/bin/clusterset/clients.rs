//! Clients that connect by a VIP while a case disturbs the clusters: no connection may fail.

use std::{
    net::SocketAddr,
    panic,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::Duration,
};

use anyhow::Context as _;
use mcs_tests::{client::Family, netns::Namespace, suite::tell, traffic::Load, wait};

use crate::{
    connectivity::{TARGET, vip},
    objects::service,
    world::{World, pod, slice_of},
};

/// How long a client waits before it connects again. Controllers and API servers need the CPUs too.
const PAUSE: Duration = Duration::from_millis(5);

/// Clients in the second cluster of a service that the first one exports.
pub(crate) struct Clients {
    load: Load,
    node: Namespace,
}

impl Clients {
    /// Exports a service, and waits until clients reach it.
    pub(crate) fn begin(world: &World) -> anyhow::Result<Self> {
        let namespace = world.fresh()?;
        let node = Namespace::open(world.node.netns.name())?;
        let dataplane = world.dataplane()?;
        world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
        world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
        let vip = SocketAddr::new(vip(world.second(), &namespace)?, 42);
        let backend = SocketAddr::new(pod(0, 0).into(), TARGET);
        let load = Load { tcp: vec![(Family::V4, vip)], udp: vec![], backends: [backend].into() };
        let clients = Self { load, node };
        let _in_cgroup = dataplane.visit(1)?;
        wait::until("an answer to a client", || {
            clients.node.run(|| clients.load.client()?.round())?
        })?;
        Ok(clients)
    }

    /// Connects until `stop`, and counts the answers.
    fn connect(&self, stop: &AtomicBool) -> anyhow::Result<u64> {
        self.node.enter()?;
        let client = self.load.client()?;
        let mut answers = 0;
        while !stop.load(Ordering::Relaxed) {
            answers +=
                client.round().with_context(|| format!("a client, after {answers} answers"))?;
            sleep(PAUSE);
        }
        Ok(answers)
    }
}

/// The case, with clients that connect all the time. It fails if one connection does.
pub(crate) fn meanwhile(
    case: fn(&mut World) -> anyhow::Result<()>,
) -> impl Fn(&mut World) -> anyhow::Result<()> + Send {
    move |world| {
        world.clients()?;
        // A case changes the world, and the clients use what it leaves alone.
        let clients = world.take_clients().context("no clients")?;
        let in_cgroup = world.dataplane()?.visit(1)?;
        let stop = AtomicBool::new(false);
        let (worked, answers) = thread::scope(|scope| {
            let client = scope.spawn(|| clients.connect(&stop));
            let worked = panic::catch_unwind(panic::AssertUnwindSafe(|| case(world)));
            stop.store(true, Ordering::Relaxed);
            let answers = client.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            (worked.unwrap_or_else(|panic| panic::resume_unwind(panic)), answers)
        });
        drop(in_cgroup);
        world.put_clients(clients);
        worked?;
        tell(format!("{} connections, none failed", answers?));
        Ok(())
    }
}
