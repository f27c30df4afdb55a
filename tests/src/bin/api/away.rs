//! The agent or the API server is away, and clients notice nothing.

use std::time::UNIX_EPOCH;

use crate::prelude::*;

/// How long an API server is away: until the agent waits as long as it ever does between attempts, after 16 s at most.
const AWAY: Duration = Duration::from_secs(18);
/// An agent may have heard nothing for longer: API servers send a bookmark each minute.
const QUIET: Duration = Duration::from_secs(75);
/// How long an agent may take to end.
const END: Duration = Duration::from_secs(2);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("objects deleted and changed while the agent was away", agent_away);
    suite.case("a watch that is too old becomes a list", too_old);
    suite.case("the API server is killed under load", killed);
    suite.case("the API server is stopped under load", frozen);
    suite.case("an agent starts without an API server, under load", starts_alone);
}

/// Three services: one stays, one changes and one goes.
struct Three {
    stays: Target,
    changes: Target,
    goes: Target,
}

impl Three {
    fn begin(world: &World, site: &Site, name: &str) -> Result<Self> {
        let fresh = |what| world.fresh(&format!("{name}-{what}")).with(&[11, 12]);
        let three = Self { stays: fresh("stays"), changes: fresh("changes"), goes: fresh("goes") };
        for target in [&three.stays, &three.changes, &three.goes] {
            world.east.api.apply_all(&target.objects())?;
        }
        for target in [&three.stays, &three.changes, &three.goes] {
            site.wait_for(&target.service)?;
        }
        Ok(three)
    }

    fn change(&mut self, world: &World) -> Result {
        self.changes = self.changes.clone().with(&[13]);
        world.east.api.apply_all(&self.changes.objects())?;
        for object in self.goes.objects() {
            world.east.api.delete(&object)?;
        }
        Ok(())
    }

    fn wait(&self, site: &Site) -> Result {
        site.wait_for(&self.changes.service)?;
        site.agent.wait_until_gone(self.goes.service.name())?;
        site.wait_for(&self.stays.service)
    }
}

fn agent_away(world: &mut World) -> Result {
    let mut three = Three::begin(world, &world.site, "away")?;
    world.site.agent.kill()?;
    three.change(world)?;
    world.site.agent.start_again(&[])?;
    world.site.wait_until_healthy()?;
    three.wait(&world.site)
}

/// A new API server does not have the events that an older one sent.
fn too_old(world: &mut World) -> Result {
    let mut site = world.start("too-old", &["--log", "mcs_agent=debug,mcs_kube=debug"])?;
    site.wait_until_healthy()?;
    let mut three = Three::begin(world, &site, "old")?;
    site.freeze()?;
    world.east.kill()?;
    let changed = world.east.start_again().and_then(|()| three.change(world));
    site.thaw()?;
    changed?;
    three.wait(&site)?;
    let log = site.agent.log()?;
    ensure!(log.contains("listing again"), "no watch was too old");
    site.wait_until_content()?;
    world.site.wait_until_content()
}

fn killed(world: &mut World) -> Result {
    let mut three = Three::begin(world, &world.site, "killed")?;
    let _in_cgroup = world.site.cgroup.visit()?;
    let load = three.changes.load(&[11, 12, 13]);
    let World { east, base: mcs_tests::world::World { network, site, .. }, .. } = world;
    let maps = site.maps()?;
    let before = maps.imports()?;
    let answers = traffic::during(&network.pod, &load, || {
        let begin = Instant::now();
        east.kill()?;
        let unharmed = stays_as_it_was(site, &maps, &before);
        east.start_again()?;
        unharmed?;
        let away = begin.elapsed().as_secs();
        let begin = Instant::now();
        site.wait_until_content()?;
        ensure!(site.known_until()?.is_none() && site.agent.is_healthy()?, "it is not healthy");
        tell(format!(
            "away for {away} s, followed again {:.1} s later",
            begin.elapsed().as_secs_f64()
        ));
        ensure!(maps.imports()? == before, "the maps are not what they were");
        Ok(())
    })?;
    tell(format!("{answers} answers meanwhile, none wrong or missing"));
    three.change(world)?;
    three.wait(&world.site)
}

/// The agent says that the API server is away, and changes nothing for the time [`AWAY`].
fn stays_as_it_was(site: &Site, maps: &Watcher, before: &str) -> Result {
    let begin = Instant::now();
    site.wait_for_problem(
        "endpointslices.discovery.k8s.io",
        "the agent keeps using what it last read",
    )?;
    tell(format!("noticed after {:.1} s", begin.elapsed().as_secs_f64()));
    says_since_when(site)?;
    thread::sleep(AWAY.saturating_sub(begin.elapsed()));
    ensure!(site.report()?["synced"] == true, "it is not synced any more");
    let after = maps.imports()?;
    ensure!(after == before, "the maps are not what they were: before\n{before}after\n{after}");
    Ok(())
}

/// `status` tells how old what is in force may be.
fn says_since_when(site: &Site) -> Result {
    let status = site.agent.status()?;
    let degraded = status["degraded"].to_string();
    ensure!(degraded.contains("cannot be followed"), "{degraded}");
    ensure!(!site.agent.is_healthy()?, "`status` exits with 0");
    let known = UNIX_EPOCH + Duration::from_secs(site.known_until()?.context("no time")?);
    let age = known.elapsed().context("a time to come")?;
    ensure!(age < QUIET, "nothing heard for {age:?}");
    Ok(())
}

fn frozen(world: &mut World) -> Result {
    let mut three = Three::begin(world, &world.site, "frozen")?;
    let _in_cgroup = world.site.cgroup.visit()?;
    let load = three.changes.load(&[11, 12, 13]);
    let World { east, base: mcs_tests::world::World { network, site, .. }, .. } = world;
    traffic::during(&network.pod, &load, || {
        east.freeze()?;
        // Its connections are open and quiet, until the agent asks whether anybody is there.
        let begin = Instant::now();
        // The watch of slices has a connection of its own, and asks by a new one first.
        let last = if is_full() {
            "endpointslices.discovery.k8s.io"
        } else {
            "serviceimports.multicluster.x-k8s.io"
        };
        let noticed = site.wait_for_problem(last, "the agent keeps using what it last read");
        tell(format!("noticed after {:.1} s", begin.elapsed().as_secs_f64()));
        let restarted = noticed.and_then(|()| {
            let begin = Instant::now();
            site.agent.stop()?;
            ensure!(begin.elapsed() < END, "it took {:?} to end", begin.elapsed());
            site.agent.start_again(&[])
        });
        east.thaw()?;
        restarted?;
        site.wait_until_healthy()
    })?;
    three.change(world)?;
    three.wait(&world.site)
}

fn starts_alone(world: &mut World) -> Result {
    let mut three = Three::begin(world, &world.site, "alone")?;
    let _in_cgroup = world.site.cgroup.visit()?;
    let load = three.stays.load(&[11, 12]);
    let World { east, base: mcs_tests::world::World { network, site, .. }, .. } = world;
    traffic::during(&network.pod, &load, || {
        east.kill()?;
        site.agent.stop()?;
        site.agent.start_again(&["--max-memory", "512Ki"])?;
        site.wait_for_problem(
            "serviceimports.multicluster.x-k8s.io",
            "the agent changes nothing until",
        )?;
        let status = site.agent.status()?;
        ensure!(status["degraded"].to_string().contains("not synced"), "{}", status["degraded"]);
        east.start_again()?;
        site.wait_until_healthy()
    })?;
    three.change(world)?;
    three.wait(&world.site)
}
