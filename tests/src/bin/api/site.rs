//! An agent that follows an API server.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use aya::maps::{Array, HashMap, Map, MapData};
use mcs_agent::{
    dataplane::KernelMapsReader,
    loader::Pins,
    reconcile::{MapReader as _, MapView},
};
use mcs_common::{Extent, FrontendKey, FrontendState, maps};
use mcs_tests::{
    agent::{Agent, Source},
    bpffs::BpfDirectory,
    cgroup::Cgroup,
    manifests::Service,
    netns::Namespace,
    procfs::Status,
    run::Run,
    site, wait,
};
use rustix::process::Signal;
use serde_json::Value;

/// Longer than an agent waits between two attempts, and what an attempt takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// An agent with its own cgroup and bpffs directory. Nothing of it is left when this is
/// dropped.
pub(crate) struct Site {
    pub(crate) agent: Agent,
    pub(crate) cgroup: Cgroup,
    pub(crate) bpffs: BpfDirectory,
}

impl Site {
    /// Starts one, without waiting for it.
    pub(crate) fn start(
        run: &Run,
        role: &str,
        netns: &Namespace,
        source: Source,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let (config, cgroup, bpffs) = site::place(run, role, source, flags)?;
        Ok(Self { agent: Agent::start(netns, config)?, cgroup, bpffs })
    }

    /// Waits until it has read everything, filled the maps and attached its programs.
    pub(crate) fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        // One attempt may begin just before what it needs is there.
        let begin = Instant::now();
        loop {
            match self.agent.wait_until_healthy() {
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Waits until the maps hold exactly what a service asks for.
    pub(crate) fn wait_for(&self, service: &Service) -> anyhow::Result<()> {
        let expected = service.frontends();
        wait::within(PATIENCE, &format!("the frontends of {}", service.name()), || {
            let found = self.agent.frontends(service.name())?;
            ensure!(found == expected, "there are {found:?} instead of {expected:?}");
            Ok(())
        })
    }

    /// What the agent reports.
    pub(crate) fn report(&self) -> anyhow::Result<Value> {
        Ok(self.agent.status()?["report"].take())
    }

    /// Waits until the report says what `check` wants.
    pub(crate) fn wait_for_report(
        &self,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        wait::within(PATIENCE, what, || {
            let report = self.report()?;
            ensure!(check(&report), "it reports {report}");
            Ok(())
        })
    }

    /// Waits until it says that it cannot read a resource, for such a reason.
    pub(crate) fn wait_for_problem(&self, resource: &str, reason: &str) -> anyhow::Result<()> {
        self.wait_for_report(&format!("a problem with {resource}: {reason}"), |report| {
            problems(report).iter().any(|(place, why)| place == resource && why.contains(reason))
        })
    }

    /// The time up to which it knows the kinds that it cannot follow, in seconds since the Unix epoch.
    pub(crate) fn known_until(&self) -> anyhow::Result<Option<u64>> {
        let report = self.report()?;
        let kinds = report["source"]["kinds"].as_array().into_iter().flatten();
        Ok(kinds.filter_map(|kind| kind["known_until"].as_u64()).min())
    }

    /// Waits until it has no problem.
    pub(crate) fn wait_until_content(&self) -> anyhow::Result<()> {
        self.wait_for_report("an agent without problems", |report| problems(report).is_empty())
    }

    /// Stops it (SIGSTOP).
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.agent.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        self.agent.signal(Signal::CONT)
    }

    /// The most memory it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        Ok(Status::of(self.agent.pid())?.number("VmHWM")? * 1024)
    }

    /// Looks at the maps, from this process.
    pub(crate) fn maps(&self) -> anyhow::Result<Watcher> {
        Ok(Watcher { maps: KernelMapsReader::open(&self.config_maps())? })
    }

    /// Looks at the set of a frontend of TCP, which has to be there.
    pub(crate) fn set_of(&self, vip: SocketAddr) -> anyhow::Result<SetWatcher> {
        const TCP: u8 = 6;
        let pinned = |name| MapData::from_pin(self.config_maps().join(name));
        let frontends =
            HashMap::<_, FrontendKey, u32>::try_from(Map::HashMap(pinned(maps::FRONTENDS)?))?;
        let index = frontends.get(&FrontendKey::new(vip.ip().into(), vip.port(), TCP), 0)?;
        let states = Array::try_from(Map::Array(pinned(maps::STATES)?))?;
        Ok(SetWatcher { states, index })
    }

    /// Where it pins.
    pub(crate) fn pins(&self) -> Pins {
        Pins::new(self.bpffs.path())
    }

    fn config_maps(&self) -> PathBuf {
        self.pins().config()
    }
}

/// Reads the extent of one frontend, which is written last when its backends change.
pub(crate) struct SetWatcher {
    states: Array<MapData, FrontendState>,
    index: u32,
}

impl SetWatcher {
    /// The current extent.
    fn now(&self) -> anyhow::Result<Extent> {
        Ok(self.states.get(&self.index, 0)?.extent)
    }

    /// The time from the end of `write` until the extent changes.
    pub(crate) fn time_after(
        &self,
        write: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Duration> {
        let before = self.now()?;
        write()?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.now()? != before {
                return Ok(begin.elapsed());
            }
            thread::sleep(Duration::from_micros(20));
        }
        bail!("the frontend has the same backends after {PATIENCE:?}")
    }
}

/// A reader of an agent's maps.
pub(crate) struct Watcher {
    maps: KernelMapsReader,
}

impl Watcher {
    /// What the clients of imports find, as text. Without the addresses that were VIPs, because they leave the maps
    /// after a time.
    pub(crate) fn imports(&self) -> anyhow::Result<String> {
        let view = MapView { departed: BTreeMap::new(), ..self.view()? };
        Ok(view.to_string())
    }

    /// How many frontends and backends there are.
    pub(crate) fn counts(&self) -> anyhow::Result<(usize, usize)> {
        let frontends = self.view()?.frontends;
        let backends = frontends.values().map(|frontend| frontend.backends.len());
        Ok((frontends.len(), backends.sum()))
    }

    fn view(&self) -> anyhow::Result<MapView> {
        Ok(MapView::of(&self.maps.read_all()?))
    }
}

/// What an agent cannot read, and why.
pub(crate) fn problems(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let problems = report["source"]["problems"].as_array().into_iter().flatten();
    problems.map(|problem| (text(&problem["place"]), text(&problem["message"]))).collect()
}

/// Why an object was rejected, in order.
pub(crate) fn rejections(report: &Value, name: &str) -> Vec<String> {
    let rejections = report["rejections"].as_array().into_iter().flatten();
    let of_object = rejections.filter(|rejection| rejection["object"]["name"] == name);
    let mut reasons: Vec<_> = of_object
        .map(|rejection| rejection["reason"].as_str().unwrap_or_default().to_owned())
        .collect();
    reasons.sort();
    reasons
}
