//! Another process removes, replaces or detaches pins and programs of the agent.

use std::os::unix::fs::symlink;

use mcs_agent::core::kernel::loader::Tampering;
use mcs_tests::{agent::HOOKS, bpf::Instruction, site};

use crate::{prelude::*, restart::counts_imports};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("pins are removed, or replaced by others, under load", pins_go);
    suite.case("the directory of pins is removed, under load", directory_goes);
    suite.case("bpffs is unmounted and mounted again, under load", bpffs_goes);
    suite.case("programs are detached", detached);
    suite.case("the cgroup is recreated", cgroup_goes);
}

/// What a pin leads to, by its path: enough to tell one map or link from another.
fn pinned(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pins = BTreeMap::new();
    for path in entries(root)?.into_iter().filter(|path| !path.is_dir()) {
        let what = if path.parent().is_some_and(|parent| parent.ends_with("links")) {
            "link"
        } else {
            "map"
        };
        let path_text = path.display().to_string();
        let mut show = Command::new("bpftool");
        show.args(["-j", what, "show", "pinned", &path_text]);
        let shown: Value = serde_json::from_str(&process::run(&mut show, "")?)?;
        let id = shown["id"].as_u64().with_context(|| format!("no id in {shown}"))?;
        pins.insert(path, format!("{what} {id}"));
    }
    Ok(pins)
}

/// What is in the directory, and in those of it.
fn entries(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for directory in [root.to_owned(), root.join("config"), root.join("state"), root.join("links")]
    {
        for entry in fs::read_dir(directory)? {
            paths.push(entry?.path());
        }
    }
    Ok(paths)
}

/// Waits until the same is pinned as before. Returns how long that took.
fn until_pinned(root: &Path, before: &BTreeMap<PathBuf, String>) -> Result<Duration> {
    let start = Instant::now();
    wait::until("the pins to be back", || {
        for path in before.keys() {
            ensure!(path.symlink_metadata()?.is_file(), "{} is missing", path.display());
        }
        let now = pinned(root)?;
        ensure!(now == *before, "{now:?} instead of {before:?}");
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// Repairs of one sort, as `status` counts them.
fn repairs(agent: &Agent, tampering: Tampering) -> Result<u64> {
    Ok(agent.status()?["report"]["repairs"]["counts"][tampering.name()].as_u64().unwrap_or(0))
}

fn wait_for_repairs(agent: &Agent, tampering: Tampering, count: u64) -> Result {
    wait::until("the repairs to be reported", || {
        let reported = repairs(agent, tampering)?;
        ensure!(reported == count, "{reported} repairs ({tampering}) instead of {count}");
        Ok(())
    })
}

/// A program that lets all pass.
fn program() -> Result<Program> {
    let passes: [Instruction; 2] =
        [instruction(code::MOVE_CONSTANT, 0, 0, 0, 1), instruction(code::EXIT, 0, 0, 0, 0)];
    Ok(Program::load(ProgramType::BPF_PROG_TYPE_SOCKET_FILTER, None, &passes)?)
}

fn pins_go(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("unpinned", &[])?;
    let root = Pins::new(site.bpffs.path()).root().to_owned();
    let before = pinned(&root)?;
    let other = program()?;
    let mut took = Duration::ZERO;
    Load::of(&target).during(&world.network.pod, || {
        // All of them at once, and then something else in the place of each.
        for path in before.keys() {
            fs::remove_file(path)?;
        }
        took = took.max(until_pinned(&root, &before)?);
        for path in before.keys() {
            fs::remove_file(path)?;
            other.pin(path)?;
        }
        took = took.max(until_pinned(&root, &before)?);
        for path in before.keys() {
            fs::remove_file(path)?;
            fs::create_dir(path)?;
        }
        took = took.max(until_pinned(&root, &before)?);
        for path in before.keys() {
            fs::remove_file(path)?;
            symlink(path, path)?;
        }
        took = took.max(until_pinned(&root, &before)?);
        wait_for_repairs(&site.agent, Tampering::Pin, 4 * before.len() as u64)?;
        // Who comes next finds everything in its place.
        site.agent.replace(&[])
    })?;
    tell(format!("{} pins gone four times, back within {took:.1?}", before.len()));
    let after = pinned(&root)?;
    // Every start makes new links.
    let stays = |path: &&PathBuf| !path.starts_with(root.join("links")) && !counts_imports(path);
    let is_same = before.keys().filter(stays).all(|path| before.get(path) == after.get(path));
    ensure!(is_same && before.keys().eq(after.keys()), "other maps");
    // The agent has moved the foreign pins aside.
    let aside =
        entries(&root)?.into_iter().filter(|path| path.to_string_lossy().ends_with("-foreign"));
    ensure!(aside.flat_map(fs::remove_dir).count() == before.len());
    site.agent.wait_for(&target.service)
}

fn directory_goes(world: &mut World) -> Result {
    let (target, site, _in_cgroup) = world.stage("removed", &[])?;
    let root = Pins::new(site.bpffs.path()).root().to_owned();
    let before = pinned(&root)?;
    let took = Load::of(&target).during(&world.network.pod, || {
        fs::remove_dir_all(&root)?;
        until_pinned(&root, &before)
    })?;
    wait_for_repairs(&site.agent, Tampering::Bpffs, 1)?;
    ensure!(site.agent.is_healthy()?, "{}", site.agent.status()?["degraded"]);
    tell(format!("pinned again after {took:.1?}"));
    Ok(())
}

/// A separate BPF file system.
struct Mount(PathBuf);

impl Mount {
    fn make(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path)?;
        let mount = Self(path);
        mount.mount()?;
        Ok(mount)
    }

    fn mount(&self) -> Result {
        let mut mount = Command::new("mount");
        process::run(mount.args(["-t", "bpf", "bpf"]).arg(&self.0), "").map(drop)
    }

    fn unmount(&self) -> Result {
        process::run(Command::new("umount").arg("--lazy").arg(&self.0), "").map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may be unmounted already.
        let _ = self.unmount();
    }
}

fn bpffs_goes(world: &mut World) -> Result {
    let target = world.target("unmounted");
    let late = world.target("unmounted-late");
    let manifests = Manifests::create(&world.run)?;
    manifests.write(&target.service)?;
    let source = Source::Manifests(manifests.path().to_owned());
    let (mut config, cgroup, _unused) = site::place(&world.run, "unmounted", source, &[])?;
    let mount = Mount::make(world.run.directory().join("bpffs"))?;
    config.bpffs.clone_from(&mount.0);
    let mut agent = Agent::start(&world.network.node.netns, config)?;
    agent.wait_until_healthy()?;
    let _in_cgroup = cgroup.visit()?;
    let root = mount.0.join("mcs");
    let before = pinned(&root)?;
    let (noticed, took) = Load::of(&target).during(&world.network.pod, || {
        mount.unmount()?;
        let start = Instant::now();
        wait::until("the agent to notice", || {
            ensure!(agent.log()?.contains("are lost"), "it has not said so");
            Ok(())
        })?;
        let noticed = start.elapsed();
        ensure!(!agent.is_healthy()?, "status knows of no trouble");
        // It does its work all the same.
        manifests.write(&late.service)?;
        world.network.pod.run(|| {
            wait::until("the new service", || {
                let stream = connected(Family::V4, late.tcp(Family::V4))?;
                identity(&stream)
            })
        })??;
        mount.mount()?;
        let took = until_pinned(&root, &before)?;
        agent.wait_until_healthy()?;
        wait_for_repairs(&agent, Tampering::Bpffs, 1)?;
        agent.kill()?;
        agent.come_back(&[])?;
        agent.wait_for(&late.service)?;
        Ok((noticed, took))
    })?;
    tell(format!("reported after {noticed:.1?}, pinned {took:.1?} after it was mounted again"));
    Ok(())
}

fn detached(world: &mut World) -> Result {
    let (target, mut site, _in_cgroup) = world.stage("detached", &[])?;
    // Connections that are there do not depend on the hooks.
    let live = world.network.pod.run(|| connected(Family::V4, target.tcp(Family::V4)))??;
    identity(&live)?;
    let mut took = Duration::ZERO;
    for name in hooks(&site)? {
        let pin = site.bpffs.path().join("mcs/links").join(&name);
        let mut detach = Command::new("bpftool");
        process::run(detach.args(["link", "detach", "pinned"]).arg(pin), "")?;
        let start = Instant::now();
        site.agent.wait_until_healthy()?;
        took = took.max(start.elapsed());
        serves(world, &target)?;
    }
    wait_for_repairs(&site.agent, Tampering::Hook, HOOKS as u64)?;
    ensure!(live_still(&live)?, "a connection has ended");
    tell(format!("each of {HOOKS} hooks detached, attached again within {took:.1?}"));
    Ok(())
}

fn hooks(site: &Site) -> Result<Vec<String>> {
    let status = site.agent.status()?;
    let hooks = status["hooks"].as_array().context("no hooks")?;
    Ok(hooks.iter().filter_map(|hook| Some(hook["name"].as_str()?.to_owned())).collect())
}

fn live_still(mut stream: &TcpStream) -> Result<bool> {
    use std::io::{Read as _, Write as _};

    stream.write_all(b"still there?")?;
    let mut echo = [0; 12];
    stream.read_exact(&mut echo)?;
    Ok(&echo == b"still there?")
}

fn serves(world: &World, target: &Target) -> Result {
    world.network.pod.run(|| {
        for family in Family::ON_WIRE {
            identity(&connected(family, target.tcp(family))?)?;
        }
        Ok(())
    })?
}

fn cgroup_goes(world: &mut World) -> Result {
    let target = world.target("moved");
    let mut site = world.start("moved", &[], &[&target.service])?;
    {
        let _in_cgroup = site.cgroup.visit()?;
        serves(world, &target)?;
    }
    let path = site.cgroup.path();
    wait::until("the cgroup to be empty", || {
        // The agent's self-test may be there.
        Ok(fs::remove_dir(path)?)
    })?;
    fs::create_dir(path)?;
    let start = Instant::now();
    wait_for_repairs(&site.agent, Tampering::Cgroup, 1)?;
    site.agent.wait_until_healthy()?;
    let took = start.elapsed();
    let _in_cgroup = site.cgroup.visit()?;
    serves(world, &target)?;
    tell(format!("attached to the new one after {took:.1?}"));
    Ok(())
}
