//! What cases see of an agent: its report and its maps.

use aya::maps::{Array, HashMap, Map, MapData};
use mcs_agent::core::{
    kernel::dataplane::KernelMapsReader,
    tables::{MapReader as _, MapView},
};
use mcs_common::{Extent, FrontendKey, FrontendState, maps};

use super::Site;
use crate::{prelude::*, procfs::Status};

/// Longer than an agent waits between two attempts, and what an attempt takes.
const PATIENCE: Duration = Duration::from_secs(40);

impl Site<()> {
    /// Waits until it has read everything, filled the maps and attached its programs.
    pub fn wait_until_healthy(&mut self) -> Result {
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
    pub fn wait_for(&self, service: &Service) -> Result {
        let expected = service.frontends();
        wait::within(PATIENCE, &format!("the frontends of {}", service.name()), || {
            let found = self.agent.frontends(service.name())?;
            ensure!(found == expected, "there are {found:?} instead of {expected:?}");
            Ok(())
        })
    }

    /// Waits until the report says what `check` wants.
    pub fn wait_for_report(&self, what: &str, check: impl Fn(&Value) -> bool) -> Result {
        wait::within(PATIENCE, what, || {
            let report = self.report()?;
            ensure!(check(&report), "it reports {report}");
            Ok(())
        })
    }

    /// Waits until it says that it cannot read a resource, for such a reason.
    pub fn wait_for_problem(&self, resource: &str, reason: &str) -> Result {
        self.wait_for_report(&format!("a problem with {resource}: {reason}"), |report| {
            problems(report).iter().any(|(place, why)| place == resource && why.contains(reason))
        })
    }

    /// The time up to which it knows the kinds that it cannot follow, in seconds since the Unix epoch.
    pub fn known_until(&self) -> Result<Option<u64>> {
        let report = self.report()?;
        let kinds = report["source"]["kinds"].as_array().into_iter().flatten();
        Ok(kinds.filter_map(|kind| kind["known_until"].as_u64()).min())
    }

    /// Waits until it has no problem.
    pub fn wait_until_content(&self) -> Result {
        self.wait_for_report("an agent without problems", |report| problems(report).is_empty())
    }
}

impl<M> Site<M> {
    /// What the agent reports.
    pub fn report(&self) -> Result<Value> {
        Ok(self.agent.status()?["report"].take())
    }

    /// Stops it (SIGSTOP).
    pub fn freeze(&self) -> Result {
        self.agent.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    pub fn thaw(&self) -> Result {
        self.agent.signal(Signal::CONT)
    }

    /// The most memory it has had, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        Ok(Status::of(self.agent.pid())?.number("VmHWM")? * 1024)
    }

    /// Looks at the maps, from this process.
    pub fn maps(&self) -> Result<Watcher> {
        Ok(Watcher { maps: KernelMapsReader::open(&self.config_maps())? })
    }

    /// Looks at the set of a frontend of TCP, which has to be there.
    pub fn set_of(&self, vip: SocketAddr) -> Result<SetWatcher> {
        const TCP: u8 = 6;
        let pinned = |name| MapData::from_pin(self.config_maps().join(name));
        let frontends =
            HashMap::<_, FrontendKey, u32>::try_from(Map::HashMap(pinned(maps::FRONTENDS)?))?;
        let index = frontends.get(&FrontendKey::new(vip.ip().into(), vip.port(), TCP), 0)?;
        let states = Array::try_from(Map::Array(pinned(maps::STATES)?))?;
        Ok(SetWatcher { states, index })
    }

    /// Where it pins.
    pub fn pins(&self) -> Pins {
        Pins::new(self.bpffs.path())
    }

    fn config_maps(&self) -> PathBuf {
        self.pins().config()
    }
}

/// Reads the extent of one frontend, which is written last when its backends change.
pub struct SetWatcher {
    states: Array<MapData, FrontendState>,
    index: u32,
}

impl SetWatcher {
    /// The current extent.
    fn now(&self) -> Result<Extent> {
        Ok(self.states.get(&self.index, 0)?.extent)
    }

    /// The time from the end of `write` until the extent changes.
    pub fn time_after(&self, write: impl FnOnce() -> Result) -> Result<Duration> {
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
pub struct Watcher {
    maps: KernelMapsReader,
}

impl Watcher {
    /// What the clients of imports find, as text. Without the addresses that were VIPs, because they leave the maps
    /// after a time.
    pub fn imports(&self) -> Result<String> {
        let view = MapView { departed: BTreeMap::new(), ..self.view()? };
        Ok(view.to_string())
    }

    /// How many frontends and backends there are.
    pub fn counts(&self) -> Result<(usize, usize)> {
        let frontends = self.view()?.frontends;
        let backends = frontends.values().map(|frontend| frontend.backends.len());
        Ok((frontends.len(), backends.sum()))
    }

    fn view(&self) -> Result<MapView> {
        Ok(MapView::of(&self.maps.read_all()?))
    }
}

/// What an agent cannot read, and why.
pub fn problems(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let problems = report["source"]["problems"].as_array().into_iter().flatten();
    problems.map(|problem| (text(&problem["place"]), text(&problem["message"]))).collect()
}

/// Why an object was rejected, in order.
pub fn rejections(report: &Value, name: &str) -> Vec<String> {
    let rejections = report["rejections"].as_array().into_iter().flatten();
    let of_object = rejections.filter(|rejection| rejection["object"]["name"] == name);
    let mut reasons: Vec<_> = of_object
        .map(|rejection| rejection["reason"].as_str().unwrap_or_default().to_owned())
        .collect();
    reasons.sort();
    reasons
}
