//! Changes of objects reach the maps.

use crate::prelude::*;

const CHANGES: usize = 50;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a changed slice reaches the map", reaches_the_map);
    suite.case("changes that follow another are written together", followers_together);
    suite.case("import and slices in any order", in_any_order);
}

/// From the API server's answer to whoever writes.
fn reaches_the_map(world: &mut World) -> Result {
    let mut swing = Swing::begin(world, "changed")?;
    let times = (0..CHANGES).map(|_| swing.change()).collect::<Result<_>>()?;
    tell(format!("{CHANGES} changes, {}", summary(times)));
    swing.end()
}

/// Of times from a write's answer to the map.
pub(crate) fn summary(mut times: Vec<Duration>) -> String {
    times.sort();
    let median = milliseconds(times[times.len() / 2]);
    let longest = milliseconds(times[times.len() - 1]);
    format!("from the answer to the map: median {median}, longest {longest}")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// The first change does not wait. The next ones wait for the end of the period, and for each other.
fn followers_together(world: &mut World) -> Result {
    const PERIOD: Duration = Duration::from_secs(1);

    let [first, last] = ["paced-1", "paced-2"].map(|name| world.fresh(name).with(&[11]));
    let (first_moved, last_moved) = (first.clone().with(&[12]), last.clone().with(&[12]));
    let api = &world.east.api;
    for target in [&first, &last] {
        api.apply_all(&target.objects())?;
    }
    let flag = format!("--min-sync-period={}", PERIOD.as_millis());
    let mut site = world.start("paced", &[&flag])?;
    site.wait_until_healthy()?;
    site.wait_for(&first.service)?;
    site.wait_for(&last.service)?;
    let (first_set, last_set) =
        (site.set_of(first.tcp(Family::V4))?, site.set_of(last.tcp(Family::V4))?);
    std::thread::sleep(PERIOD);

    let begin = Instant::now();
    let time = first_set.time_after(|| api.apply_all(&first_moved.service.slices()))?;
    ensure!(time < PERIOD / 2, "the first change took {time:?}");
    last_set.time_after(|| {
        api.apply_all(&first.service.slices())?;
        api.apply_all(&last_moved.service.slices())
    })?;
    let time = begin.elapsed();
    ensure!(time >= PERIOD, "a change was written {time:?} after the first");
    for target in [&first, &last_moved] {
        let (found, wanted) =
            (site.agent.frontends(target.service.name())?, target.service.frontends());
        ensure!(found == wanted, "not together: {found:?} instead of {wanted:?}");
    }
    for target in [first, last] {
        for object in target.objects() {
            api.delete(&object)?;
        }
    }
    Ok(())
}

fn in_any_order(world: &mut World) -> Result {
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
