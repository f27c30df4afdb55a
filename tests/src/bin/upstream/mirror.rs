//! Makes each Service of a cluster an import of its own ClusterIPs, with copies of its EndpointSlices. It selects Services and
//! slices as kube-proxy does.

use std::pin::pin;

use futures_util::{StreamExt as _, future, stream};
use http::{Method, Request};
use kube::{
    Client, Config, ResourceExt as _,
    api::DynamicObject,
    config::{KubeConfigOptions, Kubeconfig},
};
use mcs_tests::{cluster::Cluster, prelude::*};
use tokio::{
    runtime::{self, Runtime},
    sync::{mpsc, oneshot},
    time::timeout,
};

use self::{
    doubles::Doubles,
    watch::{Event, Kind, PAUSE, follow},
};

mod doubles;
mod objects;
mod watch;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Services whose objects are written at the same time.
const AT_A_TIME: usize = 8;

/// The namespace and the name of an object.
type Key = (String, String);

/// The mirror of one cluster, which ends when this is dropped.
pub(crate) struct Mirror {
    _stop: oneshot::Sender<()>,
}

impl Mirror {
    /// Starts it. The cluster's own pods serve, or their doubles in another cluster.
    pub(crate) fn start(cluster: Cluster, elsewhere: Option<Cluster>) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let own = client(&runtime, cluster)?;
        let doubles = elsewhere.map(|cluster| client(&runtime, cluster).map(Doubles::new));
        let doubles = doubles.transpose()?;
        let source = elsewhere.unwrap_or(cluster).to_string();
        let (stop, stopped) = oneshot::channel();
        thread::spawn(move || {
            let mirror = pin!(run(own, source, doubles));
            runtime.block_on(future::select(mirror, stopped));
        });
        Ok(Self { _stop: stop })
    }
}

fn client(runtime: &Runtime, cluster: Cluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let options = KubeConfigOptions::default();
    let config = runtime.block_on(Config::from_custom_kubeconfig(kubeconfig, &options))?;
    let _runtime = runtime.enter();
    Ok(Client::try_from(config)?)
}

async fn run(client: Client, source: String, doubles: Option<Doubles>) {
    let (sender, mut events) = mpsc::unbounded_channel();
    let watch = |kind| follow(client.clone(), kind, sender.clone());
    let own = future::join(watch(Kind::Service), watch(Kind::Slice));
    let elsewhere = doubles
        .as_ref()
        .map(|doubles| doubles.client.clone())
        .map(|other| future::join(watch(Kind::Pod), follow(other, Kind::Double, sender.clone())));
    let elsewhere = future::OptionFuture::from(elsewhere);
    let mut objects = Objects { source, doubles, ..Objects::default() };
    let write = async {
        loop {
            // What has failed is tried again.
            if let Ok(Some(event)) = timeout(PAUSE, events.recv()).await {
                objects.take(event);
            }
            while let Ok(event) = events.try_recv() {
                objects.take(event);
            }
            objects.write(&client).await;
        }
    };
    future::join3(own, elsewhere, write).await;
}

/// What is written for a Service: paths and objects, in the order in which they are written.
type Wanted = Vec<(String, Value)>;

#[derive(Default)]
struct Objects {
    /// The source cluster of the copies.
    source: String,
    services: BTreeMap<Key, DynamicObject>,
    /// With the Service that each belongs to.
    slices: BTreeMap<Key, (Key, DynamicObject)>,
    doubles: Option<Doubles>,
    /// Services whose objects may have to change.
    dirty: BTreeSet<Key>,
    written: BTreeMap<Key, Wanted>,
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
            event => {
                self.doubles.iter_mut().for_each(|doubles| doubles.take(&event));
                self.dirty.extend(self.services.keys().cloned());
            }
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

    /// Writes what has changed, and deletes what is no longer wanted. What fails stays dirty.
    async fn write(&mut self, client: &Client) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut work = Vec::new();
        for key in dirty {
            let former = self.written.remove(&key).unwrap_or_default();
            work.push((self.wanted(&key), former, key));
        }
        let done: Vec<_> = stream::iter(work)
            .map(async |(wanted, former, key)| {
                let ended = replace(client, &wanted, &former).await;
                (key, wanted, former, ended)
            })
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for (key, wanted, former, ended) in done {
            let kept = if ended.is_err() {
                // Such as a namespace that is on its way out and takes nothing new.
                self.dirty.insert(key.clone());
                // What was and what was to be may be there.
                let unsure = former.into_iter().chain(wanted);
                unsure.map(|(path, _)| (path, Value::Null)).collect()
            } else {
                wanted
            };
            self.written.insert(key, kept);
        }
        self.written.retain(|_, objects| !objects.is_empty());
        if let Some(doubles) = &mut self.doubles {
            doubles.write(self.slices.values().map(|(_, slice)| slice)).await;
        }
    }

    fn wanted(&self, key: &Key) -> Wanted {
        let Some(service) = self.services.get(key) else { return Vec::new() };
        let Some(import) = objects::import(service) else { return Vec::new() };
        let slices = self.slices.values().filter(|(service, _)| service == key);
        let slices = slices.map(|(_, slice)| {
            let mut copy = objects::copy(slice, &key.1, &self.source);
            self.doubles.iter().for_each(|doubles| doubles.replace_addresses(&mut copy));
            (path(&copy, "apis/discovery.k8s.io/v1", "endpointslices"), copy)
        });
        let path = path(&import, "apis/multicluster.x-k8s.io/v1beta1", "serviceimports");
        let status = objects::status(&import, &self.source);
        slices.chain([(path.clone(), import), (format!("{path}/status"), status)]).collect()
    }
}

fn key(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn path(object: &Value, group: &str, plural: &str) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("/{group}/namespaces/{}/{plural}/{}", text("namespace"), text("name"))
}

/// Agents are to find slices with an import, so it is written after them and deleted before them.
async fn replace(client: &Client, wanted: &Wanted, former: &Wanted) -> kube::Result<()> {
    let is_in = |list: &Wanted, path: &str| list.iter().any(|(other, _)| other == path);
    for (path, _) in former.iter().rev() {
        if !is_in(wanted, path) && !path.ends_with("/status") {
            delete(client, path).await?;
        }
    }
    for object in wanted {
        if !former.contains(object) {
            apply(client, &object.0, &object.1).await?;
        }
    }
    Ok(())
}

/// Creates an object, or makes it what is given.
async fn apply(client: &Client, path: &str, object: &Value) -> kube::Result<()> {
    let query = format!("{path}?fieldManager=mirror&force=true");
    send(client, Method::PATCH, &query, object.to_string().into_bytes()).await
}

/// Deletes an object that may have gone.
async fn delete(client: &Client, path: &str) -> kube::Result<()> {
    match send(client, Method::DELETE, path, Vec::new()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        ended => ended,
    }
}

async fn send(client: &Client, method: Method, path: &str, body: Vec<u8>) -> kube::Result<()> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/apply-patch+yaml").body(body);
    client.request_text(request.map_err(kube::Error::HttpError)?).await.map(drop)
}
