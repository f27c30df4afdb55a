//! What changes in the cluster changes in the maps.

use std::time::{Duration, Instant};

use mcs_tests::suite::{Suite, tell};

use crate::world::{World, backend};

const CHANGES: usize = 50;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a changed slice reaches the map", reaches_the_map);
    suite.case("import and slices in any order", in_any_order);
}

/// From the moment that the request is sent.
fn reaches_the_map(world: &mut World) -> anyhow::Result<()> {
    let sets = [&[11, 12], &[11, 13]].map(|pods| world.fresh("changed").with(pods));
    let api = &world.east.api;
    api.apply_all(&sets[0].objects())?;
    world.site.wait_for(&sets[0].service)?;
    let maps = world.site.maps()?;
    let mut times = Vec::new();
    for turn in 1..=CHANGES {
        let (set, pod) = if turn % 2 == 0 { (&sets[0], 12) } else { (&sets[1], 13) };
        // IPv4 comes first.
        let slice = &set.service.slices()[0];
        let begin = Instant::now();
        api.apply(slice)?;
        times.push(maps.time(begin, &backend(pod))?);
    }
    times.sort();
    let [median, worst] = [times[CHANGES / 2], times[CHANGES - 1]].map(milliseconds);
    tell(format!("{CHANGES} changes, request to map: median {median}, worst {worst}"));
    api.apply_all(&sets[0].objects())?;
    world.site.wait_for(&sets[0].service)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn in_any_order(world: &mut World) -> anyhow::Result<()> {
    let target = world.fresh("ordered").with(&[11]);
    let nothing = world.fresh("ordered");
    let (api, site) = (&world.east.api, &world.site);
    let (import, slices) = (target.service.import(), target.service.slices());

    for _ in 0..2 {
        api.apply_all(&slices)?;
        api.apply(&import)?;
        site.wait_for(&target.service)?;
        for slice in &slices {
            api.delete(slice)?;
        }
        site.agent.wait_for_frontends("ordered", &target.clone().with(&[]).service.frontends())?;
        api.apply_all(&slices)?;
        site.wait_for(&target.service)?;
        api.delete(&import)?;
        site.agent.wait_until_gone("ordered")?;
        api.apply(&import)?;
        site.wait_for(&target.service)?;
        api.delete(&import)?;
        for slice in &slices {
            api.delete(slice)?;
        }
        site.agent.wait_until_gone("ordered")?;
    }
    // Another import may have the name, with other addresses.
    api.apply(&nothing.service.import())?;
    site.wait_for(&nothing.service)?;
    api.delete(&nothing.service.import())
}
