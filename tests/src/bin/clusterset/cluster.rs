//! A cluster of the set: an API server with everything that is shipped, and its controller.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use mcs_tests::{
    api_server::{Api, ApiServer, ControlPlane, namespace, rights},
    cluster::cluster_property,
    wait,
};
use serde_json::{Value, json};

use crate::{
    controller::{self, Controller, MAILBOX, NAMESPACE},
    objects::{self, namespaced},
};

/// Imports and endpoints arrive within this: a controller that found no answer of an API server may wait before it asks again.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(40);
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The ranges of ClusterIPs: clusters are alike.
const SERVICES: &str = "--service-cluster-ip-range=10.96.0.0/16,fd96::/112";

/// A cluster. The API server and the controller go when this is dropped.
pub(crate) struct Cluster {
    pub(crate) id: &'static str,
    pub(crate) controller: Controller,
    pub(crate) server: ApiServer,
}

impl Cluster {
    /// Starts the API server and the controller.
    pub(crate) fn start(
        control: &ControlPlane,
        id: &'static str,
        number: u16,
    ) -> anyhow::Result<Self> {
        Self::start_copy(control, id, id, number)
    }

    /// Starts a cluster of that id, whose API server has another name.
    pub(crate) fn start_copy(
        control: &ControlPlane,
        id: &'static str,
        name: &str,
        number: u16,
    ) -> anyhow::Result<Self> {
        let server = control.member(name, 6440 + number, &[SERVICES])?;
        let kubeconfig = controller::install(&server, id)?;
        let netns = Arc::clone(control.netns());
        let controller = Controller::start(netns, server.directory(), kubeconfig, &[])?;
        Ok(Self { id, controller, server })
    }

    /// Asks its API server as the administrator.
    pub(crate) const fn api(&self) -> &Api {
        &self.server.api
    }

    /// Asks it as a user who has rights in one namespace: `edit`, and the right to write Services, Endpoints, slices and imports.
    pub(crate) fn tenant(&self, namespace: &str) -> anyhow::Result<Api> {
        let rules = json!([
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["*"] },
            { "apiGroups": [""], "resources": ["services", "endpoints"], "verbs": ["*"] },
            {
                "apiGroups": ["multicluster.x-k8s.io"],
                "resources": ["serviceimports", "serviceimports/status"],
                "verbs": ["*"],
            },
        ]);
        self.api().apply(&rights::role(Some(namespace), "writes-endpoints", &rules))?;
        for (kind, role) in [
            ("ClusterRole", "edit"),
            // The controller manager, which no case runs, adds these to `edit`.
            ("ClusterRole", "mcs-developer"),
            ("ClusterRole", "mcs-viewer"),
            ("Role", "writes-endpoints"),
        ] {
            let account = (namespace, "tenant");
            self.api().apply(&rights::binding(Some(namespace), role, (kind, role), account))?;
        }
        self.account(namespace, "tenant")
    }

    /// Asks it as a controller that may write Services, Endpoints, slices and imports everywhere.
    pub(crate) fn another_controller(&self, namespace: &str) -> anyhow::Result<Api> {
        let verbs = ["get", "create", "patch", "update", "delete"];
        let rules = json!([
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs },
            { "apiGroups": [""], "resources": ["services", "endpoints"], "verbs": verbs },
            {
                "apiGroups": ["multicluster.x-k8s.io"],
                "resources": ["serviceimports"], "verbs": verbs,
            },
        ]);
        let account = (namespace, "controller");
        self.api().apply_all(&rights::everywhere("another-controller", &rules, account))?;
        self.account(namespace, "controller")
    }

    /// Whatever a ServiceAccount may do.
    pub(crate) fn account(&self, namespace: &str, name: &str) -> anyhow::Result<Api> {
        let account = namespaced("v1", "ServiceAccount", namespace, name);
        self.api().apply(&account)?;
        self.server.with_token(&self.api().issue_token(&account)?)
    }

    /// The kubeconfig of whoever may read its mailbox and renew the token, as `link` makes it, for the cluster `reader`.
    pub(crate) fn credentials_for(&self, reader: &str) -> anyhow::Result<String> {
        self.credentials_in(MAILBOX, reader)
    }

    /// The same for the mailbox in a namespace.
    pub(crate) fn credentials_in(&self, mailbox: &str, reader: &str) -> anyhow::Result<String> {
        let account = namespaced("v1", "ServiceAccount", mailbox, reader);
        self.api().apply(&account)?;
        let renewal = format!("renew-{reader}");
        let rules = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"],
            "resourceNames": [reader], "verbs": ["create"],
        }]);
        self.api().apply(&rights::role(Some(mailbox), &renewal, &rules))?;
        for (name, role) in [(reader, "mcs-mailbox-reader"), (&renewal, &renewal)] {
            let (role, account) = (("Role", role), (mailbox, reader));
            self.api().apply(&rights::binding(Some(mailbox), name, role, account))?;
        }
        self.kubeconfig(&self.api().issue_token(&account)?)
    }

    /// The kubeconfig of a ServiceAccount that may read everything but write nothing.
    pub(crate) fn onlooker(&self) -> anyhow::Result<PathBuf> {
        let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"] }]);
        let account = namespaced("v1", "ServiceAccount", NAMESPACE, "onlooker");
        self.api().apply(&account)?;
        self.api().apply_all(&rights::everywhere("onlooker", &rules, (NAMESPACE, "onlooker")))?;
        let kubeconfig = self.directory().join("onlooker.kubeconfig");
        fs::write(&kubeconfig, self.kubeconfig(&self.api().issue_token(&account)?)?)?;
        Ok(kubeconfig)
    }

    /// The text of a kubeconfig of whoever has that token.
    pub(crate) fn kubeconfig(&self, token: &str) -> anyhow::Result<String> {
        let authority = fs::read(self.server.authority())?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "peer",
            "contexts": [{ "name": "peer", "context": { "cluster": "peer", "user": "peer" } }],
            "clusters": [{ "name": "peer", "cluster": {
                "server": format!("https://{}", self.server.address()),
                "certificate-authority-data": k8s_openapi::ByteString(authority),
            } }],
            "users": [{ "name": "peer", "user": { "token": token } }],
        });
        Ok(config.to_string())
    }

    /// A kubeconfig of the administrator.
    pub(crate) fn administrator(&self) -> anyhow::Result<PathBuf> {
        self.server.administrator()
    }

    /// Where files of this cluster lie.
    pub(crate) fn directory(&self) -> &Path {
        self.server.directory()
    }

    /// Makes a namespace.
    pub(crate) fn add_namespace(&self, name: &str) -> anyhow::Result<()> {
        self.api().apply(&namespace(name))
    }

    /// Lets its publisher renew its Lease at once, and not when 10 seconds are over: the Lease says something else. Readers that
    /// have just begun, or look into another mailbox, wait for that.
    pub(crate) fn renew_lease(&self) -> anyhow::Result<()> {
        let now = Timestamp::now().to_string();
        self.api().apply(&cluster_property("renewed.example", &now))
    }

    /// Creates the service of a case with its slice, and exports it.
    pub(crate) fn export(&self, service: &Value, slice: Option<&Value>) -> anyhow::Result<()> {
        let namespace = service["metadata"]["namespace"].as_str().context("a namespace")?;
        self.api().apply(service)?;
        self.api().apply_all(slice)?;
        self.api().apply(&objects::export(namespace))
    }

    /// Deletes the export of a case. Readers believe that soon.
    pub(crate) fn unexport(&self, namespace: &str) -> anyhow::Result<()> {
        self.api().delete(&objects::export(namespace))?;
        self.renew_lease()
    }

    /// The import of a case, if there is one.
    pub(crate) fn import(&self, namespace: &str) -> anyhow::Result<Option<Value>> {
        let path = format!(
            "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceimports?fieldSelector=metadata.name%3D{}",
            objects::NAME
        );
        Ok(self.api().get(&path)?["items"].get(0).cloned())
    }

    /// Waits for an import of a case that `check` is content with.
    pub(crate) fn wait_for_import(
        &self,
        namespace: &str,
        check: impl Fn(&Value) -> anyhow::Result<()>,
    ) -> anyhow::Result<Value> {
        wait::within(ARRIVAL, &format!("the import of {} in {namespace}", self.id), || {
            let import = self.import(namespace)?.context("there is no import")?;
            check(&import).with_context(|| import.to_string())?;
            Ok(import)
        })
    }

    /// Waits until there is no import of a case, and no imported slice.
    pub(crate) fn wait_for_nothing(&self, namespace: &str) -> anyhow::Result<()> {
        // A controller that has just begun deletes nothing before the publisher has renewed its Lease, which takes 10 seconds.
        wait::within(ARRIVAL, &format!("no import of {} in {namespace}", self.id), || {
            ensure!(self.import(namespace)?.is_none(), "there is an import");
            ensure!(self.imported_slices(namespace)?.is_empty(), "there are slices");
            Ok(())
        })
    }

    /// The imported slices of a case.
    pub(crate) fn imported_slices(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let selector = "labelSelector=multicluster.kubernetes.io/service-name";
        let path =
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{selector}");
        Ok(self.api().get(&path)?["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits for imported slices with exactly these addresses, sorted.
    pub(crate) fn wait_for_addresses(
        &self,
        namespace: &str,
        expected: &[&str],
    ) -> anyhow::Result<Vec<Value>> {
        wait::within(ARRIVAL, &format!("endpoints of {} in {namespace}", self.id), || {
            let slices = self.imported_slices(namespace)?;
            let mut found: Vec<_> = slices.iter().flat_map(addresses).collect();
            found.sort();
            ensure!(found == expected, "there are {found:?}");
            Ok(slices)
        })
    }

    /// Waits until the export of a case has these conditions, as `Type=Status/Reason`.
    pub(crate) fn wait_for_conditions(
        &self,
        namespace: &str,
        expected: &[&str],
    ) -> anyhow::Result<()> {
        let path = format!(
            "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceexports/{}",
            objects::NAME
        );
        wait::until(&format!("conditions of the export of {} in {namespace}", self.id), || {
            let export = self.api().get(&path)?;
            let found = conditions(&export);
            for one in expected {
                if !found.iter().any(|condition| condition == one) {
                    bail!("there are {found:?}, not {one}");
                }
            }
            Ok(())
        })
    }
}

/// `Type=Status/Reason` of each condition.
pub(crate) fn conditions(object: &Value) -> Vec<String> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|one| {
        format!("{}={}/{}", text(&one["type"]), text(&one["status"]), text(&one["reason"]))
    })
    .collect()
}

/// The addresses of a slice.
pub(crate) fn addresses(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.filter_map(|one| Some(one["addresses"][0].as_str()?.to_owned())).collect()
}

/// Waits for one event of that reason about an object of that kind.
pub(crate) fn wait_for_event(
    cluster: &Cluster,
    namespace: &str,
    kind: &str,
    reason: &str,
) -> anyhow::Result<()> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    wait::until(&format!("an event {reason} of {} in {namespace}", cluster.id), || {
        let events = cluster.api().get(&path)?;
        let events = events["items"].as_array().context("a list")?.clone();
        let is_meant =
            |event: &&Value| event["regarding"]["kind"] == kind && event["reason"] == reason;
        let found = events.iter().filter(is_meant).count();
        ensure!(found == 1, "there are {found}, of {events:?}");
        Ok(())
    })
}
