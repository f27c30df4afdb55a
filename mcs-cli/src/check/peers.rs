//! Whether the peers of a cluster are healthy, and are the clusters that `check` knows.

use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::ListParams;
use mcs_kube::reasons::ClusterCheck;
use serde_json::Value;

use super::{Unknown, Warning, listed};
use crate::{
    cluster::{Cluster, DEPLOYMENTS, NAMESPACES, PEERS},
    pod_ranges::{PodRanges, joined, of_flag},
    status,
};
use mcs_controller::core::clusterset::{ClusterId, well_known};

/// The properties of a cluster, if the caller may read them.
pub(super) struct Known {
    id: ClusterId,
    uid: Option<String>,
    /// The ranges of its pods.
    pods: Vec<IpNet>,
}

impl Known {
    pub(super) async fn of(cluster: &Cluster, namespace: &str) -> Self {
        let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await;
        let given = deployment.ok().flatten().map(|deployment| of_flag(&deployment, "--pod-cidr"));
        let pods = if let Some(given) = given.filter(|given| !given.is_empty()) {
            given
        } else {
            let found = PodRanges::of_kubernetes(cluster).await;
            found.map(|pods| pods.ranges).unwrap_or_default()
        };
        Self { id: cluster.id.clone(), uid: cluster.uid().await.ok(), pods }
    }

    /// The errors in a ClusterPeer of this cluster.
    fn differences(&self, peer: &Value) -> Vec<String> {
        let (id, spec) = (&self.id, &peer["spec"]);
        let mut all = Vec::new();
        if let (Some(said), Some(uid)) = (spec["clusterUid"].as_str(), &self.uid)
            && said != uid
        {
            all.push(format!(
                "its clusterUid is {said}, and cluster {id} has the uid {uid}: if it was made anew, run `mcs link \
                 --replace`"
            ));
        }
        let accepted = spec["podCIDRs"].as_array().into_iter().flatten();
        let accepted: Vec<IpNet> =
            accepted.filter_map(|range| range.as_str()?.parse().ok()).collect();
        let outside = outside(&self.pods, &accepted);
        if !outside.is_empty() {
            let (outside, accepted) = (joined(&outside), joined(&accepted));
            all.push(format!(
                "cluster {id} has pods of {outside}, and podCIDRs are {accepted}: endpoints outside are refused. Run \
                 `mcs link --pod-cidr {id}=CIDR`, or set podCidrs of the chart in {id} if its pods have other \
                 addresses than its nodes say"
            ));
        }
        all
    }
}

/// The pod ranges that are not accepted.
fn outside(pods: &[IpNet], accepted: &[IpNet]) -> Vec<IpNet> {
    let accepted = IpNet::aggregate(&accepted.to_vec());
    let is_accepted = |range: &&IpNet| accepted.iter().any(|one| one.contains(*range));
    let outside: Vec<_> = pods.iter().filter(|range| !is_accepted(range)).copied().collect();
    IpNet::aggregate(&outside)
}

/// Whether every condition of every peer holds, whether each peer is a known cluster, and whether this cluster has the
/// namespaces of their services.
pub(super) async fn checks(
    cluster: &Cluster,
    known: &[Known],
) -> Vec<(ClusterCheck, anyhow::Result<String>)> {
    let peers = match cluster.list(PEERS).await {
        Ok(peers) => peers,
        Err(error) => return vec![(ClusterCheck::Peers, Err(error))],
    };
    let now = Timestamp::now();
    let mut all: Vec<_> =
        peers.iter().map(|peer| (ClusterCheck::Peer, result(peer, known, now))).collect();
    if peers.is_empty() {
        let advice = "there is no ClusterPeer: run `mcs link` with the kubeconfigs of all clusters";
        all.push((ClusterCheck::Peers, Err(anyhow::anyhow!(advice))));
    }
    let missing: Vec<_> = peers.iter().flat_map(status::missing_namespaces).collect();
    let there = if missing.is_empty() {
        Ok(vec![])
    } else {
        cluster.list_if_readable(NAMESPACES, None, &ListParams::default()).await
    };
    let is_synced =
        |peer: &Value| status::condition(peer, "Synced").is_some_and(|one| one["status"] == "True");
    let unread: Vec<_> = peers.iter().filter(|peer| !is_synced(peer)).collect();
    let unread: Vec<_> =
        unread.iter().map(|peer| status::text(&peer["spec"]["clusterId"])).collect();
    all.push((
        ClusterCheck::Namespaces,
        there.and_then(|there| namespaces(missing, &there, &unread)),
    ));
    all
}

/// Whether services of peers wait for a namespace of this cluster. KEP-1645 lets a cluster have only some of them. One that is
/// being deleted takes no import any more, and may stay so for long. `missing`: what ClusterPeers say. `there`: the namespaces.
/// `unread`: the peers whose services are not all known.
fn namespaces(
    mut missing: Vec<String>,
    there: &[Value],
    unread: &[String],
) -> anyhow::Result<String> {
    let ending = there.iter().filter(|one| one["metadata"]["deletionTimestamp"].is_string());
    let names = ending.filter_map(|one| one["metadata"]["name"].as_str());
    let is_meant = |name: &&str| {
        let mut words = missing.iter().flat_map(|text| text.split([' ', ',', ';']));
        words.any(|word| word.split_once('/').is_some_and(|(namespace, _)| namespace == *name))
    };
    let ending: Vec<_> = names.filter(is_meant).collect();
    if !ending.is_empty() {
        let ending = ending.join(", ");
        missing.push(format!(
            "Terminating, so that no import is made in it: namespace {ending}. Its conditions say what keeps it; make it again once it \
             is gone"
        ));
    }
    anyhow::ensure!(missing.is_empty(), Warning(listed(&missing)));
    let what = "whether services wait for a namespace is not known of peers that are not synced";
    anyhow::ensure!(unread.is_empty(), Unknown(format!("{what}: {}", listed(unread))));
    Ok("there is one for each service of the peers".to_owned())
}

fn result(peer: &Value, known: &[Known], now: Timestamp) -> anyhow::Result<String> {
    let name = peer["metadata"]["name"].as_str().unwrap_or_default();
    let cluster = known.iter().find(|cluster| peer["spec"]["clusterId"] == *cluster.id.as_str());
    let mut problems = status::problems(peer);
    problems.extend(cluster.map(|cluster| cluster.differences(peer)).unwrap_or_default());
    let unknown = status::known::unknown(peer, now);
    if !problems.is_empty() {
        problems.extend(status::known::older(peer));
        anyhow::bail!("{name}: {}", problems.join("; "));
    }
    anyhow::ensure!(unknown.is_empty(), Unknown(format!("{name}: {}", unknown.join("; "))));
    Ok(format!("{name} is connected, synced and fresh"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_told() {
        let missing = || vec!["west: does not import them: shop/web, bank/pay".to_owned()];
        let namespace = |name: &str, deleted: Value| json!({"metadata": {"name": name, "deletionTimestamp": deleted}});
        let ending = json!("2026-01-02T03:04:05Z");
        let there = [
            namespace("shop", ending.clone()),
            namespace("hop", ending),
            namespace("bank", Value::Null),
        ];
        let said = namespaces(missing(), &there, &[]).unwrap_err();
        assert!(said.is::<Warning>());
        assert!(
            said.to_string()
                .contains("; Terminating, so that no import is made in it: namespace shop."),
            "{said}"
        );
        let said = namespaces(missing(), &there[2..], &[]).unwrap_err().to_string();
        assert!(!said.contains("Terminating"), "{said}");
        assert!(namespaces(vec![], &there, &[]).is_ok());
        let unread = ["east".to_owned()];
        let said = namespaces(vec![], &there, &unread).unwrap_err();
        assert!(said.is::<Unknown>() && said.to_string().ends_with("not synced: east"), "{said}");
    }

    #[test]
    fn a_peer_that_was_made_anew_is_told() {
        let known = |uid: Option<&str>, pods: &[&str]| Known {
            id: "east".parse().unwrap(),
            uid: uid.map(str::to_owned),
            pods: ranges(pods),
        };
        let peer = json!({
            "metadata": {"name": "east"},
            "spec": {"clusterId": "east", "clusterUid": "u1", "podCIDRs": ["10.1.0.0/17", "10.1.128.0/17"]},
            "status": {"conditions": status::known::tests::conditions("", "")},
        });
        let at = Timestamp::UNIX_EPOCH;
        let result = |known: Known| result(&peer, &[known], at).map_err(|error| error.to_string());
        assert!(result(known(Some("u1"), &["10.1.0.0/16"])).is_ok(), "the two are one range");
        assert!(result(known(None, &[])).is_ok(), "nobody knows");
        let error = result(known(Some("u2"), &[])).unwrap_err();
        assert!(error.contains("its clusterUid is u1") && error.contains("--replace"), "{error}");
        let error = result(known(Some("u1"), &["10.5.0.0/24", "10.1.3.0/24"])).unwrap_err();
        assert!(error.contains("has pods of 10.5.0.0/24, and podCIDRs are 10.1.0.0/17"), "{error}");
    }

    #[test]
    fn a_peer_of_which_not_all_is_known_is_no_success() {
        let peer = |but: &str, status: &str, generation: u64| {
            let conditions = status::known::tests::conditions(but, status);
            json!({
                "metadata": {"name": "east", "generation": generation},
                "status": {"conditions": conditions},
            })
        };
        let result = |peer: &Value| result(peer, &[], Timestamp::UNIX_EPOCH);
        assert!(result(&peer("", "", 2)).is_ok());
        let begun = result(&peer("Fresh", "Unknown", 2)).unwrap_err();
        assert!(begun.is::<Unknown>(), "{begun}");
        let edited = result(&peer("", "", 3)).unwrap_err();
        assert!(edited.is::<Unknown>() && edited.to_string().contains("older than its spec"));
        let failed = result(&peer("Synced", "False", 3)).unwrap_err();
        assert!(!failed.is::<Unknown>(), "{failed}");
        let said = failed.to_string();
        assert!(said.starts_with("east: Synced is False: why ("), "{said}");
        assert!(said.contains("; its status is older"), "{said}");
    }
}
