//! What is shipped to deploy, as a real API server sees it.

use mcs_agent::core::{kernel::loader::capacity_within, model::Memory};
use mcs_tests::{
    agent::{CAPABILITIES, CAPABILITY_FOR_STALE_UDP},
    cluster::Programs,
};

use crate::prelude::*;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const NAMESPACE: &str = "mcs-system";

/// The API of the Prometheus Operator.
const OPERATOR: &str = "monitoring.coreos.com/v1";

/// Values other than the chart's own, of every kind that a template asks for.
const VALUES: &str = r#"
image: {repository: registry.example/mcs-agent, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
nameOverride: dataplane
fullnameOverride: clusterset-dataplane
commonLabels: {example.org/team: network}
uninstall: {timeoutSeconds: 60}
capacity: {memory: 1Gi, flows: 256}
import: {group: example.org, selector: "shop=cart,tier in (web,api)"}
clusterId: east
adopt: [antrea, gke, karmada]
vipCidrs: [10.99.0.0/16, "fd99::/64"]
serviceCidrs: [10.96.0.0/16, "fd96::/108"]
podCidrs: [10.244.0.0/16, "fd44::/64"]
apiServer: {host: api.example, port: 6443}
socketLb: "off"
tc: {mode: "on", devices: ["cali*", "!veth0*"], attach: clsact}
uplinks: [none]
staleUdp: {enabled: true, namespaces: /run/docker/netns}
orphan: {policy: release, afterSeconds: 600}
log: {format: human, filter: "warn,mcs_agent=debug"}
health: {address: "off"}
metrics: {address: "[::]:16451", podMonitor: {enabled: true, labels: {release: prometheus}}}
alerts: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, annotations: {grafana_folder: Networking}}
host: {bpffs: /run/bpf, cgroup: /run/cgroup2, runDirectory: /run/mcs-agent}
cgroup: /kubepods
extraCapabilities: [SYS_RESOURCE]
seccompProfile: {type: Localhost, localhostProfile: mcs-agent.json}
seLinuxOptions: {type: spc_t}
resources: {requests: {cpu: 1}, limits: {memory: 1Gi, cpu: 2}}
priorityClassName: system-cluster-critical
criticalPodsQuota: true
updateStrategy: {type: OnDelete, rollingUpdate: null}
tolerations: [{key: edge, operator: Exists, effect: NoSchedule}]
nodeSelector: {pool: blue}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: DoesNotExist}]}]}}}
podLabels: {team: network}
podAnnotations: {example.org/note: "yes"}
extraArgs: [--log-programs]
extraEnv: [{name: MCS_ZONE, value: a}]
extraVolumes: [{name: manifests, configMap: {name: imports}}]
extraVolumeMounts: [{name: manifests, mountPath: /etc/mcs}]
minReadySeconds: 5
serviceAccount: {name: reader, annotations: {example.org/role: reader}}
"#;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the chart and the kustomize bases are the same objects", bases_are_the_chart);
    suite.case("the chart passes the API server, whatever its values", chart_is_valid);
    suite.case("two releases of the chart share no object", releases_coexist);
    suite.case("monitoring has the job that the alerts ask for", monitoring);
    suite.case("a release without account and rights has neither", without_rights);
    suite.case("the chart's memory follows the capacity", memory_follows);
    suite.case("the chart refuses values that it does not know", chart_refuses);
}

fn bases_are_the_chart(_: &mut World) -> Result {
    let base = kustomize("base")?;
    // Helm alone runs the hook, and needs its account.
    let without_hook = "--set=uninstall.cleanup=false";
    ensure!(base == helm(&["--set=namespace.create=true", without_hook])?);
    let daemonset = |objects: BTreeMap<String, Value>| {
        objects
            .into_iter()
            .find(|(name, _)| name.starts_with("DaemonSet"))
            .map(|(_, object)| object)
    };
    let cleanup = daemonset(helm(&["--set=cleanup=true"])?);
    ensure!(daemonset(kustomize("cleanup")?) == cleanup && cleanup.is_some());

    let stale_udp = daemonset(helm(&["--set=staleUdp.enabled=true"])?);
    let cases = [
        (daemonset(base), &CAPABILITIES.to_vec()),
        (stale_udp, &[&CAPABILITIES[..], &[CAPABILITY_FOR_STALE_UDP]].concat()),
        (cleanup, &CAPABILITIES.to_vec()),
    ];
    for (daemonset, tested) in cases {
        let daemonset = daemonset.context("no DaemonSet")?;
        let container = &daemonset["spec"]["template"]["spec"]["containers"][0];
        let added = &container["securityContext"]["capabilities"]["add"];
        let tested: Vec<_> = tested.iter().map(|name| name.to_uppercase()).collect();
        ensure!(*added == json!(tested), "tested without {added}");
    }
    Ok(())
}

fn chart_is_valid(world: &mut World) -> Result {
    let values = world.run.directory().join("values.yaml");
    std::fs::write(&values, VALUES)?;
    let values = format!("--values={}", values.display());
    for arguments in [
        &[][..],
        &["--set=cleanup=true"],
        &["--set=uninstall.cleanup=false"],
        &[&values],
        &[&values, "--set=cleanup=true"],
    ] {
        let objects = helm(arguments)?;
        ensure!(objects.len() >= 4, "{objects:?}");
        // Nobody here has the types of the Prometheus Operator.
        for object in objects.values().filter(|object| object["apiVersion"] != OPERATOR) {
            world.east.api.would_apply(object).with_context(|| format!("{arguments:?}"))?;
        }
    }
    // It is the only one without a namespace that has to be there.
    world.east.api.would_apply(&helm(&["--set=namespace.create=true"])?["Namespace mcs-system"])
}

fn releases_coexist(_: &mut World) -> Result {
    let main = release("mcs-agent", &[])?;
    let canary = release("canary", &["--set=nodeSelector.pool=canary"])?;
    let shared: Vec<_> = canary.keys().filter(|name| main.contains_key(*name)).collect();
    ensure!(shared.is_empty(), "both releases have {shared:?}");
    ensure!(canary.contains_key("DaemonSet canary-mcs-agent"), "{:?}", canary.keys());
    let selector = |objects: &BTreeMap<String, Value>, name: &str| {
        objects[name]["spec"]["selector"]["matchLabels"].clone()
    };
    let selectors =
        [selector(&main, "DaemonSet mcs-agent"), selector(&canary, "DaemonSet canary-mcs-agent")];
    ensure!(selectors[0] != selectors[1], "both select {}", selectors[0]);
    // A pod of the hook is no pod of the DaemonSet.
    let job = &main["Job mcs-agent-cleanup"]["spec"]["template"]["metadata"]["labels"];
    let name = "app.kubernetes.io/name";
    ensure!(job[name] != selectors[0][name], "{job}");
    Ok(())
}

fn monitoring(_: &mut World) -> Result {
    let all = ["metrics.podMonitor.enabled", "alerts.enabled", "dashboard.enabled"]
        .map(|value| format!("--set={value}=true"));
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let unreachable = helm(&all).err().context("metrics on loopback are scraped")?.to_string();
    ensure!(unreachable.contains("set metrics.address=[::]:16451"), "{unreachable}");
    let objects = helm(&[&all[..], &["--set=metrics.address=[::]:16451"]].concat())?;
    let endpoint = &objects["PodMonitor mcs-agent"]["spec"]["podMetricsEndpoints"][0];
    let ports =
        &objects["DaemonSet mcs-agent"]["spec"]["template"]["spec"]["containers"][0]["ports"];
    ensure!(endpoint["port"] == ports[0]["name"], "{endpoint} and {ports}");
    let job = &endpoint["relabelings"][0];
    ensure!(job["targetLabel"] == "job", "{job}");
    let rules = objects["PrometheusRule mcs-agent"]["spec"].to_string();
    let jobs: Vec<_> =
        rules.split("job=\\\"").skip(1).filter_map(|rest| rest.split('\\').next()).collect();
    ensure!(jobs.len() > 3 && jobs.iter().all(|asked| job["replacement"] == *asked), "{jobs:?}");
    let dashboard = objects["ConfigMap mcs-agent-dashboard"]["data"]["mcs-agent.json"].as_str();
    let dashboard: Value = serde_json::from_str(dashboard.context("no dashboard")?)?;
    ensure!(dashboard["title"] == "mcs-agent", "{dashboard}");
    Ok(())
}

fn without_rights(_: &mut World) -> Result {
    let objects = helm(&[
        "--set=serviceAccount.create=false,serviceAccount.name=own,rbac.create=false",
        "--set=uninstall.cleanup=false",
    ])?;
    ensure!(objects.len() == 1, "{:?}", objects.keys());
    let pod = &objects["DaemonSet mcs-agent"]["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == "own", "{pod}");
    Ok(())
}

fn memory_follows(_: &mut World) -> Result {
    let memory = |capacity: &str| {
        let objects = helm(&[&format!("--set={capacity}")])?;
        let pod = &objects["DaemonSet mcs-agent"]["spec"]["template"]["spec"];
        let resources = &pod["containers"][0]["resources"];
        let of = |kind: &str| {
            let memory = resources[kind]["memory"].as_str();
            let mebibytes = memory.and_then(|memory| memory.strip_suffix("Mi"));
            Ok::<u64, anyhow::Error>(mebibytes.context("no Mi")?.parse()?)
        };
        Ok::<_, anyhow::Error>((of("requests")?, of("limits")?))
    };
    // Two entries of 208 bytes each: 416 MiB for each 1,048,576.
    let (less, more) = (memory("capacity.flows=524288")?, memory("capacity.flows=1572864")?);
    ensure!((more.0 - less.0, more.1 - less.1) == (416, 416), "{less:?} and {more:?}");
    for text in ["100Ki", "32Mi", "256Mi", "3Gi"] {
        let (request, limit) = memory(&format!("capacity.memory={text}"))?;
        let maps: Memory = text.parse()?;
        let most = capacity_within(maps);
        let objects = 6144 * u64::from(most.frontends) + 384 * u64::from(most.endpoints);
        let flows = 416 * 65_536;
        let expected = 44 + 55 + (2 * maps.0 + objects + flows).div_ceil(1 << 20);
        ensure!(limit.abs_diff(expected) <= 1, "{text}: {limit} instead of {expected} MiB");
        ensure!(request <= limit, "{text}: {request} of {limit} MiB are requested");
    }
    Ok(())
}

fn chart_refuses(_: &mut World) -> Result {
    for value in [
        "capacity.flow=1",
        "capacity.flows=1",
        "capacity.memory=1.5Gi",
        "tc.mode=maybe",
        "imag.tag=1",
        "fullnameOverride=Upper",
        "updateStrategy.rollingUpdate.maxSurge=1",
    ] {
        let refused = helm(&[&format!("--set={value}")]);
        ensure!(refused.is_err(), "{value} is taken");
    }
    Ok(())
}

/// The chart's objects, by kind and name.
pub(crate) fn helm(arguments: &[&str]) -> Result<BTreeMap<String, Value>> {
    release("mcs-agent", arguments)
}

/// The objects of a release of that name.
fn release(name: &str, arguments: &[&str]) -> Result<BTreeMap<String, Value>> {
    let mut helm = Command::new(Programs::from_env().find("helm")?);
    helm.args(["template", name, "deploy/helm/mcs-agent", "--namespace", NAMESPACE]);
    // helm's own default depends on who built it.
    helm.args(["--kube-version", "1.36.0"]);
    objects(helm.args(arguments))
}

/// The objects of an overlay, by kind and name.
fn kustomize(overlay: &str) -> Result<BTreeMap<String, Value>> {
    let mut kubectl = Command::new(Programs::from_env().find("kubectl")?);
    objects(kubectl.arg("kustomize").arg(Path::new("deploy/kustomize").join(overlay)))
}

fn objects(command: &mut Command) -> Result<BTreeMap<String, Value>> {
    let output = command.current_dir(REPOSITORY).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let objects = documents(&String::from_utf8(output.stdout)?)?;
    let name = |object: &Value| {
        let (kind, name) = (object["kind"].as_str()?, object["metadata"]["name"].as_str()?);
        Some(format!("{kind} {name}"))
    };
    let named = |object| Ok((name(&object).context("an object without a name")?, object));
    objects.into_iter().map(named).collect()
}
