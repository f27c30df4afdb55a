//! What holds after any number of writes of a plan.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::{fixture::apply, *};
use crate::core::clusterset::{
    Actual, ActualSlice, Audience, ClusterId, EndpointSliceObjects, Importer, IpFamily,
    ServiceSpec, ServiceType, SourceSlice, WantedSlice, World, any_spec,
    fixture::{cluster, export, importer, name, slice, time},
};

const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];

/// One cluster's part of a world.
#[derive(Clone, Debug)]
struct Part {
    spec: ServiceSpec,
    created: i64,
    slices: Vec<(usize, u8)>,
    only_c1: bool,
}

fn any_part() -> impl Strategy<Value = Option<Part>> {
    let slices = prop::collection::vec((0..3_usize, 0..3_u8), 0..3);
    let part = (any_spec(), 0..3_i64, slices, any::<bool>())
        .prop_map(|(spec, created, slices, only_c1)| Part { spec, created, slices, only_c1 });
    prop::option::of(part)
}

fn any_parts() -> impl Strategy<Value = [Option<Part>; 3]> {
    [any_part(), any_part(), any_part()]
}

fn any_incomplete() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(vec!["c2", "c3"], 0..=2)
}

fn slices(part: &Part) -> Vec<SourceSlice> {
    let of = |(number, last): &(usize, u8)| {
        slice(&format!("web-{number}"), &[&*format!("10.0.0.{last}")])
    };
    part.slices.iter().map(of).collect()
}

fn world(parts: &[Option<Part>; 3], incomplete: &[&str]) -> World {
    let exports = CLUSTERS.iter().zip(parts).filter_map(|(id, part)| {
        let part = part.as_ref()?;
        let mut export = export(id, part.created, part.spec.clone());
        if part.only_c1 {
            export.audience = Audience::Only([cluster("c1")].into());
        }
        Some((export, slices(part)))
    });
    World::new(exports.collect()).incomplete(incomplete)
}

fn wanted(world: &World, actual: &Actual) -> Wanted {
    // Some worlds have derived Services, and others do not.
    let derives_services = world.exports.len().is_multiple_of(2);
    world.wanted_by(&Importer { derives_services, ..importer("c1") }, actual)
}

fn follow(actual: &mut Actual, writes: Vec<Write>) {
    for write in writes {
        apply(actual, write);
    }
}

fn planned(world: &World, actual: &Actual) -> Vec<Write> {
    plan(&name("shop/web"), actual, &wanted(world, actual))
}

/// An import has its VIPs. Once its status says that new slices are there, they are.
fn check_import(actual: &Actual, before: &Actual, wanted: &Wanted) -> Result<(), TestCaseError> {
    let Some(now) = &actual.import else {
        prop_assert!(before.import.is_none() || wanted.import == WantedImport::Absent);
        return Ok(());
    };
    let import = &now.import;
    prop_assert!(!import.has_derived_service || !actual.slices.is_empty(), "no slices of it");
    if import.spec.service_type == ServiceType::ClusterSetIp {
        prop_assert_eq!(import.ips.len(), import.spec.ip_families.len());
    }
    if let Some(earlier) = &before.import {
        let same_family =
            |ip: &std::net::IpAddr| import.ips.iter().find(|other| other.is_ipv4() == ip.is_ipv4());
        for ip in &earlier.import.ips {
            prop_assert!(same_family(ip).is_none_or(|other| other == ip), "a VIP changed");
        }
    }
    if let WantedImport::Present(_, status) = &wanted.import
        && now.status == *status
        && before.import.as_ref().is_none_or(|earlier| earlier.status != *status)
    {
        prop_assert_eq!(status.endpoint_slice_objects, Some(EndpointSliceObjects::Present));
        let is_there = |slice: &Arc<str>| actual.slices.contains_key(slice);
        prop_assert!(wanted.slices.keys().all(is_there), "Present without a slice");
    }
    Ok(())
}

/// A slice goes only if nobody wants it and its cluster is complete, after everything else.
fn check_slices(
    actual: &Actual,
    before: &Actual,
    wanted: &Wanted,
    incomplete: &BTreeSet<ClusterId>,
) -> Result<(), TestCaseError> {
    let gone = before.slices.iter().filter(|(slice, _)| !actual.slices.contains_key(*slice));
    for (slice, earlier) in gone {
        prop_assert!(!wanted.slices.contains_key(slice), "a slice went that is wanted");
        prop_assert!(
            !incomplete.contains(&earlier.cluster),
            "a slice of an incomplete cluster went"
        );
        let is_current = |(name, slice): (&Arc<str>, &WantedSlice)| {
            actual.slices.get(name).is_some_and(|now| now.fingerprint == slice.fingerprint)
        };
        prop_assert!(wanted.slices.iter().all(is_current), "a slice went before others came");
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_prefix_leaves_vips_and_whole_slices(
        first in any_parts(),
        second in any_parts(),
        incomplete in any_incomplete(),
        stop in 0..20_usize,
    ) {
        let mut before = Actual::default();
        let start = planned(&world(&first, &[]), &before);
        follow(&mut before, start.into_iter().take(stop).collect());

        let then = world(&second, &incomplete);
        let wanted = wanted(&then, &before);
        let mut actual = before.clone();
        for write in planned(&then, &before) {
            apply(&mut actual, write);
            check_import(&actual, &before, &wanted)?;
            check_slices(&actual, &before, &wanted, &then.incomplete)?;
        }
    }

    #[test]
    fn slices_that_fail_stop_no_others(
        first in any_parts(),
        second in any_parts(),
        incomplete in any_incomplete(),
        fails in prop::collection::vec(any::<bool>(), 20),
        is_full in any::<bool>(),
        waits in any::<bool>(),
    ) {
        let mut before = Actual::default();
        let start = planned(&world(&first, &[]), &before);
        follow(&mut before, start);
        let then = world(&second, &incomplete);
        let wanted = wanted(&then, &before);
        let names = before.slices.keys().cloned();
        let (mut failed, mut sent, mut places) = (BTreeSet::new(), 0, fails.iter());
        let mut writes = planned(&then, &before);
        let is_held = |write: &mut Write| {
            let Write::ApplySlice(slice) = write else { return false };
            let is_held = waits && places.next() == Some(&true);
            is_held && { failed.insert(slice.cluster.clone()); true }
        };
        let held = writes.extract_if(.., is_held).collect();
        let mut sending = Sending::new(writes, names).without(held);
        let mut actual = before.clone();
        while let Some(place) = sending.next_index() {
            sent += 1;
            prop_assert!(sent < 10_000, "it does not end");
            let write = sending.write(place).expect("a write").clone();
            match &write {
                Write::ApplySlice(slice) if !waits && fails.get(place) == Some(&true) => {
                    failed.insert(slice.cluster.clone());
                    sending.end(place, if is_full { Ending::NoRoom } else { Ending::Failed });
                }
                _ => {
                    apply(&mut actual, write);
                    sending.end(place, Ending::Done);
                    // A slice that made room can be the last one.
                    if !is_full {
                        check_import(&actual, &before, &wanted)?;
                    }
                }
            }
        }
        let has_failed = |slice: &WantedSlice| {
            slice.copy.as_ref().is_some_and(|copy| failed.contains(&copy.cluster))
        };
        for (name, slice) in wanted.slices.iter().filter(|(_, slice)| !has_failed(slice)) {
            let now = actual.slices.get(name).map(|now| now.fingerprint);
            prop_assert_eq!(now, Some(slice.fingerprint), "{} is not up to date", name);
        }
        let stays = |slice: &Arc<str>, now: &ActualSlice| {
            wanted.slices.contains_key(slice) || then.incomplete.contains(&now.cluster)
        };
        for (slice, now) in actual.slices.iter().filter(|(slice, now)| !stays(slice, now)) {
            let is_last = actual.slices.len() == 1 && !failed.is_empty();
            prop_assert!(failed.contains(&now.cluster) || is_last, "{slice} stays");
        }
        if !is_full {
            for (slice, now) in before.slices.iter().filter(|(_, now)| failed.contains(&now.cluster)) {
                prop_assert!(actual.slices.contains_key(slice) || wanted.slices.contains_key(slice),
                    "{slice} of {} went before others came", now.cluster);
            }
        }
    }

    #[test]
    fn a_plan_that_was_stopped_is_continued(
        first in any_parts(),
        second in any_parts(),
        incomplete in any_incomplete(),
        stop in 0..20_usize,
    ) {
        let mut actual = Actual::default();
        let start = planned(&world(&first, &[]), &actual);
        follow(&mut actual, start);
        let then = world(&second, &incomplete);
        let prefix = planned(&then, &actual).into_iter().take(stop).collect();
        follow(&mut actual, prefix);
        let rest = planned(&then, &actual);
        follow(&mut actual, rest);
        prop_assert_eq!(planned(&then, &actual), vec![]);
    }

    #[test]
    fn what_is_known_of_slices_follows_from_them(
        first in any_parts(),
        second in any_parts(),
        third in any_parts(),
        derives in prop::array::uniform3(any::<bool>()),
        incomplete in any_incomplete(),
    ) {
        // The slices of the last world were seen under the rules of the others.
        let mut last = world(&third, &incomplete);
        let by = |id: &str, derives_services| Importer { derives_services, ..importer(id) };
        let mut before = Actual::default();
        for (parts, derives) in [&first, &second].into_iter().zip(derives) {
            let mut other = world(parts, &[]);
            for (export, slices) in &mut other.exports {
                let same = last.exports.iter().find(|(of, _)| of.cluster == export.cluster);
                slices.extend(same.into_iter().flat_map(|(_, slices)| slices.iter().cloned()));
            }
            let wanted = other.wanted_by(&by("c1", derives), &before);
            let writes = plan(&name("shop/web"), &before, &wanted);
            follow(&mut before, writes);
            other.wanted_by(&by("c2", derives), &before);
        }
        let known = last.wanted_by(&by("c1", derives[2]), &before);
        for slice in last.exports.iter_mut().flat_map(|(_, slices)| slices) {
            *slice = Arc::new(SourceSlice::clone(slice));
        }
        prop_assert_eq!(known, last.wanted_by(&by("c1", derives[2]), &before));
    }

    #[test]
    fn silence_deletes_nothing(first in any_parts(), own in any_part()) {
        let mut before = Actual::default();
        let start = planned(&world(&first, &[]), &before);
        follow(&mut before, start);
        let silent = world(&[own, None, None], &["c2", "c3"]);
        let writes = planned(&silent, &before);
        let had_peers = before.slices.values().any(|slice| slice.cluster != cluster("c1"));
        for write in writes {
            match write {
                Write::DeleteImport(_) => prop_assert!(!had_peers),
                Write::DeleteSlice(_, source, slice) => {
                    prop_assert_eq!(&source, &cluster("c1"));
                    prop_assert_eq!(&before.slices[&slice].cluster, &source);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_cluster_has_the_same_import(mut parts in any_parts()) {
        parts.iter_mut().flatten().for_each(|part| part.only_c1 = false);
        let world = world(&parts, &[]);
        let of = |id| world.wanted_by(&importer(id), &Actual::default());
        prop_assert_eq!(of("c1").import, of("c2").import);
        prop_assert_eq!(of("c1").conflicts, of("c3").conflicts);
    }

    #[test]
    fn a_rebuilt_cluster_gets_the_same_vips(mut parts in any_parts(), later in any_part()) {
        parts.iter_mut().flatten().for_each(|part| part.only_c1 = false);
        let mut then = world(&parts, &[]);
        let vips = wanted(&then, &Actual::default()).vips().to_vec();
        for (export, _) in &mut then.exports {
            export.vips.clone_from(&vips);
        }
        if let (Some(part), Some((export, _))) = (later, then.exports.last_mut()) {
            export.created = time(part.created + 3);
        }
        let again = wanted(&then, &Actual::default());
        for (one, other) in again.vips().iter().flat_map(|one| vips.iter().map(move |other| (one, other))) {
            prop_assert!(one == other || one.is_ipv4() != other.is_ipv4());
        }
    }
}

#[test]
fn a_slice_of_another_family_makes_room() {
    let mut actual = Actual::default();
    let world = World::new(vec![(
        export("c2", 1, crate::core::clusterset::fixture::spec()),
        vec![slice("web-0", &["10.0.0.1"])],
    )]);
    let start = planned(&world, &actual);
    follow(&mut actual, start);
    let (slice, now) = actual.slices.pop_first().unwrap();
    let now = ActualSlice { family: IpFamily::V6, fingerprint: 0, ..now };
    actual.slices.insert(Arc::clone(&slice), now);
    let writes = planned(&world, &actual);
    let [first, Write::ApplySlice(second)] = &*writes else { panic!("{writes:?}") };
    assert_eq!(*first, Write::DeleteSlice(name("shop/web"), cluster("c2"), slice));
    assert_eq!(second.family, IpFamily::V4);
}

#[test]
fn slices_of_an_import_that_somebody_else_took_over_follow_their_sources() {
    let of = |slices| {
        World::new(vec![(export("c2", 1, crate::core::clusterset::fixture::spec()), slices)])
    };
    let before = of(vec![slice("web-0", &["10.0.0.1"]), slice("web-1", &["10.0.0.2"])]);
    let mut actual = Actual::default();
    let start = planned(&before, &actual);
    follow(&mut actual, start);
    actual.import.as_mut().expect("it was written").owner = Owner::Other;
    assert_eq!(planned(&before, &actual), []);
    let after = of(vec![slice("web-0", &["10.0.0.3"]), slice("web-2", &["10.0.0.4"])]);
    let writes = planned(&after, &actual);
    let [Write::ApplySlice(changed), Write::DeleteSlice(..)] = &*writes else {
        panic!("{writes:?}")
    };
    assert_eq!(changed.endpoints[0].address.to_string(), "10.0.0.3");
    follow(&mut actual, writes);
    assert_eq!((planned(&after, &actual), actual.slices.len()), (vec![], 1));
    assert_eq!(planned(&of(vec![]).incomplete(&["c2"]), &actual), [], "c2 is silent");
    assert!(matches!(&*planned(&of(vec![]), &actual), [Write::DeleteSlice(..)]));
}

#[test]
fn a_derived_service_goes_with_its_import_and_with_the_flag() {
    let deriving = Importer { derives_services: true, ..importer("c1") };
    let exported = |id: &str| {
        let export = export(id, 1, crate::core::clusterset::fixture::spec());
        World::new(vec![(export, vec![slice("web-0", &["10.0.0.1"])])])
    };
    let shop = name("shop/web");
    let planned = |world: &World, importer: &Importer, actual: &Actual| {
        plan(&shop, actual, &world.wanted_by(importer, actual))
    };
    let mut actual = Actual::default();
    let writes = planned(&exported("c2"), &deriving, &actual);
    assert!(matches!(writes.last(), Some(Write::ApplyDerivedService(..))), "{writes:?}");
    follow(&mut actual, writes);
    assert_eq!(planned(&exported("c2"), &deriving, &actual), []);
    assert!(actual.import.as_ref().is_some_and(|now| now.import.has_derived_service));
    for (world, importer) in
        [(exported("c2"), importer("c1")), (World::new(vec![]), deriving.clone())]
    {
        let mut after = actual.clone();
        let writes = planned(&world, &importer, &after);
        assert_eq!(writes.last(), Some(&Write::DeleteDerivedService(shop.clone())));
        follow(&mut after, writes);
        assert!(after.import.is_none_or(|now| !now.import.has_derived_service));
    }
    let mut handed_over = actual.clone();
    handed_over.import.as_mut().expect("it was written").owner = Owner::Other;
    assert_eq!(planned(&exported("c2"), &deriving, &handed_over), [], "its new owner may use all");

    let mut changed = actual.clone();
    changed.derived.as_mut().expect("it was written").is_ours_alone = false;
    let writes = planned(&exported("c2"), &deriving, &changed);
    assert!(matches!(&*writes, [Write::ApplyDerivedService(..)]), "{writes:?}");

    let theirs =
        ActualDerived { owner: Owner::Other, ports: vec![], is_ours_alone: false, uid: "".into() };
    let mut actual = Actual { derived: Some(theirs.clone()), ..Actual::default() };
    let writes = planned(&exported("c2"), &deriving, &actual);
    follow(&mut actual, writes);
    assert_eq!(actual.derived, Some(theirs));
    assert!(actual.import.is_some_and(|now| !now.import.has_derived_service));
}

#[test]
fn a_mailbox_that_was_restored_takes_nothing_away() {
    let stamp = |sequence| crate::core::clusterset::Stamp { mailbox: 0, epoch: 1, sequence };
    let at = |name, sequence, addresses: &[&str]| SourceSlice {
        stamp: stamp(sequence),
        ..slice(name, addresses)
    };
    let world = |slices, sequence| {
        let export = export("c2", 0, crate::core::clusterset::fixture::spec());
        World { stamp: stamp(sequence), ..World::new(vec![(export, slices)]) }
    };
    let mut actual = Actual::default();
    let today = world(vec![at("a", 5, &["10.2.0.1"]), at("b", 6, &["10.2.0.2"])], 7);
    let writes = planned(&today, &actual);
    follow(&mut actual, writes);
    let yesterday = world(vec![at("a", 2, &["10.2.0.9"])], 3);
    assert_eq!(planned(&yesterday, &actual), vec![]);
    let later = world(vec![at("a", 8, &["10.2.0.9"])], 9);
    assert_eq!(planned(&later, &actual).len(), 3, "one is written, is counted, and one goes");
    let again = world(vec![at("a", 8, &["10.2.0.1"]), at("b", 8, &["10.2.0.2"])], 9);
    assert_eq!(planned(&again, &actual), vec![], "a stamp is no content");
    let mut moved = world(vec![at("a", 1, &["10.2.0.9"])], 1);
    moved.stamp = moved.stamp.of(7);
    assert_eq!(planned(&moved, &actual).len(), 3, "of another mailbox");
}
