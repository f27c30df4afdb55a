//! The corpus of Corefiles in `tests/corefiles`: a file has what is expected, and the keys of ConfigMaps.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corefiles");
/// The line before the text of a key: `=== CONFIGMAP/KEY`.
const PLACE: &str = "=== ";

/// What `mcs dns apply` does.
pub(super) enum Expected {
    /// It adds a block with this header.
    Added(String),
    /// It changes nothing: somebody's block answers. `undo` says this.
    Kept(String),
    /// It changes nothing, fails and says this.
    Refused(String),
}

/// The configuration of a cluster's DNS.
pub(super) struct Text {
    pub(super) name: String,
    pub(super) expected: Expected,
    /// Where pods ask.
    pub(super) ask: SocketAddr,
    pub(super) domain: String,
    workload: String,
    /// By ConfigMap and key.
    pub(super) files: BTreeMap<(String, String), String>,
}

impl Text {
    pub(super) fn all() -> anyhow::Result<Vec<Self>> {
        let paths = fs::read_dir(DIRECTORY)?.map(|entry| Ok(entry?.path()));
        let mut paths = paths.collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        paths
            .iter()
            .map(|path| Self::read(path).with_context(|| path.display().to_string()))
            .collect()
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        let mut parts = text.split_inclusive('\n').fold(vec![String::new()], |mut parts, line| {
            if line.starts_with(PLACE) {
                parts.push(String::new());
            }
            if let Some(part) = parts.last_mut() {
                part.push_str(line);
            }
            parts
        });
        let head = parts.remove(0);
        let fields: BTreeMap<_, _> = head
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once(": ").context("a field without value"))
            .collect::<anyhow::Result<_>>()?;
        let field = |name: &str, default: &str| (*fields.get(name).unwrap_or(&default)).to_owned();
        let known = ["expect", "ask", "domain", "workload", "as"];
        ensure!(fields.keys().all(|name| known.contains(name)), "an unknown field");
        let form = field("as", "");
        let files = parts.iter().map(|part| {
            let (place, text) = part.split_once('\n').context("a place")?;
            let (map, key) = place[PLACE.len()..].split_once('/').context("a key")?;
            Ok(((map.to_owned(), key.to_owned()), formed(text, &form)?))
        });
        let expect = field("expect", "");
        let expected = match expect.split_once(' ') {
            Some(("added", header)) => Expected::Added(header.to_owned()),
            Some(("kept", why)) => Expected::Kept(why.to_owned()),
            Some(("refused", why)) => Expected::Refused(why.to_owned()),
            _ => bail!("it expects {expect}"),
        };
        Ok(Self {
            name,
            expected,
            ask: field("ask", "127.0.0.1:53").parse()?,
            domain: field("domain", "cluster.local"),
            workload: field("workload", "Deployment kube-system/coredns"),
            files: files.collect::<anyhow::Result<_>>()?,
        })
    }

    /// The Deployment or DaemonSet of the DNS.
    pub(super) fn workload(&self) -> anyhow::Result<Value> {
        let (kind, place) = self.workload.split_once(' ').context("a kind")?;
        let (namespace, name) = place.split_once('/').context("a namespace")?;
        Ok(workload(kind, (namespace, name), "registry.k8s.io/coredns/coredns:v1.12.2", &json!([])))
    }
}

/// A text in another form.
fn formed(text: &str, form: &str) -> anyhow::Result<String> {
    Ok(match form {
        "" => text.to_owned(),
        "crlf" => text.replace('\n', "\r\n"),
        "bare" => text.trim_end_matches('\n').to_owned(),
        "bom" => format!("\u{feff}{text}"),
        other => bail!("no form {other}"),
    })
}

/// The DaemonSet of a cache that reads a key of a ConfigMap.
pub(super) fn cache(map: &str, key: &str) -> Value {
    let name = if key == "Corefile" { map.to_owned() } else { format!("{map}-second") };
    let volumes = json!([{
        "name": "config-volume",
        "configMap": {"name": map, "items": [{"key": key, "path": "Corefile.base"}]},
    }]);
    let image = "registry.k8s.io/dns/k8s-dns-node-cache:1.26.4";
    workload("DaemonSet", ("kube-system", &name), image, &volumes)
}

fn workload(kind: &str, (namespace, name): (&str, &str), image: &str, volumes: &Value) -> Value {
    let labels = json!({"k8s-app": name});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "dns", "image": image}], "volumes": volumes},
    });
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    })
}
