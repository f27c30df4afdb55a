//! `mcs-agent cleanup` removes the agent's programs, maps and files, and nothing else.

use std::process::Output;

use mcs_agent::core::kernel::dataplane::read_run_record;
use mcs_tests::site;

use crate::{growth::SET, others::Others, prelude::*, traces::Traces};

pub(crate) fn cases(suite: &mut Suite<World>) {
    for mechanism in ["tcx", "clsact"] {
        let name =
            format!("cleanup leaves the kernel as it was, beside others, ours by {mechanism}");
        suite.case(name, move |world| leaves_all_as_it_was(world, mechanism));
    }
    suite.case("cleanup after a kill on the way to other maps", cleans_up_half_of_it);
    suite.case("cleanup while the agent runs is refused, under load", is_refused);
}

/// A node with others on it, and an agent.
struct Scene {
    // They have to be removed in this order.
    site: Site,
    others: Others,
    _pins_of_others: BpfDirectory,
    target: Target,
    network: Network,
    /// How all was before the agent came.
    before: Traces,
}

impl Scene {
    /// Prepares everything, and starts an agent.
    fn begin(world: &World, role: &str, flags: &[&str]) -> Result<Self> {
        let network = world.another(role)?;
        let target = world.target(role);
        let manifests = Manifests::create(&world.run)?;
        manifests.write(&target.service)?;
        let source = Source::Manifests(manifests.path().to_owned());
        let (config, cgroup, bpffs) = site::place(&world.run, role, source, flags)?;
        let pins_of_others = BpfDirectory::create(&world.run, &format!("{role}-others"))?;
        let others = Others::settle(&network, &cgroup, pins_of_others.path())?;
        Others::pin(&bpffs.path().join("others"))?;
        fs::write(config.run_dir.join("others"), "of somebody else")?;
        others.see_all(&network, &cgroup)?;
        let before = Traces::settled(&config, &network.namespaces())?;
        let agent = Agent::start(&network.node.netns, config)?;
        let mut site = Site { agent, manifests, cgroup, bpffs };
        site.agent.wait_until_healthy()?;
        Ok(Self { site, others, _pins_of_others: pins_of_others, target, network, before })
    }

    /// What differs from how it was before.
    fn differences(&self) -> Result<Vec<String>> {
        let now = Traces::of(self.site.agent.config(), &self.network.namespaces())?;
        Ok(self.before.differences(&now))
    }

    /// Where the agent pins.
    fn pins(&self) -> PathBuf {
        self.site.bpffs.path().join("mcs")
    }

    fn start_again(&mut self, flags: &[&str]) -> Result {
        self.site.agent.start_again(flags)
    }

    /// Datagrams of the pod that are translated packet by packet, since it is in no cgroup of ours.
    fn use_packet_path(&self) -> Result {
        for family in [Family::V4, Family::V6] {
            let vip = self.target.udp(family);
            let via = Network::gateway(family);
            let route = format!("route replace {} via {via}", vip.ip());
            self.network.pod.ip(&route)?;
            let reply = self.network.pod.run(|| ask(&udp(family)?, vip))??;
            self.network.pod.ip(&format!("route delete {}", vip.ip()))?;
            ensure!(reply.source == vip, "{} is shown instead of {vip}", reply.source);
        }
        Ok(())
    }

    /// Waits until the agent has said in the maps that it is there, which it does before it attaches
    /// anything and says anything else.
    fn wait_for_signature(&self) -> Result {
        let until = Instant::now() + Duration::from_secs(30);
        let pid = u64::from(self.site.agent.pid());
        while read_run_record(&self.pins().join("run")).map_or(true, |run| run.pid != pid) {
            ensure!(Instant::now() < until, "it never signs");
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Cleans up, and checks that all is as it was before the agent came.
    fn clean_up(&self) -> Result {
        succeeds(&self.site.agent.cleanup()?)?;
        let differences = self.differences()?;
        ensure!(differences.is_empty(), "after the cleanup: {differences:#?}");
        self.others.see_all(&self.network, &self.site.cgroup)
    }
}

fn succeeds(cleanup: &Output) -> Result<String> {
    ensure!(cleanup.status.success(), "{cleanup:?}");
    Ok(String::from_utf8_lossy(&cleanup.stdout).trim().to_owned())
}

fn leaves_all_as_it_was(world: &World, mechanism: &str) -> Result {
    let attach = format!("--tc-attach={mechanism}");
    let flags = ["--tc=on", &attach];
    let mut scene = Scene::begin(world, mechanism, &flags)?;
    let in_cgroup = scene.site.cgroup.visit()?;
    let target = scene.target.clone();
    Load::of(&target).during(&scene.network.pod, || {
        (0..8).try_for_each(|one| scene.site.manifests.write(&large(one)))?;
        wait_for(&scene.site, 8000)
    })?;
    drop(in_cgroup);
    scene.use_packet_path()?;
    let mut ours = Objects::held_by(scene.site.agent.pid())?;
    ours.append(Objects::pinned_in(&scene.pins())?);
    for kind in Kind::ALL {
        ensure!(ours.of(kind).next().is_some(), "the agent has no {kind}");
    }
    let there = scene.differences()?.len();
    ensure!(there > 20, "the agent is hardly to be seen: {:#?}", scene.differences()?);
    scene.site.agent.kill()?;
    scene.clean_up()?;
    // The kernel frees them some time after the last reference.
    wait::until("what was the agent's to leave the kernel", || {
        let left = ours.common(&Objects::all()?);
        ensure!(left.is_empty(), "there are {left:?}");
        Ok(())
    })?;
    let again = succeeds(&scene.site.agent.cleanup()?)?;
    ensure!(again.starts_with("nothing to clean up"), "the second time: {again}");
    scene.clean_up()?;
    tell(format!(
        "{ours} are gone, and what was at {there} places; 0 differences in {} places and settings",
        scene.before.count()
    ));

    (0..8).try_for_each(|one| scene.site.manifests.remove(large(one).name()))?;
    // Files of others in our directory stay, and an agent works beside them. Each growth replaces the directory of config maps.
    scene.start_again(&flags)?;
    scene.site.agent.wait_until_healthy()?;
    let guests = ["others", "config/others", "state/others", "links/others"];
    for guest in guests {
        Others::pin(&scene.pins().join(guest))?;
    }
    for number in [20, 50] {
        (0..number).try_for_each(|one| scene.site.manifests.write(&large(one)))?;
        wait_for(&scene.site, number * SET)?;
    }
    scene.site.agent.kill()?;
    let said = succeeds(&scene.site.agent.cleanup()?)?;
    ensure!(said.contains("it contains files of others"), "{said}");
    let mut left = scene.differences()?;
    left.retain(|place| !guests.iter().any(|guest| is_at(place, &scene.pins().join(guest))));
    ensure!(left.is_empty(), "beside what others pinned: {left:#?}");
    for guest in guests {
        fs::remove_file(scene.pins().join(guest)).context("a pin of others is gone")?;
    }
    scene.clean_up().context("once others have left")
}

/// Whether a difference is at a place, or at a directory above it that is therefore still there.
fn is_at(difference: &str, path: &Path) -> bool {
    let place = difference.split_once(": ").map_or(difference, |(place, _)| place);
    path.ancestors().any(|above| above == Path::new(place))
}

fn cleans_up_half_of_it(world: &mut World) -> Result {
    let turns = if is_full() { 40 } else { 4 };
    let small = ["--tc=on", "--max-memory=400Ki"];
    let mut random = fastrand::Rng::with_seed(8);
    let mut scene = Scene::begin(world, "half", &small)?;
    let mut halfway = 0;
    for turn in 0..turns {
        if turn > 0 {
            scene.start_again(&small)?;
            scene.site.agent.wait_until_healthy()?;
        }
        scene.site.agent.stop()?;
        // To larger maps while it runs, or to another table of flows before it has said a word.
        let moves = if turn % 2 == 0 {
            scene.start_again(&["--tc=on"])?;
            (0..8).try_for_each(|one| scene.site.manifests.write(&large(one)))?;
            wait_for_move(&scene.pins())?;
            thread::sleep(Duration::from_millis(random.u64(0..20)));
            MOVES.as_slice()
        } else {
            scene.start_again(&["--tc=on", "--max-flows=1000", "--tc-attach=clsact"])?;
            scene.wait_for_signature()?;
            &["state/flows-new1"]
        };
        scene.site.agent.kill()?;
        halfway += usize::from(moves.iter().any(|name| scene.pins().join(name).exists()));
        for one in 0..8 {
            // On odd turns there is none.
            let _ = scene.site.manifests.remove(large(one).name());
        }
        scene.clean_up().with_context(|| format!("turn {turn}"))?;
    }
    tell(format!("killed {turns} times, {halfway} of them halfway; 0 differences"));
    ensure!(halfway > 0, "never killed halfway");
    Ok(())
}

/// Directories that are there while maps are moved.
pub(crate) const MOVES: [&str; 2] = ["config-new", "config-old"];

/// Waits until the agent moves to other maps.
pub(crate) fn wait_for_move(pins: &Path) -> Result {
    let until = Instant::now() + Duration::from_secs(30);
    while !MOVES.iter().any(|name| pins.join(name).exists()) {
        ensure!(Instant::now() < until, "it never moves to other maps");
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn is_refused(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("kept", &[])?;
    let pid = site.agent.pid();
    Load::of(&target).during(&world.network.pod, || {
        for _ in 0..10 {
            let refused = site.agent.cleanup()?;
            ensure!(refused.status.code() == Some(1), "{refused:?}");
            let said = String::from_utf8_lossy(&refused.stderr);
            let names = said.contains(&format!("process {pid}")) && said.contains("stop it first");
            ensure!(names, "it says {said}");
        }
        site.agent.wait_until_healthy()
    })?;
    site.agent.wait_for(&target.service)
}
