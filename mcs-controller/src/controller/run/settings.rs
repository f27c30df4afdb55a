//! Says on a ClusterProperty itself that its value cannot be used: who writes it does not read the controller's log.

use super::Control;
use crate::{clusterset::SETTINGS, status::Turn};

impl Control {
    /// Reports values that cannot be used, once each, and when they can.
    pub(super) fn note_settings(&mut self) {
        for name in SETTINGS {
            let problem = self.state.setting_problem(name);
            match (self.untold.note((name, "use"), problem.as_deref()), problem) {
                (Turn::Fails, Some(problem)) => {
                    tracing::warn!("ClusterProperty {name}: {problem}; what it said before counts");
                    self.tell_unused(name, &problem);
                }
                (Turn::Recovered, _) => {
                    tracing::info!("ClusterProperty {name} is used again, or gone");
                    let note = "its value is used".to_owned();
                    let notice = self.state.setting_notice(name, false, "ValueUsed", note);
                    self.tell(notice.into_iter().collect());
                }
                _ => {}
            }
        }
    }

    /// Repeats the events: events live an hour.
    pub(super) fn tell_settings_again(&mut self) {
        for name in SETTINGS {
            if let Some(problem) = self.state.setting_problem(name) {
                self.tell_unused(name, &problem);
            }
        }
    }

    fn tell_unused(&mut self, name: &str, problem: &str) {
        let note = format!("its value is not used, and what it said before counts: {problem}");
        let notice = self.state.setting_notice(name, true, "InvalidValue", note);
        self.tell(notice.into_iter().collect());
    }
}
