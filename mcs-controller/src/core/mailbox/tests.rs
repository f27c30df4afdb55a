//! What a reader believes of a mailbox: silence is not emptiness.

mod ignored;
mod refused;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcs_kube::{Decoder, ResourceEvent, WatchedObject};
use serde_json::{Value, from_value, json};

use super::*;
use crate::core::{
    clusterset::{Export, IpFamily, ServiceName, SourceSlice, Stamp, fixture},
    objects::{
        Exported, PublisherLease, PublisherLeaseDecoder, complete_lease, exported_service,
        mailbox_slice, publisher_lease,
    },
};

const MAILBOX: &str = "mcs-mailbox";
const WRITTEN: Stamp = Stamp { mailbox: 0, epoch: 1, sequence: 1 };

fn service(name: &str) -> ServiceName {
    ServiceName::new("shop", name).unwrap()
}

fn export(name: &str) -> Export {
    Export { name: service(name), ..fixture::export("east", 0, fixture::spec()) }
}

fn slice(name: &str, generation: i64) -> SourceSlice {
    SourceSlice { generation, ..fixture::slice(name, &[]) }
}

fn decoded<D: Decoder>(object: Value) -> WatchedObject<D> {
    from_value(object).unwrap()
}

fn exported<D: Decoder>(name: &str, slices: &[&str]) -> WatchedObject<D> {
    exported_at(name, slices, WRITTEN)
}

fn object(name: &str) -> Value {
    let exported = Exported { export: export(name), slices: vec![] };
    exported_service(MAILBOX, &exported, WRITTEN, false, None).unwrap()
}

fn exported_at<D: Decoder>(name: &str, slices: &[&str], stamp: Stamp) -> WatchedObject<D> {
    let slices = slices.iter().map(|&slice| slice.into()).collect();
    let exported = Exported { export: export(name), slices };
    decoded(exported_service(MAILBOX, &exported, stamp, false, None).unwrap())
}

fn copy<D: Decoder>(name: &str, content: &SourceSlice) -> WatchedObject<D> {
    copy_at(name, content, WRITTEN)
}

fn copy_at<D: Decoder>(name: &str, content: &SourceSlice, stamp: Stamp) -> WatchedObject<D> {
    decoded(mailbox_slice(MAILBOX, &"east".parse().unwrap(), &service(name), content, stamp))
}

fn lease(cluster: &str, complete: bool, services: usize, second: u64) -> MailboxEvent {
    lease_of(&PublisherLease { complete, ..complete_lease(cluster, services, second) })
}

fn lease_of(lease: &PublisherLease) -> MailboxEvent {
    let second = i64::try_from(lease.stamp.sequence).unwrap();
    let now = jiff::Timestamp::from_second(second).unwrap();
    MailboxEvent::Lease(listed([decoded(publisher_lease(MAILBOX, lease, now))]))
}

fn listed<D: Decoder>(objects: impl IntoIterator<Item = WatchedObject<D>>) -> ResourceEvent<D> {
    ResourceEvent::Listed { version: "v1".to_owned(), objects: objects.into_iter().collect() }
}

fn failing<D: Decoder>() -> ResourceEvent<D> {
    let reason = "exportedservices is forbidden".to_owned();
    ResourceEvent::Failing { reason, is_forbidden: true, last_heard: None }
}

/// A mailbox with the services a and b, each with one slice.
fn known() -> MailboxView {
    let mut view = MailboxView::new("east".parse().unwrap());
    view.apply(MailboxEvent::Services(listed([exported("a", &["a-1"]), exported("b", &["b-1"])])));
    let slices = [copy("a", &slice("a-1", 1)), copy("b", &slice("b-1", 1))];
    view.apply(MailboxEvent::Slices(listed(slices)));
    assert!(!view.counts());
    let changed = view.apply(lease("east", true, 2, 1));
    assert_eq!(changed.len(), 2);
    assert!(view.counts());
    view
}

/// The believed services, with the names and generations of their slices.
fn believed(view: &MailboxView) -> Vec<String> {
    let slices = |slices: &BTreeMap<Arc<str>, Arc<SourceSlice>>| {
        let names: Vec<_> =
            slices.values().map(|slice| format!("{}@{}", slice.name, slice.generation)).collect();
        names.join(" ")
    };
    let services = view.believed().iter();
    let texts = services.map(|(name, one)| format!("{}: {}", name.name(), slices(&one.slices)));
    let mut texts: Vec<_> = texts.collect();
    texts.sort();
    texts
}

#[test]
fn a_reader_that_starts_believes_each_service_that_is_there() {
    for (lease, problem, is_believed) in [
        (lease("east", false, 1, 1), MailboxProblem::Incomplete, true),
        (lease("east", true, 2, 1), MailboxProblem::Count { seen: 1, said: 2 }, true),
        (lease("west", true, 1, 1), MailboxProblem::OtherCluster("west".to_owned()), false),
        (MailboxEvent::Lease(listed([])), MailboxProblem::NoPublisher, false),
    ] {
        let mut view = MailboxView::new("east".parse().unwrap());
        view.apply(MailboxEvent::Services(listed([exported("a", &[])])));
        view.apply(MailboxEvent::Slices(listed([])));
        assert_eq!(
            view.removal_problem(),
            Some(MailboxProblem::Incomplete),
            "it has not read the Lease"
        );
        view.apply(lease);
        assert_eq!((view.removal_problem(), view.counts()), (Some(problem), is_believed));
        assert_eq!(believed(&view).len(), usize::from(is_believed));
        assert!(!view.allows_removal(&service("b")), "it may come");
    }
}

#[test]
fn a_service_that_has_just_gone_is_no_problem_before_the_lease_was_renewed_twice() {
    let mut view = known();
    view.apply(lease("east", true, 2, 2));
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(exported("b", &["b-1"]))));
    assert_eq!((view.removal_problem().is_some(), view.problem()), (true, None));
    view.apply(lease("east", true, 2, 3));
    assert_eq!(view.problem(), None);
    view.apply(lease("east", true, 2, 4));
    assert_eq!(view.problem(), Some(MailboxProblem::Count { seen: 1, said: 2 }));
    view.apply(lease("east", true, 1, 5));
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(exported("a", &["a-1"]))));
    assert_eq!(view.problem(), None);
}

#[test]
fn a_refused_service_keeps_nobody_from_the_others() {
    let mut view = known();
    view.apply(lease("east", true, 2, 2));
    assert!(view.allows_removal(&service("c")), "nobody exports it");
    // The API server takes neither b back, which somebody has deleted, nor c. a goes on, and d has gone.
    let gone = MailboxEvent::Services(ResourceEvent::Deleted(exported("b", &["b-1"])));
    view.apply(gone);
    let refused = [service("b"), service("c")].into();
    view.apply(lease_of(&PublisherLease { failed: 2, refused, ..complete_lease("east", 1, 3) }));
    assert_eq!(view.removal_problem(), None);
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
    let certain = ["a", "b", "c", "d"].map(|name| view.allows_removal(&service(name)));
    assert_eq!(certain, [true, true, false, true]);
    // More services are refused than the Lease has room for: any may be one of them.
    view.apply(lease_of(&PublisherLease { failed: 3, ..complete_lease("east", 1, 4) }));
    assert_eq!(believed(&view).len(), 2);
    assert!(!view.allows_removal(&service("d")));
    view.apply(lease("east", true, 1, 5));
    assert_eq!(believed(&view), ["a: a-1@1"]);
}

#[test]
fn a_service_that_cannot_be_read_is_there() {
    let mut view = known();
    let mut next = serde_json::to_value(json!({
        "metadata": {"namespace": MAILBOX, "name": "shop.b"},
        "spec": {"clusterId": "east"},
    }));
    let unread = decoded(next.as_mut().unwrap().take());
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(unread)));
    view.apply(lease("east", true, 2, 2));
    assert_eq!(view.removal_problem(), None, "it counts");
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "it stays as it was");
    let mut starts = MailboxView::new("east".parse().unwrap());
    let unread = decoded(json!({"metadata": {"namespace": MAILBOX, "name": "shop.b"}, "spec": 1}));
    starts.apply(MailboxEvent::Services(listed([exported("a", &[]), unread])));
    starts.apply(MailboxEvent::Slices(listed([])));
    starts.apply(lease("east", true, 2, 1));
    starts.apply(lease("east", true, 2, 2));
    assert_eq!(believed(&starts), ["a: "]);
    let certain = ["a", "b", "c"].map(|name| starts.allows_removal(&service(name)));
    assert_eq!(certain, [true, false, true]);
}

#[test]
fn a_service_that_asks_for_more_than_is_known_is_not_imported() {
    let mut view = known();
    view.apply(lease("east", true, 2, 2));
    let exported = Exported { export: export("b"), slices: vec!["b-1".into()] };
    let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 2 };
    let mut object = exported_service(MAILBOX, &exported, stamp, false, None).unwrap();
    object["metadata"]["annotations"]["clusterset.mcs-agent.io/must-understand"] = json!("moon");
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(decoded(object))));
    assert_eq!(believed(&view), ["a: a-1@1"]);
    assert!(view.allows_removal(&service("b")), "its slices go");
}

#[test]
fn a_service_that_is_withdrawn_goes_at_once() {
    let mut view = known();
    // Many others come and go meanwhile, so that the Lease never counts what is there.
    view.apply(lease("east", true, 7, 2));
    let exported = Exported { export: export("b"), slices: vec![] };
    let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 2 };
    let object = exported_service(MAILBOX, &exported, stamp, true, None).unwrap();
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(decoded(object.clone()))));
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(decoded(object))));
    assert_eq!(believed(&view), ["a: a-1@1"]);
}

#[test]
fn a_publisher_that_was_replaced_changes_nothing() {
    let mut view = known();
    let next = |epoch, sequence| {
        let stamp = Stamp { mailbox: 0, epoch, sequence };
        lease_of(&PublisherLease { stamp, ..complete_lease("east", 2, 1) })
    };
    view.apply(next(2, 1));
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "until the next one has written them");
    let zombie = copy_at("a", &slice("a-1", 9), Stamp { mailbox: 0, epoch: 1, sequence: 9 });
    view.apply(MailboxEvent::Slices(ResourceEvent::Changed(zombie)));
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
    view.apply(next(1, 99));
    assert_eq!(view.removal_problem(), Some(MailboxProblem::Past));
    view.apply(next(2, 2));
    let written = Stamp { mailbox: 0, epoch: 2, sequence: 1 };
    let slices = ResourceEvent::Changed(copy_at("a", &slice("a-1", 3), written));
    view.apply(MailboxEvent::Slices(slices));
    let services = ResourceEvent::Changed(exported_at("a", &["a-1"], written));
    view.apply(MailboxEvent::Services(services));
    assert_eq!(believed(&view), ["a: a-1@3", "b: b-1@1"]);
}

#[test]
fn a_mailbox_of_yesterday_moves_nothing() {
    let yesterday = |view: &mut MailboxView| {
        let services = [exported("a", &["a-0"]), exported("c", &["c-1"])];
        view.apply(MailboxEvent::Services(listed(services)));
        let slices = [copy("a", &slice("a-0", 1)), copy("c", &slice("c-1", 1))];
        view.apply(MailboxEvent::Slices(listed(slices)));
        view.apply(lease("east", true, 2, 1));
    };
    let mut view = MailboxView::new("east".parse().unwrap());
    yesterday(&mut view);
    let today = |sequence| Stamp { mailbox: 0, epoch: 1, sequence };
    let services = [exported_at("a", &["a-1"], today(6)), exported_at("b", &[], today(7))];
    view.apply(MailboxEvent::Services(listed(services)));
    let slices = [copy_at("a", &slice("a-1", 1), today(5))];
    view.apply(MailboxEvent::Slices(listed(slices)));
    view.apply(lease("east", true, 2, 8));
    assert_eq!(believed(&view), ["a: a-1@1", "b: "]);
    yesterday(&mut view);
    assert_eq!(believed(&view), ["a: a-1@1", "b: ", "c: c-1@1"], "c was not known to be gone");
    assert_eq!(view.removal_problem(), Some(MailboxProblem::Past));
    // The publisher notices, and begins anew.
    view.apply(lease("east", false, 0, 9));
    assert_eq!(believed(&view), ["a: a-1@1", "b: ", "c: c-1@1"]);
}

/// Clocks differ, so the age of a Lease means nothing: that it is renewed does.
#[test]
fn a_cluster_that_returns_after_a_month_takes_away_what_it_exports_no_longer() {
    const MONTH: u64 = 30 * 86_400;
    let returned = |complete, services, sequence| {
        let stamp = Stamp { mailbox: 0, epoch: 2, sequence };
        lease_of(&PublisherLease { stamp, complete, ..complete_lease("east", services, 1) })
    };
    // The reader starts while the cluster is away.
    let mut view = MailboxView::new("east".parse().unwrap());
    let services = [exported("a", &["a-1"]), exported("b", &["b-1"])];
    view.apply(MailboxEvent::Services(listed(services)));
    let slices = [copy("a", &slice("a-1", 1)), copy("b", &slice("b-1", 1))];
    view.apply(MailboxEvent::Slices(listed(slices)));
    for _ in 0..3 {
        view.apply(lease("east", true, 2, 1));
        assert_eq!((view.counts(), view.is_renewed()), (true, false));
        assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
        let certain = ["a", "b", "c"].map(|name| view.allows_removal(&service(name)));
        assert_eq!(certain, [false; 3], "nothing that was imported of it goes");
    }
    // It exports b no longer, and has other pods.
    view.apply(returned(false, 0, MONTH));
    let gone = MailboxEvent::Services(ResourceEvent::Deleted(exported("b", &["b-1"])));
    view.apply(gone);
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "not everything is published");
    assert!(!view.allows_removal(&service("c")));
    let written = Stamp { mailbox: 0, epoch: 2, sequence: MONTH + 1 };
    let slices = ResourceEvent::Changed(copy_at("a", &slice("a-2", 1), written));
    view.apply(MailboxEvent::Slices(slices));
    let services = ResourceEvent::Changed(exported_at("a", &["a-2"], written));
    view.apply(MailboxEvent::Services(services));
    assert_eq!(believed(&view), ["a: a-2@1", "b: b-1@1"], "it counts again");
    view.apply(returned(true, 1, MONTH + 2));
    assert_eq!((believed(&view), view.removal_problem()), (vec!["a: a-2@1".to_owned()], None));
    assert!(view.allows_removal(&service("c")));
}

#[test]
fn slices_of_another_cluster_do_not_count() {
    let mut view = known();
    let (west, name) = ("west".parse().unwrap(), service("a"));
    let other = mailbox_slice(MAILBOX, &west, &name, &slice("a-1", 9), WRITTEN);
    assert!(view.apply(MailboxEvent::Slices(ResourceEvent::Changed(decoded(other)))).is_empty());
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
}

#[test]
fn a_service_goes_when_the_publisher_counts_it_no_longer() {
    let mut view = known();
    let gone = MailboxEvent::Services(ResourceEvent::Deleted(exported("b", &["b-1"])));
    assert!(view.apply(gone).is_empty());
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
    let changed = view.apply(lease("east", true, 1, 2));
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), [service("b")]);
    assert_eq!(believed(&view), ["a: a-1@1"]);
}

#[test]
fn an_emptied_mailbox_takes_nothing_away() {
    let mut view = known();
    view.apply(MailboxEvent::Services(failing()));
    assert!(matches!(view.removal_problem(), Some(MailboxProblem::Unreadable { .. })));
    view.apply(MailboxEvent::Slices(listed([])));
    view.apply(MailboxEvent::Services(listed([])));
    view.apply(MailboxEvent::Lease(listed([])));
    view.apply(lease("east", false, 0, 2));
    view.apply(lease("west", true, 0, 3));
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
    // The publisher of the right cluster says that nothing is exported.
    view.apply(lease("east", true, 0, 4));
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "that may be of a backup");
    view.apply(lease("east", true, 0, 5));
    assert_eq!(believed(&view), [""; 0]);
}

#[test]
fn a_slice_goes_when_its_service_does_not_name_it() {
    let mut view = known();
    let gone = MailboxEvent::Slices(ResourceEvent::Deleted(copy("a", &slice("a-1", 1))));
    view.apply(gone);
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "it may come back");
    let added = MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-2", 1))));
    view.apply(added);
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"], "it is not named yet");
    let named = MailboxEvent::Services(ResourceEvent::Changed(exported("a", &["a-2"])));
    view.apply(named);
    assert_eq!(believed(&view), ["a: a-2@1", "b: b-1@1"]);
    let early = MailboxEvent::Services(ResourceEvent::Changed(exported("a", &["a-3"])));
    view.apply(early);
    assert_eq!(believed(&view), ["a: a-2@1", "b: b-1@1"], "a-3 was not seen yet");
    assert!(!view.believed()[&service("a")].has_all_slices());
    view.apply(MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-3", 1)))));
    assert_eq!(believed(&view), ["a: a-3@1", "b: b-1@1"]);
    assert!(view.believed()[&service("a")].has_all_slices());
    let named = MailboxEvent::Services(ResourceEvent::Changed(exported("a", &["a-2"])));
    view.apply(named);
    view.apply(MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-2", 1)))));
    let changed = MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-2", 7))));
    assert_eq!(view.apply(changed).into_iter().collect::<Vec<_>>(), [service("a")]);
    assert_eq!(believed(&view), ["a: a-2@7", "b: b-1@1"]);
}

#[test]
fn another_clusters_objects_are_ignored() {
    let mut view = known();
    let foreign = Exported { export: export("c"), slices: vec![] };
    let mut object = exported_service(MAILBOX, &foreign, WRITTEN, false, None);
    object.as_mut().unwrap()["spec"]["clusterId"] = json!("west");
    let foreign = decoded(object.unwrap());
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(foreign)));
    assert_eq!(believed(&view).len(), 2);
    // While the Lease names another cluster, nothing new counts.
    view.apply(lease("west", true, 2, 2));
    view.apply(MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-1", 9)))));
    assert_eq!(believed(&view), ["a: a-1@1", "b: b-1@1"]);
    let changed = view.apply(lease("east", true, 2, 3));
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), [service("a")]);
    assert_eq!(believed(&view), ["a: a-1@9", "b: b-1@1"], "nothing of the meantime is lost");
}

/// Every prefix of the writes leaves a reader with all slices that it had, until the service names others.
#[test]
fn a_publication_is_written_in_an_order_that_readers_can_follow() {
    let mut mailbox = MailboxView::new("east".parse().unwrap());
    let outgoing = |names: &[&str]| Outgoing {
        export: export("a"),
        slices: names.iter().map(|name| (Arc::from(*name), Arc::new(slice(name, 1)))).collect(),
    };
    let kinds = |mailbox: &MailboxView, wanted: Option<&Outgoing>| -> Vec<String> {
        let writes = plan_publication(&service("a"), wanted, mailbox, 1, Withheld::NONE);
        let kind = |write: MailboxWrite| match write {
            MailboxWrite::ApplySlice(_, slice) => format!("slice {}", slice.name),
            MailboxWrite::ApplyService(exported) => format!("service {:?}", exported.slices),
            MailboxWrite::WithdrawService(_) => "withdrawn".to_owned(),
            MailboxWrite::DeleteService(_) => "no service".to_owned(),
            MailboxWrite::DeleteSlice(_, name) => format!("no slice {name}"),
        };
        writes.into_iter().map(kind).collect()
    };
    let wanted = outgoing(&["a-1"]);
    assert_eq!(kinds(&mailbox, Some(&wanted)), ["slice a-1", "service [\"a-1\"]"]);
    mailbox.apply_to_own(MailboxEvent::Services(listed([exported("a", &["a-1"])])));
    mailbox.apply_to_own(MailboxEvent::Slices(listed([copy("a", &slice("a-1", 1))])));
    assert_eq!(kinds(&mailbox, Some(&wanted)), [""; 0]);
    let mut other = outgoing(&["a-1"]);
    let ipv6 = SourceSlice { family: IpFamily::V6, ..slice("a-1", 1) };
    other.slices.insert("a-1".into(), Arc::new(ipv6));
    assert_eq!(kinds(&mailbox, Some(&other)), ["no slice a-1", "slice a-1"], "of another family");
    let wanted = outgoing(&["a-2"]);
    let expected = ["slice a-2", "service [\"a-2\"]", "no slice a-1"];
    assert_eq!(kinds(&mailbox, Some(&wanted)), expected);
    assert_eq!(kinds(&mailbox, None), ["withdrawn", "no service", "no slice a-1"]);
    let writes =
        plan_publication(&service("a"), Some(&outgoing(&["a-1"])), &mailbox, 2, Withheld::NONE);
    assert_eq!(writes.len(), 2, "everything is written anew in another epoch");
}

#[test]
fn a_mailbox_that_the_cluster_has_left_is_not_believed() {
    let mut view = MailboxView::moved("east".parse().unwrap());
    view.apply(MailboxEvent::Services(listed([exported("a", &[])])));
    view.apply(MailboxEvent::Slices(listed([])));
    view.apply(lease("east", true, 1, 1));
    assert!(!view.counts(), "nobody may renew it any more");
    view.apply(lease("east", true, 1, 2));
    assert!(view.counts());
}

#[test]
fn a_service_with_many_slices_that_are_not_there_costs_little() {
    // As many as the definition of ExportedServices allows.
    let names = |prefix: &str| (0..20_000).map(|n| format!("{prefix}-{n:05}")).collect::<Vec<_>>();
    let (here, absent) = (names("here"), names("absent"));
    let service = |names: &[String]| {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        exported("a", &names)
    };
    let mut view = MailboxView::new("east".parse().unwrap());
    view.apply(MailboxEvent::Services(listed([service(&here)])));
    let copies: Vec<_> = here.iter().map(|name| copy("a", &slice(name, 1))).collect();
    view.apply(MailboxEvent::Slices(listed(copies)));
    view.apply(lease("east", true, 1, 1));
    let changed = MailboxEvent::Services(ResourceEvent::Changed(service(&absent)));
    let start = std::time::Instant::now();
    view.apply(changed);
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
    assert_eq!(view.believed().values().map(|one| one.slices.len()).sum::<usize>(), 20_000);
}

/// Somebody deletes everything and creates it as it was: each watch tells at its own time.
#[test]
fn a_mailbox_that_is_made_anew_from_a_backup_moves_nothing() {
    // The publisher has renewed the Lease since the backup, or not.
    for backup in [3, 9] {
        is_made_anew(backup);
    }
}

fn is_made_anew(backup: u64) {
    let at = |sequence| Stamp { mailbox: 0, epoch: 1, sequence };
    let mut view = MailboxView::new("east".parse().unwrap());
    let today = [exported_at("a", &["a-1"], at(1)), exported_at("c", &["c-1"], at(7))];
    let slices = [copy_at("a", &slice("a-1", 2), at(6)), copy_at("c", &slice("c-1", 1), at(7))];
    view.apply(MailboxEvent::Services(listed(today.clone())));
    view.apply(MailboxEvent::Slices(listed(slices.clone())));
    view.apply(lease("east", true, 2, 8));
    view.apply(lease("east", true, 2, 9));
    let expected = believed(&view);
    let keep = |view: &MailboxView, when: &str| assert_eq!(believed(view), expected, "{when}");
    for one in today {
        view.apply(MailboxEvent::Services(ResourceEvent::Deleted(one)));
        keep(&view, "services are deleted");
    }
    for one in slices {
        view.apply(MailboxEvent::Slices(ResourceEvent::Deleted(one)));
    }
    let lease_object = |second: u64| -> WatchedObject<PublisherLeaseDecoder> {
        let now = jiff::Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        let said = complete_lease("east", 2, second);
        decoded(publisher_lease(MAILBOX, &said, now))
    };
    view.apply(MailboxEvent::Lease(ResourceEvent::Deleted(lease_object(9))));
    keep(&view, "the Lease is deleted");
    for one in [copy("a", &slice("a-1", 1)), copy("b", &slice("b-1", 1))] {
        view.apply(MailboxEvent::Slices(ResourceEvent::Changed(one)));
        keep(&view, "slices are back");
    }
    for one in [exported("a", &["a-1"]), exported("b", &["b-1"])] {
        view.apply(MailboxEvent::Services(ResourceEvent::Changed(one)));
        keep(&view, "services are back");
    }
    view.apply(MailboxEvent::Lease(ResourceEvent::Changed(lease_object(backup))));
    keep(&view, "the Lease is back");
    // The publisher goes on, and makes good what is not as it wrote it.
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(exported("b", &["b-1"]))));
    let good = [copy_at("a", &slice("a-1", 2), at(10)), copy_at("c", &slice("c-1", 1), at(11))];
    for one in good {
        view.apply(MailboxEvent::Slices(ResourceEvent::Changed(one)));
    }
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(exported_at("c", &["c-1"], at(12)))));
    view.apply(MailboxEvent::Lease(ResourceEvent::Changed(lease_object(13))));
    keep(&view, "the publisher goes on");
    assert_eq!(view.removal_problem(), None);
}

fn limited(services: usize, endpoints: usize) -> MailboxView {
    let mut view = known();
    view.set_limits(crate::core::objects::Limits { services, endpoints, bytes: 1 << 20 });
    view
}

#[test]
fn what_is_beyond_a_limit_is_not_kept_and_takes_nothing_away() {
    let mut view = limited(2, 100);
    let both = || vec![exported("a", &["a-1"]), exported("b", &["b-1"])];
    view.apply(MailboxEvent::Services(listed(both())));
    assert_eq!(view.over_limit(), None);
    // A list has the new one first: known ones stay.
    let mut three = both();
    three.insert(0, exported("0", &[]));
    view.apply(MailboxEvent::Services(listed(three)));
    view.apply(lease("east", true, 3, 2));
    assert_eq!(view.believed().len(), 2);
    assert_eq!(view.left_out(), [1, 0]);
    let problem = view.removal_problem().unwrap().to_string();
    assert_eq!(problem, "spec.limits.services is 2: 1 ExportedServices and 0 slices are left out");
    // What is known still changes, and what is new does not come.
    let changed =
        view.apply(MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &slice("a-1", 2)))));
    assert_eq!(changed.len(), 1);
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(exported("c", &[]))));
    assert_eq!((view.believed().len(), view.left_out()), (2, [2, 0]));
    // Nothing goes before everything fits, and then by itself.
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(exported("c", &[]))));
    view.apply(MailboxEvent::Services(ResourceEvent::Deleted(exported("a", &[]))));
    view.apply(lease("east", true, 2, 3));
    assert_eq!(view.believed().len(), 2);
    view.apply(MailboxEvent::Services(listed([exported("0", &[]), exported("b", &["b-1"])])));
    assert_eq!(view.removal_problem(), None);
    let names: BTreeSet<_> = view.believed().keys().map(ServiceName::name).collect();
    assert_eq!(names, ["0", "b"].into());
}

/// One tenant of a peer fills the mailbox, with names that come before those of the others.
#[test]
fn a_tenant_that_fills_a_mailbox_keeps_nobody_from_changing() {
    let of = |namespace: &str, name: &str| ServiceName::new(namespace, name).unwrap();
    let object = |service: &ServiceName, labels: usize, slices: &[&str]| {
        let mut spec = fixture::spec();
        spec.labels = (0..labels).map(|label| (format!("l{label}").into(), "x".into())).collect();
        let export = Export { name: service.clone(), ..fixture::export("east", 0, spec) };
        let slices = slices.iter().map(|&slice| slice.into()).collect();
        let exported = Exported { export, slices };
        decoded(exported_service(MAILBOX, &exported, WRITTEN, false, None).unwrap())
    };
    let pods = |name: &str, generation, addresses: &[&str]| SourceSlice {
        generation,
        ..fixture::slice(name, addresses)
    };
    let copied = |service: &ServiceName, content: &SourceSlice| {
        let slice = mailbox_slice(MAILBOX, &"east".parse().unwrap(), service, content, WRITTEN);
        MailboxEvent::Slices(ResourceEvent::Changed(decoded(slice)))
    };
    let web = of("shop", "web");
    let mut view = MailboxView::new("east".parse().unwrap());
    view.set_limits(crate::core::objects::Limits {
        services: 1000,
        endpoints: 1000,
        bytes: 1 << 20,
    });
    view.apply(MailboxEvent::Services(listed([object(&web, 0, &["web-1"])])));
    view.apply(MailboxEvent::Slices(listed([])));
    view.apply(copied(&web, &pods("web-1", 1, &["10.1.0.1"])));
    view.apply(lease("east", true, 1, 1));
    view.apply(lease("east", true, 1, 2));
    // Hundreds of exports of one tenant, each with hundreds of labels.
    for number in 0..200 {
        let hostile = object(&of("a", &format!("x{number:03}")), 250, &[]);
        view.apply(MailboxEvent::Services(ResourceEvent::Changed(hostile)));
    }
    assert!(view.over_limit().is_some());
    let before = view.believed().len();
    // The other tenant scales: its slice grows, another one comes, and the pods of before go.
    view.apply(copied(&web, &pods("web-1", 2, &["10.1.0.1", "10.1.0.2", "10.1.0.3"])));
    view.apply(copied(&web, &pods("web-2", 1, &["10.1.0.4", "10.1.0.5", "10.1.0.6"])));
    let changed = ResourceEvent::Changed(object(&web, 2, &["web-1", "web-2"]));
    view.apply(MailboxEvent::Services(changed));
    let endpoints = |view: &MailboxView, service: &ServiceName| -> usize {
        view.believed()[service].slices.values().map(|slice| slice.endpoints.len()).sum()
    };
    assert_eq!(endpoints(&view, &web), 6);
    view.apply(copied(&web, &pods("web-1", 3, &[])));
    assert_eq!(endpoints(&view, &web), 3);
    // A new one of another tenant comes too, and what was believed of the first one stays.
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(object(&of("zoo", "z"), 0, &[]))));
    assert_eq!(view.believed().len(), before + 1);
    assert!(view.over_limit().is_some() && view.removal_problem().is_some());
    // A list with the same keeps the others as well, whatever its order is.
    let hostile = (0..200).map(|number| object(&of("a", &format!("x{number:03}")), 250, &[]));
    let others = [object(&web, 2, &["web-1", "web-2"]), object(&of("zoo", "z"), 0, &[])];
    view.apply(MailboxEvent::Services(listed(hostile.chain(others))));
    view.apply(copied(&web, &pods("web-1", 4, &["10.1.0.9"])));
    assert_eq!(endpoints(&view, &web), 4);
    assert!(view.seen().contains_key(&web) && view.seen().contains_key(&of("zoo", "z")));
    // What gave way is deleted, and no withdrawal of it was kept.
    let gave_way = |view: &MailboxView| -> Vec<ServiceName> {
        view.believed().keys().filter(|name| !view.seen().contains_key(name)).cloned().collect()
    };
    let grown = ResourceEvent::Changed(object(&web, 500, &["web-1", "web-2"]));
    view.apply(MailboxEvent::Services(grown));
    let names = gave_way(&view);
    assert!(!names.is_empty());
    for number in 0..200 {
        let name = of("a", &format!("x{number:03}"));
        if !view.seen().contains_key(&name) {
            let gone = ResourceEvent::Deleted(object(&name, 250, &[]));
            view.apply(MailboxEvent::Services(gone));
        }
    }
    assert_eq!((view.over_limit(), gave_way(&view)), (None, names.clone()), "silence");
    let count = view.seen().len();
    view.apply(lease("east", true, count + 1, 3));
    assert_eq!(gave_way(&view), names, "something is missing");
    view.apply(lease("east", true, count, 4));
    assert_eq!(gave_way(&view), []);
    // The same while the watch is broken: the next list shows it.
    for number in 0..200 {
        let hostile = object(&of("a", &format!("y{number:03}")), 250, &[]);
        view.apply(MailboxEvent::Services(ResourceEvent::Changed(hostile)));
        let web = object(&web, 2, &["web-1", "web-2"]);
        view.apply(MailboxEvent::Services(ResourceEvent::Changed(web)));
        let other = object(&of("b", &format!("y{number:03}")), 250, &[]);
        view.apply(MailboxEvent::Services(ResourceEvent::Changed(other)));
    }
    assert!(!gave_way(&view).is_empty());
    view.apply(MailboxEvent::Services(listed([object(&web, 2, &["web-1", "web-2"])])));
    assert!(view.believed().len() > 1, "the Lease does not say so yet");
    view.apply(lease("east", true, 1, 5));
    assert_eq!(view.believed().keys().collect::<Vec<_>>(), [&web]);
}

/// A peer within all limits: one service with as many slices as an ExportedService can name, which change in turn.
#[test]
fn a_change_of_one_slice_does_not_cost_the_service() {
    let slices: Vec<_> = (0..20_000).map(|number| format!("s-{number:05}")).collect();
    let named: Vec<_> = slices.iter().map(String::as_str).collect();
    let at =
        |name: &str, generation| SourceSlice { generation, ..fixture::slice(name, &["10.1.0.1"]) };
    let mut view = MailboxView::new("east".parse().unwrap());
    view.apply(MailboxEvent::Services(listed([exported("a", &named)])));
    let copies: Vec<_> = slices.iter().map(|name| copy("a", &at(name, 1))).collect();
    view.apply(MailboxEvent::Slices(listed(copies)));
    view.apply(lease("east", true, 1, 1));
    assert_eq!(view.endpoints(), 20_000);
    let events: Vec<_> = slices
        .iter()
        .take(2000)
        .map(|name| MailboxEvent::Slices(ResourceEvent::Changed(copy("a", &at(name, 2)))))
        .collect();
    let start = std::time::Instant::now();
    for event in events {
        assert_eq!(view.apply(event).len(), 1);
    }
    let took = start.elapsed();
    // 13 ms each before: 26 s.
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
    assert_eq!(view.believed()[&service("a")].slices["s-01999"].generation, 2);
    assert_eq!(view.endpoints(), 20_000);
}

#[test]
fn endpoints_beyond_a_limit_are_not_kept() {
    let mut view = limited(10, 3);
    let of = |count: usize, generation| {
        let addresses: Vec<_> = (0..count).map(|one| format!("10.1.0.{one}")).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        SourceSlice { generation, ..fixture::slice("a-1", &addresses) }
    };
    let change = |view: &mut MailboxView, slice: &SourceSlice| {
        view.apply(MailboxEvent::Slices(ResourceEvent::Changed(copy("a", slice))));
        view.believed()[&service("a")].slices["a-1"].generation
    };
    assert_eq!(change(&mut view, &of(3, 2)), 2);
    assert_eq!(change(&mut view, &of(4, 3)), 2, "it stays as it was");
    assert!(matches!(
        view.removal_problem(),
        Some(MailboxProblem::OverLimit { limit: "endpoints", most: 3, .. })
    ));
    assert_eq!(change(&mut view, &of(2, 4)), 4);
    assert_eq!(view.removal_problem(), None);
}

#[test]
fn annotations_of_a_peer_have_a_total() {
    let mut view = limited(10, 10);
    let mut object = object("a");
    object["spec"]["annotations"] = json!({ "large": "x".repeat(9000), "small": "x" });
    view.apply(MailboxEvent::Services(ResourceEvent::Changed(decoded(object))));
    let export = &view.believed()[&service("a")].export;
    let annotations = &export.spec().unwrap().annotations;
    assert_eq!(annotations.keys().map(|key| &**key).collect::<Vec<_>>(), ["small"]);
}
