//! Faults that are drawn: packets, programs, maps, rights, DNS and objects of real clusters break. `mcs check` names each, and fails
//! no other row.

use std::sync::Arc;

use fastrand::Rng;

use crate::{
    chart_mcs::{answers_by_name, mcs, run, tool},
    prelude::*,
};

/// Each draws a fault of a node and one of a cluster.
const ROUNDS: usize = 50;
/// A service of the second cluster alone: clients of the first one leave it for an answer.
const FAR: &str = "far";
/// A service that breaks.
const BROKEN: &str = "broken";
/// What keeps a fault in place that the agent repairs: less than it takes for that.
const AGAIN: Duration = Duration::from_millis(100);
/// Nodes look again later whether they reach pods, and may tell of a fault that is over.
const LATE: &str = "reach";

/// A fault.
struct Fault {
    name: &'static str,
    /// The rows that may tell of it. One has to.
    rows: &'static [&'static str],
    begin: fn(&Spot<'_>) -> Result<Undo>,
}

/// Ends a fault.
type Undo = Box<dyn FnOnce(&Spot<'_>) -> Result>;

/// Where faults are.
struct Spot<'a> {
    world: &'a World,
    /// A node of the first cluster.
    node: Node,
    seed: u64,
}

/// What breaks on a node of the first cluster.
const OF_NODE: [Fault; 6] = [
    Fault {
        name: "packets beyond 1,400 bytes are lost",
        rows: &["large answers"],
        begin: |it| it.drops("prerouting", &it.of_peer("meta length > 1400")),
    },
    Fault {
        name: "packets of IPv4 are lost",
        rows: UNREACHED,
        begin: |it| it.drops("prerouting", &it.of_peer("")[..1]),
    },
    Fault {
        name: "packets of IPv6 are lost",
        rows: UNREACHED,
        begin: |it| it.drops("prerouting", &it.of_peer("")[1..]),
    },
    Fault {
        name: "packets to DNS are lost",
        rows: &["by name"],
        begin: |it| it.drops("output", &["udp", "tcp"].map(|of| format!("{of} dport 53"))),
    },
    Fault {
        name: "a program is detached",
        rows: &["agents", "by address", "by name"],
        begin: |it| {
            let pin = format!("{PINS}/links/connect{}", if it.seed % 2 == 0 { 4 } else { 6 });
            it.keeps(vec!["link".into(), "detach".into(), "pinned".into(), pin])
        },
    },
    Fault {
        name: "an entry of a map is deleted",
        rows: &["tables", "by address", "by name"],
        begin: |it| {
            let pinned = ["map", "dump", "pinned", FRONTENDS];
            let dump = process::run(it.node.command("bpftool").arg("-j").args(pinned), "")?;
            let dump: Vec<Value> = serde_json::from_str(&dump)?;
            let entry = Rng::with_seed(it.seed).choice(&dump).context("no frontend")?;
            let key = entry["key"].as_array().context("no key")?.iter().filter_map(Value::as_str);
            let words = ["map", "delete", "pinned", FRONTENDS, "key"].into_iter().chain(key);
            it.keeps(words.map(str::to_owned).collect())
        },
    },
];
const PINS: &str = "/sys/fs/bpf/mcs";
const FRONTENDS: &str = "/sys/fs/bpf/mcs/config/frontends";
const UNREACHED: &[&str] = &["by address", "by name", "pods", "large answers", "source address"];

/// What breaks in the second cluster, and by its API server.
const OF_CLUSTER: [Fault; 5] = [
    Fault {
        name: "the controller lacks its rights",
        rows: &["rights"],
        begin: |it| {
            let words = ["clusterrolebinding", "mcs-controller"];
            let mut binding = it.second().kubectl.get(&words)?;
            it.second().kubectl.run(&[&["delete"], &words[..]].concat())?;
            let metadata = &mut binding["metadata"];
            *metadata = json!({ "name": words[1], "labels": metadata["labels"], "annotations": metadata["annotations"] });
            Ok(Box::new(move |it| it.second().kubectl.apply(&binding.to_string())))
        },
    },
    Fault {
        name: "CoreDNS has no block of the zone",
        rows: &["dns configuration", "dns restart", "by name"],
        begin: |it| {
            it.dns("undo")?;
            Ok(Box::new(|it| {
                it.dns("apply")?;
                answers_by_name(it.world, it.second())
            }))
        },
    },
    Fault {
        name: "an export has no Service",
        rows: &["exports"],
        begin: |it| {
            it.second().export(BROKEN)?;
            Ok(Box::new(|it| ends(it.second())))
        },
    },
    Fault {
        name: "no pod has the port of a Service",
        rows: &["endpoints", "imports"],
        begin: |it| {
            it.second().service(BROKEN)?;
            let patch =
                r#"[{"op": "replace", "path": "/spec/ports/0/targetPort", "value": "none"}]"#;
            it.second().run(&["patch", "service", BROKEN, "--type=json", "--patch", patch])?;
            lacks_port(it.second())?;
            it.second().export(BROKEN)?;
            Ok(Box::new(|it| ends(it.second())))
        },
    },
    Fault {
        name: "an import is refused",
        rows: &["imports", "peer"],
        begin: |it| {
            let name = "no-imports";
            let objects = policy(name, BROKEN);
            it.second().kubectl.apply(&objects.to_string())?;
            let import = json!({
                "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
                "metadata": { "namespace": NAMESPACE, "name": BROKEN },
                "spec": { "type": "ClusterSetIP", "ports": [] },
            });
            wait::within(PATIENCE, "a policy to refuse an import", || {
                let words = ["apply", "--server-side", "--dry-run=server", "--filename", "-"];
                let kubectl = &mut it.second().kubectl.command();
                let tried = process::run(kubectl.args(words), &import.to_string());
                ensure!(
                    tried.is_err_and(|error| format!("{error:#}").contains(name)),
                    "it does not"
                );
                Ok(())
            })?;
            let first = &it.world.members[0];
            first.service(BROKEN)?;
            first.export(BROKEN)?;
            Ok(Box::new(move |it| {
                let kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding";
                it.second().kubectl.run(&["delete", kinds, name])?;
                ends(&it.world.members[0])?;
                let words = ["wait", "--for=condition=ImportsWritten", "clusterpeer", "--all"];
                it.second().kubectl.run(&words).map(drop)
            }))
        },
    },
];

/// A policy that refuses imports of this name.
fn policy(name: &str, import: &str) -> Value {
    let rule = json!({
        "apiGroups": ["multicluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["serviceimports"],
    });
    let of = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
            "spec": spec,
        })
    };
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": format!("object.metadata.name != '{import}'") }],
    });
    let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
    json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            of("ValidatingAdmissionPolicy", spec), of("ValidatingAdmissionPolicyBinding", binding),
        ],
    })
}

impl Spot<'_> {
    const fn second(&self) -> &Member {
        &self.world.members[1]
    }

    /// Matches packets of pods of the second cluster, in each family.
    fn of_peer(&self, also: &str) -> Vec<String> {
        let peer = self.second().node.map(|node| node.cluster.pods()).into_iter().flatten();
        peer.zip(["ip", "ip6"]).map(|(pods, of)| format!("{of} saddr {pods} {also}")).collect()
    }

    /// Drops what matches at a hook of the node.
    fn drops(&self, hook: &str, matches: &[String]) -> Result<Undo> {
        const TABLE: &str = "mcs-fault";
        let rules: Vec<_> = matches.iter().map(|one| format!("{one} drop;")).collect();
        let chain =
            format!("chain lost {{ type filter hook {hook} priority raw; {} }};", rules.join(" "));
        let table = format!("table inet {TABLE} {{ {chain} }};");
        process::run(self.node.command("nft").arg(table), "")?;
        Ok(Box::new(|it| {
            let words = ["delete", "table", "inet", TABLE];
            process::run(it.node.command("nft").args(words), "").map(drop)
        }))
    }

    /// Does this to the node by bpftool, again and again: the agent repairs it.
    fn keeps(&self, words: Vec<String>) -> Result<Undo> {
        process::run(self.node.command("bpftool").args(&words), "")?;
        let (node, stop) = (self.node, Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let keeper = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // What is not there cannot be taken away.
                let _ = node.command("bpftool").args(&words).output();
                thread::sleep(AGAIN);
            }
        });
        Ok(Box::new(move |it| {
            stop.store(true, Ordering::Relaxed);
            keeper.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))?;
            wait::within(PATIENCE, "the agent to repair it", || {
                agents::ask(&it.world.members[0], &["status"]).map(drop)
            })
        }))
    }

    fn dns(&self, verb: &str) -> Result {
        let kubeconfig = self.second().kubectl.kubeconfig();
        run(tool(self.world)?.args(["dns", verb]).arg(kubeconfig))?;
        let words = ["--namespace", "kube-system", "rollout", "status", "deployment", "coredns"];
        self.second().kubectl.run(&words).map(drop)
    }
}

/// Waits until no slice of the service that breaks has its port any more: before, nothing is broken.
fn lacks_port(member: &Member) -> Result {
    let selector = format!("kubernetes.io/service-name={BROKEN}");
    let words = ["endpointslices", "--selector", &selector];
    wait::within(PATIENCE, "slices without the port", || {
        let slices = member.get(&words)?["items"].take();
        let is_tcp = |port: &Value| port["protocol"] == "TCP";
        let has_port =
            |slice: &Value| slice["ports"].as_array().is_some_and(|all| all.iter().any(is_tcp));
        let slices = slices.as_array().context("no slices")?;
        ensure!(!slices.is_empty() && !slices.iter().any(has_port), "{slices:?}");
        Ok(())
    })
}

/// Takes the service that breaks away.
fn ends(member: &Member) -> Result {
    let words = ["delete", "serviceexport,service", BROKEN, "--ignore-not-found"];
    member.run(&words).map(drop)
}

/// Draws faults of both kinds together until each has been drawn once, and many more with `--full`.
pub(crate) fn are_named(world: &World) -> Result {
    let [first, second] = &world.members;
    second.service(FAR)?;
    second.export(FAR)?;
    let domain = format!("{FAR}.{NAMESPACE}.svc.clusterset.local:{TCP}");
    let client = Client::new(first, Place::Pod);
    wait::within(PATIENCE, "a service of another cluster", || client.ask("tcp", &domain))?;
    let seed = fastrand::u64(..);
    tell(format!("seed {seed}"));
    let mut rng = Rng::with_seed(seed);
    let (mut of_node, mut of_cluster): (Vec<_>, Vec<_>) = (vec![], vec![]);
    let mut misjudged = Vec::new();
    for _ in 0..ROUNDS {
        // Each is drawn before any is drawn again.
        let mut drawn = Vec::new();
        for (left, all) in [(&mut of_node, &OF_NODE[..]), (&mut of_cluster, &OF_CLUSTER)] {
            if left.is_empty() {
                left.extend(all);
                rng.shuffle(left);
            }
            drawn.extend(left.pop());
        }
        let node = *rng.choice(&first.nodes()).context("no node")?;
        let judged = round(&Spot { world, node, seed: rng.u64(..) }, &drawn)?;
        misjudged.extend(judged.err().map(|error| format!("{error:#}")));
    }
    second.run(&["delete", "serviceexport,service", FAR])?;
    let count = misjudged.len();
    ensure!(misjudged.is_empty(), "{count} of {ROUNDS} rounds:\n{}", misjudged.join("\n\n"));
    Ok(())
}

/// Breaks all of this, looks, and repairs it. Returns whether what `mcs check` says is right; fails if something stays broken.
fn round(place: &Spot<'_>, faults: &[&Fault]) -> Result<Result> {
    let names: Vec<_> = faults.iter().map(|fault| fault.name).collect();
    let names = format!("{} on {}", names.join("; "), place.node);
    let (mut broken, mut took) = (Vec::new(), Duration::ZERO);
    // A fault that has ended can be seen for a moment.
    wait::within(PATIENCE, "the clusters to be whole", || {
        let told = told(place)?;
        let is_left = |one: &&Value| one["ok"] == false && row(one) != LATE;
        let left: Vec<_> = told.iter().filter(is_left).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })?;
    let judged = (|| {
        for fault in faults {
            broken.push((fault.begin)(place).context(fault.name)?);
        }
        let start = Instant::now();
        let told = told(place)?;
        took = start.elapsed();
        judge(&told, faults)
    })();
    // Nothing stays broken.
    let ended: Vec<_> = broken.into_iter().map(|end| end(place)).collect();
    ended.into_iter().collect::<Result>().with_context(|| names.clone())?;
    let result = if judged.is_ok() { "" } else { "MISJUDGED " };
    tell(format!("{result}{:.1} s: {names}", took.as_secs_f64()));
    Ok(judged.context(names))
}

/// What `mcs check` tells of the clusters that is not well.
fn told(place: &Spot<'_>) -> Result<Vec<Value>> {
    let output = mcs(place.world, &["check"])?.args(["-o", "json"]).output()?;
    let mut findings = process::json_list(&output)?;
    findings.retain(|one| one["ok"] == false || one["warning"] == true);
    Ok(findings)
}

fn row(finding: &Value) -> &str {
    finding["check"].as_str().unwrap_or_default()
}

/// Fails unless a row tells of each fault, and all rows that fail do.
fn judge(told: &[Value], faults: &[&Fault]) -> Result {
    let text = |one: &Value| format!("{} {}: {}", one["cluster"], one["check"], one["message"]);
    let all = || told.iter().map(text).collect::<Vec<_>>().join("\n");
    for fault in faults {
        let is_named = told.iter().any(|one| fault.rows.contains(&row(one)));
        ensure!(is_named, "nothing tells that {}:\n{}", fault.name, all());
    }
    let is_right = |one: &&Value| {
        one["ok"] == true
            || row(one) == LATE
            || faults.iter().any(|fault| fault.rows.contains(&row(one)))
    };
    let wrong = told.iter().find(|one| !is_right(one)).map(text);
    ensure!(wrong.is_none(), "wrong: {}\nof all:\n{}", wrong.unwrap_or_default(), all());
    Ok(())
}
