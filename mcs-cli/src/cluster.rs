//! A cluster of a command, accessed with a kubeconfig of its administrator.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use backon::{ConstantBuilder, Retryable as _};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use mcs_kube::{
    ApiAccess,
    objects::{self, EndpointSlice, Object},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    draft::Draft,
    fleet,
    kubeconfig::{Endpoint, KubeconfigArg, KubeconfigError},
};

use mcs_controller::{
    core::{
        apply::{Action, ApplyError, Request},
        clusterset::ClusterId,
        objects::{FIELD_MANAGER, MCS_VERSIONS},
    },
    features::rights::{self, Right},
};

/// The time limit of a cluster's first answer.
const ANSWERS: Duration = Duration::from_secs(10);

/// How often a write is sent again that an API server has no time for, and after which pauses. It refuses objects of a type
/// so for a second or two after the type is new.
const AGAIN: ConstantBuilder =
    ConstantBuilder::new().with_delay(Duration::from_secs(1)).with_max_times(10);

/// Group, version, kind and plural.
pub(super) type Kind = (&'static str, &'static str, &'static str, &'static str);

pub(super) const ACCOUNTS: Kind = ("", "v1", "ServiceAccount", "serviceaccounts");
pub(super) const NAMESPACES: Kind = ("", "v1", "Namespace", "namespaces");
pub(super) const SECRETS: Kind = ("", "v1", "Secret", "secrets");
pub(super) const ROLES: Kind = ("rbac.authorization.k8s.io", "v1", "Role", "roles");
pub(super) const BINDINGS: Kind =
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
pub(super) const CLUSTER_ROLES: Kind =
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
pub(super) const CLUSTER_BINDINGS: Kind =
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
pub(super) const PEERS: Kind =
    ("clusterset.mcs-agent.io", "v1alpha1", "ClusterPeer", "clusterpeers");
pub(super) const EXPORTED: Kind =
    ("clusterset.mcs-agent.io", "v1alpha1", "ExportedService", "exportedservices");
pub(super) const EXPORTS: Kind =
    ("multicluster.x-k8s.io", "v1beta1", "ServiceExport", "serviceexports");
pub(super) const IMPORTS: Kind =
    ("multicluster.x-k8s.io", "v1beta1", "ServiceImport", "serviceimports");
/// The version that CoreDNS reads.
pub(super) const ALPHA_IMPORTS: Kind =
    ("multicluster.x-k8s.io", "v1alpha1", "ServiceImport", "serviceimports");
pub(super) const PROPERTIES: Kind =
    ("about.k8s.io", "v1beta1", "ClusterProperty", "clusterproperties");
/// The ClusterProperty with the id of a cluster.
pub(super) const ID_PROPERTY: &str = "cluster.clusterset.k8s.io";
pub(super) const LEASES: Kind = ("coordination.k8s.io", "v1", "Lease", "leases");
pub(super) const CONFIG_MAPS: Kind = ("", "v1", "ConfigMap", "configmaps");
pub(super) const NODES: Kind = ("", "v1", "Node", "nodes");
pub(super) const SERVICE_RANGES: Kind = ("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs");
pub(super) const PODS: Kind = ("", "v1", "Pod", "pods");
pub(super) const DAEMON_SETS: Kind = ("apps", "v1", "DaemonSet", "daemonsets");
pub(super) const DEPLOYMENTS: Kind = ("apps", "v1", "Deployment", "deployments");
pub(super) const EVENTS: Kind = ("", "v1", "Event", "events");
pub(super) const SERVICES: Kind = ("", "v1", "Service", "services");
pub(super) const SLICES: Kind = ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");

/// A cluster of a command.
pub(super) struct Cluster {
    pub(super) id: ClusterId,
    /// The URL of its API server, as the kubeconfig has it.
    pub(super) server: String,
    /// The certificate of its authority, in base64.
    pub(super) authority: Option<String>,
    /// The name in its certificate, if the URL has another.
    pub(super) server_name: Option<String>,
    /// Whether this process runs in it as a pod.
    pub(super) is_own: bool,
    /// Its kubeconfig, for tools. `None` for the pod's own cluster.
    pub(super) kubeconfig: Option<KubeconfigArg>,
    /// Collects the writes of a dry run.
    pub(super) draft: Option<Draft>,
    access: ApiAccess,
}

impl Cluster {
    /// Opens the clusters of these kubeconfigs; without kubeconfigs, the cluster of the environment.
    pub(super) async fn open_all(arguments: &[KubeconfigArg]) -> anyhow::Result<Vec<Self>> {
        let opened = fleet::each(arguments, Self::open).await;
        let mut clusters = fleet::all_of(opened)?;
        if clusters.is_empty() {
            clusters.push(match KubeconfigArg::of_environment()? {
                Some(kubeconfig) => Self::open(&kubeconfig).await?,
                None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                    Self::own().await?
                }
                None => return Err(KubeconfigError::None.into()),
            });
        }
        Ok(clusters)
    }

    /// As [`Cluster::open_all`], with an error and the kubeconfig for each cluster that does not answer.
    pub(super) async fn open_each(
        arguments: &[KubeconfigArg],
    ) -> anyhow::Result<Vec<(String, anyhow::Result<Self>)>> {
        if arguments.is_empty() {
            let all = Self::open_all(arguments).await?.into_iter();
            return Ok(all.map(|cluster| (cluster.id.to_string(), Ok(cluster))).collect());
        }
        let open =
            async |argument: &KubeconfigArg| (argument.to_string(), Self::open(argument).await);
        Ok(fleet::each(arguments, open).await)
    }

    /// The cluster of the pod.
    async fn own() -> anyhow::Result<Self> {
        let (access, server) = ApiAccess::new(None).await?;
        let id = id(&access.connection().await?.client).await?;
        Ok(Self { is_own: true, ..Self::by(access, server, id) })
    }

    /// Reads the kubeconfig and asks the cluster for its id.
    pub(super) async fn open(argument: &KubeconfigArg) -> anyhow::Result<Self> {
        let mut cluster = Self::open_as(argument, "unknown".parse()?).await?;
        let client = cluster.client().await?;
        let server = &cluster.server;
        cluster.id = id(&client).await.with_context(|| format!("the cluster at {server}"))?;
        Ok(cluster)
    }

    /// Reads the kubeconfig of a cluster that needs no id.
    pub(super) async fn open_as(argument: &KubeconfigArg, id: ClusterId) -> anyhow::Result<Self> {
        let Endpoint { server, authority, server_name } = argument.endpoint()?;
        let (access, _) = ApiAccess::new(Some(argument.of_files())).await?;
        let kubeconfig = Some(argument.clone());
        Ok(Self { authority, server_name, kubeconfig, ..Self::by(access, server, id) })
    }

    /// The cluster of a connection.
    pub(super) fn by(access: ApiAccess, server: String, id: ClusterId) -> Self {
        Self {
            id,
            server,
            authority: None,
            server_name: None,
            is_own: false,
            kubeconfig: None,
            draft: None,
            access,
        }
    }

    /// Its uid: the uid of its namespace `kube-system`.
    pub(super) async fn uid(&self) -> anyhow::Result<String> {
        let namespace = self.get(NAMESPACES, None, "kube-system").await?.unwrap_or_default();
        let uid = namespace["metadata"]["uid"].as_str().map(str::to_owned);
        uid.with_context(|| format!("cluster {}: there is no namespace kube-system", self.id))
    }

    /// Whether the caller has a right in a namespace, or in all.
    pub(super) async fn may(&self, namespace: Option<&str>, right: Right) -> anyhow::Result<bool> {
        Ok(rights::may(&self.client().await?, namespace, right).await?)
    }

    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        Ok(self.access.connection().await?.client)
    }

    /// Sends a write. A dry run records it instead.
    pub(super) async fn send(&self, request: Request) -> anyhow::Result<()> {
        if let Some(draft) = &self.draft {
            return match request.action {
                Action::Apply { object, .. } | Action::Create(object) => draft.object(object),
                _ => Ok(()),
            };
        }
        let what = format!("{} {}", request.resource.kind, request.name);
        let sent = (|| request.send(&self.access)).retry(AGAIN).when(ApplyError::is_overload).await;
        sent.map(drop).with_context(|| format!("cluster {}: {what}", self.id))
    }

    /// Creates or changes an object. Its name and namespace are in its metadata.
    pub(super) async fn apply(&self, kind: Kind, mut object: Value) -> anyhow::Result<()> {
        typed(kind, &mut object);
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name) = (text("namespace"), text("name").unwrap_or_default());
        let action = Action::Apply { object, force: true };
        self.send(Request::new(kind, namespace.as_deref(), &name, action)).await
    }

    /// Changes the given fields of an object that exists, and takes away those that are null. Other fields stay, whoever wrote
    /// them. Its name and namespace are in its metadata.
    pub(super) async fn merge(&self, kind: Kind, mut object: Value) -> anyhow::Result<()> {
        if let Some(draft) = &self.draft {
            typed(kind, &mut object);
            return draft.object(object);
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace").to_owned(), text("name").to_owned());
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = api(self.client().await?, kind, Some(&namespace));
        let merged = api.patch(&name, &params, &Patch::Merge(object)).await;
        merged.map(drop).with_context(|| format!("cluster {}: {} {name}", self.id, kind.2))
    }

    /// Deletes an object, if it exists.
    pub(super) async fn delete(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<()> {
        self.send(Request::new(kind, namespace, name, Action::Delete { uid: None })).await
    }

    /// An object, if it and its type exist.
    pub(super) async fn get(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<Option<Value>> {
        let found = get(&self.client().await?, kind, namespace, name).await;
        found.with_context(|| format!("cluster {}: {} {name}", self.id, kind.2))
    }

    /// The value of a ClusterProperty.
    pub(super) async fn property(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(self.get(PROPERTIES, None, name).await?.map(|property| value(&property)))
    }

    /// The objects of a kind without namespace.
    pub(super) async fn api(&self, kind: Kind) -> anyhow::Result<Api<DynamicObject>> {
        Ok(api(self.client().await?, kind, None))
    }

    /// All objects of a kind.
    pub(super) async fn list(&self, kind: Kind) -> anyhow::Result<Vec<Value>> {
        self.list_by(kind, None, &ListParams::default()).await
    }

    /// All objects of a kind; none if the API server lacks the type.
    pub(super) async fn list_if_served(&self, kind: Kind) -> anyhow::Result<Vec<Value>> {
        self.list_in_if_served(kind, None, "").await
    }

    /// The objects of a namespace, or of all, that have certain labels; none if the API server lacks the type.
    pub(super) async fn list_in_if_served(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &str,
    ) -> anyhow::Result<Vec<Value>> {
        none_if(&[404], self.list_in(kind, namespace, selector).await)
    }

    /// The objects of a kind as a query asks for them; none if the API server lacks the type, or the caller may not list it.
    pub(super) async fn list_if_readable(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> anyhow::Result<Vec<Value>> {
        none_if(&[403, 404], self.list_by(kind, namespace, params).await)
    }

    /// Whether the API server serves a kind. An answer that says neither is an error.
    pub(super) async fn is_served(&self, kind: Kind) -> anyhow::Result<bool> {
        match self.ensure_served(kind).await {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the API server serves a kind and lets the caller list it: there can be thousands of objects.
    pub(super) async fn ensure_served(&self, kind: Kind) -> anyhow::Result<()> {
        self.list_by(kind, None, &ListParams::default().limit(1)).await.map(drop)
    }

    /// The first objects of a kind that have certain labels.
    pub(super) async fn list_some(
        &self,
        kind: Kind,
        selector: &str,
        count: u32,
    ) -> anyhow::Result<Vec<Value>> {
        self.list_by(kind, None, &ListParams::default().labels(selector).limit(count)).await
    }

    /// The objects of a namespace, or of all, that have certain labels.
    pub(super) async fn list_in(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &str,
    ) -> anyhow::Result<Vec<Value>> {
        self.list_by(kind, namespace, &ListParams::default().labels(selector)).await
    }

    /// The EndpointSlices of a namespace, or of all, that have certain labels.
    pub(super) async fn slices(
        &self,
        namespace: Option<&str>,
        selector: &str,
    ) -> anyhow::Result<Vec<EndpointSlice>> {
        Ok(of_type(&self.list_in(SLICES, namespace, selector).await?))
    }

    /// The objects of a kind as a query asks for them.
    pub(super) async fn list_by(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> anyhow::Result<Vec<Value>> {
        let list = api(self.client().await?, kind, namespace).list(params).await;
        let list = list.with_context(|| format!("cluster {}: {}", self.id, kind.3))?;
        Ok(list.items.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
    }
}

/// Objects as their type, without those that agents and controllers cannot read.
pub(super) fn of_type<O: Object>(objects: &[Value]) -> Vec<O> {
    objects.iter().filter_map(|object| objects::read(object).ok()).collect()
}

/// Whether the API server lacks the type or the object.
pub(super) fn is_absent(error: &anyhow::Error) -> bool {
    has_code(error, &[404])
}

/// No objects instead of an answer with one of these codes.
fn none_if(codes: &[u16], listed: anyhow::Result<Vec<Value>>) -> anyhow::Result<Vec<Value>> {
    listed.or_else(|error| if has_code(&error, codes) { Ok(vec![]) } else { Err(error) })
}

/// Whether an API server has answered with one of these codes.
fn has_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    error.chain().any(|cause| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => codes.contains(&status.code),
        _ => false,
    })
}

/// Gives an object its type.
fn typed(kind: Kind, object: &mut Value) {
    let (group, version, name, _) = kind;
    object["apiVersion"] =
        if group.is_empty() { json!(version) } else { json!(format!("{group}/{version}")) };
    object["kind"] = json!(name);
}

/// An object, if it and its type exist. A ClusterProperty is that of the first version that has one.
async fn get(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    name: &str,
) -> anyhow::Result<Option<Value>> {
    let (group, version, singular, plural) = kind;
    let versions = if kind == PROPERTIES { &MCS_VERSIONS[..] } else { &[version] };
    for &version in versions {
        let kind = (group, version, singular, plural);
        match api(client.clone(), kind, namespace).get(name).await {
            Ok(found) => return Ok(Some(serde_json::to_value(found)?)),
            // An API server that lacks the group answers in plain text.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn api(client: Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version, name, plural) = kind;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// The cluster is in no clusterset.
#[derive(Debug, thiserror::Error)]
#[error(
    "it has no id: create the ClusterProperty cluster.clusterset.k8s.io (about.k8s.io) with the id as spec.value"
)]
pub(super) struct NoId;

/// The id in the ClusterProperty.
async fn id(client: &Client) -> anyhow::Result<ClusterId> {
    let property = timeout(ANSWERS, get(client, PROPERTIES, None, ID_PROPERTY)).await;
    let property = property.map_err(|_| anyhow!("no answer within {} s", ANSWERS.as_secs()))?;
    Ok(value(&property?.ok_or(NoId)?).parse()?)
}

/// The value of a ClusterProperty.
fn value(property: &Value) -> String {
    property["spec"]["value"].as_str().unwrap_or_default().to_owned()
}

/// The containers of a Deployment's pods.
pub(super) fn containers(deployment: &Value) -> impl Iterator<Item = &Value> {
    containers_of(&deployment["spec"]["template"]["spec"])
}

/// The containers in the spec of a pod.
pub(super) fn containers_of(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["containers"].as_array().into_iter().flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use mcs_kube::testing::{ScriptedAnswer, ScriptedServer, kubeconfig};
    use tempfile::NamedTempFile;

    use super::*;

    /// A cluster whose API server gives these answers, in this order. Its kubeconfig is a file.
    pub(crate) async fn scripted(
        id: &str,
        answers: impl IntoIterator<Item = ScriptedAnswer>,
    ) -> (Cluster, ScriptedServer, NamedTempFile) {
        let server = ScriptedServer::play(answers).await;
        let (config, file) = kubeconfig(&format!("http://{}", server.address));
        let (access, url) = ApiAccess::new(Some(config)).await.unwrap();
        (Cluster::by(access, url, id.parse().unwrap()), server, file)
    }

    /// The answer with this object.
    pub(crate) fn object(object: Value) -> ScriptedAnswer {
        ScriptedAnswer::watch([object])
    }

    #[tokio::test]
    async fn a_property_is_that_of_the_first_version_that_has_one() {
        let answers = [
            ScriptedAnswer::page(404, "404 page not found"),
            object(json!({"metadata": {"name": "p"}, "spec": {"value": "shop"}})),
            ScriptedAnswer::error(404),
        ];
        let (cluster, mut server, _file) = scripted("east", answers).await;
        assert_eq!(cluster.property("p").await.unwrap().as_deref(), Some("shop"));
        assert!(cluster.get(NODES, None, "n").await.unwrap().is_none());
        let path = "/apis/about.k8s.io/v1beta1/clusterproperties/p";
        assert!(server.asked().await.starts_with(path));
        assert!(server.asked().await.starts_with(&path.replace("beta", "alpha")));
        assert!(server.asked().await.starts_with("/api/v1/nodes/n"), "it has one version");
    }

    #[tokio::test]
    async fn a_write_is_sent_again_while_the_api_server_has_no_time_for_it() {
        let peer = || json!({"metadata": {"name": "west"}, "spec": {}});
        let answers = [ScriptedAnswer::error(429), object(peer()), ScriptedAnswer::error(403)];
        let (cluster, mut server, _file) = scripted("east", answers).await;
        cluster.apply(PEERS, peer()).await.unwrap();
        let refused = cluster.apply(PEERS, peer()).await.unwrap_err();
        assert!(format!("{refused:#}").contains("no: 403"), "{refused:#}");
        for _ in 0..3 {
            assert!(server.asked().await.contains("/clusterpeers/west"));
        }
    }

    #[test]
    fn only_an_api_server_that_answers_so_lacks_a_type() {
        let answered = |code| {
            let status = kube::core::Status { code, ..Default::default() };
            anyhow::Error::new(kube::Error::Api(Box::new(status))).context("cluster east")
        };
        assert!(is_absent(&answered(404)));
        assert!(!is_absent(&answered(403)) && !is_absent(&answered(504)));
        assert!(!is_absent(&anyhow!("no answer")));
    }
}
