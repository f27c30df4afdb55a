//! Thousands of imports and slices.

use crate::{changes::summary, prelude::*};

const IMPORTS: u16 = 2000;
const SLICES: usize = 5000;
/// Of each slice.
const ENDPOINTS: usize = 10;
const PATIENCE: Duration = Duration::from_mins(2);
/// Of the bytes of all lists: how much has arrived when an agent is killed.
const KILLED_AT: [u64; 4] = [5, 30, 55, 80];
/// Slices that change one by one, and at once.
const CHANGES: usize = 20;
const CHANGES_AT_ONCE: usize = 1000;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("2,000 imports and 5,000 slices at start", at_start);
}

/// Two or three slices for each import, from as many clusters.
fn services() -> Vec<Service> {
    let mut next = u32::from(Ipv4Addr::new(10, 128, 0, 1));
    let mut ips = || {
        let begin = next;
        next += 10;
        (begin..next).map(|ip| Ipv4Addr::from(ip).into())
    };
    let service = |number: u16| {
        let vip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 79, 0, 0)) + u32::from(number));
        let clusters = 2 + usize::from(number % 2);
        let service = Service::new(format!("many-{number}"), [vip.into()]);
        (0..clusters).fold(service.port(Protocol::Tcp, 80, 8080), |service, cluster| {
            service.endpoints(&format!("c{cluster}"), ips())
        })
    };
    (0..IMPORTS).map(service).collect()
}

fn objects(services: &[Service]) -> Vec<Value> {
    let slices = services.iter().flat_map(Service::slices);
    // There is nothing in those of the other family.
    let slices = slices.filter(|slice| slice["addressType"] == "IPv4");
    services.iter().map(Service::import).chain(slices).collect()
}

fn at_start(world: &mut World) -> Result {
    let services = services();
    let objects = objects(&services);
    assert_eq!(objects.len(), usize::from(IMPORTS) + SLICES);
    let begin = Instant::now();
    world.east.api.create_many(&objects)?;
    tell(format!("created in {:.1} s", begin.elapsed().as_secs_f64()));

    let mut site = start(world, "fresh")?;
    let maps = site.maps()?;
    let (frontends, backends) = maps.counts()?;
    ensure!(frontends >= usize::from(IMPORTS), "{frontends} frontends");
    ensure!(backends >= SLICES * ENDPOINTS, "{backends} backends");

    site.agent.stop()?;
    let netns = &world.network.node.netns;
    // By now the other agent, which follows the same API server, has its share.
    let received = Received::begin(netns)?;
    undisturbed(&maps, || {
        site.agent.start_again(&[])?;
        wait_until_synced(&site)
    })?;
    let listed = received.bytes()?;
    tell(format!("lists of {} MiB", mebibytes(listed)));
    tell(format!("again: peak memory {} MiB, nothing removed", mebibytes(site.peak_memory()?)));

    undisturbed(&maps, || {
        for percent in KILLED_AT {
            site.agent.kill()?;
            let received = Received::begin(netns)?;
            site.agent.start_again(&[])?;
            wait::within(PATIENCE, &format!("{percent} % of the lists"), || {
                let bytes = received.bytes()?;
                ensure!(bytes * 100 >= listed * percent, "{bytes} bytes of {listed} came");
                Ok(())
            })?;
        }
        site.agent.kill()?;
        site.agent.start_again(&[])?;
        wait_until_synced(&site)
    })?;
    tell(format!("killed when {KILLED_AT:?} % of the lists had come: nothing removed"));
    changes(world, &site, &services)?;
    site.agent.stop()
}

/// What happens to few among many, and to many.
fn changes(world: &World, site: &Site, services: &[Service]) -> Result {
    let more = |service: &Service| {
        let mut slice = service.slices().swap_remove(0);
        let endpoints = slice["endpoints"].as_array_mut().context("a slice without endpoints")?;
        endpoints.pop();
        Ok(slice)
    };
    let slices = services.iter().map(more).collect::<Result<Vec<_>>>()?;
    let mut times = Vec::new();
    for (service, slice) in services.iter().zip(&slices).take(CHANGES) {
        let (ip, port, _) = *service.frontends().keys().next().context("no frontend")?;
        let backends = site.set_of(SocketAddr::new(ip, port))?;
        times.push(backends.time_after(|| world.east.api.apply(slice))?);
    }
    tell(format!("{CHANGES} changes, {}", summary(times)));

    let maps = site.maps()?;
    let (_, before) = maps.counts()?;
    let begin = Instant::now();
    world.east.api.apply_many(&slices[CHANGES..][..CHANGES_AT_ONCE])?;
    let written = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    wait::within(PATIENCE, "all changes in the maps", || {
        let (_, now) = maps.counts()?;
        ensure!(now + CHANGES_AT_ONCE == before, "{now} backends of {before} are left");
        Ok(())
    })?;
    tell(format!(
        "{CHANGES_AT_ONCE} changes at once, written in {written:.1} s: in the maps {:.1} s later",
        begin.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// What comes to the node, from now on.
struct Received<'a> {
    netns: &'a Namespace,
    before: u64,
}

impl<'a> Received<'a> {
    fn begin(netns: &'a Namespace) -> Result<Self> {
        Ok(Self { netns, before: Self::total(netns)? })
    }

    fn bytes(&self) -> Result<u64> {
        Ok(Self::total(self.netns)? - self.before)
    }

    fn total(netns: &Namespace) -> Result<u64> {
        let devices = netns.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let devices = devices.lines().filter_map(|line| line.split_once(':'));
        let others = devices.filter(|(name, _)| name.trim() != "lo");
        others
            .map(|(_, counts)| {
                Ok(counts.split_whitespace().next().unwrap_or_default().parse::<u64>()?)
            })
            .sum()
    }
}

/// Starts an agent with empty maps, and tells how it does.
fn start(world: &World, role: &str) -> Result<Site> {
    let begin = Instant::now();
    let site = world.start(role, &[])?;
    wait_until_synced(&site)?;
    let time = begin.elapsed().as_secs_f64();
    tell(format!("read and in the maps after {time:.1} s, up to 2 s of it spent on purpose"));
    tell(format!("peak memory {} MiB", mebibytes(site.peak_memory()?)));
    Ok(site)
}

fn wait_until_synced(site: &Site) -> Result {
    wait::within(PATIENCE, "an agent that is synced", || {
        let report = site.report()?;
        ensure!(report["agent"]["pid"] == site.agent.pid(), "the report is of another process");
        ensure!(report["synced"] == true, "it is not");
        let pending = report["pending"].as_array().context("no list of what is pending")?;
        ensure!(pending.is_empty(), "{pending:?}");
        Ok(())
    })
}

/// Does `work`, while nothing may leave the maps.
fn undisturbed(maps: &Watcher, work: impl FnOnce() -> Result + Send) -> Result {
    let before = maps.counts()?;
    let done = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            done.store(true, Ordering::Relaxed);
            result
        });
        let mut looks = 0_u32;
        while !done.load(Ordering::Relaxed) {
            let now = maps.counts()?;
            ensure!(now == before, "{now:?} frontends and backends of {before:?} are left");
            looks += 1;
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(looks)
    })?;
    ensure!(looks > 0, "nobody looked");
    Ok(())
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes / (1024 * 1024)
}
