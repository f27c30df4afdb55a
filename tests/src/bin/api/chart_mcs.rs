//! The chart `mcs`, as real API servers see it.

use std::env;

use mcs_tests::{api_server::ApiServer, charts::Copies, cluster::Programs};

use crate::prelude::*;

const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm");
const BLOCK: &str = include_str!("../../../../deploy/helm/mcs/dns/clusterset.server");
/// The release's namespace, as the documentation has it.
const NAMESPACE: &str = "mcs-system";
const CORE_DNS: &str = "system:serviceaccount:kube-system:coredns";

const IMPORTS: &str = "/apis/multicluster.x-k8s.io/v1beta1/serviceimports";

/// Values for a cluster of a clusterset with ranges of its own.
const RANGES: [&str; 3] = [
    "global.vipCidrs={243.0.0.0/8,fd43::/64}",
    "clusterProperties.create=true",
    "clusterProperties.clusterset=shop",
];

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the chart mcs passes the API server, whatever its values", is_valid);
    suite.case("CoreDNS may list imports by the chart mcs", core_dns_lists);
    suite.case("a release of the chart mcs never changes the id of a cluster", keeps_the_id);
    suite.case("a release takes no ClusterSetIP away by other ranges", keeps_the_ranges);
    suite.case("the notes of the chart mcs say what CoreDNS lacks", notes);
}

fn is_valid(world: &mut World) -> Result {
    let helm = Helm::new(world)?;
    let mut tried = BTreeSet::new();
    for values in [
        &[][..],
        &["mcs-controller.derivedServices=write"],
        &["mcs-controller.derivedServices=remove", "mcs-agent.uninstall.cleanup=false"],
        &["mcs-controller.mailbox.secret=mailbox", "mcs-controller.adopt=true", "dns.custom=true"],
        &["mcs-agent.enabled=false", "mcs-controller.createNamespaces=true"],
    ] {
        let objects = helm.render(values)?;
        would_apply(&world.east, &objects, &mut tried).with_context(|| format!("{values:?}"))?;
    }
    // Clusters of one clusterset differ in their ids alone.
    let [east, west] = ["east", "west"].map(|id| {
        let id = format!("global.clusterId={id}");
        helm.render(&[&RANGES[..], &[&id]].concat())
    });
    let (east, west) = (east?, west?);
    would_apply(&world.east, &east, &mut tried)?;
    would_apply(&world.west, &west, &mut BTreeSet::new())?;
    let [east, west] = [east, west].map(|objects| Value::Array(objects).to_string());
    for argument in ["--vip-cidr=243.0.0.0/8", "--vip-cidr=fd43::/64", "--cluster-id=west"] {
        let count = west.matches(argument).count();
        ensure!(count == 2, "{argument} is {count} times there");
    }
    let renamed = west.replace("--cluster-id=west", "--cluster-id=east");
    let renamed = renamed.replace(r#""value":"west""#, r#""value":"east""#);
    ensure!(renamed == east, "the clusters differ in more than the id");
    Ok(())
}

/// Fails unless the API server takes all objects that were not tried before, with strict validation.
fn would_apply(server: &ApiServer, objects: &[Value], tried: &mut BTreeSet<String>) -> Result {
    let of_kind = |kind: &'static str| objects.iter().filter(move |one| one["kind"] == kind);
    // Without them the others cannot be tried.
    server.api.apply_all(of_kind("Namespace"))?;
    ensure!(of_kind("CustomResourceDefinition").count() == 3, "types are missing");
    for object in objects.iter().filter(|object| tried.insert(object.to_string())) {
        let name = || format!("{} {}", object["kind"], object["metadata"]["name"]);
        server.api.would_apply(object).with_context(name)?;
    }
    Ok(())
}

fn core_dns_lists(world: &mut World) -> Result {
    let helm = Helm::new(world)?;
    let core_dns = world.east.as_user(CORE_DNS)?;
    ensure!(core_dns.get(IMPORTS).is_err(), "it may do so without the chart");
    let objects = helm.render(&[])?;
    let objects: Vec<_> =
        objects.iter().filter(|one| one["metadata"]["name"] == "mcs-coredns").collect();
    ensure!(objects.len() == 2, "{objects:?}");
    for object in &objects {
        world.east.api.apply(object)?;
    }
    // The API server takes a moment to know a new role.
    let listed = wait::until("the right to list imports", || core_dns.get(IMPORTS).map(drop));
    for object in &objects {
        world.east.api.delete(object)?;
    }
    listed
}

fn keeps_the_id(world: &mut World) -> Result {
    let helm = Helm::new(world)?;
    let property = cluster_property("cluster.clusterset.k8s.io", "east");
    let existing = world.east.api.read(&property).ok();
    world.east.api.apply(&property)?;
    let result = keeps_east(&helm);
    match existing {
        Some(_) => result,
        None => result.and(world.east.api.delete(&property)),
    }
}

fn keeps_east(helm: &Helm<'_>) -> Result {
    helm.install(&["global.clusterId=east", "clusterProperties.create=true"])?;
    helm.install(&[])?;
    for create in ["true", "false"] {
        let create = format!("clusterProperties.create={create}");
        let refused = helm.install(&["global.clusterId=west", &create]).err();
        let refused = refused.context("another id is taken")?.to_string();
        ensure!(refused.contains(r#"is "east", and the values say "west""#), "{refused}");
    }
    Ok(())
}

fn keeps_the_ranges(world: &mut World) -> Result {
    let helm = Helm::new(world)?;
    let api = &world.east.api;
    let import = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": { "namespace": "default", "name": "ranged" },
        "spec": {
            "type": "ClusterSetIP",
            "ips": ["241.0.0.5", "fd43:0:0:f::5"],
            "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    });
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    api.apply_all([&namespace, &import])?;
    let tried = || {
        for ranges in [&["global.vipCidrs={241.0.0.0/8,fd43::/60}"][..], &[]] {
            let objects = helm.render(ranges)?;
            let agents = objects.iter().find(|object| object["kind"] == "DaemonSet");
            let agents = agents.context("no DaemonSet")?;
            api.apply(agents)?;
            // Agents without ranges accept the addresses that other cases have left, too.
            let counted = !ranges.is_empty();
            let result = keeps_imports(&helm, counted).with_context(|| format!("{ranges:?}"));
            api.delete(agents)?;
            result?;
        }
        // Without agents that serve it, nothing is taken away.
        helm.install(&["global.vipCidrs={242.0.0.0/8}"]).map(drop)
    };
    let result = tried();
    result.and(api.delete(&import))
}

fn keeps_imports(helm: &Helm<'_>, counted: bool) -> Result {
    for (ranges, lost) in [
        ("242.0.0.0/8", "2 ClusterSetIPs no more, such as default/ranged (241.0.0.5), default/"),
        (
            "241.0.0.0/8,fd43::/61",
            "1 ClusterSetIPs no more, such as default/ranged (fd43:0:0:f::5)",
        ),
    ] {
        let lost = if counted { lost } else { "ClusterSetIPs no more, such as " };
        let ranges = format!("global.vipCidrs={{{ranges}}}");
        let refused = helm.install(&[&ranges]).err();
        let refused = refused.with_context(|| format!("{ranges} is taken"))?.to_string();
        ensure!(refused.contains(lost), "{ranges}: {refused}");
    }
    helm.install(&["global.vipCidrs={242.0.0.0/8}", "mcs-agent.allowVipRangeChange=true"])?;
    if counted {
        helm.install(&["global.vipCidrs={241.0.0.0/29,fd43:0:0:f::/64}"])?;
    }
    helm.install(&[]).map(drop)
}

fn notes(world: &mut World) -> Result {
    let helm = Helm::new(world)?;
    let api = &world.east.api;
    let config = |name: &str, key: &str, text: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": "kube-system", "name": name },
            "data": { key: text },
        })
    };
    let corefile = |text: &str| config("coredns", "Corefile", text);
    let custom = |text: &str| config("coredns-custom", "clusterset.server", text);
    let says = |values: &[&str], expected: &str| {
        let said = helm.install(values)?;
        ensure!(said.contains(expected), "instead of {expected:?}: {said}");
        anyhow::Ok(())
    };
    let edit = "by\n   hand, kubectl edit configmap coredns --namespace kube-system";
    let has_block = "CoreDNS has the block for them";

    says(&[], edit)?;
    let alone = ".:53 {\n    kubernetes cluster.local\n}\n";
    api.apply(&corefile(alone))?;
    says(&[], edit)?;
    api.apply(&corefile(&format!("{BLOCK}{alone}")))?;
    says(&[], has_block)?;

    api.apply(&corefile(&format!("{alone}import /etc/coredns/custom/*.server\n")))?;
    says(&[], "Upgrade this release with --set dns.custom=true")?;
    says(&["dns.custom=true"], has_block)?;
    api.apply(&custom("example.org:53 {\n}\n"))?;
    says(&[], "kubectl patch configmap coredns-custom --namespace kube-system")?;
    let refused = helm.install(&["dns.custom=true"]).err();
    let refused = refused.context("the ConfigMap of somebody else is taken")?.to_string();
    ensure!(
        refused.contains("coredns-custom is there already, and not of this release"),
        "{refused}"
    );
    api.apply(&custom(BLOCK))?;
    says(&[], has_block)?;
    api.delete(&custom(""))?;
    api.delete(&corefile(""))
}

/// helm as an administrator of the first API server runs it.
struct Helm<'a> {
    world: &'a World,
    program: PathBuf,
    kubeconfig: PathBuf,
    charts: Copies,
}

impl<'a> Helm<'a> {
    fn new(world: &'a World) -> Result<Self> {
        let program = Programs::from_env().find("helm")?;
        let charts = Copies::new(&program, CHARTS.as_ref(), &str::to_owned)?;
        Ok(Self { world, program, kubeconfig: world.east.administrator()?, charts })
    }

    /// The objects of a release with these values, and the types.
    fn render(&self, values: &[&str]) -> Result<Vec<Value>> {
        let mut helm = Command::new(&self.program);
        // helm's own default depends on who built it.
        helm.args(["template", "mcs", "--include-crds", "--kube-version", "1.36.0"]);
        let mut documents = documents(&self.run(&mut helm, values)?)?;
        // Some templates are nothing but comments.
        documents.retain(|document| !document.is_null());
        Ok(documents)
    }

    /// What `helm install` prints if it only asks the API server.
    fn install(&self, values: &[&str]) -> Result<String> {
        let mut helm = self.world.network.node.netns.command(&self.program);
        helm.args(["install", "mcs", "--dry-run=server", "--take-ownership"]);
        helm.arg("--kubeconfig").arg(&self.kubeconfig);
        self.run(&mut helm, values)
    }

    fn run(&self, helm: &mut Command, values: &[&str]) -> Result<String> {
        // Without what a user has set for work of their own.
        helm.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        helm.env("HOME", self.world.run.directory());
        helm.arg(self.charts.path("mcs")).args(["--namespace", NAMESPACE]);
        helm.args(values.iter().flat_map(|value| ["--set", value]));
        process::run(helm, "")
    }
}
