//! Plans for single changes, for maps without room, and for writes that fail on the way.

use std::sync::Arc;

use bytemuck::Zeroable as _;

use super::*;
use crate::core::{
    model::{Capacity, Protocol},
    tables::{
        MapView, Maps as _, NameMap, NameRecord, apply,
        fixtures::{address, desired, frontend, go, id, maps, pods, web},
        testing::MemoryMaps,
    },
};

const ROOMY: Capacity = Capacity { vips: 8, frontends: 8, endpoints: 16, clusters: 4, imports: 8 };

#[test]
fn a_new_frontend_is_whole_before_its_vip_appears() {
    let (mut maps, mut realized) = maps(ROOMY, &[]);
    let wanted = web("web", &[("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "west")]);
    assert_eq!(
        go(&wanted, &mut maps, &mut realized),
        [
            "services: write entry 1",
            "clusters: write entry 1",
            "clusters: write entry 2",
            "backends: write backend 1",
            "backends: write backend 2",
            "slots: write 2 slots from 0",
            "states: write state 1",
            "frontends: insert 10.0.0.1:80/TCP at index 1",
            "vips: insert 10.0.0.1",
        ]
    );
}

#[test]
fn entry_0_of_each_map_of_names_is_cleared() {
    let (mut maps, _) = maps(ROOMY, &[]);
    for map in NameMap::ALL {
        let record = NameRecord::of_cluster("junk").into();
        maps.write(&Step::WriteName { map, id: 0, record }).expect("no fault");
    }
    let (mut realized, _) = Realized::restore(maps.contents().clone(), ROOMY);
    go(&DesiredState::default(), &mut maps, &mut realized);
    for map in NameMap::ALL {
        assert_eq!(maps.contents().name(map, 0), NameRecord::zeroed(), "{map:?}");
    }
}

#[test]
fn a_change_keeps_what_stays_and_retires_after_the_flip() {
    let former = web("web", &[("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "west")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    let wanted = web("web", &[("10.1.0.2:8080", "west"), ("10.1.0.3:8080", "west")]);
    assert_eq!(
        go(&wanted, &mut maps, &mut realized),
        [
            "backends: write backend 3",
            "slots: write 2 slots from 2",
            "states: flip state 1 to 2 slots from 2",
            "backends: retire backend 1",
        ]
    );
    assert!(maps.contents().slots.iter().eq(&[1, 2, 2, 3]));
}

#[test]
fn what_one_frontend_lost_is_retired_before_the_next_changes() {
    let both = |pod| {
        let of_port = |port| (id("10.0.0.1", port), frontend("web", &[(pod, "")]));
        desired([of_port(80), of_port(81)])
    };
    let (mut maps, mut realized) = maps(ROOMY, &[&both("10.1.0.1:80")]);
    assert_eq!(
        go(&both("10.1.0.2:80"), &mut maps, &mut realized),
        [
            "backends: write backend 3",
            "slots: write 1 slots from 2",
            "states: flip state 1 to 1 slots from 2",
            "backends: retire backend 1",
            "backends: write backend 4",
            "slots: write 1 slots from 3",
            "states: flip state 2 to 1 slots from 3",
            "backends: retire backend 2",
        ]
    );
}

#[test]
fn an_address_of_another_cluster_is_another_backend() {
    let former = web("web", &[("10.1.0.1:8080", "east")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    assert_eq!(
        go(&web("web", &[("10.1.0.1:8080", "west")]), &mut maps, &mut realized),
        [
            "clusters: write entry 2",
            "backends: write backend 2",
            "slots: write 1 slots from 1",
            "states: flip state 1 to 1 slots from 1",
            "backends: retire backend 1",
        ]
    );
}

#[test]
fn attributes_change_in_place() {
    let former = web("web", &[("10.1.0.1:8080", "east")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    let mut wanted = former.clone();
    wanted.frontends.values_mut().for_each(|frontend| frontend.affinity_seconds = Some(60));
    assert_eq!(go(&wanted, &mut maps, &mut realized), ["states: update attributes of state 1"]);
    let owner = web("shop", &[("10.1.0.1:8080", "east")]);
    assert_eq!(
        go(&owner, &mut maps, &mut realized),
        ["services: write entry 2", "states: update attributes of state 1"]
    );
}

#[test]
fn a_vip_goes_first_and_its_backends_last() {
    let former = web("web", &[("10.1.0.1:8080", "east")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    assert_eq!(
        go(&DesiredState::default(), &mut maps, &mut realized),
        [
            "vips: delete 10.0.0.1",
            "frontends: delete 10.0.0.1:80/TCP",
            "backends: retire backend 1",
        ]
    );
}

#[test]
fn a_frontend_without_backends_is_there_and_refuses() {
    let (mut maps, mut realized) = maps(ROOMY, &[]);
    assert_eq!(
        go(&web("web", &[]), &mut maps, &mut realized),
        [
            "services: write entry 1",
            "states: write state 1",
            "frontends: insert 10.0.0.1:80/TCP at index 1",
            "vips: insert 10.0.0.1",
        ]
    );
    go(&web("web", &[("10.1.0.1:8080", "east")]), &mut maps, &mut realized);
    assert_eq!(
        go(&web("web", &[]), &mut maps, &mut realized),
        ["states: flip state 1 to 0 slots from 0", "backends: retire backend 1"]
    );
}

#[test]
fn nothing_is_to_do_where_we_are() {
    let former = web("web", &[("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "")]);
    let wanted = web("web", &[("10.1.0.3:8080", "east"), ("10.1.0.2:8080", "")]);
    let (_, realized) = maps(ROOMY, &[&former, &wanted]);
    for pruning in [Pruning::Off, Pruning::On] {
        assert_eq!(plan(&wanted, &realized, pruning), Plan::default());
    }
}

#[test]
fn nothing_goes_before_every_source_has_synced() {
    let former = desired([
        (id("10.0.0.1", 80), frontend("web", &[("10.1.0.1:80", "east")])),
        (id("10.0.0.1", 81), frontend("web", &[("10.1.0.1:81", "east")])),
        (id("10.0.0.2", 80), frontend("shop", &[("10.1.0.2:80", "east")])),
    ]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    let partly_read = desired([
        (id("10.0.0.1", 80), frontend("web", &[("10.1.0.3:80", "east")])),
        (id("10.0.0.1", 81), frontend("claims-it-too", &[("10.1.0.4:80", "east")])),
    ]);
    let steps = plan(&partly_read, &realized, Pruning::Off).steps;
    apply(Planned::after(steps, &realized), &mut maps, &mut realized).expect("no fault");
    assert_eq!(
        MapView::of(maps.contents()).to_string(),
        "\
vip 10.0.0.1
  80/TCP demo/web
    10.1.0.1:80 east
    10.1.0.3:80 east
  81/TCP demo/web
    10.1.0.1:81 east
vip 10.0.0.2
  80/TCP demo/shop
    10.1.0.2:80 east
"
    );
}

/// A large set would never be written if each failure meant to start from the beginning.
#[test]
fn a_plan_that_stopped_is_gone_on_with() {
    let both = [("10.1.0.1:80", "east"), ("10.1.0.2:80", "west")];
    let wanted = desired([
        (id("10.0.0.1", 80), frontend("web", &both)),
        (id("10.0.0.1", 81), frontend("web", &both)),
    ]);
    let whole = plan(&wanted, &Realized::empty(ROOMY), Pruning::On).steps;
    let of_one = whole.iter().position(|step| matches!(step, Step::InsertFrontend { .. }));
    let of_one = of_one.expect("two frontends") + 1;
    for (n, next) in whole.iter().enumerate() {
        let (mut maps, mut realized) = maps(ROOMY, &[]);
        let part = Planned::after(whole[..n].to_vec(), &realized);
        apply(part, &mut maps, &mut realized).expect("no fault");
        assert_eq!(plan(&wanted, &realized, Pruning::On).steps, whole[n..]);

        realized.read_again(&maps);
        let again = plan(&wanted, &realized, Pruning::On).steps;
        let is_renewed =
            |step: &&Step| matches!(step, Step::RetireBackend { .. } | Step::WaitForReaders);
        let renewed = again.iter().filter(is_renewed).count();
        assert!(renewed <= 3, "{next}: {again:?}");
        let begun = if n < of_one { n } else { n - of_one };
        assert!(again.len() - renewed <= whole.len() - n + begun, "{next}: {again:?}");
    }
}

#[test]
fn an_insertion_that_keeps_failing_holds_up_no_change() {
    let former = web("web", &[("10.1.0.1:80", "east")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    let mut wanted = former;
    wanted.frontends.insert(id("10.0.0.1", 81), frontend("web", &[]));
    let steps = plan(&wanted, &realized, Pruning::On).steps;
    let is_insertion = |step: &&Step| matches!(step, Step::InsertFrontend { .. });
    for step in steps.iter().take_while(|step| !is_insertion(step)) {
        maps.write(step).expect("no fault");
    }
    realized.read_again(&maps);
    wanted.frontends.insert(id("10.0.0.1", 80), frontend("web", &[]));
    let steps = plan(&wanted, &realized, Pruning::On).steps;
    let position = |of: fn(&Step) -> bool| steps.iter().position(of);
    let flip = position(|step| matches!(step, Step::Flip { .. }));
    let insert = position(|step| matches!(step, Step::InsertFrontend { .. }));
    assert!(flip.is_some() && flip < insert, "{steps:#?}");
}

#[test]
fn what_does_not_fit_is_deferred_and_the_rest_goes_on() {
    let capacity = Capacity { vips: 2, frontends: 2, endpoints: 3, clusters: 1, imports: 2 };
    let fits = (id("10.0.0.1", 80), frontend("web", &[("10.1.0.1:80", "east")]));
    let many = frontend("web", &[("10.1.0.1:80", ""), ("10.1.0.2:80", ""), ("10.1.0.3:80", "")]);
    let clusters = frontend("web", &[("10.1.0.1:80", "west"), ("10.1.0.2:80", "north")]);
    let cases = [
        (
            vec![fits.clone(), (id("10.0.0.1", 81), many)],
            "10.0.0.1:81/TCP stays as it is, since the maps hold no more endpoints: raise \
             --max-memory",
        ),
        (
            vec![fits.clone(), (id("10.0.0.1", 81), clusters)],
            "10.0.0.1:81/TCP stays as it is, since the maps hold no more source clusters: raise \
             --max-memory",
        ),
        (
            vec![
                fits.clone(),
                (id("10.0.0.1", 81), frontend("web", &[])),
                (id("10.0.0.1", 82), frontend("web", &[])),
            ],
            "10.0.0.1:82/TCP stays as it is, since the maps hold no more frontends: raise \
             --max-memory",
        ),
    ];
    for (frontends, message) in cases {
        let vips = [address("10.0.0.1")].into();
        let wanted = DesiredState {
            vips,
            frontends: frontends.into_iter().collect(),
            ..DesiredState::default()
        };
        let mut maps = MemoryMaps::new(capacity);
        let mut realized = Realized::empty(capacity);
        let plan = plan(&wanted, &realized, Pruning::On);
        let messages: Vec<String> = plan.deferred.iter().map(ToString::to_string).collect();
        assert_eq!(messages, [message]);
        let plan = Planned::after(plan.steps, &realized);
        apply(plan, &mut maps, &mut realized).expect("no fault");
        assert_eq!(realized.index(&frontend_key(&fits.0)), Some(1));
    }
}

#[test]
fn a_vip_too_many_is_deferred() {
    let vips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(address).into();
    let wanted = DesiredState { vips, ..DesiredState::default() };
    let capacity = Capacity { vips: 2, frontends: 3, endpoints: 1, clusters: 1, imports: 2 };
    let plan = plan(&wanted, &Realized::empty(capacity), Pruning::On);
    let messages: Vec<String> = plan.deferred.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        ["10.0.0.3 stays as it is, since the maps hold no more VIPs: raise --max-memory"]
    );
}

#[test]
fn full_maps_can_be_replaced_for_ever() {
    let capacity = Capacity { vips: 1, frontends: 1, endpoints: 1, clusters: 1, imports: 1 };
    let (mut maps, mut realized) = maps(capacity, &[]);
    for n in 0..20_u8 {
        let name = format!("name-{n}");
        let backend = (format!("10.1.0.{n}:80"), name.as_str());
        let of_port = |port| {
            desired([(id("10.0.0.1", port), frontend(&name, &[(backend.0.as_str(), backend.1)]))])
        };
        let steps = go(&of_port(80), &mut maps, &mut realized);
        assert!(steps.iter().filter(|step| step.as_str() == "all: wait for readers").count() <= 1);
        if n % 5 == 0 {
            go(&of_port(81), &mut maps, &mut realized);
        }
    }
}

/// Half of the backends move from one frontend to the other, none stays.
#[test]
fn what_shrinks_makes_room_for_what_grows() {
    let capacity = Capacity { vips: 2, frontends: 2, endpoints: 8, clusters: 1, imports: 2 };
    let wanted = |a: (u8, u8), b: (u8, u8)| {
        let of =
            |(network, count)| Frontend { backends: pods(network, count), ..frontend("web", &[]) };
        desired([(id("10.0.0.1", 80), of(a)), (id("10.0.0.1", 81), of(b))])
    };
    let (mut maps, mut realized) = maps(capacity, &[&wanted((1, 2), (2, 6))]);
    for (a, b) in [((3, 6), (4, 2)), ((5, 2), (6, 6)), ((7, 8), (8, 0)), ((9, 0), (1, 8))] {
        go(&wanted(a, b), &mut maps, &mut realized);
        assert_eq!(realized.slots(), 8);
    }
}

/// A UDP frontend with these backends, and others that serve.
fn dns(backends: &[(&str, &str)], also_serving: &[(&str, &str)]) -> DesiredState {
    let also_serving = frontend("dns", also_serving).backends;
    let id = FrontendId { protocol: Protocol::Udp, ..id("10.0.0.1", 53) };
    desired([(id, Frontend { also_serving, ..frontend("dns", backends) })])
}

const ONE: (&str, &str) = ("10.1.0.1:53", "east");
const TWO: (&str, &str) = ("10.1.0.2:53", "east");
const THREE: (&str, &str) = ("10.1.0.3:53", "west");

#[test]
fn a_backend_of_udp_that_still_serves_is_kept_and_resumed() {
    let (mut maps, mut realized) = maps(ROOMY, &[&dns(&[ONE, TWO], &[])]);
    let mut go = |desired: &DesiredState| go(desired, &mut maps, &mut realized);
    assert_eq!(
        go(&dns(&[ONE], &[TWO, THREE])),
        [
            "slots: write 1 slots from 2",
            "states: flip state 1 to 1 slots from 2",
            "backends: keep backend 2",
        ]
    );
    assert_eq!(go(&dns(&[ONE], &[TWO])), [""; 0], "backend 3 was never written");
    assert_eq!(
        go(&dns(&[TWO], &[ONE])),
        [
            "backends: resume backend 2",
            "slots: write 1 slots from 3",
            "states: flip state 1 to 1 slots from 3",
            "backends: keep backend 1",
        ]
    );
    assert_eq!(go(&dns(&[TWO], &[])), ["backends: retire backend 1"]);
    // No endpoint serves: clients stay where they are, and new ones are refused.
    assert_eq!(
        go(&dns(&[], &[])),
        ["states: flip state 1 to 0 slots from 0", "backends: keep backend 2"]
    );
    assert_eq!(
        go(&dns(&[THREE], &[])),
        [
            "clusters: write entry 2",
            "backends: write backend 3",
            "slots: write 1 slots from 4",
            "states: flip state 1 to 1 slots from 4",
            "backends: retire backend 2",
        ]
    );
    assert_eq!(
        go(&DesiredState::default()),
        [
            "vips: delete 10.0.0.1",
            "frontends: delete 10.0.0.1:53/UDP",
            "backends: retire backend 3",
        ]
    );
}

#[test]
fn where_no_endpoint_has_served_for_a_while_nothing_is_kept() {
    let empty = dns(&[], &[]);
    let over = empty.frontends.keys().copied().collect();
    let deserted = DesiredState { deserted: Arc::new(over), ..empty.clone() };
    let (mut maps, mut realized) = maps(ROOMY, &[&dns(&[ONE, TWO], &[]), &empty]);
    assert_eq!(realized.kept_backends(), 2);
    assert_eq!(plan(&deserted, &realized, Pruning::Off), Plan::default());
    assert_eq!(
        go(&deserted, &mut maps, &mut realized),
        ["backends: retire backend 1", "backends: retire backend 2"]
    );
    assert_eq!(plan(&empty, &realized, Pruning::On), Plan::default());
}

#[test]
fn a_backend_whose_cluster_changes_and_changes_back_is_resumed() {
    let of = |cluster| dns(&[(ONE.0, cluster)], &[]);
    let (mut maps, mut realized) = maps(ROOMY, &[&of("east"), &of("west")]);
    assert_eq!(realized.kept_backends(), 1, "its address serves");
    let steps = go(&of("east"), &mut maps, &mut realized);
    assert_eq!(steps.first().map(String::as_str), Some("backends: resume backend 1"));
    assert_eq!(steps.last().map(String::as_str), Some("backends: keep backend 2"));
}

#[test]
fn a_kept_backend_goes_with_its_frontend() {
    let kept = dns(&[ONE], &[TWO]);
    let (mut maps, mut realized) = maps(ROOMY, &[&dns(&[ONE, TWO], &[]), &kept]);
    let (restored, findings) = Realized::restore(maps.contents().clone(), ROOMY);
    assert_eq!(findings, []);
    assert_eq!(plan(&kept, &restored, Pruning::On), Plan::default());
    assert_eq!(plan(&dns(&[ONE], &[]), &restored, Pruning::Off), Plan::default());
    let steps = go(&DesiredState::default(), &mut maps, &mut realized);
    assert_eq!(steps[2..], ["backends: retire backend 1", "backends: retire backend 2"]);
}

#[test]
fn a_backend_of_tcp_is_not_kept() {
    let former = web("web", &[("10.1.0.1:80", "")]);
    let (mut maps, mut realized) = maps(ROOMY, &[&former]);
    let steps = go(&web("web", &[]), &mut maps, &mut realized);
    assert_eq!(steps[1..], ["backends: retire backend 1"]);
}

#[test]
fn kept_backends_make_room_and_those_first_that_no_longer_serve() {
    let capacity = Capacity { vips: 2, frontends: 2, endpoints: 4, clusters: 2, imports: 2 };
    let udp = dns(&[ONE, TWO, THREE], &[]);
    let with = |udp: &DesiredState, network| {
        let web = Frontend { backends: pods(network, 3), ..frontend("web", &[]) };
        let mut all = udp.clone();
        all.frontends.insert(id("10.0.0.1", 80), web);
        all
    };
    // The maps have room for four backends and as many ids again.
    let shrunk = with(&dns(&[THREE], &[ONE, TWO]), 1);
    let (mut maps, mut realized) = maps(capacity, &[&udp, &shrunk]);
    assert_eq!(realized.kept_backends(), 2);
    let replaced = with(&dns(&[THREE], &[ONE]), 2);
    let steps = go(&replaced, &mut maps, &mut realized);
    assert_eq!(
        steps[..2],
        ["backends: retire backend 2", "all: wait for readers"],
        "ids are short by one"
    );
    assert_eq!(realized.kept_backends(), 1);
    assert_eq!(plan(&replaced, &realized, Pruning::On), Plan::default());
}

#[test]
fn a_part_ends_between_two_frontends_and_has_no_vip() {
    let two = desired([
        (id("10.0.0.1", 80), frontend("web", &[("10.1.0.1:80", "")])),
        (id("10.0.0.1", 81), frontend("shop", &[("10.1.0.2:80", "")])),
    ]);
    let part = |part| {
        let empty = Realized::empty(Capacity::default());
        plan_within(&DesiredChanges::Everything, &two, &empty, Pruning::On, part).plan
    };
    let (first, whole) = (part(1), part(usize::MAX));
    assert!(first.is_part && !whole.is_part);
    assert!(matches!(first.steps.last(), Some(Step::InsertFrontend { index: 1, .. })));
    assert!(whole.steps.starts_with(&first.steps));
    assert!(matches!(whole.steps.last(), Some(Step::InsertVip(_))));
}
