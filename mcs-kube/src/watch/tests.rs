//! Watches against a scripted API server.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    errors::{LONGEST_RETRY_AFTER, retry_after},
    *,
};
use crate::{
    access::KubeconfigContent,
    decoder::PropertyDecoder,
    testing::{ScriptedAnswer, ScriptedServer, bookmark, error_event, event, kubeconfig, list_end},
};

/// The time limit of each step, long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Enough for many objects.
const MOST_BYTES: usize = 64 << 10;

/// A running watch of properties.
struct RunningWatch {
    script: ScriptedServer,
    updates: mpsc::Receiver<ResourceEvent<PropertyDecoder>>,
    task: JoinHandle<()>,
}

impl RunningWatch {
    async fn begin(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self::begin_with(answers, Room::Total(MOST_BYTES)).await
    }

    async fn begin_with(answers: impl IntoIterator<Item = ScriptedAnswer>, room: Room) -> Self {
        Self::begin_as(answers, |target| WatchTarget { room, ..target }).await
    }

    async fn begin_as(
        answers: impl IntoIterator<Item = ScriptedAnswer>,
        change: impl FnOnce(WatchTarget) -> WatchTarget + Send + 'static,
    ) -> Self {
        let script = ScriptedServer::play(answers).await;
        let (kubeconfig, file) = kubeconfig(&format!("http://{}", script.address));
        let (sender, updates) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
            let target = WatchTarget {
                labels: Some("a=b".to_owned()),
                ..WatchTarget::all(
                    "about.k8s.io",
                    &["v1beta1", "v1alpha1"],
                    "ClusterProperty",
                    "clusterproperties",
                )
            };
            let target = change(target);
            ResourceWatch::new(&access, target, sender, |event| event).run().await;
            drop(file);
        });
        Self { script, updates, task }
    }

    /// The next request must ask for all of this.
    async fn asks(&mut self, parts: &[&str]) {
        let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
        for part in parts {
            assert!(format!("{asked}&").contains(part), "{asked} lacks {part}");
        }
    }

    /// The next request must ask for a watch from that version on.
    async fn resumes(&mut self, version: &str) {
        let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
        assert!(asked.contains(&format!("resourceVersion={version}")), "{asked}");
        assert!(asked.contains("watch=true") && !asked.contains("sendInitial"), "{asked}");
    }

    /// The next requests must ask for these resource versions.
    async fn asks_for_versions(&mut self, versions: &[&str]) {
        for version in versions {
            let asked = timeout(PATIENCE, self.script.asked()).await.expect("a request");
            let expected = format!("&resourceVersion={version}&");
            assert!(format!("{asked}&").contains(&expected), "{asked} lacks {expected}");
        }
    }

    async fn reports(&mut self, expected: &str) {
        let event = timeout(PATIENCE, self.updates.recv()).await.expect("an event");
        let event = event.expect("the watch runs");
        let value = |object: &WatchedObject<PropertyDecoder>| {
            let value = object.decoded.clone().unwrap().unwrap_or_default();
            format!("{}={value}", object.key().name)
        };
        let event = match event {
            ResourceEvent::LeftOut { namespace, objects } => {
                format!("{objects} too many {namespace}").trim_end().to_owned()
            }
            ResourceEvent::Listed { version, objects } => {
                let objects: Vec<_> = objects.iter().map(value).collect();
                format!("listed {version}: {}", objects.join(" "))
            }
            ResourceEvent::Changed(object) => format!("changed {}", value(&object)),
            ResourceEvent::Deleted(object) => format!("gone {}", value(&object)),
            ResourceEvent::NotServed { .. } => "absent".to_owned(),
            ResourceEvent::Failing { reason, .. } => format!("failing: {reason}"),
            ResourceEvent::Recovered => "recovered".to_owned(),
        };
        assert_eq!(event, expected);
    }
}

impl Drop for RunningWatch {
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
    assert_eq!(asking(u32::MAX), LONGEST_RETRY_AFTER);
}

fn property(name: &str, version: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {"value": value}})
}

#[tokio::test]
async fn a_streamed_list_becomes_a_watch_that_is_resumed() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([
            event("ADDED", &property("a", "3", "x")),
            event("ADDED", &property("b", "4", "y")),
            list_end("5"),
            event("MODIFIED", &property("a", "6", "z")),
            event("DELETED", &property("b", "7", "y")),
            bookmark("9"),
        ]),
        ScriptedAnswer::watch([event("ADDED", &property("c", "10", ""))]),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch
        .asks(&[
            "/apis/about.k8s.io/v1beta1/clusterproperties",
            "labelSelector=a%3Db",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "&resourceVersion=&",
            "allowWatchBookmarks=true",
        ])
        .await;
    watch.reports("listed v1beta1: a=x b=y").await;
    watch.reports("changed a=z").await;
    watch.reports("gone b=y").await;
    watch.resumes("9").await;
    watch.reports("changed c=").await;
    watch.resumes("10").await;
}

#[tokio::test]
async fn a_server_that_streams_no_lists_is_asked_for_one() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("5", [property("a", "3", "x")]),
        ScriptedAnswer::watch([error_event(410)]),
        ScriptedAnswer::list("8", []),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.asks(&["sendInitialEvents=true"]).await;
    watch.asks(&["resourceVersion=0", "resourceVersionMatch=NotOlderThan"]).await;
    watch.reports("listed v1beta1: a=x").await;
    watch.resumes("5").await;
    watch.asks(&["resourceVersion=5", "resourceVersionMatch=NotOlderThan"]).await;
    watch.reports("listed v1beta1: ").await;
    watch.resumes("8").await;
}

#[tokio::test]
async fn a_list_may_be_compressed_and_a_watch_may_not() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("5", [property("a", "3", "x")]).compressed(),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    let mut forms = Vec::new();
    for _ in 0..3 {
        let asked = timeout(PATIENCE, watch.script.asked()).await.expect("a request");
        forms.push((asked.contains("watch=true"), asked.ends_with(" compressed")));
        if forms.len() == 2 {
            watch.reports("listed v1beta1: a=x").await;
        }
    }
    assert_eq!(forms, [(true, false), (false, true), (true, false)]);
}

/// A few kilobytes stand for each of these objects.
#[tokio::test]
async fn what_a_compressed_list_becomes_has_the_same_bounds() {
    let large = property("b", "6", &"x".repeat(9 << 20));
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("50", [property("a", "5", "x"), large]).compressed(),
    ])
    .await;
    watch.reports("failing: the API server sends an object of more than 8 MiB").await;
}

#[tokio::test]
async fn the_version_that_is_served_is_found() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(404),
        ScriptedAnswer::error(404),
        ScriptedAnswer::error(404),
        ScriptedAnswer::watch([list_end("5")]),
        ScriptedAnswer::error(404),
        ScriptedAnswer::watch([list_end("6")]).held(),
    ])
    .await;
    watch.asks(&["/v1beta1/"]).await;
    watch.asks(&["/v1alpha1/"]).await;
    watch.reports("absent").await;
    watch.asks(&["/v1beta1/"]).await;
    watch.asks(&["/v1alpha1/", "sendInitialEvents=true"]).await;
    watch.reports("listed v1alpha1: ").await;
    watch.resumes("5").await;
    // The CRD has gone, or serves other versions.
    watch.reports("absent").await;
    watch.asks(&["/v1beta1/", "sendInitialEvents=true"]).await;
    watch.reports("listed v1beta1: ").await;
}

#[tokio::test]
async fn trouble_is_told_and_so_is_its_end() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(403),
        ScriptedAnswer::watch([list_end("5")]),
        ScriptedAnswer::error(403),
        ScriptedAnswer::error(503),
        ScriptedAnswer::watch([bookmark("7")]),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.reports("failing: no: 403").await;
    watch.reports("listed v1beta1: ").await;
    watch.reports("failing: no: 403").await;
    watch.reports("failing: no: 503").await;
    watch.reports("recovered").await;
    for _ in 0..4 {
        watch.script.asked().await;
    }
    watch.resumes("5").await;
    watch.resumes("7").await;
}

#[tokio::test]
async fn half_a_list_is_none() {
    let a = event("ADDED", &property("a", "3", "x"));
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([a.clone(), bookmark("4")]),
        ScriptedAnswer::error(429),
        ScriptedAnswer::watch([a.clone(), error_event(410)]),
        ScriptedAnswer::watch([a, event("ADDED", &property("b", "3", "")), list_end("5")]).held(),
    ])
    .await;
    watch.reports("failing: the API server ended the list before it was complete").await;
    watch.reports("failing: no: 429").await;
    watch.reports("listed v1beta1: a=x b=").await;
}

#[tokio::test]
async fn a_plain_list_follows_a_stream_that_failed() {
    for answer in [ScriptedAnswer::watch([bookmark("4")]), ScriptedAnswer::error(500)] {
        let mut watch = RunningWatch::begin([
            answer,
            ScriptedAnswer::list("5", [property("a", "3", "x")]),
            ScriptedAnswer::watch([error_event(410)]),
            ScriptedAnswer::watch([list_end("6")]).held(),
        ])
        .await;
        watch.updates.recv().await;
        watch.reports("listed v1beta1: a=x").await;
        watch.asks(&["sendInitialEvents=true"]).await;
        let asked = watch.script.asked().await;
        assert!(!asked.contains("watch") && !asked.contains("resourceVersion"), "{asked}");
        watch.resumes("5").await;
        watch.asks(&["sendInitialEvents=true"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_may_take_as_long_as_the_server_allows() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("5", []).after(Duration::from_secs(65)),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    let event = watch.updates.recv().await.unwrap();
    assert!(matches!(event, ResourceEvent::Listed { .. }), "{event:?}");
}

/// A peer may be slow on purpose. A byte each second says nothing.
#[tokio::test(start_paused = true)]
async fn a_server_that_drips_its_list_is_given_up_and_delays_nobody_else() {
    let drips = |answer: ScriptedAnswer| answer.dripping(Duration::from_secs(1));
    let long = property("a", "3", &"x".repeat(100));
    for answers in [
        vec![drips(ScriptedAnswer::watch([event("ADDED", &long), list_end("5")]))],
        vec![ScriptedAnswer::error(422), drips(ScriptedAnswer::list("5", [long.clone()]))],
    ] {
        let begin = Instant::now();
        let mut slow = RunningWatch::begin(answers).await;
        let of_others = [list_end("5"), event("ADDED", &property("b", "6", "y"))];
        let mut other = RunningWatch::begin([ScriptedAnswer::watch(of_others).held()]).await;
        other.reports("listed v1beta1: ").await;
        other.reports("changed b=y").await;
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let event = slow.updates.recv().await.unwrap();
        let ResourceEvent::Failing { reason, .. } = event else { panic!("{event:?}") };
        assert_eq!(reason, "the API server sends nothing");
        let took = begin.elapsed();
        assert!(took >= LIST_TIMEOUT && took < LIST_TIMEOUT + Duration::from_secs(10), "{took:?}");
    }
}

/// The limit is for each pause: nobody knows how long a list is.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_goes_on_is_waited_for() {
    let objects = (0..40).map(|nth| event("ADDED", &property(&format!("p{nth}"), "3", "x")));
    let list = ScriptedAnswer::watch(objects.chain([list_end("5")]));
    let begin = Instant::now();
    let mut watch = RunningWatch::begin([list.dripping(Duration::from_millis(300))]).await;
    let event = watch.updates.recv().await.unwrap();
    let ResourceEvent::Listed { objects, .. } = event else { panic!("{event:?}") };
    assert_eq!(objects.len(), 40);
    assert!(begin.elapsed() > 10 * LIST_TIMEOUT, "{:?}", begin.elapsed());
}

/// An API server that was restored from a backup, or made anew, does so.
#[tokio::test(start_paused = true)]
async fn a_list_follows_watches_without_any_event() {
    let quiet = |seconds| ScriptedAnswer::watch([]).lasting(Duration::from_secs(seconds));
    for watches in [&[245][..], &[100, 150]] {
        let answers = [ScriptedAnswer::watch([list_end("900")])]
            .into_iter()
            .chain(watches.iter().map(|seconds| quiet(*seconds)))
            .chain([ScriptedAnswer::watch([list_end("7")]).held()]);
        let mut watch = RunningWatch::begin(answers).await;
        for _ in 0..2 {
            let event = watch.updates.recv().await.unwrap();
            assert!(matches!(event, ResourceEvent::Listed { .. }), "{event:?}");
        }
        watch.asks_for_versions(&[""]).await;
        for _ in watches {
            watch.resumes("900").await;
        }
        watch.asks_for_versions(&[""]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_bookmark_goes_on() {
    let quiet = |answer: ScriptedAnswer| answer.lasting(Duration::from_secs(200));
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([list_end("5")]),
        quiet(ScriptedAnswer::watch([])),
        quiet(ScriptedAnswer::watch([bookmark("6")])),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.updates.recv().await;
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(watch.script.asked().await);
    }
    assert!(
        asked[3].contains("resourceVersion=6") && !asked[3].contains("sendInitial"),
        "{asked:?}"
    );
}

/// Nothing tells whether its server is there.
#[tokio::test(start_paused = true)]
async fn a_watch_alone_on_its_connection_asks_again_when_it_is_silent() {
    let answers = [
        ScriptedAnswer::watch([list_end("5")]),
        ScriptedAnswer::watch([bookmark("6")]).held(),
        ScriptedAnswer::watch([bookmark("7")]).held(),
        ScriptedAnswer::watch([event("ADDED", &property("a", "8", "x"))]).held(),
    ];
    let mut watch =
        RunningWatch::begin_as(answers, |target| WatchTarget { has_many_events: true, ..target })
            .await;
    let begin = Instant::now();
    let event = watch.updates.recv().await.unwrap();
    assert!(matches!(event, ResourceEvent::Listed { .. }), "{event:?}");
    let event = watch.updates.recv().await.unwrap();
    assert!(matches!(event, ResourceEvent::Changed(_)), "it is no failure: {event:?}");
    let took = begin.elapsed();
    assert!(took >= 2 * LONGEST_SILENCE && took < 3 * LONGEST_SILENCE, "{took:?}");
    watch.script.asked().await;
    for version in ["5", "6", "7"] {
        watch.resumes(version).await;
    }
}

#[tokio::test]
async fn a_watch_alone_on_its_connection_follows_the_others_to_another() {
    let mut script = ScriptedServer::play([
        ScriptedAnswer::watch([list_end("5")]).held(),
        ScriptedAnswer::watch([bookmark("6")]).held(),
    ])
    .await;
    let (kubeconfig, _file) = kubeconfig(&format!("http://{}", script.address));
    let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
    let target = WatchTarget {
        has_many_events: true,
        ..WatchTarget::all("about.k8s.io", &["v1beta1"], "ClusterProperty", "clusterproperties")
    };
    let (sender, mut updates) = mpsc::channel(1);
    let watch = ResourceWatch::new(&access, target, sender, |event| event);
    let others = async {
        let event: ResourceEvent<PropertyDecoder> = updates.recv().await.unwrap();
        assert!(matches!(event, ResourceEvent::Listed { .. }), "{event:?}");
        script.asked().await;
        access.renew(&access.connection().await.unwrap()).await.unwrap();
        let asked = timeout(PATIENCE, script.asked()).await.expect("a request");
        assert!(asked.contains("resourceVersion=5"), "{asked}");
    };
    tokio::select! {
        () = watch.run() => panic!("it ends"),
        () = others => {}
    }
}

#[tokio::test]
async fn another_server_is_listed_anew_and_another_token_is_not() {
    let text = |server: &ScriptedServer, token: &str| -> Arc<str> {
        let content = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": format!("http://{}", server.address)}}],
            "users": [{"name": "u", "user": {"token": token}}],
        });
        content.to_string().into()
    };
    let watch = |events: &[Value]| ScriptedAnswer::watch(events.iter().cloned()).held();
    let former = ScriptedServer::play([watch(&[list_end("900")]), watch(&[])]).await;
    let current = ScriptedServer::play([watch(&[list_end("7")])]).await;
    let (sender, content) = tokio::sync::watch::channel(text(&former, "a"));
    let content = KubeconfigContent { name: "Secret a/b".to_owned(), content };
    let (access, _) = ApiAccess::from_content(content).await.unwrap();
    let (updates, events) = mpsc::channel(1);
    let target =
        WatchTarget::all("about.k8s.io", &["v1beta1"], "ClusterProperty", "clusterproperties");
    let task = tokio::spawn(async move {
        ResourceWatch::new(&access, target, updates, |event| event).run().await;
    });
    let mut watch = RunningWatch { script: former, updates: events, task };
    watch.reports("listed v1beta1: ").await;
    watch.asks_for_versions(&[""]).await;
    sender.send(text(&watch.script, "b")).unwrap();
    watch.resumes("900").await;
    sender.send(text(&current, "b")).unwrap();
    let _former = std::mem::replace(&mut watch.script, current);
    watch.asks(&["sendInitialEvents=true", "&resourceVersion=&"]).await;
    watch.reports("listed v1beta1: ").await;
}

#[tokio::test]
async fn a_list_that_fails_forgets_no_version() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([list_end("50")]),
        ScriptedAnswer::watch([error_event(410)]),
        ScriptedAnswer::error(429),
        ScriptedAnswer::error(504),
        ScriptedAnswer::error(403),
        ScriptedAnswer::watch([]),
        ScriptedAnswer::list("51", []),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.reports("listed v1beta1: ").await;
    watch.reports("failing: no: 429").await;
    watch.reports("failing: no: 504").await;
    watch.reports("failing: no: 403").await;
    watch.reports("failing: the API server ended the list before it was complete").await;
    watch.reports("listed v1beta1: ").await;
    watch.asks_for_versions(&["", "50", "50", "50", "50", "50", "50"]).await;
}

#[tokio::test]
async fn a_list_at_a_version_that_is_not_available_becomes_a_quorum_read() {
    for answer in [ScriptedAnswer::version_too_large(), ScriptedAnswer::error(410)] {
        let mut watch = RunningWatch::begin([
            ScriptedAnswer::watch([list_end("50")]),
            ScriptedAnswer::watch([error_event(410)]),
            answer,
            ScriptedAnswer::error(429),
            ScriptedAnswer::watch([list_end("7"), error_event(410)]),
            ScriptedAnswer::watch([list_end("8")]).held(),
        ])
        .await;
        watch.reports("listed v1beta1: ").await;
        watch.reports("failing: no: 429").await;
        watch.reports("listed v1beta1: ").await;
        watch.reports("listed v1beta1: ").await;
        watch.asks_for_versions(&["", "50", "50", "", "", "7"]).await;
    }
}

#[tokio::test]
async fn a_quorum_read_without_a_stream_names_no_version() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("50", []),
        ScriptedAnswer::watch([error_event(410)]),
        ScriptedAnswer::version_too_large(),
        ScriptedAnswer::list("7", []),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.reports("listed v1beta1: ").await;
    watch.reports("listed v1beta1: ").await;
    watch.asks_for_versions(&["", "0", "50", "50"]).await;
    let asked = watch.script.asked().await;
    assert!(!asked.contains("resourceVersion") && asked.contains("labelSelector=a%3Db"), "{asked}");
    watch.resumes("7").await;
}

#[tokio::test]
async fn a_quorum_read_that_fails_for_its_version_is_trouble() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(410),
        ScriptedAnswer::error(410),
        ScriptedAnswer::watch([list_end("7")]).held(),
    ])
    .await;
    watch.reports("failing: no: 410").await;
    watch.reports("listed v1beta1: ").await;
    watch.asks_for_versions(&["", "", ""]).await;
}

#[tokio::test]
async fn a_watch_that_ends_at_once_is_trouble() {
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([list_end("5")]),
        ScriptedAnswer::watch([]),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.reports("listed v1beta1: ").await;
    watch.reports("failing: the API server ends watches at once").await;
    watch.reports("recovered").await;
}

#[tokio::test]
async fn following_ends_with_its_receiver() {
    let events = [list_end("5"), event("ADDED", &property("a", "6", "x"))];
    let mut watch = RunningWatch::begin([ScriptedAnswer::watch(events).held()]).await;
    watch.reports("listed v1beta1: ").await;
    watch.updates.close();
    let task = std::mem::replace(&mut watch.task, tokio::spawn(async {}));
    // What was sent before counts for nothing.
    timeout(PATIENCE, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_page_instead_of_an_answer_is_a_short_reason() {
    let page = format!("<html> {}</html>", "blocked ".repeat(1 << 17));
    let mut watch = RunningWatch::begin([ScriptedAnswer::page(403, &page)]).await;
    let event = timeout(PATIENCE, watch.updates.recv()).await.expect("an event");
    let Some(ResourceEvent::Failing { reason, .. }) = event else { panic!("{event:?}") };
    assert!(reason.contains("<html> blocked"), "{reason:.100}");
    assert!(reason.len() < 1100, "{} bytes", reason.len());
}

#[tokio::test]
async fn a_line_that_is_too_long_is_trouble() {
    let long = event("ADDED", &property("b", "6", &"x".repeat(9 << 20)));
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::watch([list_end("5")]),
        ScriptedAnswer::watch([event("ADDED", &property("a", "6", "x")), long]),
        ScriptedAnswer::watch([]).held(),
    ])
    .await;
    watch.reports("listed v1beta1: ").await;
    watch.reports("changed a=x").await;
    watch.reports("failing: the API server sends an object of more than 8 MiB").await;
}

#[tokio::test]
async fn an_object_of_a_list_that_is_too_large_is_trouble() {
    let large = property("b", "6", &"x".repeat(9 << 20));
    let mut watch = RunningWatch::begin([
        ScriptedAnswer::error(422),
        ScriptedAnswer::list("50", [property("a", "5", "x"), large]),
    ])
    .await;
    watch.reports("failing: the API server sends an object of more than 8 MiB").await;
}

fn weight(object: &Value) -> usize {
    WatchedObject::<PropertyDecoder>::read(&object.to_string()).unwrap().weight()
}

#[test]
fn a_long_name_has_weight() {
    let [short, long] = [1, 253].map(|length| weight(&property(&"p".repeat(length), "5", "x")));
    assert_eq!(long - short, 252);
}

#[tokio::test]
async fn a_list_has_no_more_objects_than_there_is_room_for() {
    let fits = MOST_BYTES / weight(&property("p0000000", "5", "x"));
    let all = || (0..fits + 7).map(|number| property(&format!("p{number:07}"), "5", "x"));
    let events = all().map(|object| event("ADDED", &object)).chain([list_end("5")]);
    for answers in [
        vec![ScriptedAnswer::watch(events).held()],
        vec![ScriptedAnswer::error(422), ScriptedAnswer::list("5", all())],
    ] {
        let mut watch = RunningWatch::begin(answers).await;
        watch.reports("7 too many").await;
        let event = timeout(PATIENCE, watch.updates.recv()).await.expect("an event");
        let Some(ResourceEvent::Listed { objects, .. }) = event else { panic!("{event:?}") };
        assert_eq!(objects.len(), fits);
    }
}

/// A reader of several namespaces by one watch.
#[tokio::test]
async fn a_namespace_has_its_own_room_and_others_are_passed_over() {
    let of = |namespace: &str, name: &str, version: &str| {
        let mut object = property(name, version, "x");
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let all = || {
        let small = ["s1", "s2", "s3"].map(|name| of("small", name, "5"));
        let large = ["l1", "l2"].map(|name| of("large", name, "5"));
        small.into_iter().chain(large).chain([of("other", "o1", "5")])
    };
    let size = weight(&of("small", "s1", "5"));
    let room = || {
        Room::Each(Arc::new([("small".to_owned(), size), ("large".to_owned(), 9 * size)].into()))
    };
    let events = all().map(|object| event("ADDED", &object)).chain([
        list_end("5"),
        event("MODIFIED", &of("other", "o1", "6")),
        event("DELETED", &of("other", "o1", "7")),
        event("MODIFIED", &of("large", "l1", "8")),
    ]);
    let mut watch = RunningWatch::begin_with(
        [ScriptedAnswer::watch(events), ScriptedAnswer::watch([]).held()],
        room(),
    )
    .await;
    watch.reports("2 too many small").await;
    watch.reports("listed v1beta1: s1=x l1=x l2=x").await;
    watch.reports("changed l1=x").await;
    watch.asks(&["sendInitial"]).await;
    watch.resumes("8").await;
    let list = vec![ScriptedAnswer::error(422), ScriptedAnswer::list("5", all())];
    let mut watch = RunningWatch::begin_with(list, room()).await;
    watch.reports("2 too many small").await;
    watch.reports("listed v1beta1: s1=x l1=x l2=x").await;
}
