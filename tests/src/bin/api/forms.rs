//! Objects in the two forms that an API server has for built-in types: protobuf and JSON.

use mcs_kube::objects::{Bare, EndpointSlice, Lease, Node, Service, ServiceCidr};
use mcs_tests::procfs::cpu_time;
use prost::Message;
use serde::de::DeserializeOwned;

use crate::prelude::*;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The endpoints of the slice that is measured.
const ENDPOINTS: u8 = 100;
/// Watchers of one slice; seconds that they follow it, and changes in each second.
const WATCHERS: u32 = 100;
const SECONDS: u32 = 20;
const CHANGES: u32 = 50;
/// How long all watchers take to connect, and to read the rest.
const MARGIN: Duration = Duration::from_secs(4);
/// The tenths of the bytes of JSON that protobuf may take. A name of a pod has as many in both.
const MOST_IN_TEN: usize = 7;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("objects say the same in protobuf and in JSON", say_the_same);
    suite.case("a change takes fewer bytes in protobuf", takes_less);
    suite.full("what many watchers cost an API server in both forms", many_watchers);
}

/// The envelope of an object, behind four bytes.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

fn say_the_same(world: &mut World) -> Result {
    let api = &world.east.api;
    let objects = objects();
    for object in &objects {
        api.apply(object)?;
    }
    let [slice, bare, service, node, lease, range] = &objects;
    compare::<EndpointSlice>(api, slice)?;
    compare::<EndpointSlice>(api, bare)?;
    compare::<Service>(api, service)?;
    compare::<Node>(api, node)?;
    compare::<Lease>(api, lease)?;
    compare::<ServiceCidr>(api, range)?;
    compare::<Bare>(
        api,
        &json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"},
        }),
    )?;
    objects.iter().try_for_each(|object| api.delete(object))
}

/// What the programs read of an object in protobuf has to be what JSON says.
fn compare<M: Message + Default + DeserializeOwned + PartialEq + std::fmt::Debug>(
    api: &Api,
    object: &Value,
) -> Result {
    let path = Api::path(object)?;
    let bytes = api.bytes(&path, PROTOBUF)?;
    let content = bytes.strip_prefix(b"k8s\0").context("no envelope")?;
    let message = M::decode(&*Envelope::decode(content)?.raw)?;
    let stored: M = serde_json::from_value(api.get(&path)?)?;
    ensure!(message == stored, "{path} in protobuf: {message:?}, and in JSON: {stored:?}");
    Ok(())
}

/// Objects with every field that is read, and a slice that lacks what it can lack.
fn objects() -> [Value; 6] {
    let owner = json!([{
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport", "name": "web", "uid": "u",
    }]);
    let metadata = |name: &str| {
        json!({
            "namespace": "default", "name": name, "ownerReferences": owner,
            "labels": {"multicluster.kubernetes.io/service-name": "web-of-no-import", "empty": ""},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z", "note": "\"\u{e9}\"\n"},
        })
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata("captured-slice"),
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.1.0.1"],
                "conditions": {"ready": false, "serving": true, "terminating": true},
                "hostname": "web-0", "nodeName": "n1", "zone": "a",
                "hints": {"forZones": [{"name": "a"}, {"name": "b"}], "forNodes": [{"name": "n1"}]},
                "targetRef": {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u"},
            },
            {"addresses": ["10.1.0.2"], "conditions": {"ready": true}},
            {"addresses": ["10.1.0.3"]},
        ],
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "kubernetes.io/h2c"},
            {"name": "dns", "protocol": "UDP", "port": 53},
            {"name": "any", "protocol": "SCTP"},
        ],
    });
    let bare = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "default", "name": "captured-bare"},
        "addressType": "IPv6", "endpoints": [],
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata("captured-service"),
        "spec": {
            "type": "ClusterIP", "selector": {"app": "web"}, "clusterIP": "10.96.7.7",
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}},
            "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http"},
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
            ],
        },
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "captured-node", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24", "fd00:244:3::/64"]},
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata("captured-lease"),
        "spec": {"holderIdentity": "east", "renewTime": "2026-01-02T03:04:05.678901Z"},
    });
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "captured-range"},
        "spec": {"cidrs": ["10.123.0.0/16"]},
    });
    [slice, bare, service, node, lease, range]
}

/// The bytes that one watcher receives for a change of one endpoint: in an imported slice, and in a slice of Kubernetes itself, which
/// names pods.
fn takes_less(world: &mut World) -> Result {
    let api = &world.east.api;
    for (what, with_pods) in [("an imported slice", false), ("a slice with its pods", true)] {
        let slice = |ready| slice_of_many(with_pods, ready);
        api.apply(&slice(true))?;
        let path = Api::path(&slice(true))?;
        let version = api.get(&path)?["metadata"]["resourceVersion"].clone();
        let version = version.as_str().context("no version")?;
        api.apply(&slice(false))?;
        let (of_all, name) = path.rsplit_once('/').context("no name")?;
        let path = format!(
            "{of_all}?watch=1&timeoutSeconds=1&resourceVersion={version}&fieldSelector=metadata.name%3D{name}"
        );
        let json = api.bytes(&path, JSON)?.len();
        let protobuf = api.bytes(&path, PROTOBUF)?.len();
        tell(format!(
            "a change of one of the {ENDPOINTS} endpoints of {what}: {json} bytes in JSON, {protobuf} in protobuf"
        ));
        ensure!(protobuf * 10 <= json * MOST_IN_TEN, "it is more than {MOST_IN_TEN} tenths");
        api.delete(&slice(true))?;
    }
    Ok(())
}

/// What a watcher is sent, and what the API server's CPUs do for it, beside the writes.
fn many_watchers(world: &mut World) -> Result {
    let world = &*world;
    world.east.api.apply(&slice_of_many(false, true))?;
    let (_, alone) = follow(world, 0, JSON)?;
    let mut each = Vec::new();
    for (name, form) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        let (bytes, cpu) = follow(world, WATCHERS, form)?;
        let cpu = cpu.saturating_sub(alone);
        let events = WATCHERS * CHANGES * SECONDS;
        tell(format!(
            "{WATCHERS} watchers in {name}: {} bytes and {:.1} us of CPU an event and watcher",
            bytes / u64::from(events),
            cpu.as_secs_f64() * 1e6 / f64::from(events),
        ));
        each.push(bytes / u64::from(events));
    }
    // As many as of one change: no watcher has missed any.
    ensure!(each[0] > 12_000 && (4_000..each[0] / 2).contains(&each[1]), "{each:?}");
    world.east.api.delete(&slice_of_many(false, true))
}

/// Changes a slice that many watch. Returns the bytes that watchers receive, and the CPU time of the API server.
fn follow(world: &World, watchers: u32, form: &str) -> Result<(u64, Duration)> {
    let time = Duration::from_secs(SECONDS.into());
    let slice = slice_of_many(false, true);
    let path = Api::path(&slice)?;
    let version = world.east.api.get(&path)?["metadata"]["resourceVersion"].clone();
    let version = version.as_str().context("no version")?;
    let (of_all, name) = path.rsplit_once('/').context("no name")?;
    let seconds = (time + 2 * MARGIN).as_secs();
    let path = format!(
        "{of_all}?watch=1&timeoutSeconds={seconds}&resourceVersion={version}&fieldSelector=metadata.name%3D{name}"
    );
    thread::scope(|scope| {
        let clients = (0..watchers).map(|_| world.east.another_client());
        let clients = clients.collect::<Result<Vec<_>>>()?;
        let threads: Vec<_> = clients
            .into_iter()
            .map(|api| {
                let path = &path;
                scope.spawn(move || api.length(path, form))
            })
            .collect();
        thread::sleep(MARGIN);
        let before = cpu_time(world.east.pid())?;
        let begin = Instant::now();
        for number in 1..=CHANGES * SECONDS {
            world.east.api.replace(&slice_of_many(false, number % 2 == 0))?;
            let next = begin + Duration::from_secs(1) * number / CHANGES;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let took = begin.elapsed();
        ensure!(took < time + MARGIN, "the changes took {took:?} instead of {time:?}");
        let mut bytes = 0;
        for watch in threads {
            bytes += watch.join().map_err(|_| anyhow::anyhow!("a watcher panicked"))??;
        }
        Ok((bytes, cpu_time(world.east.pid())?.saturating_sub(before)))
    })
}

fn slice_of_many(with_pods: bool, ready: bool) -> Value {
    let endpoints = (1..=ENDPOINTS).map(|number| {
        let mut endpoint = json!({
            "addresses": [format!("10.123.45.{number}")],
            "conditions": {"ready": ready || number > 1, "serving": true, "terminating": false},
            "zone": "eu-central-1a",
        });
        if with_pods {
            endpoint["nodeName"] = json!(format!("ip-10-0-17-{number}.eu-central-1.compute.internal"));
            endpoint["targetRef"] = json!({
                "kind": "Pod", "namespace": "default", "name": format!("web-6d4cf56db6-x{number:04}"),
                "uid": format!("869a2b9e-e736-4e9d-af99-3d6c033a0{number:03}"),
            });
        }
        endpoint
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": "web-east-7h2xq",
            "labels": {
                "multicluster.kubernetes.io/service-name": "web-of-no-import",
                "multicluster.kubernetes.io/source-cluster": "east",
                "endpointslice.kubernetes.io/managed-by": "mcs-controller.example",
            },
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z"},
        },
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    })
}
