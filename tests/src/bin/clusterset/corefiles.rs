//! `mcs dns` with Corefiles as distributions, controllers and operators write them: what it writes is read by the real CoreDNS,
//! which answers, and what it takes out leaves the former text.

mod server;
mod text;

use std::{collections::BTreeMap, iter, net::Ipv4Addr, process::Output, thread};

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{
    api_server::Api,
    netns::Namespace,
    suite::{Suite, tell},
    topology::Subnet,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{
    server::Server,
    text::{Expected, Text},
};
use crate::{
    cluster::Cluster,
    controller,
    objects::service,
    world::{World, slice_of},
};

/// What CoreDNS may read.
const RIGHTS: &str = include_str!("../../../../deploy/dns/coredns-rbac.yaml");
const SYSTEM: &str = "kube-system";
const OPENSHIFT: &str = "openshift-dns";
/// ConfigMaps of the API server.
const KEPT: [&str; 3] = [
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
    "kube-root-ca.crt",
];
/// Addresses of DNS servers in the corpus, which all lead to this namespace.
const ADDRESSES: [&str; 5] =
    ["169.254.20.10", "169.254.25.10", "169.254.25.11", "10.96.0.10", "10.96.0.11"];

/// The ClusterIP of the API server.
const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("each Corefile is edited, read by CoreDNS and restored", each);
}

/// How many texts of a cluster are tried at once: a CoreDNS that starts waits more than it works.
const WIDTH: usize = 3;

/// A cluster whose DNS is edited, and a namespace in which a CoreDNS of it runs.
struct Lane<'a> {
    cluster: &'a Cluster,
    /// One text at a time is in the cluster.
    turn: &'a Mutex<()>,
    netns: Namespace,
    /// Of the namespace.
    role: String,
    account: Value,
    /// A name in clusterset.local, and its address.
    import: (String, Ipv4Addr),
}

/// The texts of keys of ConfigMaps.
type Files = BTreeMap<(String, String), String>;

fn each(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    for cluster in &world.clusters[..2] {
        let mut exported = service(&namespace);
        exported["spec"]["ipFamilyPolicy"] = json!("SingleStack");
        cluster.export(&exported, Some(&slice_of(&namespace, 0, 1)))?;
    }
    let turns = [Mutex::new(()), Mutex::new(())];
    let lanes = world.clusters.iter().zip(&turns).flat_map(|one| iter::repeat_n(one, WIDTH));
    let lanes = lanes.zip(60..).map(|(one, subnet)| Lane::of(world, one, subnet, &namespace));
    let lanes = lanes.collect::<anyhow::Result<Vec<_>>>()?;
    let texts = Text::all()?;
    ensure!(texts.len() >= 40, "there are {} texts", texts.len());
    let shares: Vec<Vec<_>> = (0..lanes.len())
        .map(|lane| texts.iter().skip(lane).step_by(lanes.len()).collect())
        .collect();
    let failures: Vec<String> = thread::scope(|scope| {
        let runs = lanes.iter().zip(&shares).map(|(lane, texts)| scope.spawn(|| lane.run(texts)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter()
            .flat_map(|run| run.join().unwrap_or_else(|_| vec!["panic".into()]))
            .collect()
    });
    for lane in lanes.iter().step_by(WIDTH) {
        lane.clear()?;
        lane.cluster.unexport(&namespace)?;
    }
    ensure!(failures.is_empty(), "{} of {}:\n{}", failures.len(), texts.len(), failures.join("\n"));
    tell(format!("{} Corefiles", texts.len()));
    Ok(())
}

impl<'a> Lane<'a> {
    fn of(
        world: &World,
        (cluster, turn): (&'a Cluster, &'a Mutex<()>),
        subnet: u8,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        let role = format!("dns-{subnet}");
        let netns = world.node.link(&world.run, &role, Subnet(subnet), &[2])?;
        let addresses = ADDRESSES.map(|address| format!("address add {address}/32 dev lo\n"));
        netns.ip(&addresses.concat())?;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": SYSTEM, "name": "coredns"},
        });
        let api = cluster.api();
        api.apply(&account)?;
        api.apply_yaml(RIGHTS)?;
        api.apply_yaml(include_str!("corefiles/kubeadm-rbac.yaml"))?;
        cluster.add_namespace(OPENSHIFT)?;
        let address = |import: &Value| {
            let mut ips = import["spec"]["ips"].as_array().into_iter().flatten();
            let address = ips.find_map(|ip| ip.as_str()?.parse::<Ipv4Addr>().ok());
            address.context("no address")
        };
        let import = cluster.wait_for_import(namespace, |import| address(import).map(drop))?;
        let name = format!("hello.{namespace}.svc.clusterset.local");
        Ok(Self { cluster, turn, netns, role, account, import: (name, address(&import)?) })
    }

    /// Tries texts. Returns what failed.
    fn run(&self, texts: &[&Text]) -> Vec<String> {
        let tried = texts.iter().map(|text| match self.edit(text)? {
            Some(files) => self.answers(text, &files).with_context(|| format!("{files:?}")),
            None => Ok(()),
        });
        let named = texts.iter().zip(tried).filter_map(|(text, result)| {
            let error = result.err()?;
            Some(format!("{}: {error:#}", text.name))
        });
        named.collect()
    }

    fn api(&self) -> &Api {
        self.cluster.api()
    }

    /// Deletes what the last text has left.
    fn clear(&self) -> anyhow::Result<()> {
        for namespace in [SYSTEM, OPENSHIFT] {
            for (group, version, kind, plural) in [
                ("api", "v1", "ConfigMap", "configmaps"),
                ("apis", "apps/v1", "Deployment", "deployments"),
                ("apis", "apps/v1", "DaemonSet", "daemonsets"),
            ] {
                let path = format!("/{group}/{version}/namespaces/{namespace}/{plural}");
                let list = self.api().get(&path)?;
                let names = list["items"].as_array().into_iter().flatten();
                let names = names.filter_map(|object| object["metadata"]["name"].as_str());
                for name in names.filter(|name| !KEPT.contains(name)) {
                    let metadata = json!({"namespace": namespace, "name": name});
                    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
                    self.api().delete(&object)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the objects of a text.
    fn make(&self, text: &Text) -> anyhow::Result<()> {
        let mut maps: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for ((map, key), content) in &text.files {
            maps.entry(map).or_default().insert(key, content);
            if map.contains("local") {
                self.api().apply(&text::cache(map, key))?;
            }
        }
        for (map, data) in maps {
            self.api().apply(&json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": SYSTEM, "name": map}, "data": data,
            }))?;
        }
        self.api().apply(&text.workload()?)
    }

    /// The ConfigMaps of the text as they are now.
    fn files(&self) -> anyhow::Result<Files> {
        let maps = self.api().get("/api/v1/namespaces/kube-system/configmaps")?;
        let mut files = BTreeMap::new();
        for map in maps["items"].as_array().into_iter().flatten() {
            let name = map["metadata"]["name"].as_str().unwrap_or_default();
            for (key, text) in map["data"].as_object().into_iter().flatten() {
                let place = (name.to_owned(), key.clone());
                files.insert(place, text.as_str().unwrap_or_default().to_owned());
            }
        }
        files.retain(|(map, _), _| !KEPT.contains(&map.as_str()));
        Ok(files)
    }

    /// Lets `mcs dns` change a text and undo that. Returns what CoreDNS has to read.
    fn edit(&self, text: &Text) -> anyhow::Result<Option<Files>> {
        let _turn = self.turn.lock();
        self.clear()?;
        self.make(text)?;
        let former = self.files()?;
        ensure!(former == text.files, "the API server has other texts");
        let (code, said) = self.dns("apply")?;
        let written = self.files()?;
        let read = match &text.expected {
            Expected::Refused(why) => {
                ensure!(code != 0 && said.contains(why), "it was not refused: {code} {said}");
                ensure!(written == former, "refused, but written: {written:?}");
                None
            }
            Expected::Kept(why) => {
                ensure!(code == 0 && written == former, "{code} {said} {written:?}");
                let (code, said) = self.dns("undo")?;
                ensure!(code == 0 && said.contains(why), "undo: {code} {said}");
                Some(written)
            }
            Expected::Added(header) => {
                ensure!(code == 0, "{code} {said}");
                let begin = format!("{header} {{");
                let has_block = |text: &String| {
                    text.lines().any(|line| line.trim_start_matches('\u{feff}') == begin)
                };
                ensure!(written.values().any(has_block), "no block {begin}: {written:?}");
                let (code, said) = self.dns("apply")?;
                ensure!(code == 0 && self.files()? == written, "a second time: {code} {said}");
                let (code, said) = self.dns("undo")?;
                ensure!(code == 0, "undo: {code} {said}");
                Some(written)
            }
        };
        let left = self.files()?;
        ensure!(left == former, "{left:?}\nwas before:\n{former:?}");
        Ok(read)
    }

    /// Runs `mcs dns VERB`. Returns the exit code, and what it said.
    fn dns(&self, verb: &str) -> anyhow::Result<(i32, String)> {
        let mut command = controller::command_line(&self.netns)?;
        command.args(["dns", verb]).arg(self.cluster.administrator()?);
        let Output { status, stdout, stderr } = command.output()?;
        let code = status.code().context("it was killed")?;
        Ok((
            code,
            [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat(),
        ))
    }

    /// Starts CoreDNS, and the caches, with these texts. Fails unless names of both zones are answered.
    fn answers(&self, text: &Text, files: &Files) -> anyhow::Result<()> {
        let mut servers = Vec::new();
        for ((map, key), corefile) in files {
            let additions: Vec<_> = match map.as_str() {
                "coredns" if key == "Corefile" => {
                    files.iter().filter(|((map, _), _)| map.starts_with("coredns")).collect()
                }
                _ if map.contains("local") => vec![],
                _ => continue,
            };
            let directory = format!("{}-{map}-{key}", self.role);
            let server = Server::start(
                self.cluster,
                &self.netns,
                &self.account,
                &directory,
                corefile,
                &additions,
            );
            servers.push(server?);
        }
        let api_server = (format!("kubernetes.default.svc.{}", text.domain), API_SERVER);
        for (name, address) in [&self.import, &api_server] {
            server::wait_for(&self.netns, &mut servers, text.ask, name, (*address).into())?;
        }
        Ok(())
    }
}

/// An error unless a program has ended well.
fn ended(code: Option<i32>, log: &str) -> anyhow::Result<()> {
    match code {
        None => Ok(()),
        Some(code) => bail!("CoreDNS has ended with {code}: {log}"),
    }
}
