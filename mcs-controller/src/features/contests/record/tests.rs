//! How often content is written that somebody else rewrites.

use serde_json::{from_value, json};

use super::*;
use crate::core::clusterset::{
    ImportStatus,
    fixture::{endpoint, imported_slice, name, port, spec},
};

fn conditions() -> Write {
    Write::SetExportConditions(name("shop/web"), vec![])
}

/// A slice of cluster c2, with this name.
fn slice(named: &str) -> Write {
    let slice = imported_slice("c2");
    Write::ApplySlice(crate::core::clusterset::ImportedSlice { name: named.into(), ..slice })
}

fn import() -> Write {
    let spec = spec();
    Write::ApplyImport(crate::core::clusterset::Import {
        name: name("shop/web"),
        ips: vec![],
        spec,
        has_derived_service: false,
        tiers: None,
    })
}

/// Others change whatever there is.
fn change_all(contests: &mut Contests) {
    fn listed<D: Decoder>() -> ResourceEvent<D> {
        ResourceEvent::Listed { version: "v1".to_owned(), objects: vec![] }
    }
    for event in [
        OwnEvent::Exports(listed()),
        OwnEvent::Imports(listed()),
        OwnEvent::ImportedSlices(listed()),
        OwnEvent::Services(listed()),
    ] {
        contests.observe(&event);
    }
}

/// Plans this write at a second. Others change the object after each write.
fn plan(contests: &mut Contests, write: &Write, now: Instant) -> (bool, Option<Contested>) {
    let mut writes = vec![write.clone()];
    let begun = contests.take(&name("shop/web"), &mut writes, true, now);
    for write in &writes {
        contests.note(write);
        change_all(contests);
    }
    (!writes.is_empty(), begun)
}

/// Each second somebody else has rewritten what was written.
#[test]
fn a_contest_is_written_less_and_less_often() {
    let service = Write::ApplyDerivedService(name("shop/web"), vec![port("http", 80)]);
    let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
    for (write, kind, reason) in [
        (conditions(), "ServiceExport", Reason::StatusContested),
        (slice("web-c2"), "EndpointSlice", Reason::SlicesContested),
        (import(), "ServiceImport", Reason::ImportContested),
        (status, "ServiceImport", Reason::ImportContested),
        (service, "Service", Reason::ServiceContested),
    ] {
        let (begin, mut contests) = (Instant::now(), Contests::default());
        let (mut written, mut told) = (vec![], vec![]);
        for second in 0..7200 {
            let now = begin + Duration::from_secs(second);
            contests.due(now);
            let (is_written, beginning) = plan(&mut contests, &write, now);
            told.extend(beginning.map(|one| one.part.reason()));
            written.extend(is_written.then_some(second));
        }
        let counted = |contests: &Contests| {
            contests.counts().into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        };
        assert_eq!((told, counted(&contests)), (vec![reason], vec![(kind, 1)]), "it is told once");
        assert_eq!(written[..9], [0, 1, 2, 3, 4, 6, 9, 14, 23], "{write:?}");
        assert!(written.len() < 30, "{} writes in two hours", written.len());
        assert!(written.windows(2).all(|two| two[1] - two[0] <= 601), "{written:?}");
        contests.due(begin + Duration::from_hours(2) + PEACE);
        assert_eq!(counted(&contests), []);
    }
}

#[test]
fn a_write_that_fails_or_was_not_seen_yet_is_no_contest() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    let take = |contests: &mut Contests, write: &Write| {
        let mut writes = vec![write.clone()];
        assert_eq!(contests.take(&name("shop/web"), &mut writes, true, now), None);
        assert_eq!(writes.len(), 1);
    };
    for _ in 0..100 {
        take(&mut contests, &slice("web-c2"));
        contests.note(&slice("web-c2"));
    }
    for _ in 0..100 {
        take(&mut contests, &slice("web-c3"));
        change_all(&mut contests);
    }
    take(&mut contests, &Write::CreateExport(name("shop/web")));
    assert!(contests.counts().iter().all(|(_, count)| *count == 0));
}

#[test]
fn what_changes_is_written_at_once() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    let with = |last: u8| {
        let Write::ApplySlice(slice) = slice("web-c2") else { unreachable!() };
        let endpoints = vec![endpoint(&format!("10.2.0.{last}"))];
        Write::ApplySlice(crate::core::clusterset::ImportedSlice { endpoints, ..slice })
    };
    for _ in 0..20 {
        plan(&mut contests, &with(1), now);
    }
    assert!(!plan(&mut contests, &with(1), now).0, "somebody else rewrites it");
    for last in 2..9 {
        assert!(plan(&mut contests, &with(last), now).0, "its endpoints have changed");
        assert!(!plan(&mut contests, &with(last), now).0, "and that is rewritten too");
    }
}

#[test]
fn endpoints_that_come_and_go_are_no_contest() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    for round in 0..100 {
        let named = if round % 2 == 0 { "web-1" } else { "web-2" };
        let mut write = slice("web-c2");
        if let Write::ApplySlice(slice) = &mut write {
            slice.source_name = named.into();
        }
        // The second plan of each round does not see the write yet, and something else has changed the object.
        assert!(
            plan(&mut contests, &write, now).0 && plan(&mut contests, &write, now).0,
            "{round}"
        );
    }
}

#[test]
fn the_slices_of_a_service_are_one_story() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    let mut told = vec![];
    for _ in 0..20 {
        for named in ["web-1", "web-2"] {
            told.extend(plan(&mut contests, &slice(named), now).1);
        }
    }
    assert_eq!(told, [Contested::new(Part::Slice, ObjectKey::new("shop", "web-1"))]);
    assert_eq!(contests.counts()[2], ("EndpointSlice", 2));
    let later = now + Duration::from_secs(2);
    assert_eq!(contests.due(later), [name("shop/web")].into());
    assert_eq!(contests.due(later), [].into(), "once");
    assert!(plan(&mut contests, &slice("web-1"), later).0);
}

#[test]
fn the_status_of_an_import_that_waits_is_written_if_there_is_one() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    for _ in 0..20 {
        plan(&mut contests, &import(), now);
    }
    let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
    for has_import in [false, true] {
        let mut writes = vec![import(), status.clone(), slice("web-c2")];
        contests.take(&name("shop/web"), &mut writes, has_import, now);
        let expected = [status.clone(), slice("web-c2")];
        assert_eq!(writes, expected[usize::from(!has_import)..]);
    }
}

#[test]
fn an_event_concerns_its_own_object() {
    let (now, mut contests) = (Instant::now(), Contests::default());
    let event = |named: &str| {
        let object = json!({"metadata": {"namespace": "shop", "name": named}});
        OwnEvent::ImportedSlices(ResourceEvent::Changed(from_value(object).unwrap()))
    };
    for _ in 0..20 {
        let mut writes = vec![slice("web-1"), slice("web-2")];
        contests.take(&name("shop/web"), &mut writes, true, now);
        for write in &writes {
            contests.note(write);
        }
        contests.observe(&event("web-2"));
    }
    assert_eq!(contests.counts()[2], ("EndpointSlice", 1));
}
