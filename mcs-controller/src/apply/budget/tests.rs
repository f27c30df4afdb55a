//! Which writes wait, and for how long.

use super::*;
use crate::clusterset::{
    Import, ImportStatus, IpFamily, Stamp,
    fixture::{imported_slice, name, spec},
};

fn writes(cluster: &str, count: usize) -> Vec<Write> {
    vec![Write::ApplySlice(imported_slice(cluster)); count]
}

/// Asks for a service, and returns how long it has to wait.
fn take(
    budgets: &mut WriteBudgets,
    service: &str,
    mut writes: Vec<Write>,
    now: Instant,
) -> Option<Duration> {
    let own = "own".parse().unwrap();
    Some(budgets.take(&name(service), &mut writes, &own, &BTreeMap::new(), now)? - now)
}

#[test]
fn one_cluster_does_not_use_the_budget_of_another() {
    let now = Instant::now();
    let mut budgets = WriteBudgets::new(100);
    for _ in 0..10 {
        assert_eq!(take(&mut budgets, "shop/web", writes("busy", 50), now), None);
    }
    let wait = take(&mut budgets, "shop/web", writes("busy", 1), now).unwrap();
    assert!(wait <= Duration::from_millis(10), "{wait:?}");
    assert_eq!(take(&mut budgets, "shop/db", writes("quiet", 1), now), None);
    assert_eq!(take(&mut budgets, "shop/db", writes("own", 10_000), now), None);
    let later = now + Duration::from_secs(1);
    let at_once = take(&mut budgets, "shop/web", writes("busy", 1000), later);
    assert_eq!(at_once, None, "in debt then");
    let wait = take(&mut budgets, "shop/web", writes("busy", 1), later).unwrap();
    assert!(wait > Duration::from_secs(8), "{wait:?}");
}

#[test]
fn services_that_wait_have_their_turn_one_after_the_other() {
    let mut now = Instant::now();
    let mut budgets = WriteBudgets::new(100);
    assert_eq!(take(&mut budgets, "shop/first", writes("busy", 500), now), None);
    let services: Vec<_> = (0..50).map(|number| format!("shop/s{number}")).collect();
    let mut asked = 0;
    let mut waiting: Vec<_> = services.iter().map(|service| (now, service)).collect();
    while let Some(next) = waiting.iter().map(|(due, _)| *due).min() {
        now = now.max(next);
        let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(at, _)| *at <= now);
        waiting = later;
        for (_, service) in due {
            asked += 1;
            let Some(wait) = take(&mut budgets, service, writes("busy", 1), now) else {
                continue;
            };
            let again = take(&mut budgets, service, writes("busy", 1), now);
            assert_eq!(again, Some(wait), "a service that changes again keeps its turn");
            waiting.push((now + wait, service));
        }
    }
    assert_eq!(asked, 100, "each service asks twice");
    assert!(budgets.promises.is_empty());
}

/// The slice that a service has from each of these clusters, named like it.
fn present(clusters: &[&str]) -> BTreeMap<Arc<str>, ActualSlice> {
    let of = |id: &&str| {
        let slice = ActualSlice {
            cluster: id.parse().unwrap(),
            fingerprint: 0,
            family: IpFamily::V4,
            stamp: Stamp::NONE,
        };
        ((*id).into(), slice)
    };
    clusters.iter().map(of).collect()
}

fn deletion(cluster: &str) -> Write {
    Write::DeleteSlice(name("shop/web"), cluster.parse().unwrap(), cluster.into())
}

/// What is left of the writes of shop/web while the cluster `busy` is in debt.
fn left(writes: &[Write], has: &[&str]) -> Vec<Write> {
    let own = "own".parse().unwrap();
    let now = Instant::now();
    let mut budgets = WriteBudgets::new(100);
    assert_eq!(take(&mut budgets, "shop/other", self::writes("busy", 1000), now), None);
    let mut writes = writes.to_vec();
    let wait = budgets.take(&name("shop/web"), &mut writes, &own, &present(has), now);
    assert!(wait.is_some());
    writes
}

#[test]
fn a_cluster_in_debt_does_not_hold_up_the_others_of_a_service() {
    let kept = [writes("quiet", 2), writes("own", 1), vec![deletion("quiet")]].concat();
    let all = [writes("busy", 1), kept.clone(), vec![deletion("busy")]].concat();
    assert_eq!(left(&all, &["quiet", "busy"]), kept);
}

#[test]
fn the_status_waits_for_new_slices_alone() {
    let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
    let all = [writes("busy", 1), vec![status.clone()]].concat();
    assert_eq!(left(&all, &[]), []);
    assert_eq!(left(&all, &["web"]), [status], "the slice is there, with other endpoints");
}

#[test]
fn an_import_without_slices_names_no_derived_service() {
    let mut waits = writes("busy", 1);
    let Write::ApplySlice(slice) = &mut waits[0] else { panic!("a slice") };
    slice.has_derived_service = true;
    let import = Write::ApplyImport(Import {
        name: name("shop/web"),
        ips: vec![],
        spec: spec(),
        has_derived_service: true,
    });
    let service = Write::ApplyDerivedService(name("shop/web"), vec![]);
    let all = [waits, vec![import.clone(), service.clone(), deletion("quiet")]].concat();
    assert_eq!(left(&all[..3], &[]), [], "nothing is there yet");
    assert_eq!(left(&all, &["quiet"]), [import.clone(), service.clone()], "the last slice stays");
    assert_eq!(left(&all, &["quiet", "web"]), [import, service, deletion("quiet")]);
}

#[test]
fn what_is_not_written_is_given_back() {
    let own = "own".parse().unwrap();
    let now = Instant::now();
    let mut budgets = WriteBudgets::new(100);
    assert_eq!(take(&mut budgets, "shop/first", writes("busy", 500), now), None);
    assert!(take(&mut budgets, "shop/short-lived", writes("busy", 10_000), now).is_some());
    assert_eq!(take(&mut budgets, "shop/short-lived", vec![], now), None, "it was withdrawn");
    let wait = take(&mut budgets, "shop/next", writes("busy", 1), now).unwrap();
    assert!(wait <= Duration::from_millis(10), "{wait:?}");

    let due = now + wait;
    assert_eq!(take(&mut budgets, "shop/next", writes("busy", 8000), due), None);
    budgets.give_back(&writes("busy", 7999), &own, due);
    let wait = take(&mut budgets, "shop/last", writes("busy", 1), due).unwrap();
    assert!(wait <= Duration::from_millis(20), "{wait:?}");
}
