//! What readers believe while the mailbox's API server refuses an object of a service: any of them, at any moment.

use std::net::IpAddr;

use super::*;
use crate::core::{
    clusterset::SlicePort,
    plan::{Ending, Sending},
};

/// A mailbox, its publisher, and a reader.
struct Mailbox {
    own: MailboxView,
    reader: MailboxView,
    withheld: Withheld,
    epoch: u64,
    sequence: u64,
}

/// Slices with their addresses.
type Slices<'a> = &'a [(&'a str, &'a [&'a str])];
type Answer<'a> = &'a dyn Fn(&MailboxWrite, &Mailbox) -> Ending;

fn outgoing(ports: u16, slices: Slices<'_>) -> Outgoing {
    let mut export = export("a");
    let crate::core::clusterset::ExportSource::Service(spec) = &mut export.source else {
        panic!("none")
    };
    spec.ports = vec![fixture::port("http", ports)];
    let slices = slices
        .iter()
        .map(|(name, addresses)| (Arc::from(*name), Arc::new(fixture::slice(name, addresses))));
    Outgoing { export, slices: slices.collect() }
}

fn last(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => 0,
    }
}

impl Mailbox {
    /// A mailbox in which everything is published, with a reader that has seen it.
    fn with(published: &Outgoing) -> Self {
        let mut mailbox = Self {
            own: MailboxView::own("east".parse().unwrap()),
            reader: MailboxView::new("east".parse().unwrap()),
            withheld: Withheld::default(),
            epoch: 1,
            sequence: 0,
        };
        for view in [&mut mailbox.own, &mut mailbox.reader] {
            view.apply(MailboxEvent::Services(listed([])));
            view.apply(MailboxEvent::Slices(listed([])));
            view.apply(lease("east", true, 1, 1));
        }
        mailbox.publish(Some(published), &|_, _| Ending::Done);
        mailbox.reader.apply(lease("east", true, 1, 2));
        mailbox
    }

    /// Publishes until nothing changes any more.
    fn publish(&mut self, wanted: Option<&Outgoing>, answer: Answer<'_>) {
        // Nobody loses an endpoint that stays.
        let needed: Vec<u8> = wanted
            .iter()
            .flat_map(|wanted| wanted.slices.values())
            .flat_map(|slice| &slice.endpoints)
            .map(|endpoint| last(endpoint.address))
            .collect();
        for round in 0.. {
            assert!(round < 10, "it does not end: {:?}", self.withheld);
            let writes =
                plan_publication(&service("a"), wanted, &self.own, self.epoch, &self.withheld);
            let slices: Vec<_> = self.slices().cloned().collect();
            let mut sending = Sending::new(writes, slices);
            let mut refused = BTreeMap::new();
            while let Some(index) = sending.next_index() {
                let write = sending.write(index).unwrap().clone();
                let ending = answer(&write, self);
                if ending == Ending::Done {
                    let before = self.believed().0;
                    self.write(&write);
                    let now = self.believed().0;
                    let is_lost = |one: &u8| needed.contains(one) && !now.contains(one);
                    assert!(!before.iter().any(is_lost), "{before:?} {now:?} by {write:?}");
                }
                sending.end(index, ending);
                if sending.has_failed(index) {
                    refused.insert(write.object(), "no".to_owned());
                }
            }
            let has_turned = refused != self.withheld.refused;
            let has_more = !sending.finish().0.is_empty();
            self.withheld.refused = refused;
            if !has_turned && !has_more {
                break;
            }
        }
    }

    /// Another publisher begins, as after a restart. `fresh`: so does the reader.
    fn begin_epoch(&mut self, fresh: bool) {
        self.epoch += 1;
        if fresh {
            self.reader = MailboxView::new("east".parse().unwrap());
            let services = self.own.seen().values().map(|object| {
                let object = exported_service(MAILBOX, &object.exported, object.stamp, false, None);
                decoded(object.unwrap())
            });
            self.reader.apply(MailboxEvent::Services(listed(services)));
            let slices = self.own.seen_slices(&service("a")).into_iter().flat_map(BTreeMap::values);
            let slices = slices.map(|slice| copy_at("a", slice, slice.stamp));
            self.reader.apply(MailboxEvent::Slices(listed(slices)));
        }
        for sequence in [3, 4] {
            let stamp = Stamp { mailbox: 0, epoch: self.epoch, sequence };
            let lease = PublisherLease { stamp, ..complete_lease("east", 1, sequence) };
            self.own.apply(lease_of(&lease));
            self.reader.apply(lease_of(&lease));
        }
    }

    fn slices(&self) -> impl Iterator<Item = &Arc<str>> {
        self.own.seen_slices(&service("a")).into_iter().flat_map(BTreeMap::keys)
    }

    fn write(&mut self, write: &MailboxWrite) {
        self.sequence += 1;
        let stamp = Stamp { mailbox: 0, epoch: self.epoch, sequence: self.sequence };
        let object = |exported: &Exported, is_withdrawn| {
            exported_service(MAILBOX, exported, stamp, is_withdrawn, None).unwrap()
        };
        let event = match write {
            MailboxWrite::ApplySlice(_, slice) => {
                MailboxEvent::Slices(ResourceEvent::Changed(copy_at("a", slice, stamp)))
            }
            MailboxWrite::ApplyService(exported) => {
                // The statement is what is there.
                let there: BTreeSet<_> = self.slices().collect();
                assert!(exported.slices.iter().all(|slice| there.contains(slice)), "{exported:?}");
                MailboxEvent::Services(ResourceEvent::Changed(decoded(object(exported, false))))
            }
            MailboxWrite::WithdrawService(exported) => {
                MailboxEvent::Services(ResourceEvent::Changed(decoded(object(exported, true))))
            }
            MailboxWrite::DeleteService(_) => {
                MailboxEvent::Services(ResourceEvent::Deleted(exported("a", &[])))
            }
            MailboxWrite::DeleteSlice(_, name) => {
                MailboxEvent::Slices(ResourceEvent::Deleted(copy("a", &slice(name, 1))))
            }
        };
        self.own.apply_to_own(event.clone());
        self.reader.apply(event);
    }

    /// The last parts of the addresses that the reader believes, and the port of the service.
    fn believed(&self) -> (Vec<u8>, u16) {
        let Some(believed) = self.reader.believed().get(&service("a")) else { return (vec![], 0) };
        let all = believed.slices.values().flat_map(|slice| &slice.endpoints);
        let mut addresses: Vec<_> = all.map(|endpoint| last(endpoint.address)).collect();
        addresses.sort_unstable();
        (addresses, believed.export.spec().map_or(0, |spec| spec.ports[0].port))
    }
}

const MIDDLE: Slices<'_> = &[("m", &["10.1.0.17", "10.1.0.18"])];

fn is_slice(write: &MailboxWrite, named: &str) -> bool {
    write.object() == MailboxObject::Slice(named.into())
}

fn refuses(is_refused: bool) -> Ending {
    if is_refused { Ending::Refused } else { Ending::Done }
}

#[test]
#[expect(clippy::too_many_lines, reason = "most of it is a table")]
fn any_object_of_a_service_can_be_refused() {
    let slice = |named: &'static str| {
        move |write: &MailboxWrite, _: &Mailbox| refuses(is_slice(write, named))
    };
    let new_ports = |write: &MailboxWrite, _: &Mailbox| {
        refuses(
            matches!(write, MailboxWrite::ApplyService(one) if one.export.spec().unwrap().ports[0].port == 81),
        )
    };
    let services =
        |write: &MailboxWrite, _: &Mailbox| refuses(write.object() == MailboxObject::Service);
    let deletions = |write: &MailboxWrite, _: &Mailbox| {
        refuses(matches!(write, MailboxWrite::DeleteSlice(..) | MailboxWrite::DeleteService(_)))
    };
    // Room for one slice.
    let quota = |write: &MailboxWrite, mailbox: &Mailbox| {
        let is_new = matches!(write, MailboxWrite::ApplySlice(_, one) if !mailbox.slices().any(|name| *name == one.name));
        if is_new && mailbox.slices().count() == 1 { Ending::NoRoom } else { Ending::Done }
    };
    let first = slice("a");
    let last = slice("z");
    // The former content is taken.
    let middle = |write: &MailboxWrite, _: &Mailbox| {
        refuses(
            matches!(write, MailboxWrite::ApplySlice(_, one) if &*one.name == "m" && one.endpoints.len() == 1),
        )
    };
    let table: &[(&str, Answer<'_>, u16, Slices<'_>, &[u8])] = &[
        (
            "a slice comes, a pod of another ends",
            &first,
            80,
            &[("a", &["10.1.0.19"]), ("m", &["10.1.0.17"])],
            &[17],
        ),
        (
            "the same with a later name",
            &last,
            80,
            &[("m", &["10.1.0.17"]), ("z", &["10.1.0.19"])],
            &[17],
        ),
        ("all pods are replaced", &first, 80, &[("a", &["10.1.0.21", "10.1.0.22"])], &[]),
        (
            "an endpoint moves, another ends",
            &first,
            80,
            &[("a", &["10.1.0.18", "10.1.0.21"])],
            &[18],
        ),
        ("all endpoints move", &first, 80, &[("a", &["10.1.0.17", "10.1.0.18"])], &[17, 18]),
        (
            "an update is refused",
            &middle,
            80,
            &[("m", &["10.1.0.17"]), ("n", &["10.1.0.19"])],
            &[17, 18, 19],
        ),
        ("the new ports are refused", &new_ports, 81, &[("n", &["10.1.0.21"])], &[21]),
        ("every write of the service is refused", &services, 81, &[("n", &["10.1.0.21"])], &[]),
        ("its slices are updated", &services, 81, &[("m", &["10.1.0.17", "10.1.0.19"])], &[17, 19]),
        ("deletions are refused", &deletions, 80, &[("n", &["10.1.0.21"])], &[21]),
        ("a quota is full", &quota, 80, &[("n", &["10.1.0.21"])], &[21]),
        (
            "a quota is full, and endpoints move",
            &quota,
            80,
            &[("a", &["10.1.0.18", "10.1.0.21"])],
            &[18, 21],
        ),
        (
            "a quota is full, and one more comes",
            &quota,
            80,
            &[("a", &["10.1.0.21"]), ("m", &["10.1.0.17"])],
            &[17],
        ),
    ];
    let readers = [None, Some(false), Some(true)];
    let cases = table.iter().flat_map(|case| readers.map(|fresh| (case, fresh)));
    for ((what, answer, port, after, expected), fresh) in cases {
        let what = format!("{what}, fresh: {fresh:?}");
        let mut mailbox = Mailbox::with(&outgoing(80, MIDDLE));
        assert_eq!(mailbox.believed(), (vec![17, 18], 80));
        if let Some(fresh) = fresh {
            mailbox.begin_epoch(fresh);
        }
        let after = outgoing(*port, after);
        mailbox.publish(Some(&after), *answer);
        // Readers take nothing of a former epoch: they keep what they have.
        let is_old = mailbox.own.seen()[&service("a")].stamp.epoch != mailbox.epoch;
        if is_old {
            let kept: &[u8] = if fresh == Some(true) { &[] } else { &[17, 18] };
            assert_eq!(mailbox.believed().0, kept, "{what}");
            assert!(mailbox.withheld.refused.contains_key(&MailboxObject::Service), "{what}");
        } else {
            assert_eq!(mailbox.believed().0, *expected, "{what}");
            assert!(mailbox.reader.allows_removal(&service("a")), "{what}");
        }
        assert_eq!(mailbox.withheld.told().is_some(), !mailbox.withheld.refused.is_empty());
        // Whatever it was, it is over.
        mailbox.publish(Some(&after), &|_, _| Ending::Done);
        let all = after.slices.values().map(|slice| slice.endpoints.len()).sum();
        let (addresses, now) = mailbox.believed();
        assert_eq!((addresses.len(), now), (all, *port), "{what}: afterwards");
        assert!(mailbox.withheld.refused.is_empty() && mailbox.slices().eq(after.slices.keys()));
    }
}

#[test]
fn endpoints_that_move_to_a_refused_update_stay_where_they_were() {
    let before = outgoing(80, &[("m", &["10.1.0.17"]), ("o", &["10.1.0.18"])]);
    let after = outgoing(80, &[("m", &["10.1.0.17", "10.1.0.18"])]);
    let mut mailbox = Mailbox::with(&before);
    mailbox.publish(Some(&after), &|write, _| refuses(is_slice(write, "m")));
    assert_eq!(mailbox.believed(), (vec![17, 18], 80));
    mailbox.publish(Some(&after), &|_, _| Ending::Done);
    assert_eq!(mailbox.believed(), (vec![17, 18], 80));
    assert_eq!(mailbox.slices().count(), 1);
}

#[test]
fn a_new_service_comes_without_the_slices_that_are_refused() {
    let mut mailbox = Mailbox::with(&outgoing(80, &[]));
    mailbox.publish(None, &|_, _| Ending::Done);
    let wanted = outgoing(80, &[("a", &["10.1.0.1"]), ("b", &["10.1.0.2"])]);
    mailbox.publish(Some(&wanted), &|write, _| refuses(is_slice(write, "a")));
    assert_eq!(mailbox.believed(), (vec![2], 80));
    let told = mailbox.withheld.told().unwrap();
    assert_eq!(told, "the mailbox's API server refuses slice a: no.");
}

#[test]
fn the_end_of_an_export_is_refused() {
    let refuse =
        |write: &MailboxWrite, _: &Mailbox| refuses(write.object() == MailboxObject::Service);
    let mut mailbox = Mailbox::with(&outgoing(80, MIDDLE));
    mailbox.publish(None, &refuse);
    assert_eq!(mailbox.believed(), (vec![], 80), "nobody is sent to its pods any more");
    mailbox.publish(None, &|_, _| Ending::Done);
    assert_eq!(mailbox.believed(), (vec![], 0));
    assert_eq!(mailbox.slices().count(), 0);
}

#[test]
fn endpoints_of_a_later_version_s_service_follow() {
    let mut mailbox = Mailbox::with(&outgoing(80, MIDDLE));
    mailbox.withheld.is_of_later_version = true;
    let after = outgoing(81, &[("m", &["10.1.0.17"]), ("n", &["10.1.0.21"])]);
    let refuse = |write: &MailboxWrite, _: &Mailbox| {
        assert_ne!(write.object(), MailboxObject::Service, "it would lift a restriction");
        Ending::Done
    };
    mailbox.publish(Some(&after), &refuse);
    assert_eq!(mailbox.believed(), (vec![17], 80));
    mailbox.publish(Some(&outgoing(81, &[("n", &["10.1.0.21"])])), &refuse);
    assert_eq!(mailbox.believed(), (vec![], 80));
    let port: &SlicePort = &mailbox.own.seen_slices(&service("a")).unwrap()["n"].ports[0];
    assert_eq!(port.port, Some(8080));
}
