//! The flag, which imports have passive health, the start of the feature, and its line in `status`.

use clap::{ArgMatches, Args, Command, ValueEnum};
use mcs_kube::wish;

use super::{Passive, control::PassiveHealth};
use crate::core::{
    control::{Report, state::Core},
    feature::Feature,
    model::{EjectionState, RejectionReason, ServiceImport},
    rules::{Preference, Wishes, fields::ObjectProblem},
};

/// Which services have passive health: `--passive-health`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(super) enum Which {
    /// None
    Off,
    /// Those whose owners ask for it by an annotation
    #[default]
    Annotated,
    /// All but those whose owners say `off`
    All,
}

#[derive(Debug, Args)]
struct PassiveArgs {
    /// Which services have passive health: backends that do not answer clients of this node are not used for a while
    #[arg(long, env = "MCS_PASSIVE_HEALTH", value_name = "WHICH", default_value = "annotated")]
    passive_health: Which,
}

pub(super) fn flags(command: Command) -> Command {
    PassiveArgs::augment_args(command)
}

#[expect(clippy::unnecessary_wraps, reason = "the list calls each feature alike")]
pub(super) fn start(_: &ArgMatches, core: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    let passive = Passive::new(core.installed.config.probe_peers);
    Ok(Some(Box::new(PassiveHealth::new(passive))))
}

/// An agent has ejected backends only of imports with passive health, so a process that explains it takes all.
#[expect(clippy::unnecessary_wraps, reason = "the list calls each feature alike")]
pub(super) fn preference(matches: Option<&ArgMatches>) -> Option<Box<dyn Preference>> {
    let which = matches.and_then(|matches| matches.get_one("passive_health").copied());
    Some(Box::new(which.unwrap_or(Which::All)))
}

impl Preference for Which {
    fn read(&self, import: &ServiceImport, wishes: &mut Wishes, problems: &mut Vec<ObjectProblem>) {
        let by_default = *self == Self::All;
        wishes.ejects = match import.setting(wish::PASSIVE_HEALTH) {
            _ if *self == Self::Off => false,
            None => by_default,
            Some(text) => wish::passive_health(text).unwrap_or_else(|message| {
                problems.push(ObjectProblem::new(RejectionReason::PassiveHealthInvalid, message));
                by_default
            }),
        };
    }
}

/// `Passive health: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    if report.ejections.is_empty() { Vec::new() } else { vec![ejections(report)] }
}

fn ejections(report: &Report) -> String {
    let of = |state| report.ejections.iter().filter(|one| one.state == state).count();
    format!(
        "Passive health: {} backends do not answer, {} are half open, {} answer the agent and no client (`mcs-agent backends`)",
        of(EjectionState::Ejected),
        of(EjectionState::HalfOpen),
        of(EjectionState::AnswersAgent),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::import;

    #[test]
    fn owners_and_operators_decide() {
        use Which::{All, Annotated, Off};
        for (flag, annotation, expected) in [
            (Annotated, None, (true, false)),
            (Annotated, Some("on"), (true, true)),
            (Annotated, Some("off"), (true, false)),
            (Annotated, Some("yes"), (false, false)),
            (All, None, (true, true)),
            (All, Some("off"), (true, false)),
            (All, Some("yes"), (false, true)),
            (Off, Some("on"), (true, false)),
        ] {
            let settings = annotation.map(|text| (wish::PASSIVE_HEALTH, text.into()));
            let import =
                ServiceImport { settings: settings.into_iter().collect(), ..import("shop/web") };
            let mut problems = Vec::new();
            let mut wishes = Wishes::default();
            flag.read(&import, &mut wishes, &mut problems);
            assert_eq!((problems.is_empty(), wishes.ejects), expected, "{flag:?} {annotation:?}");
            let is_told = |one: &ObjectProblem| one.reason == RejectionReason::PassiveHealthInvalid;
            assert!(problems.iter().all(is_told), "{problems:?}");
        }
    }
}
