//! The objects of a service that the API server of this cluster refuses, in its own words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use mcs_kube::reasons::Reason;

use super::{Condition, ConditionStatus, ConditionType, export_status::in_import};

/// An object that this controller writes for a service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServiceObject {
    /// The namespace.
    Namespace,
    /// The ServiceImport.
    Import,
    /// An imported slice, by `metadata.name`.
    Slice(Arc<str>),
    /// The derived Service.
    DerivedService,
    /// `status` of the ServiceImport.
    ImportStatus,
    /// The ServiceExport that an ExportRule asks for.
    Export,
    /// `status` of the ServiceExport.
    ExportStatus,
}

impl ServiceObject {
    /// Whether it belongs to the import, and not to the export.
    pub const fn is_of_import(&self) -> bool {
        !matches!(self, Self::Export | Self::ExportStatus)
    }
}

impl fmt::Display for ServiceObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("the namespace"),
            Self::Import => f.write_str("the ServiceImport"),
            Self::Slice(name) => write!(f, "EndpointSlice {name}"),
            Self::DerivedService => f.write_str("the derived Service"),
            Self::ImportStatus => f.write_str("the status of the ServiceImport"),
            Self::Export => f.write_str("the ServiceExport"),
            Self::ExportStatus => f.write_str("the status of the ServiceExport"),
        }
    }
}

/// The refused objects of one service, each with the answer of the API server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refused(BTreeMap<ServiceObject, String>);

impl Refused {
    /// Nothing is refused.
    pub const NONE: &'static Self = &Self(BTreeMap::new());

    /// Whether nothing is refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this object is refused.
    pub fn contains(&self, object: &ServiceObject) -> bool {
        self.0.contains_key(object)
    }

    /// Whether an object that `is_meant` is refused.
    pub fn any(&self, is_meant: impl Fn(&ServiceObject) -> bool) -> bool {
        self.0.keys().any(is_meant)
    }

    /// Notes an answer. The first one counts while the object stays refused: later ones may differ in a number alone.
    pub fn note(&mut self, object: ServiceObject, words: String) {
        self.0.entry(object).or_insert(words);
    }

    /// The API server takes the object, or nobody asks it to.
    pub fn retain(&mut self, stays: impl Fn(&ServiceObject) -> bool) {
        self.0.retain(|object, _| stays(object));
    }

    /// The refused objects.
    pub fn objects(&self) -> BTreeSet<&ServiceObject> {
        self.0.keys().collect()
    }

    /// Whether a slice of this name is refused.
    pub(super) fn has_slice(&self, name: &Arc<str>) -> bool {
        !self.0.is_empty() && self.contains(&ServiceObject::Slice(Arc::clone(name)))
    }

    /// What people are told of the refused objects that `is_meant`.
    pub fn told(&self, is_meant: impl Fn(&ServiceObject) -> bool) -> Option<String> {
        let mut meant = self.0.iter().filter(|(object, _)| is_meant(object));
        let (object, words) = meant.next()?;
        let more = match meant.count() {
            0 => String::new(),
            1 => " One more object is refused.".to_owned(),
            more => format!(" {more} more objects are refused."),
        };
        Some(format!("the API server of this cluster refuses {object}: {words}.{more}"))
    }

    /// The condition `Ready` of an import of which objects are refused.
    pub(super) fn condition(&self) -> Option<Condition> {
        let message = in_import(self.told(ServiceObject::is_of_import)?);
        Some(Condition::new(ConditionType::Ready, ConditionStatus::False, Reason::Refused, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_stay_while_an_object_is_refused() {
        let mut refused = Refused::default();
        refused.note(ServiceObject::Import, "exceeded quota, used: 3".to_owned());
        let former = refused.clone();
        refused.note(ServiceObject::Import, "exceeded quota, used: 4".to_owned());
        assert_eq!(refused, former);
        refused.retain(|_| false);
        refused.note(ServiceObject::Import, "exceeded quota, used: 5".to_owned());
        assert!(refused.told(|_| true).is_some_and(|told| told.contains("used: 5")));
    }
}
