//! The software bill of materials: every crate that is in the programs or builds them, as SPDX 2.3.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{VERSION, commit_time};
use crate::workspace::Workspace;

/// The crates that a release has programs of.
const ROOTS: [&str; 4] = ["mcs-agent", "mcs-cli", "mcs-controller", "mcs-ebpf"];

/// The document as JSON.
pub(super) fn spdx(workspace: &Workspace, repository: &str) -> Result<String> {
    let mut cargo = workspace.cargo();
    // A fresh machine fetches the descriptions of the crates that xtask does not need.
    let output = cargo.args(["metadata", "--format-version=1", "--locked"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let checksums = checksums(&fs::read_to_string(workspace.root.join("Cargo.lock"))?);
    let graph = Graph::of(&metadata)?;
    let packages: Vec<_> =
        graph.reached.iter().map(|id| package(graph.packages[id], &checksums)).collect();
    let describes = graph
        .roots
        .iter()
        .map(|id| relationship("SPDXRef-DOCUMENT", "DESCRIBES", &identifier(graph.packages[id])));
    let depends = graph.edges.iter().map(|(from, to)| {
        let [from, to] = [from, to].map(|id| identifier(graph.packages[id]));
        relationship(&from, "DEPENDS_ON", &to)
    });
    let relationships: Vec<_> = describes.chain(depends).collect();
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("mcs-agent-{VERSION}"),
        "documentNamespace": format!("https://github.com/{repository}/releases/tag/v{VERSION}"),
        "creationInfo": { "created": commit_time(workspace)?, "creators": ["Tool: cargo-xtask-release"] },
        "packages": packages,
        "relationships": relationships,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// What the roots need to be built and to run, without what only tests need.
struct Graph<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    roots: Vec<&'a str>,
    reached: BTreeSet<&'a str>,
    edges: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Graph<'a> {
    fn of(metadata: &'a Value) -> Result<Self> {
        let list = |value: &'a Value| value.as_array().into_iter().flatten();
        let packages: BTreeMap<_, _> = list(&metadata["packages"])
            .filter_map(|one| Some((one["id"].as_str()?, one)))
            .collect();
        let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"])
            .filter_map(|node| Some((node["id"].as_str()?, node)))
            .collect();
        let is_root = |id: &&str| {
            ROOTS
                .iter()
                .any(|root| packages[*id]["name"] == *root && packages[*id]["source"].is_null())
        };
        let roots: Vec<_> = packages.keys().copied().filter(|id| is_root(id)).collect();
        ensure!(roots.len() == ROOTS.len(), "cargo knows {roots:?} of {ROOTS:?}");
        let mut graph = Self {
            packages,
            roots: roots.clone(),
            reached: BTreeSet::new(),
            edges: BTreeSet::new(),
        };
        let mut open = roots;
        while let Some(id) = open.pop() {
            if !graph.reached.insert(id) {
                continue;
            }
            let node = nodes.get(id).with_context(|| format!("cargo resolves no {id}"))?;
            for dependency in list(&node["deps"]) {
                let is_used = list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev");
                let needed = dependency["pkg"].as_str().filter(|_| is_used);
                if let Some(needed) = needed {
                    graph.edges.insert((id, needed));
                    open.push(needed);
                }
            }
        }
        Ok(graph)
    }
}

fn package(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    // An old way to write it.
    let license = text("license").replace('/', " OR ");
    let license = if license.is_empty() { "NOASSERTION".to_owned() } else { license };
    let mut entry = json!({
        "SPDXID": identifier(package),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": license,
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{version}"),
        }],
    });
    if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
        entry["downloadLocation"] =
            json!(format!("https://crates.io/api/v1/crates/{name}/{version}/download"));
        entry["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": checksum }]);
    }
    entry
}

fn identifier(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let letters = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("SPDXRef-{}-{}", text("name"), text("version")).chars().map(letters).collect()
}

fn relationship(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

/// The digests of packages in Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let entries = lock.split("[[package]]");
    let known = entries.filter_map(|entry| {
        Some(((field(entry, "name")?, field(entry, "version")?), field(entry, "checksum")?))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_agent_are_listed_with_their_digests() {
        let document = spdx(&Workspace::discover().unwrap(), "some/where").unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let packages = document["packages"].as_array().unwrap();
        let of = |name: &str| packages.iter().find(|package| package["name"] == name);
        let tokio = of("tokio").unwrap();
        assert_eq!(tokio["checksums"][0]["checksumValue"].as_str().unwrap().len(), 64);
        assert_eq!(tokio["licenseDeclared"], "MIT");
        assert!(of("aya-ebpf").is_some(), "the programs");
        assert!(of("proptest").is_none(), "only tests need it");
    }
}
