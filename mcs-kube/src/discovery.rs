//! Asks the API server which API groups it has and which versions of them it serves.
//!
//! Every account may ask (`system:discovery`). Without an answer, a watch tries the versions of its resource in turn.

use std::{collections::BTreeMap, time::Duration};

use kube::{Client, api::ApiResource};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use crate::{access::ApiAccess, watch::WatchTarget};

/// The served versions of each API group.
pub type ApiGroups = BTreeMap<String, Vec<String>>;

/// The time limit for an answer.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the watches wait for the first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// The pause after an answer, in seconds: CRDs come and go.
const INTERVAL_SECONDS: std::ops::RangeInclusive<u64> = 240..=300;
/// The pause after a failed request.
const RETRY: Duration = Duration::from_secs(30);

/// Sends the groups, wrapped by `update`, at the start, at each new connection and every few minutes, until the receiver is
/// dropped. `first` gets the first result, which is empty without an answer.
pub async fn follow<U>(
    access: &ApiAccess,
    first: watch::Sender<Option<ApiGroups>>,
    updates: &mpsc::Sender<U>,
    update: fn(ApiGroups) -> U,
) {
    let mut renewals = access.renewals();
    loop {
        let groups = ask(access, &mut renewals).await;
        first.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(groups.clone().unwrap_or_default());
            }
            is_first
        });
        let pause = match &groups {
            Some(_) => Duration::from_secs(fastrand::u64(INTERVAL_SECONDS)),
            None => RETRY,
        };
        if let Some(groups) = groups
            && updates.send(update(groups)).await.is_err()
        {
            return;
        }
        tokio::select! {
            biased;
            () = sleep(pause) => {}
            _ = renewals.changed() => {}
        }
    }
}

async fn ask(access: &ApiAccess, renewals: &mut watch::Receiver<()>) -> Option<ApiGroups> {
    let client = access.connection().await.ok()?.client;
    renewals.mark_unchanged();
    match timeout(LIMIT, groups(&client)).await {
        Ok(Ok(groups)) => Some(groups),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the API server does not name its API groups");
            None
        }
        Err(_) => None,
    }
}

async fn groups(client: &Client) -> kube::Result<ApiGroups> {
    let list = client.list_api_groups().await?;
    let versions = list.groups.into_iter().map(|group| {
        let versions = group.versions.into_iter().map(|version| version.version);
        (group.name, versions.collect())
    });
    Ok(versions.collect())
}

/// The first result, or nothing if it is late.
pub async fn first_answer(mut first: watch::Receiver<Option<ApiGroups>>) -> ApiGroups {
    let answer = timeout(FIRST_ANSWER, first.wait_for(Option::is_some)).await;
    answer.ok().and_then(|answer| answer.ok()?.clone()).unwrap_or_default()
}

/// Moves the served versions to the front. Their order stays, and no version is dropped: an upgrade can add it.
pub fn prefer_served(target: &mut WatchTarget, groups: &ApiGroups) {
    let is_served = |api: &ApiResource| {
        groups.get(&api.group).is_some_and(|versions| versions.contains(&api.version))
    };
    target.versions.sort_by_key(|api| !is_served(api));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{ScriptedAnswer, ScriptedServer, kubeconfig};

    /// The time limit of each step, long enough for a slow machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// An answer with one group.
    fn answer(group: &str, versions: &[&str]) -> ScriptedAnswer {
        let version = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        let group = json!({"name": group, "versions": versions});
        ScriptedAnswer::watch([json!({"kind": "APIGroupList", "groups": [group]})])
    }

    async fn next_group(updates: &mut mpsc::Receiver<ApiGroups>) -> String {
        match timeout(PATIENCE, updates.recv()).await.expect("an answer") {
            Some(groups) => groups.into_keys().collect(),
            None => panic!("it ended"),
        }
    }

    #[tokio::test]
    async fn groups_are_asked_for_at_first_and_at_each_new_connection() {
        let mut script = ScriptedServer::play([
            answer("multicluster.x-k8s.io", &["v1alpha1"]),
            ScriptedAnswer::error(403),
            answer("net.gke.io", &["v1"]),
        ])
        .await;
        let (file, _file) = kubeconfig(&format!("http://{}", script.address));
        let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
        let (updates, mut sent) = mpsc::channel(1);
        let (first, first_groups) = watch::channel(None);
        let steps = async {
            let groups = first_answer(first_groups).await;
            assert_eq!(groups["multicluster.x-k8s.io"], ["v1alpha1"]);
            assert_eq!(next_group(&mut sent).await, "multicluster.x-k8s.io");
            // The second answer is an error, which changes nothing.
            for _ in 0..3 {
                assert_eq!(timeout(PATIENCE, script.asked()).await.unwrap(), "/apis compressed");
                access.renew(&access.connection().await.unwrap()).await.unwrap();
            }
            assert_eq!(next_group(&mut sent).await, "net.gke.io");
        };
        tokio::select! {
            () = follow(&access, first, &updates, |groups| groups) => panic!("it ended"),
            () = steps => {}
        }
    }

    #[tokio::test]
    async fn without_an_answer_the_watches_begin_all_the_same() {
        let script = ScriptedServer::play([ScriptedAnswer::error(403)]).await;
        let (file, _file) = kubeconfig(&format!("http://{}", script.address));
        let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
        let (updates, _sent) = mpsc::channel(1);
        let (first, first_groups) = watch::channel(None);
        tokio::select! {
            () = follow(&access, first, &updates, |groups| groups) => panic!("it ended"),
            groups = first_answer(first_groups) => assert!(groups.is_empty()),
        }
        let (_silent, first_groups) = watch::channel(None);
        assert!(first_answer(first_groups).await.is_empty());
    }

    #[test]
    fn served_versions_are_asked_for_first() {
        for (served, expected) in [
            (&["v1beta1", "v1alpha1"][..], ["v1beta1", "v1alpha1"]),
            (&["v1alpha1", "v1"], ["v1alpha1", "v1beta1"]),
            (&["v1"], ["v1beta1", "v1alpha1"]),
            (&[], ["v1beta1", "v1alpha1"]),
        ] {
            let mut target = WatchTarget::all(
                "multicluster.x-k8s.io",
                &["v1beta1", "v1alpha1"],
                "ServiceImport",
                "serviceimports",
            );
            let served = served.iter().map(|version| (*version).to_owned()).collect();
            let groups = [("multicluster.x-k8s.io".to_owned(), served)].into();
            prefer_served(&mut target, &groups);
            let versions: Vec<_> = target.versions.iter().map(|api| api.version.as_str()).collect();
            assert_eq!(versions, expected);
        }
    }
}
