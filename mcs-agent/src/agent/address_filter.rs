//! Rebuilds of the address filter. Without them a node pays for every address that was a backend once.
//!
//! A rebuild clears bits where they are, since they are those of the maps that programs read. It keeps the addresses that
//! the config maps have from its beginning on, and those that sockets and flows have after that. So what begins meanwhile, with
//! a backend of the maps, is kept too.

use std::{future, io, time::Duration};

use mcs_common::Address;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};

use super::{
    kernel::addresses_in_use,
    malloc,
    programs::InstalledPrograms,
    report::{FilterReport, seconds_since_epoch},
};

/// The time from the beginning of a rebuild to the next one. A rebuild takes some 50 ms of CPU time, most of it for the
/// kernel's types.
const REST: Duration = Duration::from_secs(30);

/// The rebuilds of the address filter, one at a time.
pub(super) struct FilterRebuilds {
    next: Instant,
    search: Option<JoinHandle<io::Result<Vec<Address>>>>,
    /// Buckets that the latest one left.
    left: u32,
    rebuilt_at: Option<u64>,
    problem: Option<String>,
}

impl FilterRebuilds {
    pub(super) fn new() -> Self {
        let next = Instant::now();
        Self { next, search: None, left: 0, rebuilt_at: None, problem: None }
    }

    pub(super) fn report(&self, installed: &InstalledPrograms) -> FilterReport {
        FilterReport {
            density: installed.maps.filter_density(),
            rebuilt_at: self.rebuilt_at,
            problem: self.problem.clone(),
        }
    }

    /// Begins a rebuild if the filter has many more addresses than are `desired`, and than sockets and flows had the last time.
    /// It asks for `desired` only while the filter is dense.
    pub(super) fn begin_if_due(
        &mut self,
        installed: &mut InstalledPrograms,
        desired: impl FnOnce() -> usize,
    ) {
        let density = installed.maps.filter_density();
        let is_dense = density.is_dense(self.left)
            && density.is_dense(u32::try_from(desired()).unwrap_or(u32::MAX));
        let is_due = self.search.is_none() && self.next <= Instant::now();
        // While programs are switched, some use other config maps.
        if is_dense && is_due && installed.can_watch() {
            self.next = Instant::now() + REST;
            self.search = begin(installed).inspect_err(|error| self.fail(error)).ok();
        }
    }

    /// Waits for the addresses that sockets and flows have. If the future is dropped before, the next call goes on.
    pub(super) async fn found(&mut self) -> io::Result<Vec<Address>> {
        let Some(search) = &mut self.search else { return future::pending().await };
        let found = search.await;
        self.search = None;
        found.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Ends the rebuild.
    pub(super) fn finish(
        &mut self,
        found: io::Result<Vec<Address>>,
        installed: &mut InstalledPrograms,
    ) {
        malloc::trim();
        let before = installed.maps.filter_density().set;
        match found.and_then(|in_use| installed.maps.finish_filter_rebuild(&in_use)) {
            Ok(true) => {
                self.left = installed.maps.filter_density().set;
                self.rebuilt_at = Some(seconds_since_epoch());
                self.problem = None;
                tracing::info!(before, buckets = self.left, "rebuilt the address filter");
            }
            // Larger maps have taken the place of those of its beginning.
            Ok(false) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let problem = format!("cannot tell which addresses are in use: {error}");
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!("{problem}; the address filter keeps those of former backends");
        }
        self.problem = Some(problem);
    }
}

fn begin(installed: &mut InstalledPrograms) -> io::Result<JoinHandle<io::Result<Vec<Address>>>> {
    let flows = installed.flow_pins().map_err(io::Error::other)?;
    let state = installed.options.pins.state();
    installed.maps.begin_filter_rebuild()?;
    Ok(spawn_blocking(move || addresses_in_use(&state, &flows)))
}
