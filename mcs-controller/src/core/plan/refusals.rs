//! What an importing cluster has while its API server refuses an object of a service: any of them, at any moment.

use std::{collections::BTreeSet, net::IpAddr};

use super::{fixture::apply, *};
use crate::core::clusterset::{
    ConditionStatus, ConditionType, Importer, Refused, World,
    fixture::{export, importer, name, slice, spec},
    slice_name,
};

type Slices<'a> = &'a [(&'a str, &'a str, &'a [&'a str])];

/// Exports of c2 and c3 with these slices.
fn world(slices: Slices<'_>) -> World {
    let of = |cluster: &str| {
        let own = slices.iter().filter(|(of, ..)| *of == cluster);
        let own = own.map(|(_, name, addresses)| slice(name, addresses)).collect();
        (export(cluster, 1, spec()), own)
    };
    World::new(vec![of("c2"), of("c3")])
}

fn deriving() -> Importer {
    Importer { derives_services: true, ..importer("c1") }
}

/// Writes until nothing changes any more.
fn follow(actual: &mut Actual, world: &mut World, answer: &dyn Fn(&Write, &Actual) -> Ending) {
    for round in 0.. {
        assert!(round < 10, "it does not end: {:?}", world.refused);
        let wanted = world.wanted_by(&deriving(), actual);
        let writes = plan(&name("shop/web"), actual, &wanted);
        let mut sending = Sending::new(writes, actual.slices.keys().cloned().collect::<Vec<_>>());
        let mut refused = Refused::default();
        while let Some(index) = sending.next_index() {
            let write = sending.write(index).unwrap().clone();
            let ending = answer(&write, actual);
            if ending == Ending::Done {
                apply(actual, write.clone());
            }
            sending.end(index, ending);
            if sending.has_failed(index) {
                refused.note(write.object(), "no".to_owned());
            }
        }
        let has_more = !sending.finish().0.is_empty();
        let has_turned = world.refused != refused;
        world.refused = refused;
        if !has_turned && !has_more {
            break;
        }
    }
}

/// The addresses of all slices.
fn addresses(actual: &Actual) -> Vec<String> {
    let all = actual.slices.values().flat_map(|slice| slice.addresses.all());
    let all: BTreeSet<IpAddr> = all.collect();
    all.iter().map(ToString::to_string).collect()
}

/// Status and reason of `Ready`, and the counts.
fn said(actual: &Actual) -> (ConditionStatus, String, String) {
    let status = &actual.import.as_ref().unwrap().status;
    let ready = status.condition(ConditionType::Ready).unwrap();
    let counted = status.condition(ConditionType::EndpointsReady).unwrap();
    (ready.status, ready.reason.clone(), counted.message.clone())
}

fn object(cluster: &str, slice: &str) -> ServiceObject {
    ServiceObject::Slice(slice_name(&name("shop/web"), &cluster.parse().unwrap(), slice))
}

/// c2 replaces its slice m by n: one endpoint moves, one ends, one comes. An endpoint of c3 is replaced.
const BEFORE: Slices<'_> = &[("c2", "m", &["10.2.0.1", "10.2.0.2"]), ("c3", "x", &["10.3.0.1"])];
const AFTER: Slices<'_> =
    &[("c2", "n", &["10.2.0.2", "10.2.0.3", "10.2.0.4"]), ("c3", "x", &["10.3.0.2"])];

#[test]
fn any_object_of_an_import_can_be_refused() {
    let all = ["10.2.0.2", "10.2.0.3", "10.2.0.4", "10.3.0.2"];
    let table: [(ServiceObject, &[&str], Option<&str>); 6] = [
        (object("c2", "n"), &["10.2.0.2", "10.3.0.2"], Some("2 of 4 ready: c2 1 of 3, c3 1 of 1")),
        (
            object("c3", "x"),
            &["10.2.0.2", "10.2.0.3", "10.2.0.4", "10.3.0.1"],
            Some("3 of 4 ready: c2 3 of 3, c3 0 of 1"),
        ),
        (
            object("c2", "m"),
            &["10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.3.0.2"],
            Some("4 of 4 ready: c2 3 of 3, c3 1 of 1"),
        ),
        (ServiceObject::Import, &all, Some("4 of 4 ready: c2 3 of 3, c3 1 of 1")),
        (ServiceObject::DerivedService, &all, Some("4 of 4 ready: c2 3 of 3, c3 1 of 1")),
        // Nobody can say it there.
        (ServiceObject::ImportStatus, &all, None),
    ];
    for (refused, expected, counted) in table {
        let mut actual = Actual::default();
        follow(&mut actual, &mut world(BEFORE), &|_, _| Ending::Done);
        assert_eq!(said(&actual).2, "3 of 3 ready: c2 2 of 2, c3 1 of 1");
        let mut after = world(AFTER);
        for (exported, _) in &mut after.exports {
            let crate::core::clusterset::ExportSource::Service(spec) = &mut exported.source else {
                panic!("no Service")
            };
            spec.ports[0].port += 1;
        }
        follow(&mut actual, &mut after, &|write, _| {
            if write.object() == refused { Ending::Refused } else { Ending::Done }
        });
        assert_eq!(addresses(&actual), expected, "{refused}");
        if let Some(counted) = counted {
            let expected = (ConditionStatus::False, "Refused".to_owned(), counted.to_owned());
            assert_eq!(said(&actual), expected, "{refused}");
        }
        assert!(after.refused.contains(&refused) && after.refused.objects().len() == 1);
        follow(&mut actual, &mut after, &|_, _| Ending::Done);
        assert_eq!(addresses(&actual), all, "{refused}: afterwards");
        assert_eq!(said(&actual).1, "Ready", "{refused}: afterwards");
        assert_eq!(actual.slices.len(), 2, "{refused}: afterwards");
    }
}

#[test]
fn any_object_of_a_new_import_can_be_refused() {
    let table: [(ServiceObject, &[&str], bool); 4] = [
        (object("c2", "m"), &["10.3.0.1"], true),
        (ServiceObject::Import, &["10.2.0.1", "10.2.0.2", "10.3.0.1"], false),
        (ServiceObject::ImportStatus, &["10.2.0.1", "10.2.0.2", "10.3.0.1"], true),
        (ServiceObject::DerivedService, &["10.2.0.1", "10.2.0.2", "10.3.0.1"], true),
    ];
    for (refused, expected, has_import) in table {
        let (mut actual, mut world) = (Actual::default(), world(BEFORE));
        follow(&mut actual, &mut world, &|write, _| {
            if write.object() == refused { Ending::Refused } else { Ending::Done }
        });
        assert_eq!(addresses(&actual), expected, "{refused}");
        assert_eq!(actual.import.is_some(), has_import, "{refused}");
        follow(&mut actual, &mut world, &|_, _| Ending::Done);
        assert_eq!(said(&actual).2, "3 of 3 ready: c2 2 of 2, c3 1 of 1");
    }
}

#[test]
fn the_end_of_an_import_is_refused() {
    for refused in [ServiceObject::Import, object("c2", "m"), ServiceObject::DerivedService] {
        let (mut actual, mut none) = (Actual::default(), World::new(vec![]));
        follow(&mut actual, &mut world(BEFORE), &|_, _| Ending::Done);
        follow(&mut actual, &mut none, &|write, _| {
            if write.object() == refused { Ending::Refused } else { Ending::Done }
        });
        let left = matches!(refused, ServiceObject::Slice(_));
        assert_eq!(actual.slices.len(), usize::from(left), "{refused}: nobody is sent to its pods");
        follow(&mut actual, &mut none, &|_, _| Ending::Done);
        assert_eq!(actual, Actual::default(), "{refused}: afterwards");
    }
}

#[test]
fn a_quota_without_room_for_another_slice_follows_all_that_fits() {
    let quota = |write: &Write, actual: &Actual| {
        let is_new =
            matches!(write, Write::ApplySlice(slice) if !actual.slices.contains_key(&slice.name));
        if is_new && actual.slices.len() == 2 { Ending::NoRoom } else { Ending::Done }
    };
    let mut actual = Actual::default();
    follow(&mut actual, &mut world(BEFORE), &|_, _| Ending::Done);
    follow(&mut actual, &mut world(AFTER), &quota);
    assert_eq!(
        addresses(&actual),
        ["10.2.0.2", "10.2.0.3", "10.2.0.4", "10.3.0.2"],
        "what goes makes room"
    );
    let further: Vec<_> = AFTER.iter().copied().chain([("c2", "z", &["10.2.0.9"][..])]).collect();
    let mut further = world(&further);
    follow(&mut actual, &mut further, &quota);
    let expected = (
        ConditionStatus::False,
        "Refused".to_owned(),
        "4 of 5 ready: c2 3 of 4, c3 1 of 1".to_owned(),
    );
    assert_eq!(said(&actual), expected);
    let mut fewer = world(&[("c2", "z", &["10.2.0.9"]), ("c3", "x", &["10.3.0.2"])]);
    fewer.refused = further.refused;
    follow(&mut actual, &mut fewer, &quota);
    assert_eq!(addresses(&actual), ["10.2.0.9", "10.3.0.2"]);
}
