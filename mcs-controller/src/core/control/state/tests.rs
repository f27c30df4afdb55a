//! What follows from what the clusters say.

mod forbidden;
pub(crate) mod namespaces;
mod neighbours;
pub(crate) mod said;
mod vips;

use mcs_kube::{Decoder, ResourceEvent, WatchedObject};
use serde_json::{Value, from_value, json};

use super::*;
use crate::core::{
    apply::{ApplyError, Sent},
    clusterset::{ConditionType, Stamp},
    leases::Statement,
    mailbox::{MailboxEvent, MailboxWrite},
    objects::{complete_lease, exported_service, publisher_lease},
    own_cluster::OwnEvent,
    plan::Write,
};

pub(crate) fn state() -> State {
    state_of(OwnCluster::new(vec![]))
}

/// The state of a cluster of which this was read before its id was known.
fn state_of(own: OwnCluster) -> State {
    State::new(Settings::of_tests(), "east".parse().unwrap(), own)
}

pub(crate) fn object<D: Decoder>(value: Value) -> WatchedObject<D> {
    from_value(value).unwrap()
}

/// The cluster has this ClusterProperty now.
pub(crate) fn property(state: &mut State, name: &str, value: &str) {
    let property = object(json!({"metadata": {"name": name}, "spec": {"value": value}}));
    state.update(Update::Own(OwnEvent::Properties(ResourceEvent::Changed(property))));
}

pub(crate) fn listed<D: Decoder>() -> ResourceEvent<D> {
    ResourceEvent::Listed { version: "v1".to_owned(), objects: vec![] }
}

#[test]
fn pod_ranges_that_are_given_replace_those_of_nodes() {
    let mut state = state();
    let node = object(json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.1.2.0/24"]}}));
    state.update(Update::Own(OwnEvent::Nodes(ResourceEvent::Changed(node))));
    let texts =
        |state: &State| state.pod_ranges().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&state), ["10.1.2.0/24"]);
    assert!(state.importer().reserved.contains(&"10.1.2.0/24".parse().unwrap()), "no VIP of a pod");
    state.settings.pod_ranges = vec!["10.1.0.0/16".parse().unwrap(), "fd01::/48".parse().unwrap()];
    assert_eq!(texts(&state), ["10.1.0.0/16", "fd01::/48"]);
    assert!(state.importer().reserved.contains(&state.settings.pod_ranges[0]));
}

#[test]
fn an_emptied_mailbox_still_counts_what_is_exported() {
    let mut state = state();
    let name = ServiceName::new("shop", "web").unwrap();
    let metadata = json!({"namespace": "shop", "name": "web"});
    let export = || object(json!({"metadata": metadata}));
    let service = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export()))));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    let writes = state.plan_and_note_publication(&name);
    let [MailboxWrite::ApplyService(exported)] = &*writes else { panic!("{writes:?}") };
    let written =
        || object(exported_service("mcs-mailbox", exported, Stamp::NONE, false, None).unwrap());
    let mailbox = |state: &mut State, event| {
        state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Services(event)));
        state.plan_and_note_publication(&name);
        state.statement().services
    };
    assert_eq!(mailbox(&mut state, listed()), 1, "nothing is there yet");
    assert_eq!(mailbox(&mut state, ResourceEvent::Changed(written())), 1);
    assert_eq!(mailbox(&mut state, ResourceEvent::Deleted(written())), 1, "by somebody else");
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Deleted(export()))));
    assert_eq!(mailbox(&mut state, ResourceEvent::Deleted(written())), 0, "not exported now");
}

#[test]
fn labels_that_no_api_server_takes_do_not_keep_an_export_from_being_published() {
    let mut state = state();
    let metadata = json!({"namespace": "shop", "name": "web"});
    let export = object(json!({"metadata": metadata, "spec": {
        "exportedLabels": {"team": "shop", "long": "a".repeat(64)},
        "exportedAnnotations": {"large": "a".repeat(300 * 1024), "team": "shop"},
    }}));
    let service = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    let name = ServiceName::new("shop", "web").unwrap();
    let writes = state.plan_and_note_publication(&name);
    let [MailboxWrite::ApplyService(exported)] = &*writes else { panic!("{writes:?}") };
    let spec = exported.export.spec().unwrap();
    let keys = |map: &BTreeMap<Arc<str>, Arc<str>>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&spec.labels), ["team".into()]);
    assert_eq!(keys(&spec.annotations), ["team".into()]);
}

#[test]
fn services_are_derived_once_an_import_shows_the_status_that_they_need() {
    let mut state = state();
    state.settings.derived_services = true;
    let mut update = |status: Value| {
        let metadata = json!({"namespace": "shop", "name": "web", "labels": {
            "app.kubernetes.io/managed-by": "mcs-controller",
        }});
        let spec = json!({"type": "ClusterSetIP", "ips": [], "ports": []});
        let import = json!({"metadata": metadata, "spec": spec, "status": status});
        state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(object(import)))));
        state.importer().derives_services
    };
    assert!(!update(json!({})), "the CRD may be an old one");
    assert!(update(json!({"endpointSliceObjects": "Present"})));
    state.leave_out_slice_objects();
    assert!(!state.importer().derives_services);
}

#[test]
fn imports_that_are_read_before_the_id_of_the_cluster_count() {
    let mut own = OwnCluster::new(vec![]);
    let metadata = json!({"namespace": "shop", "name": "web", "labels": {
        "app.kubernetes.io/managed-by": "mcs-controller",
    }});
    let import = json!({
        "metadata": metadata,
        "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.7"], "ports": []},
        "status": {"endpointSliceObjects": "Present"},
    });
    own.apply(OwnEvent::Imports(ResourceEvent::Changed(object(import))));
    let mut state = state_of(own);
    state.settings.derived_services = true;
    assert!(state.importer().derives_services);
    let other = ServiceName::new("shop", "db").unwrap();
    let owner = state.in_use.other_owner(&other, "241.0.0.7".parse().unwrap());
    assert_eq!(owner.map(ToString::to_string).as_deref(), Some("shop/web"), "nobody else gets it");
}

#[test]
fn a_derived_service_that_may_not_be_deleted_is_left_for_a_while() {
    let mut state = state();
    let name = ServiceName::new("shop", "web").unwrap();
    let service = json!({
        "metadata": {
            "namespace": "shop", "name": crate::core::clusterset::derived_name(&name), "uid": "u",
            "labels": {
                "app.kubernetes.io/managed-by": "mcs-controller",
                "multicluster.kubernetes.io/service-name": "web",
            },
        },
        "spec": {"clusterIP": "None", "ports": []},
    });
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(object(service)))));
    while state.imports.next().is_some() {}
    let deletion = Write::DeleteDerivedService(name.clone());
    assert!(state.plan_and_note(&name).contains(&deletion));
    let now = Instant::now();
    state.note_derived_stays(name.clone(), now);
    assert!(!state.plan_and_note(&name).contains(&deletion));
    state.forget(now + KEPT_DERIVED);
    assert_eq!(state.imports.next(), Some(name.clone()));
    assert!(state.plan_and_note(&name).contains(&deletion));
}

fn answer(code: u16) -> ApplyError {
    let status = kube::core::Status { code, ..Default::default() };
    ApplyError::Refused(kube::Error::Api(Box::new(status)))
}

#[test]
fn a_peer_that_becomes_known_concerns_its_own_services() {
    let mut state = state();
    let peer = |name: &str| {
        object(json!({"metadata": {"name": name}, "spec": {
            "clusterId": name, "kubeconfigSecretRef": {"name": name},
        }}))
    };
    let objects = vec![peer("west"), peer("north")];
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    state.update(Update::Peers(ResourceEvent::Listed { version: "v1".to_owned(), objects }));
    for (name, cluster) in [("of-west", "west"), ("of-north", "north")] {
        let import = object(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {
                "app.kubernetes.io/managed-by": "mcs-controller",
            }},
            "spec": {"type": "ClusterSetIP", "ports": []},
            "status": {"clusters": [{"cluster": cluster}]},
        }));
        state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(import))));
    }
    let now = std::time::Instant::now();
    let queued = |state: &mut State| {
        let mut names = BTreeSet::new();
        while let Some(name) = state.imports.next() {
            state.imports.end(&name, false, now);
            names.insert(name.name().to_owned());
        }
        names.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(queued(&mut state), "of-north of-west");
    let mut read = |name: &str, second: u32| {
        let number = state.peers.all()[name].number;
        let renewed = jiff::Timestamp::from_second(second.into()).unwrap();
        let lease = publisher_lease("m", &complete_lease(name, 0, second.into()), renewed);
        let lease =
            ResourceEvent::Listed { version: "v1".to_owned(), objects: vec![object(lease)] };
        for event in [
            MailboxEvent::Services(listed()),
            MailboxEvent::Slices(listed()),
            MailboxEvent::Lease(lease),
        ] {
            state.update(Update::Mailbox(MailboxId::Peer(name.into(), number), event));
        }
        let of_west = ServiceName::new("shop", "of-west").unwrap();
        let names = queued(&mut state);
        (names, state.plan_and_note(&of_west).contains(&Write::DeleteImport(of_west)))
    };
    let result = |names: &str, goes| (names.to_owned(), goes);
    assert_eq!(read("west", 1), result("of-west", false));
    assert_eq!(read("north", 1), result("of-north of-west", false), "everything is known now");
    assert_eq!(read("west", 1), result("", false), "west may publish elsewhere");
    assert_eq!(read("west", 2), result("of-west", true), "west publishes there");
}

fn listed_mailbox(state: &mut State) {
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Services(listed())));
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Slices(listed())));
    assert!(!state.is_own_mailbox(), "its Lease was not read");
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Lease(listed())));
}

/// Exports `services` Services.
pub(crate) fn exporting(state: &mut State, services: usize) -> Vec<ServiceName> {
    let export = |number: usize| {
        let metadata = json!({"namespace": "shop", "name": format!("web-{number}")});
        let service = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}));
        let export = object(json!({"metadata": metadata}));
        state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
        state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
        ServiceName::new("shop", &format!("web-{number}")).unwrap()
    };
    (0..services).map(export).collect()
}

/// How these writes end with this error, or without.
fn ended(writes: Vec<MailboxWrite>, failure: Option<ApplyError>) -> Sent<MailboxWrite> {
    let (mut made, mut refused, mut unsent) = (vec![], vec![], vec![]);
    match &failure {
        None => made = writes,
        Some(error) if error.is_refusal() => {
            refused = writes.into_iter().map(|write| (write, error.to_string())).collect();
        }
        Some(_) => unsent = writes,
    }
    Sent { failure, made, refused, unsent }
}

#[test]
fn words_of_a_refusal_that_vary_are_no_news() {
    let mut state = state();
    listed_mailbox(&mut state);
    let name = exporting(&mut state, 1).remove(0);
    state.begin_term(1);
    let mut refuse = |message: &str| {
        while state.imports.next().is_some() {}
        let status =
            kube::core::Status { code: 403, message: message.to_owned(), ..Default::default() };
        let error = ApplyError::Refused(kube::Error::Api(Box::new(status)));
        let writes = state.plan_and_note_publication(&name);
        let is_news = state.note_publication(&name, &ended(writes, Some(error)));
        (is_news, state.imports.waiting())
    };
    assert_eq!(refuse("exceeded quota, used: 3"), (true, 1));
    assert_eq!(refuse("exceeded quota, used: 4"), (false, 0));
}

#[test]
fn a_term_is_complete_when_every_service_was_published_or_refused() {
    let mut state = state();
    listed_mailbox(&mut state);
    let names = exporting(&mut state, 3);
    state.begin_term(1);
    let now = std::time::Instant::now();
    let mut end = |number: usize, code: Option<u16>| {
        while state.publications.next().is_some() {}
        let writes = state.plan_and_note_publication(&names[number]);
        let sent = ended(writes, code.map(answer));
        state.note_publication(&names[number], &sent);
        state.publications.end(&names[number], sent.failure.is_some(), now);
        let Statement { complete, services, refused, .. } = state.statement();
        (complete, services, refused.len())
    };
    assert_eq!(end(0, None), (false, 1, 0));
    assert_eq!(end(1, Some(409)), (false, 2, 0), "somebody else has written it");
    assert_eq!(end(1, Some(403)), (false, 1, 1), "a quota is full");
    assert_eq!(end(2, Some(503)), (false, 2, 1), "no answer");
    assert_eq!(end(2, None), (true, 2, 1));
    assert_eq!(end(1, Some(403)), (true, 2, 1), "still");
    assert_eq!(end(1, None), (true, 3, 0));
}

/// The mailbox may have lost the service since then, and the Lease does not count it yet.
#[test]
fn writes_from_before_a_term_are_no_answer_in_it() {
    let mut state = state();
    listed_mailbox(&mut state);
    let [name] = &*exporting(&mut state, 1) else { panic!("one") };
    state.begin_term(1);
    state.publications.begin(name.clone());
    state.begin_term(1);
    for (is_planned, expected) in [(false, (false, 0)), (true, (true, 1))] {
        if is_planned {
            state.plan_and_note_publication(name);
        }
        state.note_publication(name, &Sent::default());
        let Statement { complete, services, .. } = state.statement();
        assert_eq!((complete, services), expected);
    }
}

#[test]
fn a_term_is_complete_although_services_change_all_the_time() {
    let mut state = state();
    listed_mailbox(&mut state);
    let names = exporting(&mut state, 100);
    state.begin_term(1);
    let now = std::time::Instant::now();
    let mut published = 0;
    while !state.statement().complete {
        let name = state.publications.next().unwrap();
        state.publications.begin(name.clone());
        state.plan_and_note_publication(&name);
        state.note_publication(&name, &Sent::default());
        state.publications.end(&name, false, now);
        published += 1;
        // Ten others change while one is written.
        for name in names.iter().cycle().skip(published * 7).take(10) {
            state.publications.add(name.clone());
        }
        assert!(published <= 100, "each one once");
    }
    assert!(state.publications.waiting() > 0);
}

#[test]
fn nothing_is_published_in_the_mailbox_of_another_cluster() {
    let mut state = state();
    listed_mailbox(&mut state);
    let name = ServiceName::new("shop", "web").unwrap();
    let lease = |cluster: &str| {
        let lease = complete_lease(cluster, 1, 1);
        let lease = publisher_lease("m", &lease, jiff::Timestamp::UNIX_EPOCH);
        MailboxEvent::Lease(ResourceEvent::Changed(object(lease)))
    };
    state.update(Update::Mailbox(MailboxId::Own, lease("west")));
    assert!(!state.is_own_mailbox());
    let publication = state.publication(&name, None);
    assert!(matches!(publication, Publication::Failed(_)), "{publication:?}");
    state.update(Update::Mailbox(MailboxId::Own, lease("east")));
    assert!(state.is_own_mailbox());
    state.note_rival(Some("another publisher".to_owned()));
    let publication = state.publication(&name, None);
    assert_eq!(publication, Publication::Failed("another publisher".to_owned()));
}

#[test]
fn a_restriction_of_a_later_version_is_not_lifted() {
    let mut state = state();
    listed_mailbox(&mut state);
    let [name] = &*exporting(&mut state, 1) else { panic!("one") };
    let writes = state.plan_and_note_publication(name);
    let [MailboxWrite::ApplyService(exported)] = &*writes else { panic!("{writes:?}") };
    let mut object = exported_service("m", exported, Stamp::NONE, false, None).unwrap();
    object["metadata"]["annotations"]["clusterset.mcs-agent.io/must-understand"] = json!("moon");
    let event = ResourceEvent::Changed(self::object(object));
    state.update(Update::Mailbox(MailboxId::Own, MailboxEvent::Services(event)));
    let problem = state.unknown_demands(name).unwrap();
    assert!(problem.contains("with moon"), "{problem}");
    let writes = state.plan_and_note_publication(name);
    assert!(writes.is_empty(), "{writes:?}");
    state.note_publication(name, &Sent::default());
    assert_eq!(state.publication(name, None), Publication::Partly(problem));
    // A publisher that begins its term has not planned any service.
    state.begin_term(2);
    assert!(state.plan_and_note_publication(name).is_empty());
}

#[test]
fn what_a_peer_without_a_usable_object_gave_stays() {
    let peer = |range: &str| {
        object(json!({"metadata": {"name": "west"}, "spec": {
            "clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": [range],
        }}))
    };
    let mut state = state();
    let metadata = json!({"namespace": "shop", "name": "web", "labels": {
        "app.kubernetes.io/managed-by": "mcs-controller",
    }});
    let import = json!({
        "metadata": metadata,
        "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"], "ports": []},
        "status": {"clusters": [{"cluster": "west"}]},
    });
    let slice = json!({
        "metadata": {"namespace": "shop", "name": "web-west-x", "labels": {
            "endpointslice.kubernetes.io/managed-by": "mcs-controller",
            "multicluster.kubernetes.io/service-name": "web",
            "multicluster.kubernetes.io/source-cluster": "west",
        }},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.2.0.1"]}], "ports": [],
    });
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(object(import)))));
    state.update(Update::Own(OwnEvent::ImportedSlices(ResourceEvent::Changed(object(slice)))));
    let name = ServiceName::new("shop", "web").unwrap();
    let goes = |state: &mut State| {
        let writes = state.plan_and_note(&name);
        let goes = |write: &Write| matches!(write, Write::DeleteImport(_) | Write::DeleteSlice(..));
        writes.iter().filter(|write| goes(write)).count()
    };
    let peers =
        |objects| Update::Peers(ResourceEvent::Listed { version: "v1alpha1".to_owned(), objects });
    state.update(peers(vec![peer("10.2.0.0/99")]));
    assert_eq!(goes(&mut state), 0, "it cannot be used");
    state.update(peers(vec![]));
    assert_eq!(goes(&mut state), 0, "it may come back");
    let later = std::time::Instant::now() + std::time::Duration::from_mins(1);
    assert!(state.peers.forget(later));
    assert_eq!(goes(&mut state), 2);
}

#[test]
fn exports_say_that_readers_hear_nothing_of_this_cluster() {
    let mut state = state();
    let name = ServiceName::new("shop", "web").unwrap();
    let metadata = json!({"namespace": "shop", "name": "web"});
    let export = object(json!({"metadata": metadata}));
    let service = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    while state.imports.next().is_some() {}
    let ready = |state: &mut State| {
        let writes = state.plan_and_note(&name);
        let conditions = writes.iter().find_map(|write| match write {
            Write::SetExportConditions(_, conditions) => Some(conditions),
            _ => None,
        });
        let ready = &conditions.unwrap()[1];
        (ready.status, ready.reason.clone(), ready.message.clone())
    };
    let silent = || Some(Publication::Silent("403".to_owned()));
    state.note_silence(silent());
    assert_eq!(state.imports.next(), Some(name.clone()));
    let (status, reason, message) = ready(&mut state);
    assert_eq!(
        (status, &*reason),
        (crate::core::clusterset::ConditionStatus::Unknown, "NotRenewed")
    );
    assert!(message.ends_with(": 403"), "{message}");
    state.note_silence(silent());
    assert_eq!(state.imports.next(), None, "nothing has turned");
    state.note_silence(None);
    assert_eq!(state.imports.next(), Some(name.clone()));
    assert_eq!(ready(&mut state).1, "Pending");
}
