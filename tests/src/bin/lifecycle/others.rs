//! Foreign programs and pins at the places where an agent works.

use mcs_tests::{
    bpf::{
        Order,
        classifier::{Counter, Way},
        observer::{Hook, Observer},
    },
    cgroup::Cgroup,
};

use crate::{
    prelude::*,
    world::{POD_ADDRESS, REMOTE_ADDRESS},
};

/// Their programs on the cgroup, and on the device of the pod by both mechanisms.
pub(crate) struct Others {
    on_cgroup: Observer,
    on_device: Vec<(Way, Counter)>,
}

impl Others {
    /// Attaches them, and pins what tc(8) has to find, in `pins`. The qdisc clsact is theirs too.
    pub(crate) fn settle(network: &Network, cgroup: &Cgroup, pins: &Path) -> Result<Self> {
        let node = &network.node.netns;
        let device = "pod";
        node.output("tc", &["qdisc", "add", "dev", device, "clsact"])?;
        let mut on_device = Vec::new();
        for way in Way::BOTH {
            on_device.push((way, Counter::by_filter(node, device, way, pins)?));
            on_device.push((way, Counter::by_tcx(node, device, way, Order::Last)?));
        }
        let cgroup = File::open(cgroup.path())?;
        let on_cgroup = Observer::attach(cgroup.as_fd(), Hook::Connect4, true)?;
        Ok(Self { on_cgroup, on_device })
    }

    /// Pins a program of theirs at a place of ours.
    pub(crate) fn pin(path: &Path) -> Result {
        let instructions =
            [instruction(code::MOVE_CONSTANT, 0, 0, 0, 0), instruction(code::EXIT, 0, 0, 0, 0)];
        let kind = ProgramType::BPF_PROG_TYPE_SCHED_CLS;
        Ok(Program::load(kind, None, &instructions)?.pin(path)?)
    }

    /// Sends and connects from the pod to a remote pod's own address: all of them see it.
    pub(crate) fn see_all(&self, network: &Network, cgroup: &Cgroup) -> Result {
        let count = |(way, counter): &(Way, Counter)| match way {
            Way::Ingress => counter.count(POD_ADDRESS, REMOTE_ADDRESS),
            Way::Egress => counter.count(REMOTE_ADDRESS, POD_ADDRESS),
        };
        let counts = || self.on_device.iter().map(count).collect::<std::io::Result<Vec<u64>>>();
        let (before, runs) = (counts()?, self.on_cgroup.sight()?.runs);
        {
            let _visit = cgroup.visit()?;
            network.pod.run(|| {
                client::ask(&client::udp(Family::V4)?, SocketAddr::new(REMOTE_ADDRESS, UDP.1))?;
                connected(Family::V4, SocketAddr::new(REMOTE_ADDRESS, TCP.1))?;
                anyhow::Ok(())
            })??;
        }
        let more = counts()?.iter().zip(&before).all(|(now, before)| now > before);
        ensure!(more, "a program of others on the device no longer sees packets");
        ensure!(self.on_cgroup.sight()?.runs > runs, "that on the cgroup no longer runs");
        Ok(())
    }
}
