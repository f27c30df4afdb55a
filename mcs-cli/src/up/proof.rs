//! The proof at the end of `mcs up`: a service of all clusters, to which a pod on every node connects by name.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use futures_util::{StreamExt as _, stream};
use mcs_controller::core::clusterset::{NamespaceRules, well_known};
use mcs_kube::{
    names,
    reach::{Found, Outcome, Target, Targets},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{interrupt::Interrupt, member::Member};
use crate::{
    check::{
        controller::arguments,
        pods::{
            ProbeArgs, run_pod,
            source::{self, Controller},
        },
    },
    cluster::{Cluster, DEPLOYMENTS, EXPORTS, IMPORTS, NAMESPACES, NODES, PODS, SERVICES, SLICES},
    fleet, progress, wait,
};

/// The service, whose endpoints are the controllers' pods, and the namespace of these.
const NAME: &str = "mcs-canary";
const CONTROLLERS: &str = well_known::CONTROLLER;
const PORT: u16 = 80;
/// How long it may take until the service is imported everywhere.
const IMPORTED_WITHIN: Duration = Duration::from_mins(1);
/// How long a changed configuration may take to reach CoreDNS: the kubelet's period, and that of `reload`.
const NAMED_WITHIN: Duration = Duration::from_mins(4);
/// How long one pod tries, in seconds.
const ATTEMPT: u64 = 30;
/// Connections of each pod: they go to endpoints at random.
const CONNECTIONS: usize = 8;
/// Nodes of a cluster that are tried, and how many at a time.
const NODES_OF_CLUSTER: usize = 100;
const NODES_AT_A_TIME: usize = 10;

/// The proof of a plan.
pub(super) struct Proof {
    /// The namespace of the service.
    namespace: String,
    /// Why there is no proof.
    left_out: Option<String>,
    /// Whether each cluster can export its service at least to itself.
    works_alone: bool,
}

impl Proof {
    /// Plans it. `wanted`: the namespace that somebody gives.
    ///
    /// # Errors
    /// Clusters do not accept the wanted namespace, or lack it.
    pub(super) async fn of(wanted: Option<&str>, members: &[&Member]) -> anyhow::Result<Self> {
        let namespace = wanted.unwrap_or(CONTROLLERS).to_owned();
        let refused = fleet::each(members, async |member: &&Member| {
            let deployment =
                member.cluster.get(DEPLOYMENTS, Some(CONTROLLERS), CONTROLLERS).await?;
            let of_own = exports_not(deployment.as_ref(), &namespace);
            let of_own = of_own.then(|| {
                let id = &member.cluster.id;
                format!("the controller of cluster {id} exports nothing of namespace {namespace}")
            });
            let id = &member.cluster.id;
            let others = members.iter().map(|other| other.cluster.id.as_str());
            let others = others.filter(|other| *other != id.as_str());
            let by_peer = refused(&member.peers, others, &namespace).map(|other| {
                format!(
                    "the ClusterPeer of {other} in cluster {id} does not allow namespace {namespace} (spec.namespaces)"
                )
            });
            anyhow::Ok((of_own, by_peer))
        });
        let refused = fleet::all_of(refused.await)?;
        let works_alone = refused.iter().all(|(of_own, _)| of_own.is_none());
        let left_out = refused.into_iter().find_map(|(of_own, by_peer)| of_own.or(by_peer));
        if wanted.is_some() {
            ensure!(left_out.is_none(), "--proof-namespace: {}", left_out.unwrap_or_default());
            for Member { cluster, .. } in members {
                let there = cluster.get(NAMESPACES, None, &namespace).await?;
                ensure!(
                    there.is_some(),
                    "--proof-namespace: cluster {} has no namespace {namespace}",
                    cluster.id
                );
            }
        }
        Ok(Self { namespace, left_out, works_alone })
    }

    pub(super) fn text(&self) -> String {
        let Self { namespace, left_out, .. } = self;
        match left_out {
            None => format!("every node connects to {namespace}/{NAME} of all clusters, by name"),
            Some(why) => {
                format!("left out: {why}. Give --proof-namespace with one that all allow")
            }
        }
    }

    pub(super) const fn is_left_out(&self) -> bool {
        self.left_out.is_some()
    }

    pub(super) const fn works_alone(&self) -> bool {
        self.works_alone
    }

    /// Proves that every node of every cluster reaches a service of all by name. Says of each cluster what was found. The service
    /// is gone in either case.
    pub(super) async fn of_members(
        &self,
        members: &[&Member],
        interrupt: &Interrupt,
    ) -> Vec<anyhow::Result<String>> {
        let proof = async { Ok(self.try_members(members).await) };
        let interrupted = |error| members.iter().map(|_| Err(anyhow!("{error}"))).collect();
        let proven: Vec<_> = interrupt.or_work(proof).await.unwrap_or_else(interrupted);
        let withdrawn = fleet::each(members, async |member: &&Member| self.withdraw(member).await);
        let both = proven.into_iter().zip(withdrawn.await);
        both.map(|(proven, withdrawn)| proven.and_then(|line| withdrawn.map(|()| line))).collect()
    }

    async fn try_members(&self, members: &[&Member]) -> Vec<anyhow::Result<String>> {
        let exported =
            fleet::each(members, async |member: &&Member| self.export(&member.cluster).await);
        let exported = exported.await;
        let sources = members.iter().zip(&exported).filter(|(_, exported)| exported.is_ok());
        let sources: BTreeSet<&str> =
            sources.map(|(member, _)| member.cluster.id.as_str()).collect();
        let end = Instant::now() + IMPORTED_WITHIN;
        let controllers = fleet::each(members, async |member: &&Member| {
            Controller::of(&member.cluster, CONTROLLERS).await
        });
        let controllers = &*controllers.await;
        let work = members.iter().zip(exported);
        let proven =
            fleet::each(work, async |(member, exported): (&&Member, anyhow::Result<()>)| {
                exported?;
                self.imported(&member.cluster, &sources, end).await?;
                self.connects(member, controllers).await
            });
        proven.await
    }

    /// Makes the service of the controller's own pods, and exports it.
    async fn export(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let namespace = &self.namespace;
        let deployment = cluster.get(DEPLOYMENTS, Some(CONTROLLERS), CONTROLLERS).await?;
        let deployment = deployment
            .with_context(|| format!("there is no Deployment {CONTROLLERS}/{CONTROLLERS}"))?;
        cluster.apply(SERVICES, service(namespace, &deployment)).await?;
        if namespace != CONTROLLERS {
            let service = cluster.get(SERVICES, Some(namespace), NAME).await?.unwrap_or_default();
            let pods = cluster.list_in(PODS, Some(CONTROLLERS), &selector(&deployment)).await?;
            cluster.apply(SLICES, slice(namespace, &service, &pods)).await?;
        }
        cluster.apply(EXPORTS, json!({"metadata": {"namespace": namespace, "name": NAME}})).await
    }

    async fn withdraw(&self, Member { cluster, .. }: &Member) -> anyhow::Result<()> {
        let namespace = Some(&*self.namespace);
        cluster.delete(EXPORTS, namespace, NAME).await?;
        // Its slice goes with it where a garbage collector runs, and at once.
        cluster.delete(SERVICES, namespace, NAME).await?;
        if self.namespace == CONTROLLERS {
            return Ok(());
        }
        cluster.delete(SLICES, namespace, NAME).await
    }

    /// Waits until a cluster has imported the service from all.
    async fn imported(
        &self,
        cluster: &Cluster,
        all: &BTreeSet<&str>,
        end: Instant,
    ) -> anyhow::Result<()> {
        let service = format!("{}/{NAME}", self.namespace);
        let import = async || {
            let import =
                cluster.get(IMPORTS, Some(&self.namespace), NAME).await?.unwrap_or_default();
            let sources = import["status"]["clusters"].as_array().into_iter().flatten();
            let sources: BTreeSet<&str> =
                sources.filter_map(|one| one["cluster"].as_str()).collect();
            Ok(all.is_subset(&sources).then_some(()).ok_or_else(|| {
                format!(
                    "cluster {} has imported {service} from {sources:?} alone: `mcs explain {service}` says why",
                    cluster.id
                )
            }))
        };
        wait::patiently(end, import).await
    }

    /// Connects from every node, and asks the controllers of other clusters which source addresses they see.
    async fn connects(
        &self,
        member: &Member,
        controllers: &[Controller],
    ) -> anyhow::Result<String> {
        let cluster = &member.cluster;
        let target = if member.dns.is_some() {
            format!("{}:{PORT}", names::of(&self.namespace, NAME))
        } else {
            let import =
                cluster.get(IMPORTS, Some(&self.namespace), NAME).await?.unwrap_or_default();
            let vip =
                import["spec"]["ips"][0].as_str().context("its import has no ClusterSetIP")?;
            if vip.contains(':') { format!("[{vip}]:{PORT}") } else { format!("{vip}:{PORT}") }
        };
        named(cluster, &target).await?;
        let nodes = cluster.list(NODES).await?;
        let ready: Vec<&str> = nodes.iter().filter_map(ready_name).take(NODES_OF_CLUSTER).collect();
        let asked = source::to_ask(&cluster.id, controllers);
        let ask: Vec<_> = asked.iter().map(|(_, address)| *address).collect();
        let attempts = ready.iter().map(|node| attempt(cluster, &target, &ask, Some(node)));
        let attempts: Vec<_> = stream::iter(attempts).buffered(NODES_AT_A_TIME).collect().await;
        let (mut lost, mut sources) = (Vec::new(), Vec::new());
        for (node, attempt) in ready.iter().zip(attempts) {
            match attempt {
                Ok(found) if found.outcomes.iter().all(|one| *one == Outcome::Answered) => {
                    sources.extend(asked.iter().copied().zip(found.sources));
                }
                Ok(found) => lost.push(format!("node {node}: {}", said(&target, &found.outcomes))),
                Err(error) => lost.push(format!("node {node}: {error:#}")),
            }
        }
        ensure!(
            lost.is_empty(),
            "{} of {} nodes do not reach it: {}",
            lost.len(),
            ready.len(),
            lost.join("; ")
        );
        let others = match nodes.len() - ready.len() {
            0 => String::new(),
            others => {
                format!(" ({others} more were not tried: not ready, or beyond {NODES_OF_CLUSTER})")
            }
        };
        let (asked, sources): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
        let seen = source::seen(&asked, &sources).into_iter().map(|seen| seen.text);
        let all = ready.len();
        let connected = format!("{}: {all} of {all} nodes connect to {target}{others}", cluster.id);
        Ok([connected].into_iter().chain(seen).collect::<Vec<_>>().join("; "))
    }
}

/// The first of these clusters from which a cluster would not import the service, by its ClusterPeers.
fn refused<'a>(
    peers: &[Value],
    mut others: impl Iterator<Item = &'a str>,
    namespace: &str,
) -> Option<&'a str> {
    let allows = |other: &str| {
        let peer = peers.iter().find(|peer| peer["spec"]["clusterId"] == *other);
        let rules = peer.map(|peer| serde_json::from_value(peer["spec"]["namespaces"].clone()));
        // A ClusterPeer that says nothing, or is yet to be made, has the rules by default.
        let rules: NamespaceRules = rules.and_then(Result::ok).unwrap_or_default();
        rules.allows(namespace)
    };
    others.find(|other| !allows(other))
}

/// Whether a controller's flags keep it from exporting services of a namespace.
fn exports_not(deployment: Option<&Value>, namespace: &str) -> bool {
    let Some(deployment) = deployment else { return !NamespaceRules::default().allows(namespace) };
    let listed = |flag: &str| {
        let said =
            arguments(deployment).find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
        said.map(|said| {
            said.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let default = NamespaceRules::default();
    let rules = NamespaceRules {
        allow: listed("--export-namespaces").unwrap_or(default.allow),
        deny: listed("--no-export-namespaces").unwrap_or(default.deny),
    };
    !rules.allows(namespace)
}

/// In another namespace than the pods', the service has no selector, and a slice of its own.
fn service(namespace: &str, deployment: &Value) -> Value {
    let mut service = json!({
        "metadata": {"namespace": namespace, "name": NAME},
        "spec": {"ports": [{"name": "health", "port": PORT, "targetPort": "health"}]},
    });
    if namespace == CONTROLLERS {
        service["spec"]["selector"] = deployment["spec"]["selector"]["matchLabels"].clone();
    }
    service
}

/// The selector of a Deployment's pods, for a list.
fn selector(deployment: &Value) -> String {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<_> =
        labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    labels.join(",")
}

/// The ready pods of a controller, as endpoints of the service.
fn slice(namespace: &str, service: &Value, pods: &[Value]) -> Value {
    let family = service["spec"]["ipFamilies"][0].as_str().unwrap_or("IPv4");
    let is_of_family = |address: &&str| address.contains(':') == (family == "IPv6");
    let address = |pod: &Value| {
        let all = pod["status"]["podIPs"].as_array()?;
        all.iter().filter_map(|one| one["ip"].as_str()).find(is_of_family).map(str::to_owned)
    };
    let ready = pods.iter().filter(|pod| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    });
    let endpoints: Vec<_> = ready
        .filter_map(address)
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    let ports =
        pods.iter().flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
    let ports = ports.flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let health = ports.into_iter().find(|port| port["name"] == "health");
    let port = health.map(|port| port["containerPort"].clone());
    json!({
        "metadata": {
            "namespace": namespace, "name": NAME,
            "labels": {well_known::SLICE_SERVICE: NAME, well_known::SLICE_MANAGED_BY: "mcs-up"},
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": "health", "protocol": "TCP", "port": port}],
    })
}

/// Waits until the name is known and answered from one pod.
async fn named(cluster: &Cluster, target: &str) -> anyhow::Result<()> {
    let answer = async || {
        let Found { outcomes, .. } = attempt(cluster, target, &[], None).await?;
        if outcomes.iter().all(|one| *one == Outcome::Answered) {
            return Ok(Ok(()));
        }
        let said = said(target, &outcomes);
        progress::say(cluster.id.as_str(), &said)?;
        Ok(Err(format!("{said}: `mcs check` says what is missing")))
    };
    Box::pin(wait::until(Instant::now() + NAMED_WITHIN, answer)).await
}

async fn attempt(
    cluster: &Cluster,
    target: &str,
    ask: &[SocketAddr],
    node: Option<&str>,
) -> anyhow::Result<Found> {
    let target: Target = target.parse().map_err(anyhow::Error::msg)?;
    let targets = Targets::new(vec![target; CONNECTIONS], ask.to_vec());
    let targets = Targets { wait: ATTEMPT, ..targets };
    run_pod(cluster, &ProbeArgs::in_namespace(CONTROLLERS), &targets, node)
        .await?
        .map(|(found, _)| found)
        .map_err(|why| anyhow!(why))
}

fn said(target: &str, outcomes: &[Outcome]) -> String {
    let failed: Vec<_> = outcomes.iter().filter(|one| **one != Outcome::Answered).collect();
    let what = failed.first().map_or("answers", |outcome| outcome.text());
    format!("{target} {what}, in {} of {} attempts", failed.len(), outcomes.len())
}

/// The name of a node on which pods can run.
fn ready_name(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    (ready["status"] == "True").then(|| node["metadata"]["name"].as_str()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_has_the_pods_of_the_controller() {
        let labels = json!({"app": "x", "b": "y"});
        let deployment = json!({"spec": {"selector": {"matchLabels": labels}}});
        let service = service(CONTROLLERS, &deployment);
        assert_eq!(service["spec"]["selector"], json!({"app": "x", "b": "y"}));
        assert_eq!(service["spec"]["ports"][0]["targetPort"], "health");
        assert_eq!(selector(&deployment), "app=x,b=y");
        assert!(super::service("shop", &deployment)["spec"]["selector"].is_null());
    }

    #[test]
    fn a_service_elsewhere_has_the_ready_pods_of_its_family() {
        let pod = |ready: &str, ips: &[&str]| {
            let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            let port = json!({"name": "health", "containerPort": 16461});
            json!({
                "spec": {"containers": [{"ports": [port]}]},
                "status": {"podIPs": ips, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let pods = [pod("True", &["10.1.0.1", "fd01::1"]), pod("False", &["10.1.0.2"])];
        let of = |family: &str| slice("shop", &json!({"spec": {"ipFamilies": [family]}}), &pods);
        let v4 = of("IPv4");
        assert_eq!(v4["endpoints"].as_array().unwrap().len(), 1);
        assert_eq!(v4["endpoints"][0]["addresses"], json!(["10.1.0.1"]));
        assert_eq!(v4["ports"][0]["port"], 16461);
        assert_eq!(v4["metadata"]["labels"][well_known::SLICE_SERVICE], NAME);
        assert_eq!(of("IPv6")["endpoints"][0]["addresses"], json!(["fd01::1"]));
    }

    #[test]
    fn peers_that_allow_other_namespaces_leave_the_proof_out() {
        let peer = |id: &str, rules: Value| json!({"spec": {"clusterId": id, "namespaces": rules}});
        let rules = json!({"allow": ["shop", "proofs"], "deny": ["default"]});
        let peers = [peer("west", rules), peer("south", Value::Null)];
        let of =
            |others: &[&'static str], namespace| refused(&peers, others.iter().copied(), namespace);
        assert_eq!(of(&["south", "west"], CONTROLLERS), Some("west"));
        assert_eq!(of(&["south", "north"], CONTROLLERS), None);
        assert_eq!(of(&["south", "west", "north"], "proofs"), None);
        assert_eq!(of(&["north"], "kube-system"), Some("north"), "it will have the default");
    }

    #[test]
    fn a_controller_that_exports_other_namespaces_alone_is_known() {
        let of = |words: &[&str]| json!({"spec": {"template": {"spec": {"containers": [{"args": words}]}}}});
        assert!(!exports_not(None, CONTROLLERS) && exports_not(None, "default"));
        assert!(!exports_not(Some(&of(&["run"])), CONTROLLERS));
        assert!(exports_not(Some(&of(&["run", "--export-namespaces=shop,bank-*"])), CONTROLLERS));
        assert!(!exports_not(Some(&of(&["--export-namespaces=shop,bank-*"])), "bank-1"));
        assert!(exports_not(Some(&of(&["--no-export-namespaces=mcs-*"])), CONTROLLERS));
    }

    #[test]
    fn what_fails_is_told_with_its_share() {
        let outcomes = [Outcome::Answered, Outcome::Timeout, Outcome::Timeout];
        assert_eq!(said("web:80", &outcomes), "web:80 does not answer, in 2 of 3 attempts");
    }

    #[test]
    fn pods_run_on_ready_nodes() {
        let node = |status: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert_eq!(ready_name(&node("True")), Some("n"));
        assert_eq!(ready_name(&node("Unknown")), None);
    }
}
