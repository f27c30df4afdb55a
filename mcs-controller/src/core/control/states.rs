//! The states of imports and exports, and the number in each state.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::clusterset::{ImportState, ServiceName};

/// The services in each state of a kind.
#[derive(Debug)]
pub(crate) struct States<S>(BTreeMap<ServiceName, S>);

impl<S> Default for States<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Copy + PartialEq> States<S> {
    /// Notes the state of a service. `None`: there is nothing to import or export.
    pub(super) fn note(&mut self, name: &ServiceName, state: Option<S>) {
        match state {
            Some(state) => self.0.insert(name.clone(), state),
            None => self.0.remove(name),
        };
    }

    /// The state of each service.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ServiceName, S)> {
        self.0.iter().map(|(name, state)| (name, *state))
    }

    /// How many services are in each of these states.
    pub(crate) fn counts(&self, states: &'static [S]) -> impl Iterator<Item = (S, usize)> {
        let count = |state: &S| self.0.values().filter(|one| *one == state).count();
        states.iter().map(move |state| (*state, count(state)))
    }
}

/// The services in each state of an import.
#[derive(Debug, Default)]
pub(crate) struct ImportStates {
    states: States<ImportState>,
    /// Those that wait for a namespace.
    without_namespace: BTreeSet<ServiceName>,
}

impl ImportStates {
    /// Notes the state of a service. `None`: there is nothing to import.
    pub(super) fn note(&mut self, name: &ServiceName, state: Option<ImportState>) {
        if state == Some(ImportState::NoNamespace) {
            self.without_namespace.insert(name.clone());
        } else {
            self.without_namespace.remove(name);
        }
        self.states.note(name, state);
    }

    /// The state of each service.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ServiceName, ImportState)> {
        self.states.all()
    }

    /// How many services are in each state.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (ImportState, usize)> {
        self.states.counts(ImportState::ALL)
    }

    /// The first services by name that are not as they should be, `count` at most.
    pub(crate) fn troubled(&self, count: usize) -> BTreeSet<(ServiceName, ImportState)> {
        let all = self.states.0.iter().filter(|(_, state)| **state != ImportState::Ready);
        all.take(count).map(|(name, state)| (name.clone(), *state)).collect()
    }

    /// The services that wait for a namespace.
    pub(super) const fn without_namespace(&self) -> &BTreeSet<ServiceName> {
        &self.without_namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::name;

    #[test]
    fn a_service_is_in_one_state() {
        let mut states = ImportStates::default();
        let web = name("shop/web");
        states.note(&web, Some(ImportState::NoNamespace));
        assert_eq!(states.without_namespace().len(), 1);
        assert_eq!(states.troubled(2), [(web.clone(), ImportState::NoNamespace)].into());
        assert!(states.troubled(0).is_empty());
        states.note(&web, Some(ImportState::Ready));
        states.note(&name("shop/db"), Some(ImportState::Ready));
        assert_eq!(states.counts().next(), Some((ImportState::Ready, 2)));
        assert_eq!(states.counts().map(|(_, count)| count).sum::<usize>(), 2);
        assert!(states.without_namespace().is_empty() && states.troubled(2).is_empty());
        states.note(&web, None);
        assert_eq!(states.counts().next().unwrap().1, 1);
    }
}
