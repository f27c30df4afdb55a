//! The seam between the core and its features: what a feature says of itself, what wakes it, and what it may do.

use std::{
    future::{pending, ready},
    pin::Pin,
};

use clap::{ArgMatches, Command};
use futures_util::future::select_all;
use hyper::Uri;
use mcs_kube::program::http::{Answer, Serves};

pub(crate) use super::control::{programs::Columns, published::Collect};
pub use super::{
    control::state::{Core, Follow},
    model::Sections,
};
use super::{
    control::{
        config::Config,
        health::{self, Attachments, Check},
        metrics::Families,
        report::Report,
    },
    engine::{Engine, RoundSummary},
    kernel::{
        flows::SweepResult,
        loader::{Pins, Setting},
    },
    model::{Ejection, Tiers},
    rules::Preference,
    source::{Filter, ObjectFilter, ObjectSource, ReadFrom},
};

/// A feature waits for something.
pub(crate) type Wait<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// A feature acts.
pub(crate) type Act<'a> = Pin<Box<dyn Future<Output = Follow> + 'a>>;

/// One line of the list of features. Each function is called with the list's order, in the process that it is about: the
/// agent, or a command that reads the agent's report.
#[derive(Clone, Copy)]
pub struct Definition {
    /// The name of its folder.
    pub name: &'static str,
    /// Adds its flags to `run`.
    pub flags: fn(Command) -> Command,
    /// Begins its work in the agent, with the values of its flags. It may change the core, which has done nothing yet.
    pub start: Start,
    /// What it prefers of the endpoints of an import, with the values of its flags. There are none in a process that explains
    /// what the rules do.
    pub(crate) preference: fn(Option<&ArgMatches>) -> Option<Box<dyn Preference>>,
    /// What its preference has made of the tiers of an import, by the report: an entry for each port and IP family.
    pub tiers: fn(&Sections) -> Vec<TierLine>,
    /// Says where objects are read, by the values of its flags.
    pub reads: fn(&ArgMatches, &mut ReadFrom) -> anyhow::Result<()>,
    /// Its source in the place of an API server, if objects are read there.
    pub source: fn(&ReadFrom) -> Option<Box<dyn ObjectSource>>,
    /// Its filter of what is read there. The first one of the list counts.
    pub(crate) filter: fn(&ReadFrom) -> Option<Box<dyn ObjectFilter>>,
    /// Its lines in `status` about the source.
    pub source_lines: fn(&Report) -> Vec<String>,
    /// Fails if its parts of the report are not in the form that it reads.
    pub parts: fn(&Sections) -> Result<(), serde_json::Error>,
    /// What it says of source clusters.
    pub clusters: fn(&Report) -> Vec<ClusterLine>,
    /// Its lines in `status`.
    pub lines: fn(&Report) -> Vec<String>,
    /// What is wrong, by the checks of the core.
    pub failings: fn(&Report) -> Vec<(Check, String)>,
    /// Its metrics that follow from the report.
    pub(crate) metrics: fn(&Report, &mut Families) -> prometheus::Result<()>,
    /// What it answers over HTTP, if its flags ask for it.
    pub route: fn(&ArgMatches) -> Option<Box<dyn Route>>,
    /// Removes what an agent of this report has left outside of its pins and its run directory, for `cleanup`.
    pub clean: fn(&Report),
    /// What it sets in the programs, before they are loaded.
    pub settings: fn(&ArgMatches, &Config) -> anyhow::Result<Vec<Setting>>,
    /// Its commands beside `run`.
    pub verbs: &'static [Verb],
}

/// `run` with the flags of the features.
pub(super) fn with_flags(features: &[Definition], run: Command) -> Command {
    features.iter().fold(run, |run, feature| (feature.flags)(run))
}

/// The source that a feature has in the place of an API server, if one reads there.
pub fn source(features: &[Definition], from: &ReadFrom) -> Option<Box<dyn ObjectSource>> {
    features.iter().find_map(|feature| (feature.source)(from))
}

/// The filter that a feature has for what is read there.
pub fn filter(features: &[Definition], from: &ReadFrom) -> Filter {
    Filter(features.iter().find_map(|feature| (feature.filter)(from)))
}

/// How a feature starts. Returns none if its flags turn it off.
pub type Start = fn(&ArgMatches, &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>>;

/// A command of a feature.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// Its name, help and flags.
    pub command: fn() -> Command,
    /// Runs it, with the list of features.
    pub run: fn(&'static [Definition], &ArgMatches) -> anyhow::Result<std::process::ExitCode>,
}

/// The tiers of source clusters of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierLine {
    /// What the feature is called.
    pub name: &'static str,
    /// With the clusters that have endpoints.
    pub tiers: Tiers,
    /// What each gets, for people.
    pub text: String,
}

/// What a feature says of a source cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterLine {
    /// The cluster.
    pub cluster: String,
    /// Whether that is as it should be; `None`: not known.
    pub is_good: Option<bool>,
    /// For people.
    pub text: String,
}

/// What the preferences of all features have made of the tiers of an import.
pub fn tier_lines(features: &[Definition], of_import: &Sections) -> Vec<TierLine> {
    features.iter().flat_map(|one| (one.tiers)(of_import)).collect()
}

impl Definition {
    /// A feature of which the list says nothing yet.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            flags: |command| command,
            start: |_, _| Ok(None),
            preference: |_| None,
            tiers: |_| Vec::new(),
            reads: |_, _| Ok(()),
            source: |_| None,
            filter: |_| None,
            source_lines: |_| Vec::new(),
            parts: |_| Ok(()),
            clusters: |_| Vec::new(),
            lines: |_| Vec::new(),
            failings: |_| Vec::new(),
            metrics: |_, _| Ok(()),
            route: |_| None,
            clean: |_| {},
            settings: |_, _| Ok(Vec::new()),
            verbs: &[],
        }
    }
}

/// A feature at work in the agent. The control task calls it; nothing else happens there meanwhile.
pub trait Feature {
    /// Waits until it has something to do. The control task drops this and asks again when something else happens first.
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(pending())
    }

    /// Does what [`Feature::wait`] has waited for.
    fn act<'a>(&'a mut self, _: &'a mut Core) -> Act<'a> {
        Box::pin(ready(Follow::Nothing))
    }

    /// Follows a round of the rules, with what was planned and written.
    fn after_round(&mut self, _: &mut Core, _: &RoundSummary) {}

    /// Follows a batch of objects. A round comes next.
    fn after_objects(&mut self, _: &mut Core) {}

    /// A report lists the objects that are desired now.
    fn objects_listed(&mut self, _: &Core) {}

    /// Follows a sweep of the flow table.
    fn after_sweep(&mut self, _: &mut SweepResult) {}

    /// Follows a repair of pins, hooks or the cgroup.
    fn after_repair(&mut self) {}

    /// Once a second.
    fn each_second(&mut self, _: &mut Core) -> Follow {
        Follow::Nothing
    }

    /// Gives back the programs in the kernel, before others take their place or the agent ends.
    fn release<'a>(&'a mut self, _: &'a mut Core, _why: &'a str) -> Wait<'a> {
        Box::pin(ready(()))
    }

    /// Its verdicts about backends.
    fn ejections(&self, _: &Core) -> Vec<Ejection> {
        Vec::new()
    }

    /// Adds its part of the report.
    fn report(&self, _: &Core, _: &mut Sections) {}
}

/// What a feature answers over HTTP. Threads call it; the control task does not wait for it.
pub trait Route: Send + Sync {
    /// Answers a request, if it is one for this feature.
    fn answer(&self, agent: &AgentView<'_>, serves: Serves, uri: &Uri) -> Option<Answer>;

    /// Runs beside the server.
    fn beside<'a>(&'a self, pins: &'a Pins) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// What the threads of the HTTP server know of the agent.
pub struct AgentView<'a> {
    /// The latest report; none before the agent has its maps.
    pub report: Option<&'a Report>,
    /// Where its maps are.
    pub pins: &'a Pins,
    /// The list of features.
    pub features: &'static [Definition],
}

/// The features of an agent, in the order of the list.
#[derive(Default)]
pub(crate) struct RunningFeatures {
    features: Vec<Box<dyn Feature>>,
    /// The one that is asked first: the one behind the one that was ready last.
    first: usize,
}

impl RunningFeatures {
    /// Starts those that their flags do not turn off.
    pub(crate) fn start(chosen: &ChosenFeatures, core: &mut Core) -> anyhow::Result<Self> {
        chosen.prefer(&mut core.engine);
        let mut features = Vec::new();
        for definition in chosen.list {
            features.extend((definition.start)(&chosen.flags, core)?);
        }
        Ok(Self { features, first: 0 })
    }

    /// Waits until one of them has something to do.
    pub(crate) async fn wait(&mut self) -> usize {
        if self.features.is_empty() {
            return pending().await;
        }
        let count = self.features.len();
        let (before, from_first) = self.features.split_at_mut(self.first);
        let waits: Vec<_> = from_first.iter_mut().chain(before).map(|one| one.wait()).collect();
        let ((), ready, _) = select_all(waits).await;
        let index = (self.first + ready) % count;
        self.first = (index + 1) % count;
        index
    }

    pub(crate) async fn act(&mut self, index: usize, core: &mut Core) -> Follow {
        self.features[index].act(core).await
    }

    /// Calls each of them.
    pub(crate) fn each(&mut self, call: impl FnMut(&mut Box<dyn Feature>)) {
        self.features.iter_mut().for_each(call);
    }

    pub(crate) async fn release(&mut self, core: &mut Core, why: &str) {
        for feature in &mut self.features {
            feature.release(core, why).await;
        }
    }

    pub(crate) fn ejections(&self, core: &Core) -> Vec<Ejection> {
        self.features.iter().flat_map(|feature| feature.ejections(core)).collect()
    }

    pub(crate) fn report(&self, core: &Core) -> Sections {
        let mut sections = Sections::default();
        self.features.iter().for_each(|feature| feature.report(core, &mut sections));
        sections
    }
}

/// The features that a command line chooses, with the values of their flags.
#[derive(Clone)]
pub struct ChosenFeatures {
    /// All of the list.
    pub list: &'static [Definition],
    /// The flags of `run`.
    pub flags: ArgMatches,
}

impl ChosenFeatures {
    /// Gives the rules what the features prefer.
    pub fn prefer(&self, engine: &mut Engine) {
        for feature in self.list {
            engine.prefer((feature.preference)(Some(&self.flags)));
        }
    }

    /// What they set in the programs.
    pub(crate) fn settings(&self, config: &Config) -> anyhow::Result<Vec<Setting>> {
        let mut settings = Vec::new();
        for feature in self.list {
            settings.extend((feature.settings)(&self.flags, config)?);
        }
        Ok(settings)
    }
}

/// The parts of a report that this process cannot read, and so does not show.
pub fn unread(features: &[Definition], report: &Report) -> Vec<String> {
    let read = |one: &Definition| (one.parts)(&report.sections).map_err(|error| (one.name, error));
    let unread = features.iter().filter_map(|one| read(one).err());
    let told = unread.map(|(name, error)| {
        format!("the report of another version has what this one cannot read of {name}: {error}")
    });
    told.collect()
}

/// Every problem of a running agent, with the check that it fails.
pub fn failings(
    features: &[Definition],
    report: &Report,
    attachments: &Attachments,
) -> Vec<(Check, String)> {
    let mut failings = health::failings(report, attachments);
    failings.extend(features.iter().flat_map(|feature| (feature.failings)(report)));
    failings
}
