//! Which clusters have changed a service since its import was last written: they pay for the next write.

use std::collections::{BTreeSet, HashMap};

use mcs_kube::ResourceEvent;

use crate::{
    clusterset::{ClusterId, ServiceName},
    objects::ExportObject,
    own_cluster::{OwnCluster, OwnEvent},
};

/// The clusters that have changed each service. An absent service was changed only by this controller.
#[derive(Debug, Default)]
pub(super) struct Causes(HashMap<ServiceName, BTreeSet<ClusterId>>);

impl Causes {
    /// A cluster has changed a service.
    pub(super) fn add(&mut self, name: &ServiceName, cluster: &ClusterId) {
        let causes = self.0.entry(name.clone()).or_default();
        if !causes.contains(cluster) {
            causes.insert(cluster.clone());
        }
    }

    /// Removes and returns the clusters that have changed a service.
    pub(super) fn take(&mut self, name: &ServiceName) -> BTreeSet<ClusterId> {
        self.0.remove(name).unwrap_or_default()
    }

    /// Puts the clusters back: their change is still to be written.
    pub(super) fn put_back(&mut self, name: &ServiceName, causes: BTreeSet<ClusterId>) {
        if !causes.is_empty() {
            self.0.insert(name.clone(), causes);
        }
    }
}

/// Whether a tenant of this cluster has changed a service. The controller's own writes do not count.
pub(super) fn is_of_tenant(event: &OwnEvent, own: &OwnCluster) -> bool {
    match event {
        OwnEvent::Imports(_) | OwnEvent::ImportedSlices(_) => false,
        OwnEvent::Exports(ResourceEvent::Changed(object)) => {
            let key = object.key();
            let name = ServiceName::new(&key.namespace, &key.name).ok();
            let former = name.as_ref().and_then(|name| own.export_object(name));
            let (Some(former), Ok(export)) = (former, &object.decoded) else { return true };
            *export != ExportObject { conditions: export.conditions.clone(), ..former.clone() }
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::{Decoder, WatchedObject};
    use serde_json::{Value, from_value, json};

    use super::*;

    fn object<D: Decoder>(value: Value) -> WatchedObject<D> {
        from_value(value).unwrap()
    }

    /// What this controller writes must not make this cluster pay for the next change of a peer.
    #[test]
    fn what_this_controller_writes_is_no_change_of_a_tenant() {
        let mut own = OwnCluster::new(vec![]);
        let metadata = json!({"namespace": "shop", "name": "web"});
        let condition = json!({
            "type": "Valid", "status": "True", "reason": "Valid", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        let export = |annotation: &str, conditions: Value| {
            let spec = json!({"exportedAnnotations": {"text": annotation}});
            let status = json!({"conditions": conditions});
            let export = json!({"metadata": metadata, "spec": spec, "status": status});
            OwnEvent::Exports(ResourceEvent::Changed(object(export)))
        };
        for (event, expected) in [
            (export("a", json!([])), true),
            (export("a", json!([condition])), false),
            (export("b", json!([condition])), true),
            (OwnEvent::Imports(ResourceEvent::Recovered), false),
            (OwnEvent::Slices(ResourceEvent::Recovered), true),
        ] {
            assert_eq!(is_of_tenant(&event, &own), expected, "{event:?}");
            own.apply(event);
        }
    }

    #[test]
    fn causes_stay_until_the_import_is_written() {
        let (mut causes, shop) = (Causes::default(), crate::clusterset::fixture::name("shop/web"));
        let [east, west] = ["east", "west"].map(crate::clusterset::fixture::cluster);
        causes.add(&shop, &east);
        let taken = causes.take(&shop);
        assert_eq!(taken, [east.clone()].into());
        causes.put_back(&shop, taken);
        causes.add(&shop, &west);
        assert_eq!(causes.take(&shop), [east, west].into());
        assert_eq!(causes.take(&shop), BTreeSet::new());
    }
}
