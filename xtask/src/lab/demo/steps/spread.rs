//! Requests spread over the pods of both clusters.

use anyhow::{Context as _, Result, ensure};

use super::{Stage, all_but};
use crate::demo::{
    example::{BACKENDS, Family, Host},
    tally::{Tally, table},
    traffic::{self, Way},
    world::Place,
};

/// Requests in each way: enough for every pod to be met, beyond all bad luck.
pub(super) const REQUESTS: usize = 200;

/// From a pod and from the node, by curl and by many sockets.
pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    for place in Place::WITH_HOOKS {
        let mut shown = String::new();
        for family in Family::ALL {
            shown.push_str(&curl(stage, place, family)?);
        }
        stage.screen.block(&shown);
    }
    stage.screen.progress(format!(
        "{REQUESTS} requests each; every socket has to name the ClusterSetIP as its peer"
    ));
    burst(stage, Way::with_hooks())
}

/// After the pods are back.
pub(super) fn again(stage: &Stage<'_>) -> Result<()> {
    let world = stage.world;
    stage.screen.progress("the stopped pod starts again, and the slices list all pods");
    world.start(super::departure::LEAVER)?;
    world.manifests.restore()?;
    world.wait_for(&all_but(&[]))?;
    burst(stage, Way::from(Place::Client))
}

/// Shows who answers how often in each way, which has to be every pod.
pub(super) fn burst(stage: &Stage<'_>, ways: impl Iterator<Item = Way>) -> Result<()> {
    let tallies = ways
        .map(|way| Ok((way, traffic::burst(stage.world, stage.interrupt, way, REQUESTS)?)))
        .collect::<Result<Vec<(Way, Tally)>>>()?;
    let lines = tallies.iter().map(|(way, tally)| (way.to_string(), tally));
    stage.screen.block(&table(lines));
    for (way, tally) in &tallies {
        tally.expect_spread_over(&BACKENDS.into()).with_context(|| way.to_string())?;
    }
    Ok(())
}

/// One request by curl, which has to be answered by a pod and to name the ClusterSetIP as its peer.
pub(super) fn curl(stage: &Stage<'_>, place: Place, family: Family) -> Result<String> {
    let vip = family.vip();
    let url = match family {
        Family::V4 => format!("http://{vip}/"),
        Family::V6 => format!("http://[{vip}]/"),
    };
    let (shown, output) = stage.curl(place, &["-sS", "-w", "peer %{remote_ip}\\n", &url])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines = printed.lines();
    let pod = lines.next().and_then(Host::identified);
    ensure!(pod.is_some(), "no pod answered: {shown}");
    let peer = lines.next();
    ensure!(peer == Some(&format!("peer {vip}")), "the peer is not the ClusterSetIP: {shown}");
    Ok(shown)
}
