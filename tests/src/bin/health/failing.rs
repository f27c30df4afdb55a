//! An agent that is stuck, or cannot write its maps.

use std::time::{SystemTime, UNIX_EPOCH};

use mcs_tests::stopped::Stopped;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{prelude::*, world::empty};

/// An address that no import had before.
const LATE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 3);
/// The least that the agent takes.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a stuck control loop is not alive, and what ends is not ready", stuck_engine);
    suite.case("an agent whose main thread is stuck reads nothing, and is not alive", stuck_main);
    suite.case("a status file that cannot be written: health and metrics follow", blocked_status);
    suite.case("a full disk below the run directory: what is asked for is served", full_disk);
    suite.case("an API server that is away: alive, healthy, not ready", away);
    suite.case("maps that cannot be written: alive, not healthy", unwritable);
    suite.case("a range of ClusterSetIPs that leaves out what is served", other_range);
}

/// Waits up to some seconds more than the timeout of liveness.
fn within_timeout<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    wait::within(TIMEOUT * 2, what, &mut attempt)
}

fn stuck_engine(world: &mut World) -> Result {
    stuck(world, "stuck", |pid| Stopped::thread(pid, "engine"))
}

fn stuck_main(world: &mut World) -> Result {
    stuck(world, "stuck-main", Stopped::main_thread)
}

fn stuck(world: &mut World, name: &str, stop: impl Fn(u32) -> Result<Stopped>) -> Result {
    let flags = ["--liveness-timeout", "10"];
    let (mut site, netns) = another(world, name, &flags, |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    let stopped = stop(site.agent.pid())?;
    let since = Instant::now();
    let dead = within_timeout("livez to fail", || {
        let answer = health(&netns, "/livez")?;
        expect(&answer, 503, &["[-]control failed: no sign of life for"])?;
        Ok(answer)
    })?;
    // It gave a sign of life within the second before.
    ensure!(
        since.elapsed() + Duration::from_secs(1) >= TIMEOUT,
        "{:?}: {}",
        since.elapsed(),
        dead.body
    );
    expect(&health(&netns, "/healthz")?, 503, &["\"healthy\":false"])?;
    ensure!(samples(&netns)?["mcs_control_silence_seconds"] > 10.0, "metrics know nothing of it");

    // It cannot end on SIGTERM, but /readyz reports that it should.
    expect(&health(&netns, "/readyz")?, 503, &["[-]control failed", "[+]shutdown ok"])?;
    site.agent.signal(Signal::TERM)?;
    wait::until("readyz to tell it", || {
        expect(&health(&netns, "/readyz")?, 503, &["[-]shutdown failed", "[+]hooks ok"])
    })?;
    drop(stopped);
    wait::until("the agent to end", || {
        ensure!(health(&netns, "/livez").is_err(), "it answers");
        Ok(())
    })
}

/// The agent writes its status here before it renames it: opening a pipe that nobody reads takes for ever.
fn blocked_status(world: &mut World) -> Result {
    let (mut site, netns) = another(world, "blocked", &[], |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    let pipe = status_file(&site.agent.config().run_dir)?.with_extension("json.new");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let refusing = |expected: f64| {
        wait::until("a change in the metrics", || {
            let found = samples(&netns)?["mcs_frontends{state=\"refusing\"}"];
            ensure!(found == expected, "{found} frontends refuse");
            Ok(())
        })
    };
    site.manifests.write(&empty())?;
    refusing(1.0)?;
    // The report of that change is being written.
    site.manifests.remove(empty().name())?;
    refusing(0.0)?;
    expect(&health(&netns, "/livez")?, 200, &[])?;
    fs::read(pipe)?;
    site.agent.stop()
}

/// A small file system for an agent's run directory. It is unmounted when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path)?;
        let mut mount = Command::new("mount");
        process::run(mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&path), "")?;
        Ok(Self(path))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves no room for another byte.
    fn fill(&self) -> Result {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        let full = (0..1000).find_map(|_| filler.write_all(&[0; 4096]).err());
        let full = full.context("the disk is not full")?;
        ensure!(full.kind() == io::ErrorKind::StorageFull, "{full}");
        Ok(())
    }

    fn empty(&self) -> Result {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        if let Err(error) = process::run(unmount.arg("--lazy").arg(&self.0), "") {
            eprintln!("cannot unmount {}: {error:#}", self.0.display());
        }
    }
}

/// Also by an agent that starts meanwhile.
fn full_disk(world: &mut World) -> Result {
    let disk = SmallDisk::mount(world.run.directory().join("full"))?;
    let (mut site, netns) = another(world, "full", &[], |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    for pod in PODS {
        netns.ip(&format!("address add {}/32 dev lo", pod_address(pod)))?;
    }
    let server = |pod| Server::tcp(&netns, SocketAddr::new(pod_address(pod), 8080));
    let _servers = PODS.map(server).into_iter().collect::<Result<Vec<_>>>()?;
    let connects = |site: &Site, vip: Ipv4Addr| {
        let _in_cgroup = site.cgroup.visit()?;
        netns.run(|| identity(&connected(Family::V4, SocketAddr::new(vip.into(), 80))?))?
    };
    let is_written = |site: &Site| -> Result<u64> {
        let status = site.agent.status()?;
        status["report"]["agent"]["pid"].as_u64().with_context(|| format!("no pid in {status}"))
    };
    let complaints = |site: &Site| -> Result<usize> {
        Ok(site.agent.log()?.matches("No space left on device").count())
    };
    let refusing = |expected: f64| {
        wait::until("a change in the metrics", || {
            let found = samples(&netns)?["mcs_frontends{state=\"refusing\"}"];
            ensure!(found == expected, "{found} frontends refuse");
            Ok(())
        })
    };

    connects(&site, WEB)?;
    disk.fill()?;
    site.manifests.write(&empty())?;
    wait::until("the agent to log it", || {
        // A report that was being written may have left room behind.
        disk.fill()?;
        ensure!(complaints(&site)? > 0, "it has not said so");
        Ok(())
    })?;
    refusing(1.0)?;
    connects(&site, WEB)?;
    ensure!(connects(&site, EMPTY).is_err(), "a service without backends is reached");
    for path in ["/livez", "/readyz", "/healthz"] {
        expect(&health(&netns, path)?, 200, &[]).context(path)?;
    }
    let before = is_written(&site)?;

    let complained = complaints(&site)?;
    let started =
        site.agent.status()?["report"]["agent"]["started"].as_u64().context("no start")?;
    // `status` tells agents that start in the same second apart by what each leaves at its start. The full disk has no room for it.
    wait::until("the next second", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        ensure!(now > started, "it is not over");
        Ok(())
    })?;
    site.agent.stop()?;
    site.agent.start_again(&["--health-address", HEALTH, "--metrics-address", METRICS])?;
    wait::until("readyz to pass", || expect(&health(&netns, "/readyz")?, 200, &[]))?;
    site.manifests.remove(empty().name())?;
    refusing(0.0)?;
    connects(&site, WEB)?;
    wait::until("the next agent to log it", || {
        ensure!(complaints(&site)? > complained, "it has not said so");
        Ok(())
    })?;
    ensure!(is_written(&site)? == before, "there was room");
    let degraded = site.agent.status()?["degraded"].to_string();
    ensure!(degraded.contains("by the agent before"), "{degraded}");

    disk.empty()?;
    site.agent.wait_until_healthy()?;
    wait::until("status to say how the agent is", || {
        let written = is_written(&site)?;
        ensure!(written == u64::from(site.agent.pid()), "it is of {written}");
        Ok(())
    })?;
    site.agent.wait_for(&web())
}

/// A roll-out with that flag stops at the first node, and nothing ends.
fn other_range(world: &mut World) -> Result {
    let other = "--vip-cidr=10.99.0.0/16";
    let flags = ["--health-address", HEALTH, "--metrics-address", METRICS];
    world.site.agent.stop()?;
    world.site.agent.start_again(&[&flags[..], &[other]].concat())?;
    wait::until("readyz to fail", || {
        let answer = health(&world.network.node.netns, "/readyz")?;
        expect(
            &answer,
            503,
            &["[+]sync ok", "[-]ranges failed: 2 ClusterSetIPs are served, as before"],
        )
    })?;
    for _ in 0..20 {
        connect(world, WEB)?;
    }
    ensure!(!world.site.agent.is_healthy()?, "status sees nothing wrong");
    // What is new is rejected, and an import that was deleted is new.
    let late = Service::new("late", [LATE.into()]).port(Protocol::Tcp, 80, 8080);
    world.site.manifests.write(&late)?;
    wait::until("a rejection", || {
        let figures = samples(&world.network.node.netns)?;
        let rejected = figures.get("mcs_rejections{reason=\"vip_outside_cidr\"}");
        ensure!(rejected == Some(&1.0), "{rejected:?} are rejected");
        Ok(())
    })?;
    for service in [web(), empty(), late] {
        world.site.manifests.remove(service.name())?;
    }
    wait::until("readyz to pass", || {
        expect(&health(&world.network.node.netns, "/readyz")?, 200, &[])
    })?;
    world.site.manifests.write(&web())?;
    wait::until("status to say that nothing is served", || {
        expect(&health(&world.network.node.netns, "/readyz")?, 200, &[])?;
        ensure!(!world.site.agent.is_healthy()?, "status sees nothing wrong");
        Ok(())
    })?;
    ensure!(connect(world, WEB).is_err(), "an import that was made anew is served");

    world.site.agent.stop()?;
    world.site.agent.start_again(&flags)?;
    world.site.manifests.write(&empty())?;
    world.site.agent.wait_until_healthy()?;
    world.site.agent.wait_for(&web())
}

fn unwritable(world: &mut World) -> Result {
    let flags = ["--liveness-timeout", "10"];
    let (mut site, netns) = another(world, "frozen", &flags, |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    let pin = site.bpffs.path().join("mcs/config/vips").display().to_string();
    netns.output("bpftool", &["map", "freeze", "pinned", &pin])?;
    site.manifests.write(&empty())?;
    wait::until("readyz to fail", || {
        expect(&health(&netns, "/readyz")?, 503, &["[-]maps failed: not in the maps yet"])
    })?;
    // A change may wait for a while.
    expect(&health(&netns, "/healthz")?, 200, &["\"healthy\":true"])?;
    let answer: Answer = within_timeout("healthz to fail", || {
        let answer = health(&netns, "/healthz")?;
        expect(&answer, 503, &["\"healthy\":false"])?;
        Ok(answer)
    })?;
    let body: Value = serde_json::from_str(&answer.body)?;
    ensure!(body["lastUpdated"].as_str() < body["currentTime"].as_str(), "{body}");
    expect(&health(&netns, "/livez")?, 200, &["ok"])?;
    let figures = samples(&netns)?;
    ensure!(figures["mcs_sync_failures_total"] > 1.0, "no failures are counted");
    ensure!(figures["mcs_pending"] > 0.0, "nothing is pending");
    assert_eq!(figures["kubeproxy_sync_proxy_rules_service_changes_pending"], 1.0);
    assert_eq!(figures["mcs_check_ok{check=\"maps\"}"], 0.0);
    assert_eq!(figures["mcs_frontends{state=\"ready\"}"], 1.0);
    Ok(())
}

fn away(world: &mut World) -> Result {
    let kubeconfig = world.run.directory().join("away.kubeconfig");
    let content = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    });
    fs::write(&kubeconfig, content.to_string())?;
    let flags = ["--liveness-timeout", "10"];
    let (mut site, netns) = another(world, "away", &flags, |manifests| manifests.write(&web()))?;
    site.agent.wait_until_healthy()?;
    site.agent.stop()?;
    site.agent.start_again_on(Source::Kubeconfig(kubeconfig))?;
    let since = Instant::now();
    let slices = "{resource=\"endpointslices.discovery.k8s.io\"}";
    let contact = wait::until("the problem to be reported", || {
        expect(&health(&netns, "/readyz")?, 503, &["[-]sync failed", "[+]hooks ok", "[+]maps ok"])?;
        let figures = samples(&netns)?;
        ensure!(figures["mcs_source_problems"] > 0.0, "nothing is known of it");
        Ok(figures[&format!("mcs_source_last_contact_timestamp_seconds{slices}")])
    })?;
    // For longer than a stuck one would be alive.
    while since.elapsed() < TIMEOUT + Duration::from_secs(5) {
        expect(&health(&netns, "/livez")?, 200, &["ok"])?;
        expect(&health(&netns, "/healthz")?, 200, &["\"healthy\":true"])?;
        thread::sleep(Duration::from_millis(500));
    }
    let figures = samples(&netns)?;
    assert_eq!(figures[&format!("mcs_source_last_contact_timestamp_seconds{slices}")], contact);
    assert_eq!(figures[&format!("mcs_source_synced{slices}")], 0.0);
    // The dataplane that an earlier agent wrote still works.
    site.agent.wait_for(&web())
}

/// The file that the agent writes below its `--run-dir`.
pub(crate) fn status_file(run_dir: &std::path::Path) -> Result<PathBuf> {
    let directory = fs::read_dir(run_dir)?.next().context("no run directory")??;
    Ok(directory.path().join("status.json"))
}
