//! The control task without an API server.

mod paid;

use std::slice;

use k8s_openapi::ByteString;
use mcs_kube::{
    Decoder, ResourceEvent,
    testing::{self, ScriptedAnswer, ScriptedServer},
};
use serde_json::{Value, from_value, json};

use super::{super::state, *};
use crate::core::{
    apply::{own_request, send_plan},
    clusterset::{ConditionType, Stamp, fixture},
    mailbox::MailboxEvent,
    objects::mailbox_slice,
    own_cluster::OwnEvent,
    plan::{Sending, Write},
};

/// A control task whose API server nobody plays.
async fn control() -> Control {
    control_and_updates().await.0
}

async fn control_and_updates() -> (Control, mpsc::Receiver<Update>) {
    let settings = Settings::of_tests();
    let (kubeconfig, _file) = testing::kubeconfig("http://127.0.0.1:9");
    let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
    let access = Arc::new(access);
    let published = Arc::new(Published::new().unwrap());
    let outbox = Outbox::open(&settings, &access).await.unwrap();
    let (updates, sent) = mpsc::channel(WAITING_UPDATES);
    let (_, leads) = watch::channel(false);
    let state = State::new(settings.clone(), "east".parse().unwrap(), OwnCluster::new(vec![]));
    let identity = PublisherIdentity {
        cluster: "east".parse().unwrap(),
        uid: "u".to_owned(),
        mailbox: settings.mailbox.clone(),
        is_at_home: true,
        is_elected: false,
    };
    let term = PublisherTerm::new(identity, Instant::now());
    let core = Core { state, access, published, is_leader: false, was_synced: false, peers: None };
    (Control::new((core, Features::default()), term, outbox, updates, leads), sent)
}

fn metrics(control: &Control) -> String {
    control.core.published.metrics.text().unwrap()
}

#[tokio::test]
async fn a_standby_reports_no_queue() {
    let mut control = control().await;
    control.core.state.imports.add(ServiceName::new("shop", "web").unwrap());
    let is_told = |control: &Control| metrics(control).contains("waiting_services{target");
    control.tick();
    assert!(!is_told(&control), "it waits for its turn, and nobody takes this away");
    control.lead(true);
    control.tick();
    assert!(is_told(&control));
    control.lead(false);
    control.tick();
    assert!(!is_told(&control));
}

#[tokio::test]
async fn failures_are_counted_and_kept_for_the_status() {
    let mut control = control().await;
    for _ in 0..3 {
        control.finish(TaskResult::Lease(Err(ApplyError::Silent)));
        control.finish(TaskResult::PeerStatus("west".into(), Err(ApplyError::Silent)));
        let error = anyhow::anyhow!("<html>\n{}", "blocked ".repeat(1 << 17));
        control.finish(TaskResult::Token("peer-west".to_owned(), Err(error)));
    }
    let text = metrics(&control);
    for line in [
        "mcs_controller_mailbox_lease_writes_total{result=\"error\"} 3",
        "mcs_controller_peer_status_errors_total{peer=\"west\"} 3",
        "mcs_controller_token_renewals_total{result=\"error\",secret=\"peer-west\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let reason = control.token_failures.reason(&"peer-west".to_owned()).unwrap();
    assert!(reason.starts_with("<html> blocked") && reason.len() < 1100, "{reason:.100}");
}

/// A control task of a cluster that has these peers, whose Secrets are `hub`. Returns what its connections send too.
async fn with_peers(hub: &Value, peers: &[(&str, &str)]) -> (Control, mpsc::Receiver<Update>) {
    let (mut control, updates) = control_and_updates().await;
    control.take(Update::Peers(listed(peers.iter().map(|(id, mailbox)| peer(id, mailbox)))));
    control.take(Update::Secrets(listed([secret(hub)])));
    control.connect_hubs(Instant::now());
    (control, updates)
}

fn listed<D: Decoder>(objects: impl IntoIterator<Item = Value>) -> ResourceEvent<D> {
    let objects = objects.into_iter().map(|object| from_value(object).unwrap()).collect();
    ResourceEvent::Listed { version: "v1".to_owned(), objects }
}

fn peer(id: &str, mailbox: &str) -> Value {
    let spec = json!({"clusterId": id, "kubeconfigSecretRef": {"name": "hub"}, "mailbox": mailbox});
    json!({"metadata": {"name": id}, "spec": spec})
}

fn secret(texts: &Value) -> Value {
    let data = texts.as_object().unwrap().iter().map(|(key, text)| {
        let bytes = ByteString(text.as_str().unwrap().as_bytes().to_vec());
        (key.clone(), serde_json::to_value(bytes).unwrap())
    });
    json!({"metadata": {"name": "hub"}, "data": data.collect::<serde_json::Map<_, _>>()})
}

/// A Secret for all mailboxes of a hub that nobody plays.
fn hub() -> Value {
    let kubeconfig = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    json!({"kubeconfig": kubeconfig.to_string(), "mailboxes": "all"})
}

fn slices_of(mailboxes: &[(&str, &str)]) -> MailboxEvent {
    let slice = |(cluster, mailbox): &(&str, &str)| {
        let service = ServiceName::new("shop", "web").unwrap();
        let content = fixture::slice("web-1", &[]);
        mailbox_slice(mailbox, &cluster.parse().unwrap(), &service, &content, Stamp::NONE)
    };
    MailboxEvent::Slices(listed(mailboxes.iter().map(slice)))
}

/// The peers that have slices of shop/web.
fn with_slices(control: &Control) -> Vec<String> {
    let service = ServiceName::new("shop", "web").unwrap();
    let peers = control.core.state.peers.all().iter();
    let seen = peers.filter(|(_, peer)| peer.view.seen_slices(&service).is_some());
    seen.map(|(name, _)| name.to_string()).collect()
}

#[tokio::test]
async fn peers_on_a_hub_share_a_connection() {
    let both = [("south", "mcs-south"), ("west", "mcs-west")];
    let (mut control, _updates) = with_peers(&hub(), &both).await;
    assert_eq!(control.connections.counts(), (0, 1));
    let id = control.connections.hub_ids().remove(0);
    control.take(Update::Mailbox(id.clone(), slices_of(&both)));
    assert_eq!(with_slices(&control), ["south", "west"]);
    control.take(Update::Mailbox(id.clone(), slices_of(&both[..1])));
    assert_eq!(with_slices(&control), ["south"], "the list has nothing of the other one");
    control.take(Update::Access(id.clone(), Some("no certificate".to_owned())));
    assert!(control.core.state.peers.all().values().all(|peer| peer.access_problem.is_some()));
    // One goes: what is read of the other one stays as it is.
    control.take(Update::Peers(listed([peer("south", "mcs-south")])));
    control.connect_hubs(Instant::now());
    assert_eq!(control.connections.hub_ids(), slice::from_ref(&id));
    // Others come. The hub is read again once for all of them.
    for ids in [&["south", "west"][..], &["south", "west", "east-2"]] {
        let peers = ids.iter().map(|id| peer(id, &format!("mcs-{id}")));
        control.take(Update::Peers(listed(peers)));
        control.connect_hubs(Instant::now());
        assert_eq!(control.connections.hub_ids(), slice::from_ref(&id), "it was just read");
    }
    control.connect_hubs(Instant::now() + Duration::from_secs(1));
    let other = control.connections.hub_ids().remove(0);
    assert_ne!(other, id);
    control.take(Update::Mailbox(id, slices_of(&both)));
    assert_eq!(with_slices(&control), ["south"], "the former connection is late");
    control.take(Update::Mailbox(other, slices_of(&both)));
    assert_eq!(with_slices(&control), ["south", "west"]);
}

#[tokio::test]
async fn a_mailbox_beyond_its_limits_is_read_apart_from_others() {
    let both = [("south", "mcs-south"), ("west", "mcs-west")];
    let (mut control, _updates) = with_peers(&hub(), &both).await;
    let id = control.connections.hub_ids().remove(0);
    let namespace = "mcs-south".to_owned();
    let left_out = MailboxEvent::Slices(ResourceEvent::LeftOut { namespace, objects: 7 });
    control.take(Update::Mailbox(id.clone(), left_out));
    control.take(Update::Mailbox(id.clone(), slices_of(&both)));
    control.tick();
    control.connect_hubs(Instant::now());
    assert_eq!(control.connections.counts(), (1, 1));
    assert_eq!(control.connections.hub_ids(), [id], "nobody else is read again");
    // The operator allows more.
    let mut south = peer("south", "mcs-south");
    south["spec"]["limits"] = json!({"bytes": 1 << 30});
    control.take(Update::Peers(listed([south, peer("west", "mcs-west")])));
    control.tick();
    control.connect_hubs(Instant::now() + Duration::from_secs(1));
    assert_eq!(control.connections.counts(), (0, 1));
}

#[tokio::test]
async fn peers_whose_accounts_read_one_mailbox_have_a_connection_each() {
    let both = [("south", "mcs-south"), ("west", "mcs-west")];
    let mut secret = hub();
    secret["mailboxes"] = json!("own");
    let (mut control, _updates) = with_peers(&secret, &both).await;
    assert_eq!(control.connections.counts(), (2, 0));
    // `link` runs again.
    control.take(Update::Secrets(listed([self::secret(&hub())])));
    control.connect_hubs(Instant::now());
    assert_eq!(control.connections.counts(), (0, 1));
}

/// Another replica may have planned anew meanwhile.
#[tokio::test]
async fn a_plan_ends_when_another_replica_leads() {
    let answer = || ScriptedAnswer::error(404).after(Duration::from_millis(50));
    let mut server = ScriptedServer::play([answer(), answer()]).await;
    let (kubeconfig, _file) = testing::kubeconfig(&format!("http://{}", server.address));
    let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
    let name = ServiceName::new("shop", "web").unwrap();
    let delete =
        |slice: &str| Write::DeleteSlice(name.clone(), "west".parse().unwrap(), slice.into());
    let writes = vec![delete("a"), delete("b")];
    let own = OwnCluster::new(vec![]);
    let requests: Vec<_> = writes.iter().map(|write| own_request(write, &own, false)).collect();
    let (election, leads) = watch::channel(true);
    let sending = Sending::new(writes.clone(), []);
    let leads = || *leads.borrow();
    let sent = send_plan(&access, leads, sending, &requests, |_, _| false);
    let (sent, ()) = tokio::join!(sent, async {
        assert!(server.asked().await.contains("/endpointslices/a"));
        election.send_replace(false);
    });
    assert_eq!((&*sent.made, &*sent.unsent), (&writes[..1], &writes[1..]));
    assert!(sent.failure.is_none());
}

#[tokio::test]
async fn exports_that_cannot_be_read_say_so_after_a_minute() {
    let mut control = control().await;
    control.lead(true);
    let metadata = json!({"namespace": "shop", "name": "web"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    let service = ResourceEvent::Changed(from_value(service).unwrap());
    let export = ResourceEvent::Changed(from_value(json!({"metadata": metadata})).unwrap());
    let slices =
        ResourceEvent::Failing { reason: "403".to_owned(), is_forbidden: true, last_heard: None };
    for event in [OwnEvent::Services(service), OwnEvent::Exports(export), OwnEvent::Slices(slices)]
    {
        control.take(Update::Own(event));
    }
    let name = ServiceName::new("shop", "web").unwrap();
    let ready = |control: &mut Control| {
        control.tick();
        let writes = control.core.state.plan_and_note(&name);
        let conditions = writes.into_iter().find_map(|write| match write {
            Write::SetExportConditions(_, conditions) => Some(conditions),
            _ => None,
        });
        let mut conditions = conditions.unwrap().into_iter();
        conditions.find(|one| one.condition_type == ConditionType::Ready).unwrap().reason
    };
    assert_eq!(ready(&mut control), "Pending");
    let minute_ago = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
    control.own_reads = Liveness::new(minute_ago);
    assert_eq!(ready(&mut control), "NotRead");
    control.take(Update::Own(OwnEvent::Slices(ResourceEvent::Recovered)));
    assert_eq!(ready(&mut control), "Pending");
}

/// A feature may be the last that reads.
#[tokio::test]
async fn a_replica_is_ready_once_features_have_read_what_they_need() {
    let mut control = control().await;
    control.core.state = state::tests::namespaces::with_west();
    control.core.state.unread = 1;
    control.note_synced();
    assert!(control.core.published.not_ready().is_some());
    control.core.state.unread = 0;
    control.note_synced();
    assert!(control.core.published.not_ready().is_none());
}
