//! Before the programs are removed, connections of the packet path get time to end.

use std::{
    io,
    time::{Duration, Instant},
};

use anyhow::bail;
use mcs_kube::program::Signals;

use crate::core::{
    cli::print,
    kernel::{
        dataplane::hand_back_vips,
        flows::{FlowTable, monotonic_ns},
        loader::Pins,
    },
};

/// Between two looks at the flow table.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two lines about the connections that are left.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Hands every VIP back, and waits at most `limit` for the TCP connections that the programs translate. UDP has no end:
/// its clients go on where the VIP leads without the agent.
///
/// What cannot be drained is no reason to leave the programs. A signal is: an agent may be about to take over.
pub(super) async fn drain(
    pins: &Pins,
    limit: Duration,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    if limit.is_zero() {
        return Ok(());
    }
    let begin = Instant::now();
    let mut told: Option<Instant> = None;
    if let Err(error) = pins.all_config().iter().try_for_each(|maps| hand_back_vips(maps)) {
        return print(&format!(
            "cannot hand back the ClusterSetIPs: {error}; TCP connections of the packet path end"
        ));
    }
    loop {
        let left = match open_connections(pins) {
            Ok(0) => return Ok(()),
            Ok(left) => left,
            Err(error) => {
                return print(&format!(
                    "cannot read the flow table: {error}; TCP connections of the packet path end"
                ));
            }
        };
        let remaining = limit.saturating_sub(begin.elapsed());
        if remaining.is_zero() {
            return print(&format!(
                "{left} TCP connections of the packet path are left after {} s: they end",
                limit.as_secs()
            ));
        }
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            print(&format!(
                "waiting for {left} TCP connections of the packet path, at most {} s; new ones go where the \
                 ClusterSetIPs lead without the agent",
                remaining.as_secs().max(1)
            ))?;
            told = Some(Instant::now());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY.min(remaining)) => {}
            () = signals.next() => {
                bail!(
                    "stopped while {left} TCP connections of the packet path were left: nothing is removed, and \
                     the ClusterSetIPs are handed back; run `mcs-agent cleanup` again, or start the agent"
                )
            }
        }
    }
}

/// The TCP connections that the programs translate.
fn open_connections(pins: &Pins) -> io::Result<usize> {
    let now_ns = monotonic_ns();
    pins.flow_tables()?.iter().try_fold(0, |sum, pin| {
        let flows = FlowTable::open(pin)?.flows()?;
        Ok(sum + flows.iter().filter(|flow| flow.is_open_connection(now_ns)).count())
    })
}
