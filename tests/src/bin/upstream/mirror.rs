//! Makes each Service of a cluster an import of its own ClusterIPs, with copies of its EndpointSlices. It selects Services and
//! slices as kube-proxy does.

use std::pin::pin;

use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use http::{Method, Request};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use mcs_tests::prelude::*;
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    time::sleep,
};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// After an error.
const PAUSE: Duration = Duration::from_millis(200);
/// Services whose objects are written at the same time.
const AT_A_TIME: usize = 8;

/// The namespace and the name of a Service.
type Key = (String, String);

/// The mirror of one cluster, which ends when this is dropped.
pub(crate) struct Mirror {
    _stop: oneshot::Sender<()>,
}

impl Mirror {
    /// Starts it. `cluster` is the source cluster of the copies.
    pub(crate) fn start(kubeconfig: &Path, cluster: String) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = runtime.block_on(Config::from_custom_kubeconfig(kubeconfig, &options))?;
        let client = {
            let _runtime = runtime.enter();
            Client::try_from(config)?
        };
        let (stop, stopped) = oneshot::channel();
        thread::spawn(move || {
            let mirror = pin!(run(client, cluster));
            runtime.block_on(future::select(mirror, stopped));
        });
        Ok(Self { _stop: stop })
    }
}

/// What a watch says.
enum Event {
    Listed(Kind, Vec<DynamicObject>),
    Changed(Kind, Box<DynamicObject>),
    Deleted(Kind, Box<DynamicObject>),
}

#[derive(Clone, Copy)]
enum Kind {
    Service,
    Slice,
}

async fn run(client: Client, cluster: String) {
    let (sender, mut events) = mpsc::unbounded_channel();
    let services = follow(client.clone(), Kind::Service, sender.clone());
    let slices = follow(client.clone(), Kind::Slice, sender);
    let write = async {
        let mut objects = Objects { cluster, ..Objects::default() };
        let mut written = BTreeMap::new();
        while let Some(event) = events.recv().await {
            objects.take(event);
            while let Ok(event) = events.try_recv() {
                objects.take(event);
            }
            objects.write(&client, &mut written).await;
        }
    };
    future::join3(services, slices, write).await;
}

/// Tells of all objects of a kind, for ever.
async fn follow(client: Client, kind: Kind, sender: mpsc::UnboundedSender<Event>) {
    let resource = match kind {
        Kind::Service => ApiResource::erase::<Service>(&()),
        Kind::Slice => ApiResource::erase::<EndpointSlice>(&()),
    };
    let api = Api::<DynamicObject>::all_with(client, &resource);
    loop {
        if let Err(error) = list_and_watch(&api, kind, &sender).await {
            eprintln!("mirror: {}: {error}", resource.plural);
        }
        sleep(PAUSE).await;
    }
}

async fn list_and_watch(
    api: &Api<DynamicObject>,
    kind: Kind,
    sender: &mpsc::UnboundedSender<Event>,
) -> kube::Result<()> {
    // The receiver ends with the senders.
    let tell = |event| drop(sender.send(event));
    let list = api.list(&ListParams::default()).await?;
    let mut version = list.metadata.resource_version.unwrap_or_default();
    tell(Event::Listed(kind, list.items));
    loop {
        let mut events = pin!(api.watch(&WatchParams::default(), &version).await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or_default();
                    tell(Event::Changed(kind, Box::new(object)));
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or_default();
                    tell(Event::Deleted(kind, Box::new(object)));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
    }
}

/// What is written for a Service: paths and objects, in the order in which they are written.
type Wanted = Vec<(String, Value)>;

#[derive(Default)]
struct Objects {
    cluster: String,
    services: BTreeMap<Key, DynamicObject>,
    /// With the Service that each belongs to.
    slices: BTreeMap<Key, (Key, DynamicObject)>,
    dirty: BTreeSet<Key>,
}

impl Objects {
    fn take(&mut self, event: Event) {
        match event {
            Event::Listed(Kind::Service, list) => {
                self.dirty.extend(std::mem::take(&mut self.services).into_keys());
                for service in list {
                    self.put_service(service);
                }
            }
            Event::Listed(Kind::Slice, list) => {
                let former = std::mem::take(&mut self.slices);
                self.dirty.extend(former.into_values().map(|(service, _)| service));
                for slice in list {
                    self.put_slice(slice);
                }
            }
            Event::Changed(Kind::Service, service) => self.put_service(*service),
            Event::Changed(Kind::Slice, slice) => self.put_slice(*slice),
            Event::Deleted(Kind::Service, service) => {
                self.services.remove(&key(&service));
                self.dirty.insert(key(&service));
            }
            Event::Deleted(Kind::Slice, slice) => self.remove_slice(&key(&slice)),
        }
    }

    fn put_service(&mut self, service: DynamicObject) {
        self.dirty.insert(key(&service));
        self.services.insert(key(&service), service);
    }

    fn put_slice(&mut self, slice: DynamicObject) {
        let key = key(&slice);
        // Its label may have changed.
        self.remove_slice(&key);
        let service = slice.labels().get(SERVICE_LABEL).cloned();
        if let Some(service) = service.filter(|_| !slice.labels().contains_key(HEADLESS_LABEL)) {
            let service = (key.0.clone(), service);
            self.dirty.insert(service.clone());
            self.slices.insert(key, (service, slice));
        }
    }

    fn remove_slice(&mut self, key: &Key) {
        self.dirty.extend(self.slices.remove(key).map(|(service, _)| service));
    }

    /// Writes what has changed, and deletes what is no longer wanted. What fails is tried again while events come.
    async fn write(&mut self, client: &Client, written: &mut BTreeMap<Key, Wanted>) {
        let dirty = std::mem::take(&mut self.dirty);
        let work = dirty.into_iter().map(|key| {
            let former = written.remove(&key).unwrap_or_default();
            (self.wanted(&key), former, key)
        });
        let work: Vec<_> = work.collect();
        let done: Vec<_> = stream::iter(work)
            .map(async |(wanted, former, key)| {
                let ended = replace(client, &wanted, &former).await;
                (key, wanted, former, ended)
            })
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for (key, wanted, former, ended) in done {
            let kept = if let Err(error) = ended {
                // A namespace that is on its way out takes nothing new.
                if self.services.contains_key(&key) {
                    eprintln!("mirror: {}/{}: {error}", key.0, key.1);
                }
                // What was and what was to be may be there.
                let unsure = former.into_iter().chain(wanted);
                unsure.map(|(path, _)| (path, Value::Null)).collect()
            } else {
                wanted
            };
            written.insert(key, kept);
        }
        written.retain(|_, objects| !objects.is_empty());
    }

    fn wanted(&self, key: &Key) -> Wanted {
        let Some(service) = self.services.get(key) else { return Vec::new() };
        let Some(import) = import(service) else { return Vec::new() };
        let slices = self.slices.values().filter(|(service, _)| service == key);
        let slices = slices.map(|(_, slice)| copy(slice, &key.1, &self.cluster));
        let path = path(&import, "apis/multicluster.x-k8s.io/v1beta1", "serviceimports");
        let status = json!({
            "apiVersion": import["apiVersion"],
            "kind": import["kind"],
            "metadata": import["metadata"],
            "status": {
                "clusters": [{ "cluster": self.cluster }],
                "endpointSliceObjects": "Present",
            },
        });
        let slices = slices
            .map(|slice| (self::path(&slice, "apis/discovery.k8s.io/v1", "endpointslices"), slice));
        slices.chain([(path.clone(), import), (format!("{path}/status"), status)]).collect()
    }
}

/// The import of a Service, if kube-proxy would serve it.
fn import(service: &DynamicObject) -> Option<Value> {
    let spec = &service.data["spec"];
    let ips = spec["clusterIPs"].as_array().filter(|ips| ips.iter().all(|ip| ip != "None"))?;
    if spec["type"] == "ExternalName" || service.labels().contains_key(PROXY_LABEL) {
        return None;
    }
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| {
        let mut port = port.clone();
        if let Some(port) = port.as_object_mut() {
            port.retain(|name, _| name != "targetPort" && name != "nodePort");
        }
        port
    });
    let mut import = json!({
        "type": "ClusterSetIP",
        "ips": ips,
        "ports": ports.collect::<Vec<_>>(),
    });
    let same = [
        "sessionAffinity",
        "sessionAffinityConfig",
        "internalTrafficPolicy",
        "trafficDistribution",
    ];
    for field in same {
        if !spec[field].is_null() {
            import[field] = spec[field].clone();
        }
    }
    let (namespace, name) = key(service);
    Some(json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": { "namespace": namespace, "name": name },
        "spec": import,
    }))
}

/// A slice as an import has it.
fn copy(slice: &DynamicObject, service: &str, cluster: &str) -> Value {
    let (namespace, name) = key(slice);
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": format!("mirror-{name}"),
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "mirror.mcs-tests.invalid",
                "multicluster.kubernetes.io/service-name": service,
                "multicluster.kubernetes.io/source-cluster": cluster,
            },
        },
        "addressType": slice.data["addressType"],
        "endpoints": slice.data["endpoints"],
        "ports": slice.data["ports"],
    })
}

fn key(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn path(object: &Value, group: &str, plural: &str) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("/{group}/namespaces/{}/{plural}/{}", text("namespace"), text("name"))
}

/// Clients are to find slices with an import, so it is written after them and deleted before them.
async fn replace(client: &Client, wanted: &Wanted, former: &Wanted) -> kube::Result<()> {
    let is_in = |list: &Wanted, path: &str| list.iter().any(|(other, _)| other == path);
    for (path, _) in former.iter().rev() {
        if !is_in(wanted, path) && !path.ends_with("/status") {
            let gone = send(client, Method::DELETE, path, Vec::new()).await;
            if !matches!(&gone, Err(kube::Error::Api(status)) if status.code == 404) {
                gone?;
            }
        }
    }
    for object in wanted {
        if !former.contains(object) {
            let (path, object) = object;
            let query = format!("{path}?fieldManager=mirror&force=true");
            send(client, Method::PATCH, &query, object.to_string().into_bytes()).await?;
        }
    }
    Ok(())
}

async fn send(client: &Client, method: Method, path: &str, body: Vec<u8>) -> kube::Result<()> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/apply-patch+yaml").body(body);
    client.request_text(request.map_err(kube::Error::HttpError)?).await.map(drop)
}
