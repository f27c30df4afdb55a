//! Whether clients on each node get what they should: answers of ClusterSetIPs, by name, and of 64 KiB, and full packets. Its agent tries it when it
//! is asked. And one row for all nodes that say the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use anyhow::{bail, ensure};
use mcs_controller::core::clusterset::ClusterId;
use mcs_kube::{
    reach::{Found, Outcome, Target, Targets},
    reasons::ClusterCheck,
    told,
};
use tokio::time::Instant;

use super::{
    Finding, Unknown, Warning,
    chain::{Facts, Table, Unread, What},
    listed,
    pods::{
        by_name::{self, Service},
        judge_large, sample,
        source::{self, Controller},
    },
};
use crate::{
    agent_pod::{AgentPod, PATIENCE, within},
    cluster::Cluster,
    dns,
    explain::cluster_dns,
    fleet,
};

/// The agents of a cluster that try at a time.
const AGENTS: usize = 16;

/// The pods of other clusters to which full packets are tried.
const FULL: usize = 32;

/// What agents of a cluster try, and what they have found.
#[derive(Debug, Default)]
pub(super) struct Proof {
    services: Vec<Service>,
    /// The controllers that are asked for a large answer.
    asked: Vec<(ClusterId, SocketAddr)>,
    /// The pods to which full packets are tried, in different networks.
    full: Vec<(ClusterId, SocketAddr)>,
    dns_server: Option<IpAddr>,
    /// Why no name is looked up.
    unnamed: Option<String>,
    /// By node.
    said: Vec<(String, anyhow::Result<Found>)>,
}

/// The tables of agents, by node.
type Tables = BTreeMap<String, Result<Table, Unread>>;
/// What was tried, and its outcome.
type Tried = (Target, Outcome);

impl Proof {
    /// Chooses what is tried.
    pub(super) async fn of(cluster: &Cluster, facts: &Facts, controllers: &[Controller]) -> Self {
        let read = |what| facts.read(what).unwrap_or_default();
        let services = by_name::of_each_source(read(What::Imports), read(What::Slices));
        let full = sample::of_each_source(read(What::Slices), &cluster.id, FULL);
        let asked = source::to_ask(&cluster.id, controllers).into_iter();
        let asked = asked.map(|(by, address)| (by.clone(), address)).collect();
        let cache = dns::link_local_nameserver(cluster).await.ok().flatten();
        let (dns_server, unnamed) = match cache {
            Some(cache) => (Some(cache), None),
            None => match cluster_dns(cluster).await {
                Ok(server) => (Some(server), None),
                Err(why) => (None, Some(why)),
            },
        };
        Self { services, asked, full, dns_server, unnamed, said: vec![] }
    }

    pub(super) fn services(&self) -> &[Service] {
        &self.services
    }

    fn targets(&self) -> Targets {
        let of = |service: &Service| {
            let name = self.dns_server.map(|_| service.target.clone());
            let vips = service.vips.iter().map(|vip| Target::Address(*vip));
            vips.chain(name).collect::<Vec<_>>()
        };
        let ask = self.asked.iter().map(|(_, address)| *address).collect();
        let targets = Targets::new(self.services.iter().flat_map(of).collect(), ask);
        let full = self.full.iter().map(|(_, address)| *address).collect();
        Targets { full, dns_server: self.dns_server, ..targets }
    }

    /// Lets the agents of these pods try it.
    pub(super) async fn ask(&mut self, cluster: &Cluster, pods: &[AgentPod], end: Instant) {
        let targets = self.targets();
        if targets.is_empty() {
            return;
        }
        let words = targets.words();
        let words: Vec<_> = ["probe"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let asked = fleet::each_of(AGENTS, pods, async |pod: &AgentPod| {
            let found = within(PATIENCE, end, pod.said::<Found>(cluster, &words)).await;
            let found = found.and_then(|found| {
                ensure!(found.is_of(&targets), "its agent does not say what became of each");
                Ok(found)
            });
            (pod.node.clone(), found)
        });
        self.said = asked.await;
    }

    /// The rows of each node.
    pub(super) fn findings(&self, cluster: &str, tables: &Tables) -> Vec<Finding> {
        let targets = self.targets().addresses;
        let results = |found: &Found| -> Vec<Tried> {
            targets.iter().cloned().zip(found.outcomes.iter().copied()).collect()
        };
        let all = self.said.iter().filter_map(|(_, found)| found.as_ref().ok()).flat_map(results);
        let answered = all.filter(|(_, outcome)| *outcome == Outcome::Answered);
        let answered: BTreeSet<_> = answered.map(|(target, _)| target.to_string()).collect();
        let is_tried = |check: &ClusterCheck| match check {
            ClusterCheck::ByAddress => !self.services.is_empty(),
            ClusterCheck::ByName => !self.services.is_empty() && self.dns_server.is_some(),
            _ => !(self.asked.is_empty() && self.full.is_empty()),
        };
        let checks = [ClusterCheck::ByAddress, ClusterCheck::ByName, ClusterCheck::LargeAnswers];
        let mut findings = Vec::new();
        for check in checks.into_iter().filter(is_tried) {
            for (node, found) in &self.said {
                let judged = match found {
                    Err(error) => Err(Unknown(told(error)).into()),
                    Ok(found) => match check {
                        ClusterCheck::ByAddress => {
                            by_address(&results(found), tables.get(node), &answered)
                        }
                        ClusterCheck::ByName => by_names(&results(found)),
                        _ => self.large(found),
                    },
                };
                findings.push(Finding::of_node(cluster, node, check, judged));
            }
        }
        if let (Some(why), false) = (&self.unnamed, self.services.is_empty()) {
            let untried = Unknown(format!("no node looks a name up: {why}"));
            findings.push(Finding::new(cluster, ClusterCheck::ByName, Err(untried.into())));
        }
        findings
    }

    /// Each path has the node of a controller or of a backend at its other end.
    fn large(&self, found: &Found) -> anyhow::Result<String> {
        let paths = self.asked.iter().zip(&found.large).chain(self.full.iter().zip(&found.full));
        let of = |arrives: bool| {
            let of = paths.clone().filter(|(_, one)| **one == Some(arrives));
            let of = of.map(|((by, address), _)| format!("{by} ({})", address.ip()));
            of.collect::<Vec<_>>()
        };
        let (fine, lost) = (of(true), of(false));
        if !lost.is_empty() {
            return judge_large(false).map_err(|error| error.context(listed(&lost)));
        }
        let unknown = "no controller of another cluster answers this node, which could be asked for 64 KiB, and no backend \
                       answers its echo requests";
        ensure!(!fine.is_empty(), Unknown(unknown.to_owned()));
        Ok(format!("full packets arrive from {}", listed(&fine)))
    }
}

/// What became of ClusterSetIPs. One without a backend in the node's table does not count: the row of the tables tells of it.
/// `answered`: what answers any node.
pub(super) fn by_address(
    results: &[Tried],
    table: Option<&Result<Table, Unread>>,
    answered: &BTreeSet<String>,
) -> anyhow::Result<String> {
    let table = match table {
        Some(Ok(table)) => table,
        Some(Err(unread)) => return Err(Unknown(unread.why.clone()).into()),
        None => return Err(Unknown("its table was not read".to_owned()).into()),
    };
    let is_served = |target: &Target| {
        table.services.frontends.iter().any(|one| {
            let id = &one.frontend;
            *target == Target::Address(SocketAddr::new(id.ip, id.port))
                && id.protocol.to_string() == "TCP"
                && !one.backends.is_empty()
        })
    };
    let tried = results.iter().filter(|(target, _)| is_served(target));
    let (fine, lost): (Vec<&Tried>, Vec<&Tried>) =
        tried.partition(|(_, outcome)| *outcome == Outcome::Answered);
    if lost.is_empty() {
        let none =
            || Unknown("no ClusterSetIP that is tried has a backend in its table".to_owned());
        let (first, _) = fine.first().ok_or_else(none)?;
        let all = fine.len();
        return Ok(format!("{all} of {all} ClusterSetIPs answer, such as {first}"));
    }
    let each: Vec<_> =
        lost.iter().map(|(target, outcome)| format!("{target} {}", outcome.text())).collect();
    let what = format!(
        "{} of {} ClusterSetIPs do not answer clients on this node, and its table has backends for them: {}",
        lost.len(),
        fine.len() + lost.len(),
        listed(&each)
    );
    let mut lost = lost.iter();
    let is_silent_everywhere = lost.all(|(target, outcome)| {
        *outcome == Outcome::Timeout && !answered.contains(&target.to_string())
    });
    if !fine.is_empty() && is_silent_everywhere {
        let why = "They answer no node: a policy may let pods pass alone";
        return Err(Warning(format!("{what}. {why}")).into());
    }
    bail!(
        "{what}. `mcs explain POD SERVICE --probe` says of a pod of this node which backends answer"
    )
}

/// What DNS says of names. Whether they answer then, the addresses tell.
pub(super) fn by_names(results: &[Tried]) -> anyhow::Result<String> {
    let names: Vec<_> =
        results.iter().filter(|(target, _)| matches!(target, Target::Name(_))).collect();
    let lost: Vec<_> = names.iter().filter(|(_, outcome)| outcome.is_of_dns()).collect();
    let (count, all) = (lost.len(), names.len());
    let Some((name, outcome)) = lost.first() else {
        return Ok(format!("DNS knows {all} of {all} names"));
    };
    let what = format!("{count} of {all} names");
    by_name::judge(name, *outcome).map_err(|error| error.context(what))
}

/// The findings to show: for nodes of a cluster with one result and the same words one stands, with the message for all. Where it
/// is fine, the words may differ.
pub(super) fn folded<'a>(findings: &[&'a Finding]) -> Vec<(&'a Finding, String)> {
    let key = |one: &Finding| {
        let node = one.node.as_ref()?;
        let said = one.message.strip_prefix(node)?.strip_prefix(": ")?;
        let said = if one.result() == "ok" { "" } else { said };
        Some((one.cluster.clone(), one.check.to_string(), one.result(), said.to_owned()))
    };
    let mut alike = BTreeMap::<_, Vec<String>>::new();
    for one in findings.iter().copied() {
        if let Some(key) = key(one) {
            alike.entry(key).or_default().extend(one.node.clone());
        }
    }
    let shown = findings.iter().copied().filter_map(|one| {
        let Some(key) = key(one) else { return Some((one, one.message.clone())) };
        let nodes = alike.remove(&key)?;
        let message = match (nodes.len(), key.2) {
            (1, _) => one.message.clone(),
            (count, "ok") => format!("each of {count} nodes, such as {}", one.message),
            _ => format!("{}: {}", listed(&nodes), key.3),
        };
        Some((one, message))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::{super::chain::world::world, *};

    fn results(all: &[(&str, Outcome)]) -> Vec<Tried> {
        all.iter().map(|(target, outcome)| (target.parse().unwrap(), *outcome)).collect()
    }

    #[test]
    fn a_node_whose_clients_get_no_answer_is_told_from_a_service_that_lets_nodes_not_in() {
        use Outcome::{Answered, Refused, Timeout};
        let table = world(1).remove(0).tables.remove("n1");
        let of = |all: &[(&str, Outcome)], answered: &[&str]| {
            let answered = answered.iter().map(|one| (*one).to_owned()).collect();
            by_address(&results(all), table.as_ref(), &answered)
        };
        let (web, admin) = ("241.0.0.1:80", "241.0.0.1:81");
        let fine = of(&[(web, Answered), ("241.0.0.9:80", Timeout)], &[]).unwrap();
        assert_eq!(fine, "1 of 1 ClusterSetIPs answer, such as 241.0.0.1:80", "the table has one");
        let elsewhere = of(&[(web, Answered), (admin, Timeout)], &[web, admin]).unwrap_err();
        assert!(!elsewhere.is::<Warning>(), "{elsewhere}");
        let expected = "1 of 2 ClusterSetIPs do not answer clients on this node, and its table has backends for them: 241.0.0.1:81 \
                        does not answer. ";
        assert!(elsewhere.to_string().starts_with(expected), "{elsewhere}");
        let nowhere = of(&[(web, Answered), (admin, Timeout)], &[web]).unwrap_err();
        assert!(nowhere.is::<Warning>(), "{nowhere}");
        for failed in [&[(web, Timeout)][..], &[(web, Answered), (admin, Refused)]] {
            assert!(!of(failed, &[]).unwrap_err().is::<Warning>());
        }
        assert!(of(&[("241.0.0.9:80", Timeout)], &[]).unwrap_err().is::<Unknown>());
        let unread = Err(Unread::unknown("no answer"));
        assert!(by_address(&[], Some(&unread), &BTreeSet::new()).unwrap_err().is::<Unknown>());
    }

    #[test]
    fn dns_alone_fails_a_name() {
        let fine = [("a.b:80", Outcome::Timeout), ("10.0.0.1:80", Outcome::Timeout)];
        assert_eq!(by_names(&results(&fine)).unwrap(), "DNS knows 1 of 1 names");
        let silent = [("a.b:80", Outcome::DnsSilent), ("c.d:80", Outcome::Answered)];
        let error = told(&by_names(&results(&silent)).unwrap_err());
        assert!(error.starts_with("1 of 2 names: a.b:80 cannot be looked up"), "{error}");
    }

    #[test]
    fn nodes_that_say_the_same_have_one_row() {
        let row = |node: &str, judged| Finding::of_node("c1", node, ClusterCheck::Reach, judged);
        let lost = || Err(anyhow::anyhow!("lost"));
        let pod = || Finding {
            node: Some("n1".to_owned()),
            ..Finding::new("c1", ClusterCheck::ByName, lost())
        };
        let all = [
            row("n1", lost()),
            row("n2", Ok("in 1 ms".to_owned())),
            row("n3", lost()),
            row("n4", Ok("in 2 ms".to_owned())),
            row("n5", Err(anyhow::anyhow!("other"))),
            pod(),
            pod(),
        ];
        let shown = folded(&all.iter().collect::<Vec<_>>());
        let shown: Vec<_> = shown.iter().map(|(_, message)| &**message).collect();
        let expected =
            ["n1; n3: lost", "each of 2 nodes, such as n2: in 1 ms", "n5: other", "lost", "lost"];
        assert_eq!(shown, expected);
    }
}
