//! Pods of another cluster that serve in place of those of the first: each has the name and the containers of its original.

use kube::{Client, ResourceExt as _, api::DynamicObject};
use mcs_tests::{api_server, prelude::*};

use super::{
    Key, apply, delete, key,
    watch::{Event, Kind},
};

/// The label of each double.
pub(super) const LABEL: &str = "mcs-tests.invalid/double";
/// Namespaces of the cluster itself, whose pods serve.
const OWN: [&str; 3] = ["default", "kube-system", "mcs-system"];

pub(super) struct Doubles {
    pub(super) client: Client,
    originals: BTreeMap<Key, DynamicObject>,
    pods: BTreeMap<Key, DynamicObject>,
}

impl Doubles {
    pub(super) const fn new(client: Client) -> Self {
        Self { client, originals: BTreeMap::new(), pods: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, event: &Event) {
        let pods = match event {
            Event::Listed(kind, _) | Event::Changed(kind, _) | Event::Deleted(kind, _) => {
                match kind {
                    Kind::Pod => &mut self.originals,
                    Kind::Double => &mut self.pods,
                    Kind::Service | Kind::Slice => return,
                }
            }
        };
        match event {
            Event::Listed(_, list) => {
                *pods = list.iter().map(|pod| (key(pod), pod.clone())).collect();
            }
            Event::Changed(_, pod) => drop(pods.insert(key(pod), (**pod).clone())),
            Event::Deleted(_, pod) => drop(pods.remove(&key(pod))),
        }
    }

    /// Makes a double of each pod that is an endpoint, and deletes the others. What fails is tried again with the next call.
    pub(super) async fn write(&self, slices: impl Iterator<Item = &DynamicObject>) {
        let endpoints = slices.flat_map(|slice| {
            let endpoints = slice.data["endpoints"].as_array().into_iter().flatten();
            endpoints.filter_map(|endpoint| original(endpoint, &key(slice).0))
        });
        let wanted: BTreeSet<_> = endpoints.collect();
        for key in &wanted {
            if let Some(original) = self.originals.get(key).filter(|_| !self.pods.contains_key(key))
                && let Err(error) = self.create(key, original).await
            {
                // Its namespace is too new or on its way out.
                let is_usual = matches!(&error, kube::Error::Api(status) if status.code == 403);
                if !is_usual {
                    eprintln!("mirror: the double of {}/{}: {error}", key.0, key.1);
                }
            }
        }
        for (key, double) in &self.pods {
            if !wanted.contains(key) && double.metadata.deletion_timestamp.is_none() {
                let path = format!("/api/v1/namespaces/{}/pods/{}", key.0, key.1);
                if let Err(error) = delete(&self.client, &path).await {
                    eprintln!("mirror: {path}: {error}");
                }
            }
        }
    }

    async fn create(&self, (namespace, name): &Key, original: &DynamicObject) -> kube::Result<()> {
        let object = api_server::namespace(namespace);
        apply(&self.client, &format!("/api/v1/namespaces/{namespace}"), &object).await?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        apply(&self.client, &path, &double(original)).await
    }

    /// Gives each endpoint the address of its double. One whose double is not ready is left out.
    pub(super) fn replace_addresses(&self, slice: &mut Value) {
        let namespace = slice["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let is_v6 = slice["addressType"] == "IPv6";
        let Some(endpoints) = slice["endpoints"].as_array_mut() else { return };
        endpoints.retain_mut(|endpoint| {
            let Some(original) = original(endpoint, &namespace) else { return true };
            let double = self.pods.get(&original).filter(|double| is_ready(double));
            let Some(address) = double.and_then(|double| address(double, is_v6)) else {
                return false;
            };
            endpoint["addresses"] = json!([address]);
            if let Some(endpoint) = endpoint.as_object_mut() {
                // They are of nodes that this cluster lacks.
                endpoint.remove("nodeName");
                endpoint.remove("targetRef");
            }
            true
        });
    }
}

/// The pod behind an endpoint, if another one serves in its place.
fn original(endpoint: &Value, namespace: &str) -> Option<Key> {
    let target = &endpoint["targetRef"];
    let name = target["name"].as_str().filter(|_| target["kind"] == "Pod")?;
    (!OWN.contains(&namespace)).then(|| (namespace.to_owned(), name.to_owned()))
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn address(pod: &DynamicObject, is_v6: bool) -> Option<&str> {
    let addresses = pod.data["status"]["podIPs"].as_array()?.iter();
    addresses.filter_map(|ip| ip["ip"].as_str()).find(|ip| ip.contains(':') == is_v6)
}

/// A pod with the name and the containers of another one.
fn double(original: &DynamicObject) -> Value {
    let spec = &original.data["spec"];
    let containers = |field: &str| -> Value {
        let containers = spec[field].as_array().into_iter().flatten().map(|container| {
            let mut container = container.clone();
            if let Some(container) = container.as_object_mut() {
                container.remove("volumeMounts");
            }
            container
        });
        containers.collect()
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": original.namespace(),
            "name": original.name_any(),
            "labels": { LABEL: "" },
        },
        "spec": {
            "containers": containers("containers"),
            "initContainers": containers("initContainers"),
            "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
        },
    })
}
