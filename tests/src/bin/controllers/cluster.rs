//! A member cluster: an API server, and the controllers of Kubernetes that write its EndpointSlices.

use crate::prelude::*;

/// A cluster. Everything in it goes when this is dropped.
pub(crate) struct Cluster {
    _manager: Process,
    pub(crate) server: ApiServer,
    pub(crate) id: &'static str,
    /// From 1.
    pub(crate) number: u8,
}

impl Cluster {
    /// The clusters of every stage.
    pub(crate) const IDS: [&'static str; 2] = ["c1", "c2"];

    /// Starts one whose API server is at that port. `stage` tells it from clusters of the same id that have gone.
    pub(crate) fn start(
        control: &ControlPlane,
        stage: &str,
        id: &'static str,
        number: u8,
    ) -> Result<Self> {
        let range = format!("--service-cluster-ip-range=10.{}.0.0/16", 95 + number);
        let name = format!("{stage}-{id}");
        let server = control.member(&name, 6440 + u16::from(number), &[&range])?;
        server.api.create_many(&[json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": format!("node-{id}"),
                "labels": { "topology.kubernetes.io/zone": format!("zone-{id}") },
            },
        })])?;
        Ok(Self { _manager: control.controllers(&server)?, server, id, number })
    }

    /// Asks its API server as the administrator.
    pub(crate) const fn api(&self) -> &Api {
        &self.server.api
    }

    /// A file of this cluster.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.server.directory().join(name)
    }

    /// Makes a namespace, if it is not there.
    pub(crate) fn add_namespace(&self, name: &str) -> Result {
        add_namespace(self.api(), name)
    }

    /// Makes a ServiceAccount with these rights everywhere. Returns a token.
    pub(crate) fn account(&self, namespace: &str, name: &str, rules: &Value) -> Result<String> {
        let account = namespaced("v1", "ServiceAccount", namespace, name);
        self.api().apply(&account)?;
        self.api().apply_all(&rights::everywhere(name, rules, (namespace, name)))?;
        self.api().issue_token(&account)
    }
}

/// Makes a namespace, if it is not there.
pub(crate) fn add_namespace(api: &Api, name: &str) -> Result {
    api.apply(&namespace(name))
}
