//! Events about imports.

use mcs_kube::reasons::Reason;

use super::State;
use crate::core::{
    clusterset::ServiceName,
    status::{Notice, Regarding},
};

impl State {
    /// Tells of an import, if it is there.
    pub(crate) fn tell_of_import(&mut self, name: &ServiceName, reason: Reason, note: String) {
        if self.own.import_object(name).is_some() {
            self.tell_of_service(name, reason, note);
        }
    }

    /// The event may be about the import that the service would have.
    pub(super) fn tell_of_service(&mut self, name: &ServiceName, reason: Reason, note: String) {
        let regarding = self.regarding_import(name);
        self.notices.push(Notice::new(regarding, reason, note));
    }

    /// The import of a service, or the one that it would have.
    pub(crate) fn regarding_import(&self, name: &ServiceName) -> Regarding {
        let uid = self.own.import_object(name).map(|import| import.uid.clone());
        let (version, uid) = (self.own.import_version(), uid.unwrap_or_default());
        Regarding::service("ServiceImport", version, name, uid)
    }

    /// Removes and returns the events to write.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}
