//! The directions between the clusters of a link: what a reader has of a publisher, and what it lacks.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use ipnet::IpNet;
use jiff::Timestamp;
use mcs_controller::core::{clusterset::ClusterId, peers::token::TokenClaims};
use serde_json::Value;

use super::{
    LinkCommand,
    former::{Former, Formers, cluster_in, kubeconfig, pod_cidrs},
    halves::Publisher,
    hub,
};
use crate::{
    cluster::Cluster,
    fleet,
    pod_ranges::{PodRanges, joined},
    status::condition,
};

/// Which directions a command links.
#[derive(Debug, Default)]
pub(super) enum Scope {
    #[default]
    All,
    /// Those from and to these clusters.
    Of(BTreeSet<ClusterId>),
    /// Those that a plan has.
    Planned(LinkPlan),
}

/// What clusters lack to read each other. It is printed, and then carried out.
#[derive(Debug, Default, Clone)]
pub(crate) struct LinkPlan {
    /// A reader and a publisher, and why they are linked.
    pub(crate) pairs: BTreeMap<(ClusterId, ClusterId), String>,
    /// The clusters that get an account on the hub, and why.
    pub(crate) members: BTreeMap<ClusterId, String>,
}

impl LinkPlan {
    /// What a cluster lacks, as reader or as a member of a hub.
    pub(crate) fn of(&self, id: &ClusterId) -> Vec<String> {
        let account = self.members.get(id).map(|why| format!("an account on the hub ({why})"));
        let pairs = self.pairs.iter().filter(|((reader, _), _)| reader == id);
        let pairs = pairs.map(|((_, publisher), why)| format!("{publisher} ({why})"));
        account.into_iter().chain(pairs).collect()
    }
}

impl Scope {
    pub(super) fn has(&self, reader: &ClusterId, publisher: &ClusterId) -> bool {
        match self {
            Self::All => true,
            Self::Of(clusters) => clusters.contains(reader) || clusters.contains(publisher),
            Self::Planned(plan) => plan.pairs.contains_key(&(reader.clone(), publisher.clone())),
        }
    }

    /// Whether a cluster gets other credentials on a hub.
    pub(super) fn lets_in(&self, member: &ClusterId) -> bool {
        match self {
            Self::All => true,
            Self::Of(clusters) => clusters.contains(member),
            Self::Planned(plan) => plan.members.contains_key(member),
        }
    }
}

/// One direction of a link, with the reader's former objects.
pub(super) struct Direction<'a> {
    pub(super) reader: &'a Cluster,
    pub(super) publisher: &'a Publisher<'a>,
    pub(super) former: Former,
    /// The ranges that the other readers' ClusterPeers have for the publisher.
    pub(super) others: Vec<IpNet>,
}

impl Direction<'_> {
    /// Whether the reader has credentials for this mailbox, in the Secret of this command.
    pub(super) fn is_linked(&self) -> bool {
        let Self { publisher, former, .. } = self;
        let of_pair = super::secret_name(&publisher.cluster.id);
        let secret = if publisher.is_at_home() { &of_pair } else { hub::SECRET };
        let spec = former.peer.as_ref().map(|peer| &peer["spec"]);
        self.has_mailbox()
            && spec.is_some_and(|spec| spec["kubeconfigSecretRef"]["name"] == *secret)
    }

    /// Whether the reader has some credentials, and a ClusterPeer with this mailbox.
    fn has_mailbox(&self) -> bool {
        let Former { peer, secret } = &self.former;
        let namespace = &*self.publisher.mailbox.namespace;
        secret.is_some() && peer.as_ref().is_some_and(|peer| peer["spec"]["mailbox"] == *namespace)
    }

    pub(super) fn text(&self) -> String {
        format!("cluster {} reads {}", self.reader.id, self.publisher.cluster.id)
    }

    /// The ranges of the publisher's pods. A reader that knows none takes what others have: somebody may have set it.
    pub(super) fn pods(&self) -> PodRanges {
        let found = &self.publisher.pods;
        if found.are_given || self.former.peer.is_some() || self.others.is_empty() {
            return found.clone();
        }
        PodRanges { ranges: self.others.clone(), are_given: false, warning: None }
    }

    /// Why this direction has to be linked. `None`: it is linked as it should be.
    fn need(&self, command: &LinkCommand, now: Timestamp) -> Option<String> {
        let Some(peer) = &self.former.peer else { return Some("new".to_owned()) };
        if !self.has_mailbox() {
            let had = peer["spec"]["mailbox"].as_str().unwrap_or_default();
            let namespace = &self.publisher.mailbox.namespace;
            return Some(if had == namespace {
                "its Secret is gone".to_owned()
            } else {
                format!("its mailbox moves from {had} to {namespace}")
            });
        }
        let (pods, had) = (&self.publisher.pods, pod_cidrs(peer));
        let same: BTreeSet<_> = had.iter().collect();
        if pods.are_given && same != pods.ranges.iter().collect() {
            return Some(format!("pod ranges {} -> {}", joined(&had), joined(&pods.ranges)));
        }
        let host = self.publisher.mailbox.host;
        let secret = self.former.secret.as_ref()?;
        let text = kubeconfig(secret).unwrap_or_default();
        let had = cluster_in(&text)["server"].as_str().unwrap_or_default().to_owned();
        if let Some(url) = command.server_of(host).filter(|url| **url != had) {
            return Some(format!("URL {had} -> {url}"));
        }
        if !self.publisher.is_at_home() {
            // The member has one account for all.
            return None;
        }
        lost(peer, secret, now)
    }
}

/// Why the credentials in a Secret lead nowhere, as far as the reader's cluster knows.
fn lost(peer: &Value, secret: &Value, now: Timestamp) -> Option<String> {
    let Some(token) = TokenClaims::of_secret(secret) else {
        return Some("its Secret has no token".to_owned());
    };
    if token.expires <= now {
        return Some(format!("its token expired at {}", token.expires));
    }
    let connected = condition(peer, "Connected").filter(|one| one["status"] == "False");
    connected.map(|one| format!("not connected: {}", one["message"].as_str().unwrap_or_default()))
}

/// Every ordered pair of clusters that the command is about. Fails if a cluster differs from the former one with its id.
pub(super) async fn directions<'a>(
    publishers: &'a [Publisher<'a>],
    command: &LinkCommand,
) -> anyhow::Result<Vec<Direction<'a>>> {
    let read = fleet::each(publishers, async |one| {
        Formers::of(one.cluster, &command.link.namespace).await
    });
    let mut readers = fleet::all_of(read.await)?;
    let known: Vec<Value> = readers.iter().flat_map(|one| one.peers.iter().cloned()).collect();
    let each = publishers.iter().map(|one| one.cluster).zip(&mut readers);
    let read = fleet::each(each, async |(reader, formers): (&'a Cluster, &mut Formers<'_>)| {
        let mut directions = Vec::new();
        for publisher in publishers.iter().filter(|other| other.cluster.id != reader.id) {
            let id = &publisher.cluster.id;
            if !command.scope.has(&reader.id, id) {
                continue;
            }
            let former = formers.get(id).await?;
            let former = former.kept(publisher.identity(), &reader.id, command.replace)?;
            // What others have of the former cluster does not count.
            let others = if command.replace { vec![] } else { ranges_in(&known, id) };
            directions.push(Direction { reader, publisher, former, others });
        }
        anyhow::Ok(directions)
    });
    Ok(fleet::all_of(read.await)?.into_iter().flatten().collect())
}

/// The pod ranges that ClusterPeers have for a cluster.
pub(crate) fn ranges_in<'a>(
    peers: impl IntoIterator<Item = &'a Value>,
    id: &ClusterId,
) -> Vec<IpNet> {
    let of_cluster = peers.into_iter().filter(|peer| peer["spec"]["clusterId"] == *id.as_str());
    let ranges: BTreeSet<IpNet> = of_cluster.flat_map(pod_cidrs).collect();
    ranges.into_iter().collect()
}

/// What these clusters lack to read each other. Changes nothing.
pub(super) async fn plan(
    command: &LinkCommand,
    publishers: &[Publisher<'_>],
) -> anyhow::Result<LinkPlan> {
    let now = Timestamp::now();
    let directions = directions(publishers, command).await?;
    let mut plan = LinkPlan::default();
    for direction in &directions {
        if let Some(why) = direction.need(command, now) {
            let publisher = direction.publisher.cluster.id.clone();
            plan.pairs.insert((direction.reader.id.clone(), publisher), why);
        }
    }
    for publisher in publishers.iter().filter(|one| !one.is_at_home()) {
        let reader = publisher.cluster;
        let secret = hub::secret_of(command, reader).await.context("its Secret for the hub")?;
        let of_reader = directions.iter().filter(|one| one.reader.id == reader.id);
        let peers = of_reader.filter_map(|one| one.former.peer.as_ref());
        let why = match &secret {
            None => Some("new".to_owned()),
            Some(secret) => peers.chain([&Value::Null]).find_map(|peer| lost(peer, secret, now)),
        };
        plan.members.extend(why.map(|why| (reader.id.clone(), why)));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    /// A Secret with `{"sub":"system:serviceaccount:mcs-mailbox:east","iat":1000,"exp":4600}` as token.
    fn secret() -> Value {
        const TOKEN: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bWNzLW1haWxib3g6ZWFzdCIsImlhdCI6MTAwMCwiZXhwIjo0NjAwfQ.c2ln";
        let text = super::super::credentials::kubeconfig("https://east", None, None, TOKEN);
        json!({"data": {"kubeconfig": ByteString(text.to_string().into_bytes())}})
    }

    #[test]
    fn credentials_that_work_are_left_alone() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let peer = |status: &str| json!({"status": {"conditions": [{"type": "Connected", "status": status, "message": "401"}]}});
        assert_eq!(lost(&peer("True"), &secret(), at(2000)), None);
        assert_eq!(lost(&peer("Unknown"), &secret(), at(2000)), None, "nothing is known");
        let refused = lost(&peer("False"), &secret(), at(2000));
        assert_eq!(refused.as_deref(), Some("not connected: 401"));
        assert!(lost(&peer("True"), &secret(), at(4600)).unwrap().contains("expired"));
        assert!(lost(&peer("True"), &json!({}), at(2000)).unwrap().contains("no token"));
    }

    #[test]
    fn a_new_cluster_touches_no_link_of_the_others() {
        let [east, west, south] = ["east", "west", "south"].map(|id| id.parse().unwrap());
        let scope = Scope::Of(BTreeSet::from([ClusterId::clone(&south)]));
        assert!(scope.has(&south, &east) && scope.has(&west, &south));
        assert!(!scope.has(&east, &west) && !scope.has(&west, &east));
        assert!(scope.lets_in(&south) && !scope.lets_in(&east));
        let pairs = BTreeMap::from([(
            (ClusterId::clone(&west), ClusterId::clone(&east)),
            "new".to_owned(),
        )]);
        let plan = LinkPlan { pairs, ..LinkPlan::default() };
        assert_eq!((plan.of(&west), plan.of(&east)), (vec!["east (new)".to_owned()], vec![]));
        let scope = Scope::Planned(plan);
        assert!(scope.has(&west, &east) && !scope.has(&east, &west));
    }

    #[test]
    fn the_peers_of_others_know_pod_ranges() {
        let peer =
            |id: &str, ranges: &[&str]| json!({"spec": {"clusterId": id, "podCIDRs": ranges}});
        let peers = [
            peer("east", &["10.1.0.0/16", "fd01::/48"]),
            peer("west", &["10.2.0.0/16"]),
            peer("east", &["10.1.0.0/16"]),
        ];
        let found = ranges_in(&peers, &"east".parse().unwrap());
        assert_eq!(joined(&found), "10.1.0.0/16,fd01::/48");
        assert!(ranges_in(&peers, &"south".parse().unwrap()).is_empty());
    }
}
