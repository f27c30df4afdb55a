//! An API server, or what is before it, answers with what is no protobuf of Kubernetes.

use std::{
    collections::VecDeque,
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
    thread::sleep,
};

use crate::prelude::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What answers that cannot be read may cost an agent more than another one has.
const MOST_MEMORY: u64 = 32 << 20;
const TOO_LONG: &str = "the API server sends an object of more than 8 MiB";
const NO_PROTOBUF: &str = "the API server's answer is no protobuf of Kubernetes";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("garbage, halves and 2 GiB instead of protobuf", garbage);
}

/// What a stub answers to watches of slices in protobuf, one after the other. It keeps the last of them open.
type Script = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// An API server that has one import and its slices, streams no lists, and sends what the script says to who watches
/// slices.
struct Stub {
    import: Value,
    /// A list in protobuf.
    slices: Vec<u8>,
    script: Script,
}

impl Stub {
    /// Listens until the process ends.
    fn start(self, netns: &Namespace) -> Result<SocketAddr> {
        let listener = netns.run(|| TcpListener::bind("127.0.0.1:0"))??;
        let address = listener.local_addr()?;
        let stub = Arc::new(self);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stub = Arc::clone(&stub);
                // A client that goes away is none of its business.
                thread::spawn(move || drop(stub.answer(stream)));
            }
        });
        Ok(address)
    }

    fn answer(&self, stream: TcpStream) -> Result {
        let mut stream = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? <= 2 {
                break;
            }
            lines.push(line.to_lowercase());
        }
        let target = lines.first().context("no request")?;
        let in_protobuf = lines.iter().any(|line| line.contains(PROTOBUF));
        let of_slices = target.contains("/endpointslices");
        let stream = stream.get_mut();
        let mut send = |status: &str, form: &str, body: &[u8]| {
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: {form}\r\nConnection: close\r\n\r\n"
            )?;
            stream.write_all(body)
        };
        let list = |items: &[&Value]| {
            json!({"metadata": {"resourceVersion": "1"}, "groups": [], "items": items}).to_string()
        };
        if target.contains("sendinitialevents") {
            let status = json!({"kind": "Status", "code": 422, "message": "no streams"});
            send("422 Invalid", "application/json", status.to_string().as_bytes())?;
        } else if target.contains("watch=true") && of_slices && in_protobuf {
            let next = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let is_last = next.is_none();
            send("200 OK", PROTOBUF, &next.unwrap_or_default())?;
            if is_last {
                sleep(Duration::from_mins(10));
            }
        } else if target.contains("watch=true") && of_slices {
            let metadata = json!({"resourceVersion": "1"});
            let object = json!({"kind": "EndpointSlice", "apiVersion": "v1", "metadata": metadata});
            let bookmark = json!({"type": "BOOKMARK", "object": object});
            send("200 OK", "application/json", format!("{bookmark}\n").as_bytes())?;
        } else if target.contains("watch=true") {
            send("200 OK", "application/json", b"")?;
            sleep(Duration::from_mins(10));
        } else if of_slices && in_protobuf {
            send("200 OK", PROTOBUF, &self.slices)?;
        } else if target.contains("/serviceimports") {
            send("200 OK", "application/json", list(&[&self.import]).as_bytes())?;
        } else {
            send("200 OK", "application/json", list(&[]).as_bytes())?;
        }
        Ok(())
    }
}

/// What an API server sends for a change of a slice, from the version that `before` had.
fn change(api: &Api, before: &Value, after: &Value) -> Result<Vec<u8>> {
    let path = Api::path(before)?;
    let (of_all, name) = path.rsplit_once('/').context("no name")?;
    let version = api.get(&path)?["metadata"]["resourceVersion"].clone();
    let version = version.as_str().context("no version")?;
    api.apply(after)?;
    let name = format!("fieldSelector=metadata.name%3D{name}");
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={version}&{name}");
    api.bytes(&format!("{of_all}?{query}"), PROTOBUF)
}

fn garbage(world: &mut World) -> Result {
    let world = &*world;
    let api = &world.east.api;
    let before = world.fresh("garbled").with(&[11]);
    let after = before.clone().with(&[12]);
    api.apply_all(&before.objects())?;
    let (slices, changed) = (before.service.slices(), after.service.slices());
    let namespace = slices[0]["metadata"]["namespace"].as_str().context("no namespace")?;
    let selector = "labelSelector=multicluster.kubernetes.io/service-name%3Dgarbled";
    let path =
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{selector}");
    let list = api.bytes(&path, PROTOBUF)?;
    let events = slices.iter().zip(&changed).map(|(before, after)| change(api, before, after));
    let good = events.collect::<Result<Vec<_>>>()?.concat();
    let noise = [&64_u32.to_be_bytes()[..], &[0; 64]].concat();
    let script = [
        0x8000_0000_u32.to_be_bytes().to_vec(),
        noise,
        good[..good.len() / 3].to_vec(),
        [&7_u32.to_be_bytes()[..], b"<html>\n"].concat(),
        vec![0xff; 1 << 20],
        good,
    ];
    let script: Script = Arc::new(Mutex::new(script.into()));
    let stub = Stub { import: before.service.import(), slices: list, script: Arc::clone(&script) };
    let address = stub.start(&world.network.node.netns)?;
    let kubeconfig = world.run.directory().join("garbled.kubeconfig");
    let config = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let mut site = world.start_on("garbled", Source::Kubeconfig(kubeconfig), &[])?;
    site.wait_until_healthy()?;
    site.wait_for(&after.service)?;
    let log = site.agent.log()?;
    for reason in [TOO_LONG, NO_PROTOBUF] {
        ensure!(log.contains(reason), "the log lacks {reason:?}");
    }
    wait::until("an agent that follows again", || {
        let left = script.lock().unwrap_or_else(PoisonError::into_inner).len();
        ensure!(left == 0, "{left} answers are left");
        Ok(())
    })?;
    site.wait_until_content()?;
    let [peak, usual] = [&site, &world.site].map(Site::peak_memory);
    let (peak, usual) = (peak?, usual?);
    tell(format!("peak memory {} MiB, of another agent {} MiB", peak >> 20, usual >> 20));
    ensure!(peak < usual + MOST_MEMORY, "it took {peak} bytes of memory");
    before.objects().iter().try_for_each(|object| api.delete(object))
}
