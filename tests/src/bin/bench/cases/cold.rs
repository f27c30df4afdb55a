//! A start from nothing: all objects arrive at once.

use std::{
    env,
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use aya::maps::{HashMap, Map, MapData};
use mcs_agent::{
    agent::{self, Config, SocketLb, SourceConfig, TcAttach},
    devices::{DevicePatterns, TcMode, Uplinks, Wishes},
    flows::FlowCapacity,
    loader::{CONFIG_MAPS, Pins},
    model::{
        Batch, Endpoint, EndpointAddress, EndpointSlice, ImportPort, Kind, Memory, NodeFacts,
        Object, ObjectEvent, ObjectKey, ServiceImport, ServiceType, SlicePort, Timestamp, Trigger,
    },
};
use mcs_common::{Address, maps};
use mcs_tests::{bpffs::BpfDirectory, process, run::Run, wait};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Case, Sizes};
use crate::{contender::Contender, figures::Unit, plan::Plan, session::Session};

pub(crate) const CASE: Case = Case {
    name: "cold",
    about: "a start with 100,000 and 3,000,000 endpoints: time, memory, maps",
    note: "The agent's own loop in a process of its own, with events made there; from the list to the last VIP in \
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

/// Endpoints of a slice at most: what controllers write.
const SLICE: u32 = 100;
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
    peak: f64,
    resident: f64,
    /// Bytes that the kernel says the config maps take.
    maps: f64,
}

fn run(session: &mut Session<'_>) {
    for scale in &SCALES {
        let rounds = rounds(session.plan, scale);
        let starts = (0..rounds).map(|round| {
            session.progress.detail(format!("{}, round {} of {rounds}", scale.name, round + 1));
            start(scale)
        });
        let starts = starts.collect::<anyhow::Result<Vec<Start>>>();
        for (what, unit, of) in QUANTITIES {
            let values = match &starts {
                Ok(starts) => Ok(starts.iter().map(of).collect()),
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            let quantity = format!("{}, {what}", scale.name);
            session.add(&quantity, unit, Contender::Sockets, values);
        }
    }
}

type Quantity = (&'static str, Unit, fn(&Start) -> f64);

const QUANTITIES: [Quantity; 5] = [
    ("list to effect", Unit::Milliseconds, |start| start.effect * 1e3),
    ("CPU time for it", Unit::Milliseconds, |start| start.cpu * 1e3),
    ("resident at most", Unit::Mebibytes, |start| start.peak / MEBIBYTE),
    ("resident once synced", Unit::Mebibytes, |start| start.resident / MEBIBYTE),
    ("maps", Unit::Mebibytes, |start| start.maps / MEBIBYTE),
];

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Starts an agent in a process of its own.
fn start(scale: &Scale) -> anyhow::Result<Start> {
    let mut child = Command::new(env::current_exe()?);
    child.arg(format!("--cold-start={},{}", scale.services, scale.endpoints));
    let told = process::run(&mut child, "")?;
    serde_json::from_str(&told).with_context(|| format!("{told:?} is no measurement"))
}

/// What that process does: prints a [`Start`].
pub(crate) fn child(services: u32, endpoints: u32) -> anyhow::Result<()> {
    agent::share_heap();
    let run = Run::begin("mcs-cold")?;
    let bpffs = BpfDirectory::create(&run, "agent")?;
    let config = config(&run, bpffs.path());
    let pin = Pins::new(bpffs.path()).config();
    let (sender, receiver) = mpsc::channel(1);
    // The agent has the main thread, as in its own program.
    let measuring = thread::spawn(move || measure(&sender, &pin, services, endpoints));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // It ends when the other thread has dropped the sender.
    runtime.block_on(agent::follow(config, receiver))?;
    match measuring.join() {
        Ok(start) => println!("{}", serde_json::to_string(&start?)?),
        Err(_) => bail!("the measuring thread panicked"),
    }
    Ok(())
}

fn config(run: &Run, bpffs: &Path) -> Config {
    let nowhere =
        Wishes { mode: TcMode::Off, pods: DevicePatterns(vec![]), uplinks: Uplinks::None };
    Config {
        source: SourceConfig::Manifests(run.directory().to_owned()),
        bpffs: bpffs.to_owned(),
        cgroup_root: Some(run.cgroup().to_owned()),
        socket_lb: SocketLb::All,
        packets: nowhere,
        tc_attach: TcAttach::Auto,
        node_name: Some("node-1".to_owned()),
        vip_cidrs: vec![],
        node: NodeFacts::default(),
        max_memory: Memory(1 << 30),
        flows: FlowCapacity::default(),
        stale_udp: false,
        health_address: None,
        metrics_address: None,
        liveness_timeout: PATIENCE,
        run_dir: run.directory().to_owned(),
        program_log: None,
    }
}

fn measure(
    sender: &mpsc::Sender<Batch>,
    config: &Path,
    services: u32,
    endpoints: u32,
) -> anyhow::Result<Start> {
    let vips = config.join(maps::VIPS);
    wait::until("the agent to have its maps", || {
        ensure!(vips.exists(), "no maps");
        Ok(())
    })?;
    // What it does at its start is over then.
    thread::sleep(Duration::from_secs(1));
    let batch = Batch { events: events(services, endpoints), ..Batch::default() };
    // The peak begins anew (proc_pid_clear_refs(5)).
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
    Ok(Start {
        effect: effect.as_secs_f64(),
        cpu: cpu.as_secs_f64(),
        peak: of_status("VmHWM:")?,
        resident: of_status("VmRSS:")?,
        maps: CONFIG_MAPS
            .iter()
            .map(|map| locked(&config.join(map)))
            .sum::<anyhow::Result<f64>>()?,
    })
}

/// Bytes that a pinned map takes, as the kernel tells it.
fn locked(pin: &Path) -> anyhow::Result<f64> {
    let map = MapData::from_pin(pin)?;
    let file = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let told = fs::read_to_string(&file)?;
    let line = told.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(line.with_context(|| format!("{file} has no memlock"))?.trim().parse()?)
}

fn has(pin: &Path, vip: &Address) -> anyhow::Result<bool> {
    // Larger maps take the place of the first ones.
    let Ok(map) = MapData::from_pin(pin) else { return Ok(false) };
    let map = HashMap::<_, Address, u32>::try_from(Map::HashMap(map))?;
    Ok(map.get(vip, 0).is_ok())
}

/// A field of this process's status, which is in kilobytes.
fn of_status(field: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    let number = line.trim().trim_end_matches(" kB");
    Ok(number.parse::<f64>().with_context(|| format!("{field} {line}"))? * 1024.0)
}

/// CPU time of this process.
fn cpu_time() -> anyhow::Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}

/// The VIP of a service; they are numbered from 1.
fn vip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + service)
}

/// The lists of all objects.
fn events(services: u32, endpoints: u32) -> Vec<ObjectEvent> {
    let mut addresses = u32::from(Ipv4Addr::new(100, 64, 0, 0))..;
    let (mut imports, mut slices) = (Vec::new(), Vec::new());
    let (mut namespace, mut name) = (String::new(), String::new());
    for service in 1..=services {
        namespace.clear();
        name.clear();
        // To write to a string cannot fail.
        let _ = write!(namespace, "team-{}", service % 100);
        let _ = write!(name, "service-{service:06}");
        imports.push(Object::Import(import(&namespace, &name, vip(service))));
        for (number, first) in (0..endpoints).step_by(SLICE as usize).enumerate() {
            let count = SLICE.min(endpoints - first) as usize;
            let endpoints = addresses.by_ref().take(count).map(endpoint).collect();
            slices.push(Object::Slice(EndpointSlice {
                key: ObjectKey::new(&*namespace, format!("{name}-{number}")),
                service: (&*name).into(),
                source_cluster: format!("cluster-{}", service % 10).into(),
                address_type: "IPv4".to_owned(),
                endpoints,
                ports: vec![SlicePort {
                    name: "http".to_owned(),
                    protocol: Some("TCP".to_owned()),
                    port: Some(8080),
                }],
                trigger: Trigger::default(),
            }));
        }
    }
    vec![
        ObjectEvent::Relist { kind: Kind::ServiceImport, objects: imports },
        ObjectEvent::Relist { kind: Kind::EndpointSlice, objects: slices },
    ]
}

fn import(namespace: &str, name: &str, vip: Ipv4Addr) -> ServiceImport {
    ServiceImport {
        key: ObjectKey::new(namespace, name),
        created: Some(Timestamp(0)),
        derived_service: None,
        service_type: ServiceType::ClusterSetIp,
        ips: vec![vip.to_string()],
        ports: vec![ImportPort {
            name: "http".to_owned(),
            protocol: Some("TCP".to_owned()),
            port: 80,
        }],
        session_affinity: None,
        affinity_timeout_seconds: None,
        internal_traffic_policy: None,
        endpoint_slice_objects: None,
    }
}

/// A ready endpoint, on one of 5,000 nodes.
fn endpoint(address: u32) -> Endpoint {
    Endpoint {
        address: EndpointAddress::Ip(Ipv4Addr::from(address).into()),
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        node_name: Some(format!("node-{}", address % 5000).into()),
        hints: None,
    }
}
