//! Makes larger config maps, and loads the programs that read them, on another thread: no change waits for that.

use std::{
    io,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use anyhow::bail;
use tokio::sync::oneshot::{self, error::TryRecvError};

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
    making: Option<Making>,
}

struct Making {
    capacity: Capacity,
    /// Nobody has asked for them yet.
    is_prepared: bool,
    thread: JoinHandle<anyhow::Result<LargerMaps>>,
    /// The thread drops its sender at its end.
    end: oneshot::Receiver<()>,
    has_ended: bool,
}

impl LargerMapsInTheMaking {
    /// Begins to make them, before somebody asks for them if `is_prepared`.
    pub(super) fn begin(
        &mut self,
        options: LoadOptions,
        contents: MapContents,
        hints: PathBuf,
        is_prepared: bool,
    ) -> io::Result<()> {
        let capacity = options.capacity;
        let (until_end, end) = oneshot::channel();
        let thread = thread::Builder::new().name("larger-maps".to_owned()).spawn(move || {
            let _until_end = until_end;
            LargerMaps::make(options, &contents, &hints)
        })?;
        self.making = Some(Making { capacity, is_prepared, thread, end, has_ended: false });
        Ok(())
    }

    /// Asks for the prepared ones, if they have this capacity. Returns whether they do.
    pub(super) fn ask_for_prepared(&mut self, capacity: Capacity) -> bool {
        let prepared = self.making.as_mut().filter(|making| making.capacity == capacity);
        prepared.is_some_and(|making| std::mem::take(&mut making.is_prepared))
    }

    /// Removes the prepared ones that nobody has asked for; blocks until they are made.
    pub(super) fn discard_prepared(&mut self) {
        let Some(prepared) = self.making.take_if(|making| making.is_prepared) else { return };
        let discarded = prepared.take().and_then(|larger| Ok(larger.programs.discard()?));
        if let Err(error) = discarded {
            tracing::debug!("maps that were prepared: {error:#}");
        }
    }

    /// Waits until they are made, or have failed; for ever if none are being made.
    pub(super) async fn done(&mut self) {
        match &mut self.making {
            Some(making) if !making.has_ended && !making.is_prepared => {
                // It closes.
                let _ = (&mut making.end).await;
                making.has_ended = true;
            }
            _ => std::future::pending().await,
        }
    }

    /// Whether they are being made.
    pub(super) fn is_under_way(&mut self) -> bool {
        self.making.as_mut().is_some_and(|making| {
            let mut goes_on = || making.end.try_recv() == Err(TryRecvError::Empty);
            !making.is_prepared && !making.has_ended && goes_on()
        })
    }

    /// What came of it, once; blocks until then.
    pub(super) fn take(&mut self) -> Option<anyhow::Result<LargerMaps>> {
        self.making.take_if(|making| !making.is_prepared).map(Making::take)
    }
}

impl Making {
    fn take(self) -> anyhow::Result<LargerMaps> {
        self.thread.join().unwrap_or_else(|_| bail!("the thread that makes them has ended"))
    }
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
