use kube::api::GroupVersionKind;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::source::kubernetes::{
    reading::Property,
    script::{Answer, Script, bookmark, error_event, event, kubeconfig, list_end},
};

/// Longer than anything takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A watch of properties at work.
struct Following {
    script: Script,
    updates: mpsc::Receiver<Update>,
    task: JoinHandle<()>,
}

impl Following {
    async fn begin(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Script::play(answers).await;
        let (kubeconfig, file) = kubeconfig(&format!("http://{}", script.address));
        let (sender, updates) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let (access, _) = Access::new(Some(kubeconfig)).await.unwrap();
            let version = |version| {
                let kind = GroupVersionKind::gvk("about.k8s.io", version, "ClusterProperty");
                ApiResource::from_gvk_with_plural(&kind, "clusterproperties")
            };
            let target = Target {
                versions: ["v1beta1", "v1alpha1"].map(version).into(),
                labels: Some("a=b".to_owned()),
                fields: None,
            };
            Watch::new(&access, target, sender, Update::ClusterId).run().await;
            drop(file);
        });
        Self { script, updates, task }
    }

    /// The next request must ask for all of this.
    async fn asks(&mut self, parts: &[&str]) {
        let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
        for part in parts {
            assert!(asked.contains(part), "{asked} lacks {part}");
        }
    }

    /// The next request must ask for a watch from that version on.
    async fn resumes(&mut self, version: &str) {
        let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
        assert!(asked.contains(&format!("resourceVersion={version}")), "{asked}");
        assert!(asked.contains("watch=true") && !asked.contains("sendInitial"), "{asked}");
    }

    async fn tells(&mut self, expected: &str) {
        let update = timeout(PATIENCE, self.updates.recv()).await.expect("news");
        let Some(Update::ClusterId(news)) = update else { panic!("{update:?}") };
        let value = |read: &Read<Property>| {
            let value = read.outcome.clone().unwrap().unwrap_or_default();
            format!("{}={value}", read.key().name)
        };
        let told = match news {
            News::Listed { version, objects } => {
                let objects: Vec<_> = objects.iter().map(value).collect();
                format!("listed {version}: {}", objects.join(" "))
            }
            News::Changed(object) => format!("changed {}", value(&object)),
            News::Gone(object) => format!("gone {}", value(&object)),
            News::Absent { .. } => "absent".to_owned(),
            News::Failing { why, .. } => format!("failing: {why}"),
            News::Recovered => "recovered".to_owned(),
        };
        assert_eq!(told, expected);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[test]
fn a_server_is_left_alone_for_as_long_as_it_asks_but_not_for_good() {
    let asking = |seconds: u32| {
        let status = json!({"code": 429, "details": {"retryAfterSeconds": seconds}});
        retry_after(&kube::Error::Api(serde_json::from_value(status).unwrap()))
    };
    assert_eq!(asking(0), Duration::ZERO);
    assert_eq!(asking(3), Duration::from_secs(3));
    assert_eq!(asking(u32::MAX), LONGEST_ASKED_FOR);
}

fn property(name: &str, version: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {"value": value}})
}

#[tokio::test]
async fn a_streamed_list_becomes_a_watch_that_is_resumed() {
    let mut following = Following::begin([
        Answer::watch([
            event("ADDED", &property("a", "3", "x")),
            event("ADDED", &property("b", "4", "y")),
            list_end("5"),
            event("MODIFIED", &property("a", "6", "z")),
            event("DELETED", &property("b", "7", "y")),
            bookmark("9"),
        ]),
        Answer::watch([event("ADDED", &property("c", "10", ""))]),
        Answer::watch([]).held(),
    ])
    .await;
    following
        .asks(&[
            "/apis/about.k8s.io/v1beta1/clusterproperties",
            "labelSelector=a%3Db",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=0",
            "allowWatchBookmarks=true",
        ])
        .await;
    following.tells("listed v1beta1: a=x b=y").await;
    following.tells("changed a=z").await;
    following.tells("gone b=y").await;
    following.resumes("9").await;
    following.tells("changed c=").await;
    following.resumes("10").await;
}

#[tokio::test]
async fn a_server_that_streams_no_lists_is_asked_for_one() {
    let mut following = Following::begin([
        Answer::error(422),
        Answer::list("5", [property("a", "3", "x")]),
        Answer::watch([error_event(410)]),
        Answer::list("8", []),
        Answer::watch([]).held(),
    ])
    .await;
    following.asks(&["sendInitialEvents=true"]).await;
    following.asks(&["resourceVersion=0", "resourceVersionMatch=NotOlderThan"]).await;
    following.tells("listed v1beta1: a=x").await;
    following.resumes("5").await;
    following.asks(&["resourceVersion=5", "resourceVersionMatch=NotOlderThan"]).await;
    following.tells("listed v1beta1: ").await;
    following.resumes("8").await;
}

#[tokio::test]
async fn the_version_that_is_served_is_found() {
    let mut following = Following::begin([
        Answer::error(404),
        Answer::error(404),
        Answer::error(404),
        Answer::watch([list_end("5")]),
        Answer::error(404),
        Answer::watch([list_end("6")]).held(),
    ])
    .await;
    following.asks(&["/v1beta1/"]).await;
    following.asks(&["/v1alpha1/"]).await;
    following.tells("absent").await;
    following.asks(&["/v1beta1/"]).await;
    following.asks(&["/v1alpha1/", "sendInitialEvents=true"]).await;
    following.tells("listed v1alpha1: ").await;
    following.resumes("5").await;
    // The CRD has gone, or serves other versions.
    following.tells("absent").await;
    following.asks(&["/v1beta1/", "sendInitialEvents=true"]).await;
    following.tells("listed v1beta1: ").await;
}

#[tokio::test]
async fn trouble_is_told_and_so_is_its_end() {
    let mut following = Following::begin([
        Answer::error(403),
        Answer::watch([list_end("5")]),
        Answer::error(403),
        Answer::error(503),
        Answer::watch([bookmark("7")]),
        Answer::watch([]).held(),
    ])
    .await;
    following.tells("failing: no: 403").await;
    following.tells("listed v1beta1: ").await;
    following.tells("failing: no: 403").await;
    following.tells("failing: no: 503").await;
    following.tells("recovered").await;
    for _ in 0..4 {
        following.script.asked().await;
    }
    following.resumes("5").await;
    following.resumes("7").await;
}

#[tokio::test]
async fn half_a_list_is_none() {
    let a = event("ADDED", &property("a", "3", "x"));
    let mut following = Following::begin([
        Answer::watch([a.clone()]),
        Answer::watch([a.clone(), error_event(410)]),
        Answer::watch([a, event("ADDED", &property("b", "3", "")), list_end("5")]).held(),
    ])
    .await;
    following.tells("failing: the API server ended the list").await;
    following.tells("listed v1beta1: a=x b=").await;
}

#[tokio::test]
async fn a_list_that_cannot_be_as_new_as_what_was_seen_may_be_older() {
    let mut following = Following::begin([
        Answer::watch([list_end("50")]),
        Answer::watch([error_event(410)]),
        Answer::error(504),
        Answer::watch([list_end("7")]).held(),
    ])
    .await;
    following.tells("listed v1beta1: ").await;
    following.tells("failing: no: 504").await;
    following.tells("listed v1beta1: ").await;
    for expected in ["=0&", "=50&", "=50&", "=0&"] {
        let asked = format!("{}&", following.script.asked().await);
        assert!(asked.contains(&format!("resourceVersion{expected}")), "{asked}");
    }
}

#[tokio::test]
async fn a_watch_that_ends_at_once_is_trouble() {
    let mut following = Following::begin([
        Answer::watch([list_end("5")]),
        Answer::watch([]),
        Answer::watch([]).held(),
    ])
    .await;
    following.tells("listed v1beta1: ").await;
    following.tells("failing: the API server ends watches at once").await;
    following.tells("recovered").await;
}

#[tokio::test]
async fn following_ends_with_its_receiver() {
    let events = [list_end("5"), event("ADDED", &property("a", "6", "x"))];
    let mut following = Following::begin([Answer::watch(events).held()]).await;
    following.tells("listed v1beta1: ").await;
    following.updates.close();
    let task = std::mem::replace(&mut following.task, tokio::spawn(async {}));
    // What was sent before counts for nothing.
    timeout(PATIENCE, task).await.unwrap().unwrap();
}
