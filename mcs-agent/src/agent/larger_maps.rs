//! Makes larger config maps, and loads the programs that read them, on another thread: no change waits for that.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    task::spawn_blocking,
};

use crate::{
    dataplane::{FormerHints, KernelMaps},
    loader::{LoadOptions, Programs},
    model::Capacity,
    reconcile::{MapContents, MapError, Maps, Pruning, Realized, plan},
};

/// Config maps that hold what was in the former ones when they were begun, and the programs for them.
pub(super) struct LargerMaps {
    pub(super) programs: Programs,
    pub(super) maps: KernelMaps,
    pub(super) options: LoadOptions,
}

impl LargerMaps {
    /// Makes them beside the maps that `hints` belong to.
    pub(super) fn make(
        options: LoadOptions,
        contents: &MapContents,
        hints: &Path,
    ) -> anyhow::Result<Self> {
        let programs = Programs::load_beside(&options)?;
        let mut maps = KernelMaps::open(programs.config(), programs.hints())?;
        maps.prepare_hints(&FormerHints::open(hints))?;
        copy(contents, &mut maps, options.capacity)?;
        Ok(Self { programs, maps, options })
    }
}

/// The larger maps that are being made, if any are.
#[derive(Default)]
pub(super) struct LargerMapsInTheMaking {
    making: Option<oneshot::Receiver<anyhow::Result<LargerMaps>>>,
    made: Option<anyhow::Result<LargerMaps>>,
}

impl LargerMapsInTheMaking {
    /// Begins to make them.
    pub(super) fn begin(&mut self, options: LoadOptions, contents: MapContents, hints: PathBuf) {
        let (done, making) = oneshot::channel();
        spawn_blocking(move || done.send(LargerMaps::make(options, &contents, &hints)).is_ok());
        self.making = Some(making);
    }

    /// Waits until they are made, or have failed; for ever if none are being made.
    pub(super) async fn done(&mut self) {
        match &mut self.making {
            Some(making) => {
                self.made = Some(received(making.await.ok()));
                self.making = None;
            }
            None => std::future::pending().await,
        }
    }

    /// Whether they are being made.
    pub(super) fn is_under_way(&mut self) -> bool {
        let Some(making) = &mut self.making else { return false };
        let result = match making.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Closed) => None,
            Err(TryRecvError::Empty) => return true,
        };
        self.made = Some(received(result));
        self.making = None;
        false
    }

    /// What came of it, once.
    pub(super) const fn take(&mut self) -> Option<anyhow::Result<LargerMaps>> {
        self.made.take()
    }
}

fn received(result: Option<anyhow::Result<LargerMaps>>) -> anyhow::Result<LargerMaps> {
    result.context("the thread that makes them has ended")?
}

/// Writes `dump` to empty maps. If everything fits, each entry keeps its index, so that flows, affinities and
/// sockets keep their backends. Else the frontends that fit are written.
pub(super) fn copy(
    dump: &MapContents,
    to: &mut impl Maps,
    capacity: Capacity,
) -> Result<(), MapError> {
    if dump.fits(capacity) {
        return dump.copy(capacity).try_for_each(|step| to.write(&step));
    }
    let (found, _) = Realized::restore(dump.clone(), Capacity::MOST);
    let plan = plan(&found.in_force(), &Realized::empty(capacity), Pruning::On);
    plan.steps.iter().try_for_each(|step| to.write(step))
}
