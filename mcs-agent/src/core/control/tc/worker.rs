//! The thread that keeps the programs on devices.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_kube::program;
use tokio::sync::watch;

use super::{DeviceReport, Order, TcReport, tenure::Tenure};
use crate::core::{
    control::config::POLL_INTERVAL,
    kernel::{
        devices::{Device, DeviceChoice, DeviceList, DeviceOptions, Role, TcMode, select},
        loader::{
            AttachOutcome, DevicePrograms, Features, Mechanism, Pins, TcAttacher, TcError, TcHook,
        },
        netlink::Events,
    },
};

/// One check covers the changes of this time, since devices change in bursts.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// After a check the thread rests for this many times as long, so that checks take at most a fifth of its time
/// however often devices change.
const REST: u32 = 4;

/// The thread that keeps programs on devices.
pub(super) struct Worker {
    pins: Pins,
    features: Features,
    mechanism: Mechanism,
    options: DeviceOptions,
}

impl Worker {
    pub(super) fn new(
        pins: &Pins,
        features: Features,
        mechanism: Mechanism,
        options: DeviceOptions,
    ) -> Self {
        Self { pins: pins.clone(), features, mechanism, options }
    }

    /// Runs until nobody reads the report any more. It sends the number of each order to `done` when all devices have been
    /// checked for it.
    pub(super) fn run(
        self,
        mut orders: watch::Receiver<Option<Order>>,
        done: &watch::Sender<Option<u64>>,
        report: &watch::Sender<TcReport>,
    ) -> anyhow::Result<()> {
        program::block_on(async {
            let first = orders.wait_for(Option::is_some).await.ok().and_then(|order| order.clone());
            let Some(Order { classifiers, .. }) = first else { return Ok(()) };
            let attacher =
                TcAttacher::new(&self.pins, classifiers, self.mechanism, self.features.tcx)?;
            let tenure = Tenure::new(attacher.is_of_auto());
            let mut watcher = Watcher { attacher, options: self.options, tenure };
            let check = async |order: Option<&Order>, before: &[DeviceReport]| {
                watcher.check(order, before).await
            };
            keep(check, orders, done, report).await;
            Ok(())
        })
    }
}

/// The result of a check of all devices.
struct Inspection {
    devices: Vec<DeviceReport>,
    /// How many programs and pins this check restored after another process removed them.
    repairs: u64,
    /// Whether a default route names no device, and no uplink is guarded.
    hidden_default_route: bool,
    /// A network card of a node where no device is an uplink.
    no_uplink: Option<String>,
}

struct Watcher {
    attacher: TcAttacher,
    options: DeviceOptions,
    tenure: Tenure,
}

impl Watcher {
    /// Gives all devices the programs of the order. After a failure the next check has another netlink socket.
    async fn check(
        &mut self,
        order: Option<&Order>,
        before: &[DeviceReport],
    ) -> Result<Inspection, TcError> {
        if let Some(order) = order {
            self.attacher.switch_to(Arc::clone(&order.classifiers));
        }
        let inspected = self.inspect(before).await;
        if inspected.is_err() { self.attacher.reconnect().and(inspected) } else { inspected }
    }

    /// Gives all devices the programs that they should have. `before` is the report of the previous check.
    async fn inspect(&mut self, before: &[DeviceReport]) -> Result<Inspection, TcError> {
        let is_auto = self.options.mode == TcMode::Auto;
        if !is_auto {
            // Before programs are attached where `auto` attaches none: this agent may be killed meanwhile.
            self.attacher.set_auto(false)?;
        }
        let known = before.iter().map(|was| was.index);
        let present = self.attacher.list_devices(known).await?;
        let found = self.attacher.inspect_all(&present).await?;
        let now = Instant::now();
        let ours = found.iter().filter(|(_, found)| found.has_any());
        self.tenure.note(ours.map(|(index, _)| *index), now);
        let foreign = found.iter().filter(|(index, _)| !self.tenure.is_settled(**index, now));
        let foreign = foreign.filter_map(|(index, found)| Some((*index, found.foreign.clone()?)));
        let selected = select(&present, &self.options, &foreign.collect());
        let (mut devices, mut repairs) = (Vec::new(), 0);
        for device in selected {
            let Some(found) = found.get(&device.device.index) else { continue };
            let was = before.iter().find(|was| was.index == device.device.index);
            if let Some(is) = self.attach_exactly(&device, found).await {
                let lost = lost(was, &is, found);
                log_change(was, &is, &lost);
                repairs += lost.len() as u64;
                if !found.unpinned.is_empty() && is.error.is_none() {
                    let hooks = found.unpinned.iter().map(|hook| hook.name());
                    let hooks: Vec<_> = hooks.collect();
                    tracing::warn!(
                        "{}: pins of {} removed or replaced; pinned again",
                        is.name,
                        hooks.join(", ")
                    );
                    repairs += hooks.len() as u64;
                }
                if !found.overtaken.is_empty() && is.error.is_none() {
                    tracing::warn!(
                        "{}: a filter of others came before ours; attached again before it",
                        is.name
                    );
                    repairs += found.overtaken.len() as u64;
                }
                devices.push(is);
            }
        }
        self.leave_others(&present, &found, &devices).await;
        let is_away =
            |was: &&DeviceReport| present.devices.iter().all(|one| one.index != was.index);
        for was in before.iter().filter(is_away) {
            // A device that was moved to another namespace has kept its links.
            if let Err(error) = self.attacher.detach_links(was.index) {
                tracing::warn!("{}: {:#}", was.name, anyhow::Error::new(error));
            }
        }
        self.attacher.collect().await?;
        if is_auto {
            // Where that fails the next agent judges what this one has attached as if it were new.
            let _ = self.attacher.set_auto(true);
        }
        let has_uplink = devices.iter().any(|device| device.role == Role::Uplink);
        let lacks_uplink = self.options.wants_uplinks() && !has_uplink;
        let hidden_default_route = lacks_uplink && present.has_hidden_default;
        let way_out = present.hardware().filter(|_| lacks_uplink && !hidden_default_route);
        let no_uplink = way_out.map(|device| device.name.clone());
        Ok(Inspection { devices, repairs, hidden_default_route, no_uplink })
    }

    /// Gives a device exactly these programs. `None` if it was removed meanwhile.
    async fn attach_exactly(
        &mut self,
        selected: &DeviceChoice,
        found: &DevicePrograms,
    ) -> Option<DeviceReport> {
        let DeviceChoice { device, role, left_alone } = selected;
        let hooks = if left_alone.is_none() { TcHook::of(*role) } else { &[] };
        let AttachOutcome { attached, error } =
            self.attacher.attach_exactly(device, hooks, found).await;
        if error.as_ref().is_some_and(TcError::is_no_device) {
            return None;
        }
        let is_pod = self.options.mode == TcMode::Auto && *role == Role::Pod;
        let programs = attached.iter().map(|one| (one.hook.name().to_owned(), one.program_id));
        Some(DeviceReport {
            name: device.name.clone(),
            index: device.index,
            kind: device.kind.clone(),
            role: *role,
            hooks: hooks.iter().map(|hook| hook.name().to_owned()).collect(),
            attached_by: attached.first().map(|one| one.by),
            programs: programs.collect(),
            left_alone: left_alone.as_ref().map(ToString::to_string),
            ahead: found.ahead.clone(),
            beside: found.foreign.clone().filter(|_| is_pod && left_alone.is_none()),
            error: error
                .map(|error| format!("{:#}", anyhow::Error::new(error)))
                .or_else(|| selected.unguarded()),
        })
    }

    /// Detaches our programs from devices that no longer have a role.
    async fn leave_others(
        &mut self,
        present: &DeviceList,
        found: &BTreeMap<u32, DevicePrograms>,
        devices: &[DeviceReport],
    ) {
        let is_other = |device: &&Device| devices.iter().all(|one| one.index != device.index);
        for device in present.devices.iter().filter(is_other) {
            let Some(found) = found.get(&device.index).filter(|found| found.has_any()) else {
                continue;
            };
            match self.attacher.attach_exactly(device, &[], found).await.error {
                None => tracing::info!("{}: no longer selected; detached", device.name),
                Some(error) if error.is_no_device() => {}
                Some(error) => {
                    tracing::warn!("{}: {:#}", device.name, anyhow::Error::new(error));
                }
            }
        }
    }
}

/// Lets `check` look at all devices at each change of one, at each order, and every [`POLL_INTERVAL`]. It is given the
/// latest order, and the devices as the check before has left them.
async fn keep(
    mut check: impl AsyncFnMut(Option<&Order>, &[DeviceReport]) -> Result<Inspection, TcError>,
    mut orders: watch::Receiver<Option<Order>>,
    done: &watch::Sender<Option<u64>>,
    report: &watch::Sender<TcReport>,
) {
    let mut events = None;
    while !report.is_closed() {
        // Listens before the check, so that no change between the two is missed.
        events = events.or_else(listen);
        let order = orders.borrow_and_update().clone();
        let started = Instant::now();
        let before = report.borrow().devices.clone();
        let inspected = check(order.as_ref(), &before).await;
        // Devices that were not checked may have programs that need the former maps.
        let carried_out = order.filter(|_| inspected.is_ok());
        publish(report, inspected);
        if let Some(order) = carried_out {
            done.send_replace(Some(order.number));
        }
        let rest = DEBOUNCE.max(started.elapsed() * REST);
        tokio::select! {
            // If nobody orders any more, nobody reads the report either, and the loop ends.
            _ = orders.changed() => {}
            rested = until_next(events.take(), rest) => events = rested,
        }
    }
}

/// Waits for a change of a device, or for [`POLL_INTERVAL`]. Returns the events if the socket still works.
async fn until_next(events: Option<Events>, rest: Duration) -> Option<Events> {
    let Some(mut events) = events else {
        tokio::time::sleep(POLL_INTERVAL).await;
        return None;
    };
    let change = tokio::time::timeout(POLL_INTERVAL.max(rest), events.next()).await;
    if let Ok(change) = change {
        tokio::time::sleep(rest).await;
        events.forget();
        return change.map(|()| events);
    }
    Some(events)
}

fn listen() -> Option<Events> {
    let warn = |error| {
        tracing::warn!("{:#}; checking devices every {POLL_INTERVAL:?}", anyhow::Error::new(error));
    };
    Events::open().map_err(warn).ok()
}

fn publish(report: &watch::Sender<TcReport>, inspected: Result<Inspection, TcError>) {
    let (found, problem) = match inspected {
        Ok(found) => (Some(found), None),
        Err(error) => (None, Some(format!("{:#}", anyhow::Error::new(error)))),
    };
    report.send_if_modified(|report| {
        if problem.is_some() && report.problem != problem {
            tracing::warn!("{}; trying again", problem.as_deref().unwrap_or_default());
        }
        let mut now = TcReport { problem, ..report.clone() };
        if let Some(found) = found {
            now.looked = true;
            now.repairs += found.repairs;
            now.hidden_default_route = found.hidden_default_route;
            now.no_uplink = found.no_uplink;
            now.devices = found.devices;
        }
        let is_new = *report != now;
        *report = now;
        is_new
    });
}

/// The programs that the device should have and that another process has detached since the previous check.
fn lost<'a>(
    was: Option<&'a DeviceReport>,
    is: &DeviceReport,
    found: &DevicePrograms,
) -> Vec<&'a str> {
    let was = was.filter(|_| !is.hooks.is_empty());
    let programs = was.into_iter().flat_map(|was| was.programs.keys());
    programs.filter(|hook| !found.has(hook)).map(String::as_str).collect()
}

fn log_change(was: Option<&DeviceReport>, is: &DeviceReport, lost: &[&str]) {
    let name = &is.name;
    if !lost.is_empty() {
        tracing::warn!("{name}: another process detached {}; attached again", lost.join(", "));
    }
    if was == Some(is) {
        return;
    }
    if let Some(ahead) = &is.ahead {
        tracing::warn!("{name}: {ahead} runs before our programs and may consume packets");
    }
    if let Some(beside) = &is.beside {
        tracing::warn!(
            "{name}: {beside} came after our programs, which stay because connections may need them; \
             --tc-devices=!{name} takes them off"
        );
    }
    match (&is.error, &is.left_alone, is.attached_by) {
        (Some(error), ..) => tracing::warn!("{name}: {error}; trying again"),
        (None, Some(reason), _) => tracing::info!("{name}: left alone: {reason}"),
        (None, None, Some(by)) => {
            tracing::info!("{name}: {} attached by {by}, as {}", is.hooks(), is.role);
        }
        (None, None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::time::timeout;

    use super::*;
    use crate::core::kernel::loader::Classifiers;

    /// A growing agent drops the former maps once the order is carried out.
    #[tokio::test(start_paused = true)]
    async fn an_order_is_carried_out_by_a_check_that_succeeds() {
        let (report, reported) = watch::channel(TcReport::new(TcMode::Auto, Mechanism::Tcx));
        let order = Order { number: 7, classifiers: Arc::new(Classifiers::default()) };
        let (_sender, orders) = watch::channel(Some(order));
        let (said, mut done) = watch::channel(None);
        let mut checks = 0;
        let check = async |_: Option<&Order>, _: &[DeviceReport]| {
            checks += 1;
            if checks < 3 {
                assert_eq!(*said.borrow(), None, "{checks}");
                let source = io::Error::from_raw_os_error(libc::ENOBUFS);
                return Err(TcError::Bpf { action: "list programs".to_owned(), source });
            }
            Ok(Inspection {
                devices: Vec::new(),
                repairs: 0,
                hidden_default_route: false,
                no_uplink: None,
            })
        };
        let until_done = async { done.wait_for(|done| *done == Some(7)).await.map(drop) };
        let kept = async {
            tokio::select! {
                () = keep(check, orders, &said, &report) => panic!("it has ended"),
                done = until_done => done.unwrap(),
            }
        };
        timeout(3 * POLL_INTERVAL, kept).await.expect("the failed checks are repeated");
        assert_eq!(reported.borrow().problem, None);
    }
}
