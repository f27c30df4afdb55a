//! More objects than `--max-memory` has room for.

use anyhow::{Context as _, ensure};
use mcs_tests::suite::{Suite, tell};

use crate::{
    growth::{large, wait_for},
    load::Load,
    world::{SETS, World},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "what does not fit into --max-memory is rejected, and nothing else is affected, under load",
        is_full,
    );
}

fn is_full(world: &mut World) -> anyhow::Result<()> {
    let target = world.target("bounded");
    // Room for some 8000 endpoints. The target has a few.
    let mut site = world.site("bounded", &["--max-memory=1Mi"], &target)?;
    let _in_cgroup = site.cgroup.visit()?;
    Load::of(&target).during(&world.network.pod, || {
        (0..10).try_for_each(|one| site.manifests.write(&large(one)))?;
        wait_for(&site, 7000)?;
        // Who is there can change as before, and a restart takes nothing from anybody.
        for set in [SETS[1], SETS[0]] {
            site.apply(&target.clone().with(set).service)?;
        }
        site.agent.replace(&["--max-memory=1Mi"])?;
        site.agent.wait_for(&target.service)
    })?;
    let status = site.agent.status()?;
    let rejections = status["report"]["rejections"].as_array().context("no rejections")?;
    ensure!(rejections.len() == 3, "{} rejections: {rejections:?}", rejections.len());
    for rejection in rejections {
        ensure!(rejection["reason"] == "capacity", "{rejection}");
        let message = rejection["message"].as_str().unwrap_or_default();
        ensure!(message.contains("--max-memory"), "{message}");
        tell(message);
    }
    let degraded = status["degraded"].to_string();
    ensure!(degraded.contains("3 parts of imports do not fit into --max-memory=1Mi"), "{degraded}");
    let bytes = status["report"]["config_map_bytes"].as_u64().context("no size")?;
    ensure!(bytes <= 1 << 20, "the maps take {bytes} bytes");
    Ok(())
}
