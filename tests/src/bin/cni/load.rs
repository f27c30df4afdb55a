//! Clients go on while something is replaced, and datagrams to the ClusterSetIP are sent past every socket hook.

use crate::{clients::BY_PACKETS, prelude::*};

/// Between two datagrams of a sender.
const PAUSE: Duration = Duration::from_millis(2);

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Exchanges of clients, none of which failed.
    pub(crate) answers: u64,
    /// Datagrams that no socket hook has seen.
    pub(crate) sent: u64,
}

/// Does `work` under load. A failed exchange is an error, and so is a frame to the ClusterSetIP outside the nodes.
pub(crate) fn during(
    stage: &Stage,
    target: &Target,
    work: impl FnOnce() -> Result,
) -> Result<Outcome> {
    let mut loads = Vec::new();
    for client in stage.served() {
        for (protocol, address) in target.frontends() {
            client.wait_for(protocol, address, |answer| answer.shown == address)?;
        }
        loads.push(client.load(target, &stage.members())?);
    }
    let wire = Wire::watch(&target.vips)?;
    // Processes of this suite are in no cgroup of a node.
    let mut senders = vec![stage.importer.network_of(BY_PACKETS)?];
    for node in stage.importer.nodes() {
        senders.push(Namespace::open(&node.netns())?);
    }
    wire.is_seen_by(&senders)?;
    let sent = while_sending(&senders, target, work)?;
    let answers = loads.into_iter().map(Load::end).sum::<Result<u64>>()?;
    let frames = wire.frames()?;
    ensure!(frames == 0, "{frames} frames to {:?} were on the wire", target.vips);
    tell(format!(
        "{answers} exchanges, 0 failed; {sent} datagrams past socket hooks, 0 on the wire"
    ));
    Ok(Outcome { answers, sent })
}

/// Does `work` while each of these networks sends. Returns how many datagrams it were.
fn while_sending(
    senders: &[Namespace],
    target: &Target,
    work: impl FnOnce() -> Result,
) -> Result<u64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let send = |netns: &Namespace| netns.run(|| send_until(&is_over, target))?;
        let threads: Vec<_> =
            senders.iter().map(|netns| scope.spawn(move || send(netns))).collect();
        let worked = work();
        is_over.store(true, Ordering::Relaxed);
        let mut datagrams = 0;
        for thread in threads {
            datagrams += thread.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        worked.map(|()| datagrams)
    })
}

fn send_until(is_over: &AtomicBool, target: &Target) -> Result<u64> {
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        for to in target.udp() {
            let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
            // The kernel may report the drop as an error.
            let _ = client::udp(family)?.send_to(b"leak", to);
            sent += 1;
        }
        thread::sleep(PAUSE);
    }
    Ok(sent)
}
