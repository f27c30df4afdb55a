//! The thread that keeps programs on devices is stopped while the agent waits for it.

use mcs_tests::stopped::Stopped;

use crate::prelude::*;

/// How long it is stopped: almost as long as the agent waits for it, and as an API server waits
/// for the answer to a ping.
const STALL: Duration = Duration::from_secs(9);
/// How long an answer of `/livez` may take meanwhile.
const PROMPT: Duration = Duration::from_secs(1);
/// Where the agent serves health: another one has the default.
const HEALTH: &str = "127.0.0.1:17450";
/// Services that the first maps have no room for.
const LARGE: u8 = 5;
const ENDPOINTS: u16 = 1000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the devices' thread is stopped for 9 s while maps grow", is_stopped);
}

fn large(number: u8) -> Service {
    let ips = (1..=ENDPOINTS).map(|n| {
        let [high, low] = n.to_be_bytes();
        [10, 120 + number, high, low].into()
    });
    Service::new(format!("stalled-{number}"), [[10, 79, 200, number].into()])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("remote", ips)
}

fn is_stopped(world: &mut World) -> Result {
    let world = &*world;
    let health = format!("--health-address={HEALTH}");
    let flags = ["--tc=on", &health, "--metrics-address=off"];
    let mut site = world.start("stalled", &flags)?;
    site.wait_until_healthy()?;
    let (site, api) = (&site, &world.east.api);
    let before = site.report()?["capacity"]["endpoints"].as_u64().context("no capacity")?;
    let stopped = Stopped::thread(site.agent.pid(), "devices")?;
    let begin = Instant::now();
    let services: Vec<_> = (0..LARGE).map(large).collect();
    let objects = services.iter().flat_map(|service| {
        let slices = service.slices().into_iter().filter(|slice| slice["addressType"] == "IPv4");
        [service.import()].into_iter().chain(slices)
    });
    let objects: Vec<_> = objects.collect();
    api.create_many(&objects)?;
    let larger = site.bpffs.path().join("mcs/config-new");
    wait::until("a growth", || {
        ensure!(larger.exists(), "there are no larger maps");
        Ok(())
    })?;
    let (mut answers, mut longest) = (0, Duration::ZERO);
    while begin.elapsed() < STALL {
        let asked = Instant::now();
        world
            .network
            .node
            .netns
            .output("curl", &["--silent", "--fail", &format!("http://{HEALTH}/livez")])?;
        longest = longest.max(asked.elapsed());
        answers += 1;
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(larger.exists(), "the maps grew without the devices");
    drop(stopped);
    ensure!(longest < PROMPT, "an answer took {longest:?}");
    tell(format!(
        "{answers} answers within {longest:?} each while the devices' thread stood still"
    ));
    services.iter().try_for_each(|service| site.wait_for(service))?;
    site.wait_for_report("larger maps", |report| {
        report["grown_at"].is_u64()
            && report["capacity"]["endpoints"].as_u64().is_some_and(|now| now > before)
    })?;
    ensure!(site.known_until()?.is_none(), "a watch was lost");
    objects.iter().try_for_each(|object| api.delete(object))
}
