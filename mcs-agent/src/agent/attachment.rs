use std::{
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::witness::{Testimony, hear};
use crate::loader::{CgroupRoot, Effect, EffectSurvey, Hook};

/// How often all cgroups are looked at, and a witness is heard.
const PERIOD: Duration = Duration::from_secs(30);
/// Cgroups that are looked at in one go, which takes less than a millisecond.
const STEP: usize = 8;

/// Whether the socket programs run for all that they are attached to, as seen from there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AttachmentReport {
    /// When this was found out, in seconds since the Unix epoch.
    pub at: u64,
    /// What the kernel says of each cgroup.
    pub effect: Effect,
    /// Whether a process in a cgroup of its own, below, was refused by the programs what nobody else
    /// refuses. Absent where none could be asked.
    pub witness: Option<bool>,
    /// Why none could be asked, or what it saw instead.
    pub witness_says: Option<String>,
}

impl AttachmentReport {
    /// What is not as it should be.
    pub fn failings(&self) -> Vec<String> {
        let mut failings = Vec::new();
        if self.effect.without > 0 {
            failings.push(format!(
                "programs do not run for all cgroups below: {}",
                self.effect.without_named.join(", ")
            ));
        }
        if self.witness == Some(false) {
            failings.push(format!(
                "the socket hooks are attached, but a process below is not translated: {}",
                self.witness_says.as_deref().unwrap_or_default()
            ));
        }
        failings
    }
}

/// Finds out whether programs that are attached are effective, over and over.
#[derive(Default)]
pub(super) struct Attachment {
    survey: Option<EffectSurvey>,
    /// The ids of the programs that are looked for.
    programs: Vec<u32>,
    witness: Option<JoinHandle<Testimony>>,
    effect: Option<Effect>,
    testimony: Option<Testimony>,
    next: Option<Instant>,
    pub(super) report: Option<AttachmentReport>,
}

/// What is attached, and where.
pub(super) struct Attached<'a> {
    pub(super) cgroup: &'a CgroupRoot,
    pub(super) programs: Vec<(&'static Hook, u32)>,
    /// A VIP of each family.
    pub(super) vips: Vec<IpAddr>,
    /// What the programs refuse with.
    pub(super) errno: i32,
}

impl Attachment {
    /// Whether a new round is due.
    pub(super) fn is_due(&self) -> bool {
        self.survey.is_none()
            && self.witness.is_none()
            && self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Begins anew, since something has been attached again.
    pub(super) fn ask_again(&mut self) {
        self.next = None;
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, attached: Attached<'_>) {
        self.next = Some(Instant::now() + PERIOD);
        if attached.programs.is_empty() {
            self.report = None;
            return;
        }
        let root: PathBuf = attached.cgroup.path.clone();
        self.programs = ids(&attached.programs);
        self.survey = Some(EffectSurvey::begin(&root, attached.programs));
        (self.effect, self.testimony) = (None, None);
        if attached.vips.is_empty() {
            self.testimony = Some(Testimony::None("there is no VIP yet".to_owned()));
            // As soon as there is one.
            self.next = Some(Instant::now() + PERIOD / 10);
            return;
        }
        let Attached { vips, errno, .. } = attached;
        self.witness = Some(tokio::task::spawn_blocking(move || hear(&root, &vips, errno)));
    }

    /// Goes on with the round. Returns whether it has come to something new. `programs`: what is
    /// attached now.
    pub(super) async fn go_on(
        &mut self,
        now: u64,
        programs: impl Fn() -> Vec<(&'static Hook, u32)>,
    ) -> bool {
        if let Some(survey) = &mut self.survey {
            match survey.go_on(STEP) {
                Ok(None) => {}
                Ok(Some(_)) if ids(&programs()) != self.programs => {
                    // They were switched meanwhile.
                    self.survey = None;
                    self.ask_again();
                }
                Ok(effect) => {
                    self.survey = None;
                    self.effect = effect;
                }
                Err(error) => {
                    tracing::warn!("cannot look at cgroups: {error}; trying again");
                    self.survey = None;
                }
            }
        }
        if let Some(witness) = self.witness.take_if(|witness| witness.is_finished()) {
            self.testimony = witness.await.ok();
        }
        if self.survey.is_some() || self.witness.is_some() {
            return false;
        }
        let (Some(effect), Some(testimony)) = (self.effect.take(), self.testimony.take()) else {
            return false;
        };
        let (witness, witness_says) = match testimony {
            Testimony::Refused => (Some(true), None),
            Testimony::NotRefused(why) => (Some(false), Some(why)),
            Testimony::None(why) => (None, Some(why)),
        };
        let report = AttachmentReport { at: now, effect, witness, witness_says };
        let former = self.report.replace(report.clone());
        for failing in report.failings() {
            if !former.as_ref().is_some_and(|former| former.failings().contains(&failing)) {
                tracing::warn!("{failing}");
            }
        }
        true
    }
}

fn ids(programs: &[(&Hook, u32)]) -> Vec<u32> {
    programs.iter().map(|(_, id)| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_without_a_program_and_a_witness_who_was_let_through_are_failings() {
        let mut report = AttachmentReport { witness: Some(true), ..AttachmentReport::default() };
        assert_eq!(report.failings(), Vec::<String>::new());
        report.witness = None;
        report.witness_says = Some("read-only file system".to_owned());
        assert_eq!(report.failings(), Vec::<String>::new());
        report.witness = Some(false);
        report.effect.without = 1;
        report.effect.without_named = vec!["connect4 in /a".to_owned()];
        let said = report.failings().join("; ");
        assert!(said.contains("connect4 in /a") && said.contains("read-only"), "{said}");
    }
}
