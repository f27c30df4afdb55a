//! A cluster of the set: an API server in memory, and the shipped controller.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use fastrand::Rng;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use mcs_controller::{
    core::{cli, clock::Skew},
    features,
};
use mcs_kube::testing::in_memory::Served;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_local},
    time::timeout,
};

use super::{
    forge::forged,
    journal::Journal,
    kinds::Kind,
    node::{Node, objects},
    server::Server,
    store::{Failure, Kept, Key, Store},
    witness::{Broken, Invariant},
};

pub(super) const MAILBOX: &str = "mcs-mailbox";
pub(super) const NAMESPACE: &str = "mcs-controller";
/// What a cluster publishes by, if it publishes on a hub.
const HUB: &str = "mailbox";
/// The replicas of a controller that has two.
const REPLICAS: [&str; 2] = ["a", "b"];
/// The ranges of Services of every cluster.
pub(super) const SERVICE_RANGES: [&str; 2] = ["10.96.0.0/16", "fd96::/112"];
/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["kube-system", MAILBOX, NAMESPACE, "shop"];
/// How long a controller may take to end.
const END: Duration = Duration::from_secs(10);
/// No connection is made, so that any text between the lines will do.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// A cluster.
pub(super) struct Member {
    pub(super) id: String,
    pub(super) server: Arc<Server>,
    _served: Served,
    directory: TempDir,
    flags: Vec<String>,
    /// The replicas of the controller; without a name: it has one.
    replicas: &'static [&'static str],
    controllers: BTreeMap<&'static str, Controller>,
    skew: Skew,
    /// The cluster whose API server has the mailboxes, if that is a hub.
    hub: Option<String>,
    pub(super) node: Node,
    /// What somebody has kept of the mailbox.
    kept: Vec<(Key, Value)>,
    /// What somebody has kept of everything.
    snapshot: Option<Kept>,
    /// How many tokens it has had.
    tokens: u32,
}

struct Controller {
    task: JoinHandle<anyhow::Result<()>>,
    stop: watch::Sender<bool>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Member {
    /// Starts the API server of a cluster, which knows these other clusters.
    pub(super) fn start(id: &str, others: &[&str], journal: &Journal) -> anyhow::Result<Self> {
        let skew = Skew::default();
        let (server, guard) = Server::start(&host(id), journal.clone(), Arc::clone(&skew));
        let directory = TempDir::with_prefix("mcs-played-")?;
        for cluster in others.iter().chain([&id]) {
            fs::write(directory.path().join(cluster), kubeconfig(cluster, id))?;
        }
        for replica in REPLICAS {
            let name = replica_of(id, replica);
            fs::write(directory.path().join(&name), kubeconfig(id, &name))?;
        }
        let node = Node::start(id, &directory.path().join("node"))?;
        let member = Self {
            id: id.to_owned(),
            server,
            _served: guard,
            directory,
            flags: Vec::new(),
            replicas: &[""],
            controllers: BTreeMap::new(),
            skew,
            hub: None,
            node,
            kept: Vec::new(),
            snapshot: None,
            tokens: 0,
        };
        for namespace in NAMESPACES {
            member.apply(&json!({ "kind": "Namespace", "metadata": { "name": namespace } }))?;
        }
        for (name, value) in [("cluster.clusterset.k8s.io", id), ("clusterset.k8s.io", "tests")] {
            let spec = json!({ "value": value });
            member.apply(
                &json!({ "kind": "ClusterProperty", "metadata": { "name": name }, "spec": spec }),
            )?;
        }
        let ranges = json!({ "cidrs": SERVICE_RANGES });
        member.apply(
            &json!({ "kind": "ServiceCIDR", "metadata": { "name": "kubernetes" }, "spec": ranges }),
        )?;
        for other in others {
            member.apply(&secret(other, id, false))?;
            member.apply(&peer(other, false))?;
        }
        Ok(member)
    }

    /// Applies an object as a user, with its status if it has one.
    pub(super) fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.apply_if(object, |_, _, _, _, _| true).map(drop)
    }

    /// Applies an object if it is not as it was applied. Returns whether it was not.
    pub(super) fn mend(&self, object: &Value) -> anyhow::Result<bool> {
        self.apply_if(object, Store::lacks)
    }

    fn apply_if(
        &self,
        object: &Value,
        is_due: impl Fn(&Store, &Kind, &Key, &Value, bool) -> bool,
    ) -> anyhow::Result<bool> {
        let name = object["kind"].as_str().context("an object has no kind")?;
        let kind = Kind::named(name)
            .with_context(|| format!("{name} is none of the kinds that are played"))?;
        let metadata = &object["metadata"];
        let namespace =
            if kind.is_namespaced { metadata["namespace"].as_str().unwrap_or("shop") } else { "" };
        let named = metadata["name"].as_str().context("an object has no name")?;
        let key = (kind.plural, namespace.to_owned(), named.to_owned());
        let parts = if kind.has_status && object["status"].is_object() {
            &[false, true][..]
        } else {
            &[false]
        };
        let mut object = object.clone();
        for (name, text) in object["stringData"].take().as_object().into_iter().flatten() {
            let bytes = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
            object["data"][name] = json!(bytes);
        }
        object.as_object_mut().map(|fields| fields.remove("stringData"));
        let mut is_applied = false;
        for is_status in parts {
            if !self.server.look(|store| is_due(store, kind, &key, &object, *is_status)) {
                continue;
            }
            is_applied = true;
            self.server
                .change(|store| store.apply(kind, &key, ("user", true), &object, *is_status))
                .map_err(told)?;
        }
        Ok(is_applied)
    }

    /// Deletes an object as a user. A namespace goes with all that is in it.
    pub(super) fn delete(&self, key: &Key) -> anyhow::Result<()> {
        self.server.change(|store| {
            store.delete(key, None).map_err(told)?;
            if key.0 == "namespaces" {
                store.empty(&key.2);
            }
            Ok(())
        })
    }

    /// Lets the agent of a node take what there is.
    pub(super) fn look(&mut self) -> Result<(), Broken> {
        let all = self.server.look(objects);
        let rejected = self.node.follow(all).unwrap_or_else(|error| Some(format!("{error:#}")));
        rejected.map_or(Ok(()), |said| {
            Err(Invariant::Accepted.broken(format!("in {}: {said}", self.id)))
        })
    }

    /// Ends every fault: the API server does all that it can, and the controller runs.
    pub(super) fn heal(&mut self) {
        self.server.heal();
        for replica in self.replicas {
            if !self.controllers.contains_key(replica) {
                self.run_one(replica);
            }
        }
    }

    /// The controller has two replicas from now on.
    pub(super) fn replicate(&mut self) {
        self.kill(None);
        self.replicas = &REPLICAS;
        self.run(None, None);
    }

    /// The clock of the cluster is so much ahead or behind.
    pub(super) fn set_clock(&self, skew: SignedDuration) {
        let skew = i64::try_from(skew.as_millis()).unwrap_or_default();
        self.skew.store(skew, Ordering::Relaxed);
    }

    /// The mailboxes of all clusters are at the API server of `hub` from now on.
    pub(super) fn publish_at(&mut self, hub: &str, all: &[String]) -> anyhow::Result<()> {
        self.hub = Some(hub.to_owned());
        self.apply(&secret(hub, &self.id, true))?;
        for id in all {
            if self.id == hub {
                let name = mailbox_of(id);
                self.apply(&json!({ "kind": "Namespace", "metadata": { "name": name } }))?;
            }
            if *id != self.id {
                self.apply(&peer(id, true))?;
            }
        }
        self.kill(None);
        self.run(None, None);
        Ok(())
    }

    /// The Secret and the namespace by which others read what it publishes.
    pub(super) fn place(&self) -> (String, String) {
        place(&self.id, self.hub.is_some())
    }

    /// Whether it has what it publishes by.
    pub(super) fn can_publish(&self) -> bool {
        let Some(hub) = &self.hub else { return true };
        let key = ("secrets", NAMESPACE.to_owned(), HUB.to_owned());
        let Some(there) = self.server.look(|store| store.get(&key).cloned()) else { return false };
        let is_there = |token: String| there["data"] == secret(hub, &token, true)["data"];
        (0..=self.tokens).map(|number| token(&self.id, number)).any(is_there)
    }

    /// It gets another token for the API server of a peer, or of the hub. Returns its number.
    pub(super) fn rotate(&mut self, peer: &str) -> anyhow::Result<u32> {
        self.tokens += 1;
        let token = token(&self.id, self.tokens);
        let peer = self.hub.as_deref().unwrap_or(peer);
        self.apply(&secret(peer, &token, self.hub.is_some()))?;
        Ok(self.tokens)
    }

    /// Keeps all that the API server has, or brings it back as it was.
    pub(super) fn snapshot(&mut self, is_back: bool) {
        if !is_back {
            self.snapshot = Some(self.server.look(Store::keep));
        } else if let Some(kept) = &self.snapshot {
            self.server.rewind(kept);
        }
    }

    /// Keeps what the mailbox has, or brings back what was kept and nothing else.
    pub(super) fn backup(&mut self, is_back: bool) -> anyhow::Result<()> {
        let contents = self.server.look(|store| {
            let of = |plural| store.all(plural).map(|(key, object)| (key.clone(), object.clone()));
            let all = ["endpointslices", "exportedservices", "leases"].into_iter().flat_map(of);
            all.filter(|((_, namespace, _), _)| is_mailbox(namespace)).collect::<Vec<_>>()
        });
        if !is_back {
            self.kept = contents;
            return Ok(());
        }
        for (key, _) in &contents {
            self.delete(key)?;
        }
        for (key, object) in &self.kept {
            let kind = Kind::of(key.0).context("a kind")?;
            let mut object = object.clone();
            object["metadata"].as_object_mut().map(|fields| fields.remove("resourceVersion"));
            self.server.change(|store| store.create(kind, key, &object)).map_err(told)?;
        }
        Ok(())
    }

    /// Forges what it has in its mailbox, at this API server.
    pub(super) fn forge(&self, server: &Server, number: u64) -> anyhow::Result<()> {
        let (mut rng, (_, mailbox)) = (Rng::with_seed(number), self.place());
        for kind in ["ExportedService", "EndpointSlice"].into_iter().filter_map(Kind::named) {
            let all: Vec<_> = server.look(|store| {
                let all = store.all(kind.plural).filter(|((_, of, _), _)| *of == mailbox);
                all.map(|(key, object)| (key.clone(), object.clone())).collect()
            });
            for (key, object) in all {
                let Some(mut forged) = forged(kind, &object, &mut rng) else { continue };
                forged["metadata"].as_object_mut().map(|fields| fields.remove("resourceVersion"));
                server.change(|store| store.replace(kind, &key, &forged)).map_err(told)?;
            }
        }
        Ok(())
    }

    /// Where its mailbox is, if that is a hub.
    pub(super) fn hub(&self) -> Option<&str> {
        self.hub.as_deref()
    }

    /// Starts the controller or one replica of it, with these flags from now on.
    pub(super) fn run(&mut self, replica: Option<&str>, flags: Option<Vec<String>>) {
        self.flags = flags.unwrap_or_else(|| std::mem::take(&mut self.flags));
        for one in self.replicas {
            if replica.is_none_or(|replica| replica == *one) {
                self.run_one(one);
            }
        }
    }

    fn run_one(&mut self, replica: &'static str) {
        let mut all = vec![
            format!("--kubeconfig={{{}}}", replica_of(&self.id, replica)),
            format!("--namespace={NAMESPACE}"),
            "--probe-peers=off".to_owned(),
            "--health-address=off".to_owned(),
            "--metrics-address=off".to_owned(),
        ];
        if !replica.is_empty() {
            all.push(format!("--replica={replica}"));
        }
        if self.hub.is_some() {
            let mailbox = mailbox_of(&self.id);
            all.extend([format!("--mailbox-secret={HUB}"), format!("--mailbox={mailbox}")]);
        }
        all.extend(self.flags.iter().cloned());
        // `{c3}` is the kubeconfig of c3.
        let directory = format!("{}/", self.directory.path().display());
        let all: Vec<_> =
            all.iter().map(|flag| flag.replace('{', &directory).replace('}', "")).collect();
        let (stop, stopped) = watch::channel(false);
        let skew = Arc::clone(&self.skew);
        let task = spawn_local(async move { cli::play(features::ALL, &all, skew, stopped).await });
        self.controllers.insert(replica, Controller { task, stop });
    }

    /// Kills the controller or one replica of it.
    pub(super) fn kill(&mut self, replica: Option<&str>) {
        self.controllers.retain(|one, _| replica.is_some_and(|replica| replica != *one));
    }

    /// Ends the controller in order, or one replica of it.
    pub(super) async fn end(&mut self, replica: Option<&str>) -> anyhow::Result<()> {
        let is_meant =
            |one: &&'static str, _: &mut _| replica.is_none_or(|replica| replica == *one);
        let ended: Vec<_> = self.controllers.extract_if(.., is_meant).collect();
        for (_, mut controller) in ended {
            controller.stop.send_replace(true);
            timeout(END, &mut controller.task)
                .await
                .context("the controller does not end")???;
        }
        Ok(())
    }

    /// Fails if the controller has ended by itself.
    pub(super) async fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.controllers.values_mut().find(|one| one.task.is_finished());
        if let Some(controller) = ended {
            (&mut controller.task)
                .await?
                .with_context(|| format!("the controller of {}", self.id))?;
            bail!("the controller of {} has ended", self.id);
        }
        Ok(())
    }
}

fn told((code, reason, message): Failure) -> anyhow::Error {
    anyhow::anyhow!("{code} {reason}: {message}")
}

/// Whether a namespace is a mailbox.
pub(super) fn is_mailbox(namespace: &str) -> bool {
    namespace.starts_with(MAILBOX)
}

/// The mailbox of a cluster on a hub.
fn mailbox_of(cluster: &str) -> String {
    format!("{MAILBOX}-{cluster}")
}

/// The Secret and the namespace by which others read what a cluster publishes.
pub(super) fn place(cluster: &str, is_on_hub: bool) -> (String, String) {
    if is_on_hub {
        (HUB.to_owned(), mailbox_of(cluster))
    } else {
        (format!("peer-{cluster}"), MAILBOX.to_owned())
    }
}

/// What a replica calls itself at its API server.
fn replica_of(cluster: &str, replica: &str) -> String {
    if replica.is_empty() { cluster.to_owned() } else { format!("{cluster}+{replica}") }
}

/// The token of this number: the first one has none.
fn token(cluster: &str, number: u32) -> String {
    if number == 0 { cluster.to_owned() } else { format!("{cluster}~{number}") }
}

/// The number of a token.
pub(super) fn generation(token: &str) -> u32 {
    token.split_once('~').and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

/// The cluster and the replica that have this token.
pub(super) fn holder(token: &str) -> (&str, Option<&str>) {
    let token = token.split('~').next().unwrap_or_default();
    token.split_once('+').map_or((token, None), |(cluster, replica)| (cluster, Some(replica)))
}

fn host(cluster: &str) -> String {
    format!("{cluster}.test")
}

/// The kubeconfig by which `reader` asks the API server of a cluster.
pub(super) fn kubeconfig(cluster: &str, reader: &str) -> String {
    let authority = ByteString(AUTHORITY.as_bytes().to_vec());
    let server = format!("https://{}", host(cluster));
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": {
            "server": server, "certificate-authority-data": authority,
        } }],
        "users": [{ "name": "u", "user": { "token": reader } }],
    })
    .to_string()
}

/// The Secret by which `reader` reads the mailbox of a cluster, or all mailboxes of a hub and writes its own.
pub(super) fn secret(cluster: &str, reader: &str, is_hub: bool) -> Value {
    let content = ByteString(kubeconfig(cluster, reader).into_bytes());
    let mut data = json!({ "kubeconfig": content });
    let mut name = format!("peer-{cluster}");
    if is_hub {
        HUB.clone_into(&mut name);
        data["mailboxes"] = json!(ByteString(b"all".to_vec()));
    }
    json!({
        "kind": "Secret",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "data": data,
    })
}

/// The ClusterPeer of a cluster, whose number is at the end of its id. Pods of cluster `c2` have addresses of 10.2.0.0/16.
fn peer(cluster: &str, is_on_hub: bool) -> Value {
    let (secret, mailbox) = place(cluster, is_on_hub);
    let number = cluster.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    json!({
        "kind": "ClusterPeer",
        "metadata": { "name": cluster },
        "spec": {
            "clusterId": cluster,
            "kubeconfigSecretRef": { "name": secret },
            "mailbox": mailbox,
            "podCIDRs": [format!("10.{number}.0.0/16"), format!("fd0{number}::/32")],
        },
    })
}
