//! Interning: equal names and hints of objects share one allocation.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use crate::core::model::{EndpointSlice, Location, Object, ServiceImport, TopologyHints};

/// The names of clusters, namespaces and services, the locations and the hints, that objects repeat.
#[derive(Debug, Default)]
pub(super) struct Interner {
    names: Pool<str>,
    locations: Pool<Location>,
    hints: Pool<TopologyHints>,
}

impl Interner {
    /// Replaces the names, locations and hints of an object with equal ones that are known already.
    pub(super) fn intern(&mut self, object: &mut Object) {
        match object {
            Object::Import(import) => self.intern_import(import),
            Object::Slice(slice) => self.intern_slice(slice),
        }
    }

    fn intern_import(&mut self, import: &mut ServiceImport) {
        self.names.intern(&mut import.key.namespace);
        self.names.intern(&mut import.key.name);
        import.clusters.iter_mut().for_each(|cluster| self.names.intern(cluster));
        if let Some(Ok(tiers)) = import.tiers.as_deref_mut() {
            let names = tiers.0.iter_mut().flat_map(|tier| &mut tier.clusters);
            names.for_each(|cluster| self.names.intern(cluster));
        }
    }

    fn intern_slice(&mut self, slice: &mut EndpointSlice) {
        self.names.intern(&mut slice.key.namespace);
        self.names.intern(&mut slice.service);
        self.names.intern(&mut slice.source_cluster);
        for endpoint in &mut slice.endpoints {
            if let Some(location) = &mut endpoint.location {
                self.locations.intern(location);
            }
            if let Some(hints) = &mut endpoint.hints {
                self.hints.intern(hints);
            }
        }
    }
}

/// Known values. The pool can have values that no object uses any more.
#[derive(Debug)]
struct Pool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// With this many values the pool drops unused ones.
    bound: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), bound: 1024 }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn intern(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.values.get(value) {
            value.clone_from(known);
            return;
        }
        if self.values.len() >= self.bound {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.bound = (2 * self.values.len()).max(self.bound);
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::{endpoint, slice};

    #[test]
    fn slices_share_equal_names_and_hints() {
        let mut interner = Interner::default();
        let [one, other] = [1, 2].map(|_| {
            let endpoint = endpoint("10.1.0.1").node("n1").for_zone("z1");
            let mut slice = slice("shop/web", "web").endpoint(endpoint);
            interner.intern_slice(&mut slice);
            slice
        });
        assert_eq!(one, other);
        assert!(Arc::ptr_eq(&one.source_cluster, &other.source_cluster));
        let [one, other] = [&one, &other].map(|slice| &slice.endpoints[0]);
        assert!(
            one.location
                .as_ref()
                .zip(other.location.as_ref())
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        );
        assert!(
            one.hints
                .as_ref()
                .zip(other.hints.as_ref())
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        );
    }

    #[test]
    fn the_pool_drops_unused_values() {
        let mut pool = Pool::<str>::default();
        let mut kept: Vec<Arc<str>> = Vec::new();
        for number in 0..100_000 {
            let mut name = Arc::from(format!("node-{number}"));
            pool.intern(&mut name);
            if number % 100 == 0 {
                kept.push(name);
            }
        }
        assert!(pool.values.len() <= 2 * kept.len().max(1024), "{}", pool.values.len());
        for name in &kept {
            assert!(pool.values.contains(name));
        }
    }
}
