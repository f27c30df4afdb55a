//! What `--adopt` would do for imports and API groups that the agent sees without it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Controller, antrea, gke, karmada};
use crate::core::{
    control::report::Report,
    model::{Kind, ObjectKey, Sections, SourceStatus},
    source::{ReadEvent, ReadObject, objects::LabelledImport},
};

/// Groups whose presence shows a controller.
const GROUPS: [(&str, Controller); 4] = [
    (antrea::GROUP, Controller::Antrea),
    (gke::GROUP, Controller::Gke),
    ("networking.karmada.io", Controller::Karmada),
    ("work.karmada.io", Controller::Karmada),
];

/// Its sections of the source's status.
const OBJECTS: &str = "adoptable";
const API_GROUPS: &str = "adoptable_groups";

/// Objects of a controller that `--adopt` would make the agent serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AdoptableObjects {
    /// The word of `--adopt`.
    pub(super) controller: Controller,
    /// The number of its ServiceImports that were read.
    imports: usize,
}

/// An API group that the API server has, and the value of `--adopt` for its objects, which are not read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AdoptableGroup {
    /// The word of `--adopt`.
    controller: Controller,
    group: String,
}

/// Imports and API groups of controllers that are not adopted.
#[derive(Debug)]
pub(super) struct Offers {
    adopted: BTreeSet<Controller>,
    imports: BTreeMap<ObjectKey, Controller>,
    groups: Vec<AdoptableGroup>,
}

impl Offers {
    pub(super) const fn new(adopted: BTreeSet<Controller>) -> Self {
        Self { adopted, imports: BTreeMap::new(), groups: Vec::new() }
    }

    /// Forgets the imports that this event replaces.
    pub(super) fn forget(&mut self, event: &ReadEvent) {
        let key = match event {
            ReadEvent::Apply(ReadObject::Import(read)) => &read.import.key,
            ReadEvent::Delete(object) | ReadEvent::Malformed { object, .. }
                if object.kind == Kind::ServiceImport =>
            {
                &object.key
            }
            ReadEvent::Relist { kind: Kind::ServiceImport, .. } => return self.imports.clear(),
            _ => return,
        };
        self.imports.remove(key);
    }

    /// Notes an import of this controller.
    pub(super) fn note(&mut self, import: &ObjectKey, controller: Controller) {
        if !self.adopted.contains(&controller) {
            self.imports.insert(import.clone(), controller);
        }
    }

    /// Notes the groups among these that show a controller, one of each.
    pub(super) fn note_groups<'a>(&mut self, groups: impl Iterator<Item = &'a str>) {
        let groups: BTreeSet<&str> = groups.collect();
        let mut shown = self.adopted.clone();
        let found = GROUPS
            .into_iter()
            .filter(|(group, controller)| groups.contains(group) && shown.insert(*controller));
        let found =
            found.map(|(group, controller)| AdoptableGroup { controller, group: group.to_owned() });
        self.groups = found.collect();
    }

    pub(super) fn status(&self, sections: &mut Sections) {
        let mut counts = BTreeMap::new();
        for controller in self.imports.values() {
            *counts.entry(*controller).or_default() += 1;
        }
        let objects = counts
            .into_iter()
            .map(|(controller, imports)| AdoptableObjects { controller, imports });
        sections.set(OBJECTS, &objects.collect::<Vec<_>>());
        sections.set(API_GROUPS, &self.groups);
    }
}

/// The controller of an import, and the name of the Service that it has made for it. Says in the import how the agent
/// would serve it.
pub(super) fn recognise(read: &mut LabelledImport) -> Option<(Controller, String)> {
    let LabelledImport { import, labels, annotations } = read;
    // The agent serves no import whose endpoints are not published, adopted or not.
    let is_published = import.endpoint_slice_objects.as_deref() != Some("Absent");
    if !is_published || import.derived_service.is_some() {
        return None;
    }
    let of_gke = gke::service_of(annotations).map(|service| (Controller::Gke, service));
    let of_karmada = || Some((Controller::Karmada, karmada::service_of(&import.key.name, labels)?));
    let (controller, service) = of_gke.or_else(of_karmada)?;
    import.remedy = format!("to hand it to the agent, set --adopt={controller}").into();
    // GKE's import names its Service, which serves the import until the agent adopts it.
    import.derived_service = (controller == Controller::Gke).then(|| service.clone());
    Some((controller, service))
}

/// What a source's status says of objects and of groups.
pub(super) fn of_status(status: &SourceStatus) -> (Vec<AdoptableObjects>, Vec<AdoptableGroup>) {
    let sections = &status.sections;
    (sections.get(OBJECTS).unwrap_or_default(), sections.get(API_GROUPS).unwrap_or_default())
}

/// Its lines in `status`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let (objects, groups) = of_status(&report.common.source);
    let objects = objects.iter().map(AdoptableObjects::offer);
    objects.chain(groups.iter().map(AdoptableGroup::offer)).collect()
}

impl AdoptableObjects {
    pub(super) fn offer(&self) -> String {
        let Self { controller, imports } = self;
        format!(
            "{imports} ServiceImports of {controller}: the agent serves them with --adopt={controller}"
        )
    }
}

impl AdoptableGroup {
    pub(super) fn offer(&self) -> String {
        let Self { controller, group } = self;
        let objects = match GROUPS.iter().find(|(known, _)| known == group) {
            Some((_, Controller::Antrea)) => {
                "its ServiceImports, if it exports pod addresses (endpointIPType: PodIP)"
            }
            Some((_, Controller::Karmada)) => {
                "the Services and ServiceImports that Karmada propagates"
            }
            _ => "its ServiceImports",
        };
        format!("the API server has the group {group}: --adopt={controller} serves {objects}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{ServiceImport, fixture::import};

    #[test]
    fn labels_and_annotations_show_whose_import_it_is() {
        let of_gke = [("net.gke.io/derived-service".to_owned(), "gke-abc".to_owned())].into();
        let of_karmada = [("karmada.io/managed".to_owned(), "true".to_owned())].into();
        let none = BTreeMap::new();
        let derived =
            || ServiceImport { derived_service: Some("other".to_owned()), ..import("shop/web") };
        let absent = || ServiceImport {
            endpoint_slice_objects: Some("Absent".to_owned()),
            ..import("shop/web")
        };
        for (import, labels, annotations, expected) in [
            (import("shop/web"), &none, &none, None),
            (import("shop/web"), &none, &of_gke, Some(("gke", "gke-abc"))),
            (import("shop/web"), &of_karmada, &none, Some(("karmada", "derived-web"))),
            (import("shop/web"), &of_karmada, &of_gke, Some(("gke", "gke-abc"))),
            (derived(), &of_karmada, &of_gke, None),
            (absent(), &of_karmada, &of_gke, None),
        ] {
            let (labels, annotations) = (labels.clone(), annotations.clone());
            let mut read = LabelledImport { import, labels, annotations };
            let found = recognise(&mut read).map(|(word, service)| (word.to_string(), service));
            let expected = expected.map(|(word, service)| (word.to_owned(), service.to_owned()));
            assert_eq!(found, expected);
            let remedy = |word| format!("to hand it to the agent, set --adopt={word}");
            assert!(expected.is_none_or(|(word, _)| read.import.remedy == remedy(word)));
        }
    }
}
