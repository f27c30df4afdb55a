//! Figures of single imports: connections by source cluster and refusals by reason. The programs count them, and the threads that
//! serve metrics read them.

mod imports;
mod kernel;
mod names;
mod places;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::{ArgMatches, Args, FromArgMatches as _};
use mcs_common::maps;

use self::{imports::ImportFigures, kernel::FigureMap, names::Names};
pub(super) use self::{
    names::{Counts, Labels},
    places::FigurePlaces,
};
use crate::core::{
    control::{
        Config,
        metrics::{OTHER, UNKNOWN},
    },
    engine::RoundSummary,
    feature::{Core, Definition, Feature, Follow},
    kernel::loader::Setting,
};

/// Figures in the list of features.
pub const FEATURE: Definition = Definition {
    flags: FiguresArgs::augment_args,
    settings,
    start,
    ..Definition::named("figures")
};

/// How many VIPs an import with figures has: one of each IP family.
const VIPS_EACH: u32 = 2;

#[derive(Debug, Args)]
struct FiguresArgs {
    /// This many imports, the first ones, have figures of their own: connections by source cluster, refusals by reason. The others are
    /// counted together. 0: none are counted
    #[arg(long, env = "MCS_METRICS_IMPORTS", value_name = "N", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(..=10_000))]
    metrics_imports: u32,
}

/// How many rows there are: one for each import, and one for all others. None if nothing serves metrics.
fn rows(flags: &ArgMatches, config: &Config) -> anyhow::Result<u32> {
    let imports = FiguresArgs::from_arg_matches(flags)?.metrics_imports;
    Ok(if imports == 0 || config.metrics_address.is_none() { 0 } else { imports + 1 })
}

fn settings(flags: &ArgMatches, config: &Config) -> anyhow::Result<Vec<Setting>> {
    let rows = rows(flags, config)?;
    Ok(vec![
        Setting::Constant("COUNT_IMPORTS", u8::from(rows > 0)),
        Setting::Entries(maps::FIGURES, rows.max(1)),
        Setting::Entries(maps::FIGURE_VIPS, (rows * VIPS_EACH).max(1)),
    ])
}

fn start(flags: &ArgMatches, core: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    let rows = rows(flags, &core.installed.config)?;
    if rows == 0 {
        return Ok(None);
    }
    let state = core.installed.options.pins.state();
    let places = match FigurePlaces::open(&state, rows, [OTHER, UNKNOWN]) {
        Ok(places) => places,
        // The programs are attached already, and count for nobody.
        Err(error) => {
            tracing::warn!("imports have no figures: cannot open their maps: {error}");
            return Ok(None);
        }
    };
    let figures = Arc::new(ImportFigures::new(places.shared()));
    core.published.add_collector(Arc::clone(&figures) as _);
    core.installed.columns = Some(Box::new(places));
    follow(core);
    Ok(Some(Box::new(FiguresFeature(figures))))
}

/// The feature in the agent.
struct FiguresFeature(Arc<ImportFigures>);

impl Feature for FiguresFeature {
    fn after_round(&mut self, core: &mut Core, _: &RoundSummary) {
        follow(core);
    }

    fn objects_listed(&mut self, core: &Core) {
        self.0.note_backends(core.engine.desired());
    }

    fn each_second(&mut self, core: &mut Core) -> Follow {
        follow(core);
        Follow::Nothing
    }
}

fn follow(core: &mut Core) {
    if let Err(error) = core.installed.follow_columns(core.engine.realized()) {
        tracing::warn!("cannot write where the programs count by import: {error}");
    }
}

/// Figures by two labels, the first of which is an import.
pub(crate) type ByImport<T> = Vec<([Arc<str>; 2], T)>;

/// The figures, which threads that serve metrics read.
pub(crate) struct Figures(Mutex<NamedFigures>);

struct NamedFigures {
    map: FigureMap,
    names: Names,
}

impl Figures {
    /// Every count that is not zero.
    pub(crate) fn counts(&self) -> Counts {
        let NamedFigures { map, names } = &*self.lock();
        names.counts(|row| map.row(row).ok())
    }

    /// The imports and source clusters with figures of their own now.
    pub(crate) fn labels(&self) -> Labels {
        self.lock().names.labels()
    }

    /// How many imports have no figures of their own.
    pub(crate) fn without_row(&self) -> usize {
        self.lock().names.without_row
    }

    fn lock(&self) -> MutexGuard<'_, NamedFigures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
