//! Says on a ClusterProperty itself that its value cannot be used, or that agents are not told of it: who writes it does not read
//! the controller's log.

use std::time::Instant;

use mcs_kube::{TRAFFIC_PROPERTY, Traffic, VIP_RANGES_PROPERTY};

use super::Control;
use crate::{
    clusterset::{ClusterId, SETTINGS},
    status::Turn,
};

impl Control {
    /// Reports values that cannot be used or that agents are not told of, once each, and when that ends.
    pub(super) fn note_settings(&mut self, now: Instant) {
        let untold = self.untold_of(self.state.cluster(), self.untold_traffic(now).as_ref());
        for name in SETTINGS {
            let problem = self.state.setting_problem(name);
            match (self.untold.note((name, "use"), problem.as_deref()), problem) {
                (Turn::Fails, Some(problem)) => {
                    tracing::warn!("ClusterProperty {name}: {problem}; what it said before counts");
                    self.tell_unused(name, &problem);
                }
                (Turn::Recovered, _) => {
                    tracing::info!("ClusterProperty {name} is used again, or gone");
                    self.tell_of_setting(
                        name,
                        false,
                        "ValueUsed",
                        "its value can be used".to_owned(),
                    );
                }
                _ => {}
            }
            match (self.untold.note((name, "tell"), untold.as_deref()), &untold) {
                (Turn::Fails, Some(problem)) => self.tell_untold(name, problem),
                (Turn::Recovered, _) => self.tell_told(name),
                _ => {}
            }
        }
    }

    /// What agents are to be told of clusters while the write of it fails, and why it fails.
    pub(super) fn untold_traffic(&self, now: Instant) -> Option<(Traffic, &str)> {
        let reason = self.untold.reason(&(TRAFFIC_PROPERTY, "write"))?;
        Some((self.state.traffic_property(now)?, reason))
    }

    /// Why agents have not been told of a cluster what they are to be.
    pub(super) fn untold_of(
        &self,
        cluster: &ClusterId,
        untold: Option<&(Traffic, &str)>,
    ) -> Option<String> {
        let (_, reason) = untold.filter(|(wanted, _)| !self.state.is_told(wanted, cluster))?;
        Some(format!("agents go by what they were told of {cluster} before: {reason}."))
    }

    /// Repeats the events: events live an hour.
    pub(super) fn tell_settings_again(&mut self) {
        for name in SETTINGS {
            if let Some(problem) = self.state.setting_problem(name) {
                self.tell_unused(name, &problem);
            }
        }
        let of_setting = SETTINGS.map(|name| (name, "tell"));
        let of_property = [TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY].map(|name| (name, "write"));
        for key in of_setting.into_iter().chain(of_property) {
            if let Some(problem) = self.untold.reason(&key).map(str::to_owned) {
                self.tell_untold(key.0, &problem);
            }
        }
    }

    fn tell_unused(&mut self, name: &str, problem: &str) {
        let note = format!("its value is not used, and what it said before counts: {problem}");
        self.tell_of_setting(name, true, "InvalidValue", note);
    }

    pub(super) fn tell_untold(&mut self, name: &str, problem: &str) {
        self.tell_of_setting(name, true, "NotTold", problem.to_owned());
    }

    pub(super) fn tell_told(&mut self, name: &str) {
        self.tell_of_setting(name, false, "Told", "agents are told of it".to_owned());
    }

    fn tell_of_setting(&mut self, name: &str, is_warning: bool, reason: &str, note: String) {
        let notice = self.state.setting_notice(name, is_warning, reason, note);
        self.tell(notice.into_iter().collect());
    }
}
