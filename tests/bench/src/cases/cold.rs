//! A start from nothing: all objects arrive at once.

use std::env;

use aya::maps::{HashMap, Map, MapData};
use mcs_agent::{
    core::{
        control::{self, Config},
        feature::ChosenFeatures,
        model::{EventBatch, Memory},
    },
    features,
};
use mcs_common::{
    Address,
    maps::{self, Place},
};
use mcs_tests::{
    objects::{self, vip},
    procfs::{self, Status},
};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Case, Sizes};
use crate::prelude::*;

pub(crate) const CASE: Case = Case {
    name: mcs_tests::subjects::COLD.name,
    note: "The agent's own loop in a separate process, with events made there; from the list to the last VIP in \
           the maps. Resident memory includes the maps, which are mapped.",
    sizes: Sizes::Largest,
    contenders: &[Contender::Sockets],
    time: |plan, _| SCALES.iter().map(|scale| scale.time * rounds(plan, scale)).sum(),
    run: |session| {
        run(session);
        Ok(())
    },
};

/// The quantities of this case that targets are about.
pub(crate) const SYNC: &str = "100,000 endpoints, list to effect";
pub(crate) const MEMORY: &str = "100,000 endpoints, resident once synced";
pub(crate) const LARGE_MEMORY: &str = "3,000,000 endpoints, resident at most";
pub(crate) const LARGE_MAPS: &str = "3,000,000 endpoints, maps";

/// How many objects there are.
struct Scale {
    name: &'static str,
    services: u32,
    /// Of each service.
    endpoints: u32,
    rounds: u32,
    /// How long a round takes, about.
    time: Duration,
}

const SCALES: [Scale; 4] = [
    Scale {
        name: "10,000 endpoints",
        services: 1000,
        endpoints: 10,
        rounds: 5,
        time: Duration::from_secs(2),
    },
    Scale {
        name: "100,000 endpoints",
        services: 10_000,
        endpoints: 10,
        rounds: 5,
        time: Duration::from_secs(3),
    },
    Scale {
        name: "1,000,000 endpoints",
        services: 1000,
        endpoints: 1000,
        rounds: 1,
        time: Duration::from_secs(10),
    },
    Scale {
        name: "3,000,000 endpoints",
        services: 3000,
        endpoints: 1000,
        rounds: 1,
        time: Duration::from_secs(20),
    },
];

/// How long a start may take.
const PATIENCE: Duration = Duration::from_mins(5);

fn rounds(plan: &Plan, scale: &Scale) -> u32 {
    scale.rounds.min(plan.rounds)
}

/// What a start has taken.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Start {
    /// From the list to the last VIP, in seconds.
    effect: f64,
    /// CPU time of all threads meanwhile, in seconds.
    cpu: f64,
    /// Bytes: at most, and afterwards.
    peak: u64,
    resident: u64,
    /// Bytes that the kernel says the config maps take.
    maps: u64,
}

fn run(session: &mut Session<'_>) {
    for scale in &SCALES {
        let rounds = rounds(session.plan, scale);
        let starts = (0..rounds).map(|round| {
            session.progress.detail(format!("{}, round {} of {rounds}", scale.name, round + 1));
            start(scale)
        });
        let starts = starts.collect::<Result<Vec<Start>>>();
        for (what, unit, of) in QUANTITIES {
            let quantity = quantity(scale, what);
            match &starts {
                Ok(starts) => {
                    let values = starts.iter().map(of).collect();
                    session.add(&quantity, unit, Contender::Sockets, Ok(values));
                }
                Err(error) => session.fail(&[(&quantity, unit)], Contender::Sockets, error),
            }
        }
    }
}

fn quantity(scale: &Scale, what: &str) -> String {
    format!("{}, {what}", scale.name)
}

type Quantity = (&'static str, Unit, fn(&Start) -> f64);

const QUANTITIES: [Quantity; 5] = [
    ("list to effect", Unit::Milliseconds, |start| start.effect * 1e3),
    ("CPU time for it", Unit::Milliseconds, |start| start.cpu * 1e3),
    ("resident at most", Unit::Mebibytes, |start| mebibytes(start.peak)),
    ("resident once synced", Unit::Mebibytes, |start| mebibytes(start.resident)),
    ("maps", Unit::Mebibytes, |start| mebibytes(start.maps)),
];

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 bytes")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Starts an agent in a separate process.
fn start(scale: &Scale) -> Result<Start> {
    let mut child = Command::new(env::current_exe()?);
    child.arg(format!("--cold-start={},{}", scale.services, scale.endpoints));
    let output = process::run(&mut child, "")?;
    serde_json::from_str(&output).with_context(|| format!("{output:?} is no measurement"))
}

/// What that process does: prints a [`Start`].
pub(crate) fn child(services: u32, endpoints: u32) -> Result {
    control::share_heap();
    let run = Run::begin("mcs-cold")?;
    let bpffs = BpfDirectory::create(&run, "agent")?;
    let config = config(&run, bpffs.path());
    let pin = Pins::new(bpffs.path()).config();
    let (sender, receiver) = mpsc::channel(1);
    let measuring = thread::spawn(move || measure(&sender, &pin, services, endpoints));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // It ends when the other thread has dropped the sender.
    runtime.block_on(control::follow(
        config,
        ChosenFeatures::with(features::LIST, &["--metrics-imports=0"]),
        receiver,
    ))?;
    match measuring.join() {
        Ok(start) => println!("{}", serde_json::to_string(&start?)?),
        Err(_) => bail!("the measuring thread panicked"),
    }
    Ok(())
}

fn config(run: &Run, bpffs: &Path) -> Config {
    Config {
        bpffs: bpffs.to_owned(),
        cgroup_root: Some(run.cgroup().to_owned()),
        node_name: Some("node-1".to_owned()),
        max_memory: Memory(1 << 30),
        liveness_timeout: PATIENCE,
        run_dir: run.directory().to_owned(),
        ..Config::in_directory(run.directory())
    }
}

fn measure(
    sender: &mpsc::Sender<EventBatch>,
    config: &Path,
    services: u32,
    endpoints: u32,
) -> Result<Start> {
    let vips = config.join(maps::VIPS);
    wait::until("the agent to have its maps", || {
        ensure!(vips.exists(), "no maps");
        Ok(())
    })?;
    // What it does at its start is over then.
    thread::sleep(Duration::from_secs(1));
    let batch = EventBatch { events: objects::many(services, endpoints), ..EventBatch::default() };
    // Resets the peak (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5")?;
    let (begin, cpu) = (Instant::now(), cpu_time()?);
    sender.blocking_send(batch).ok().context("the agent has ended")?;
    let last = Address::from(IpAddr::V4(vip(services)));
    while !has(&vips, &last)? {
        ensure!(begin.elapsed() < PATIENCE, "the last VIP is not there after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
    let (effect, cpu) = (begin.elapsed(), cpu_time()?.saturating_sub(cpu));
    // The report follows.
    thread::sleep(Duration::from_secs(1));
    let status = Status::of(std::process::id())?;
    Ok(Start {
        effect: effect.as_secs_f64(),
        cpu: cpu.as_secs_f64(),
        peak: status.number("VmHWM")? * 1024,
        resident: status.number("VmRSS")? * 1024,
        maps: maps::of(Place::Config)
            .map(|map| locked(&config.join(map.name)))
            .sum::<Result<u64>>()?,
    })
}

/// Bytes that a pinned map takes, as the kernel tells it.
fn locked(pin: &Path) -> Result<u64> {
    let description = bpf::describe_pin(pin)?;
    procfs::number(&description, "memlock")
        .with_context(|| format!("no memlock of {}", pin.display()))
}

fn has(pin: &Path, vip: &Address) -> Result<bool> {
    // Larger maps take the place of the first ones.
    let Ok(map) = MapData::from_pin(pin) else { return Ok(false) };
    let map = HashMap::<_, Address, u32>::try_from(Map::HashMap(map))?;
    Ok(map.get(vip, 0).is_ok())
}

/// CPU time of this process, finer than what the kernel tells of others.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_about_what_is_measured() {
        let of = |scale| QUANTITIES.map(|(what, ..)| quantity(scale, what));
        let measured: Vec<_> = SCALES.iter().flat_map(of).collect();
        for target in [SYNC, MEMORY, LARGE_MEMORY, LARGE_MAPS] {
            assert!(measured.iter().any(|quantity| quantity == target), "{target}");
        }
    }
}
