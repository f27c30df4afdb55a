//! Which writes wait, and for how long.

use super::*;
use crate::clusterset::{
    Addresses, Import, ImportStatus, IpFamily, Stamp,
    fixture::{imported_slice, name, spec},
};

fn budgets() -> WriteBudgets {
    WriteBudgets::new(100, "own".parse().unwrap())
}

fn none() -> BTreeSet<ClusterId> {
    BTreeSet::new()
}

/// These clusters have changed a service.
fn causes(clusters: &[&str]) -> BTreeSet<ClusterId> {
    clusters.iter().map(|id| id.parse().unwrap()).collect()
}

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
    Some(budgets.take(&name(service), &mut writes, &none(), &BTreeMap::new(), now)? - now)
}

#[test]
fn one_cluster_does_not_use_the_budget_of_another() {
    let now = Instant::now();
    let mut budgets = budgets();
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
    let mut budgets = budgets();
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
            addresses: Addresses::default(),
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
    let now = Instant::now();
    let mut budgets = budgets();
    assert_eq!(take(&mut budgets, "shop/other", self::writes("busy", 1000), now), None);
    let mut writes = writes.to_vec();
    let wait = budgets.take(&name("shop/web"), &mut writes, &none(), &present(has), now);
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
        tiers: None,
    });
    let service = Write::ApplyDerivedService(name("shop/web"), vec![]);
    let all = [waits, vec![import.clone(), service.clone(), deletion("quiet")]].concat();
    assert_eq!(left(&all[..3], &[]), [], "nothing is there yet");
    assert_eq!(left(&all, &["quiet"]), [import.clone(), service.clone()], "the last slice stays");
    assert_eq!(left(&all, &["quiet", "web"]), [import, service, deletion("quiet")]);
}

#[test]
fn what_is_not_written_is_given_back() {
    let now = Instant::now();
    let mut budgets = budgets();
    assert_eq!(take(&mut budgets, "shop/first", writes("busy", 500), now), None);
    assert!(take(&mut budgets, "shop/short-lived", writes("busy", 10_000), now).is_some());
    assert_eq!(take(&mut budgets, "shop/short-lived", vec![], now), None, "it was withdrawn");
    let wait = take(&mut budgets, "shop/next", writes("busy", 1), now).unwrap();
    assert!(wait <= Duration::from_millis(10), "{wait:?}");

    let due = now + wait;
    assert_eq!(take(&mut budgets, "shop/next", writes("busy", 8000), due), None);
    budgets.give_back(&writes("busy", 7999), due);
    let wait = take(&mut budgets, "shop/last", writes("busy", 1), due).unwrap();
    assert!(wait <= Duration::from_millis(20), "{wait:?}");
}

fn import_of(service: &str, annotation: usize) -> Write {
    let mut spec = spec();
    spec.annotations = [("text".into(), "x".repeat(annotation).into())].into();
    Write::ApplyImport(Import {
        name: name(service),
        ips: vec![],
        spec,
        has_derived_service: false,
        tiers: None,
    })
}

/// How many of 1,000 imports, each with an annotation of so many bytes, are written at once.
fn written_at_once(budgets: &mut WriteBudgets, causes: &[&str], annotation: usize) -> usize {
    let now = Instant::now();
    let taken = (0..1000).filter(|number| {
        let service = name(&format!("shop/s{number}"));
        let status = Write::SetImportStatus(service.clone(), ImportStatus::default());
        let mut writes = vec![import_of("shop/web", annotation), status];
        budgets.take(&service, &mut writes, &self::causes(causes), &BTreeMap::new(), now);
        assert!(writes.len() == 2 || writes.is_empty());
        !writes.is_empty()
    });
    taken.count()
}

#[test]
fn imports_of_a_peer_cost_as_much_as_slices() {
    let mut budgets = budgets();
    assert_eq!(written_at_once(&mut budgets, &["busy"], 0), 500);
    assert_eq!(budgets.waiting(), [(&"busy".parse().unwrap(), 500)].into());
    assert_eq!(written_at_once(&mut self::budgets(), &["busy"], 64 * 1024), 245, "large ones");
    assert_eq!(written_at_once(&mut self::budgets(), &[], 0), 1000, "this cluster's own");
    assert_eq!(written_at_once(&mut self::budgets(), &[], 160 * 1024), 496);
}

#[test]
fn large_slices_cost_more() {
    let now = Instant::now();
    let mut budgets = budgets();
    let mut large = imported_slice("busy");
    let endpoint = |number: u8| crate::clusterset::fixture::endpoint(&format!("10.1.0.{number}"));
    large.endpoints = (0..100).map(endpoint).collect();
    assert!((weight::of_slice(&large) - 1.0).abs() < 0.01, "a usual slice is one token");
    large.endpoints = std::iter::repeat_with(|| endpoint(1)).take(1000).collect();
    let cost = weight::of_slice(&large);
    assert!((4.0..6.0).contains(&cost), "{cost}");
    let all = vec![Write::ApplySlice(large); 200];
    assert_eq!(take(&mut budgets, "shop/web", all, now), None);
    assert!(take(&mut budgets, "shop/db", writes("busy", 1), now) > Some(Duration::from_secs(2)));
}

#[test]
fn the_first_import_of_a_service_costs_its_slices_alone() {
    let now = Instant::now();
    let mut budgets = budgets();
    for number in 0..500 {
        let service = name(&format!("shop/s{number}"));
        let status = Write::SetImportStatus(service.clone(), ImportStatus::default());
        let mut all = [writes("busy", 1), vec![import_of("shop/web", 0), status]].concat();
        let causes = causes(&["busy"]);
        assert_eq!(budgets.take(&service, &mut all, &causes, &BTreeMap::new(), now), None);
    }
    assert!(take(&mut budgets, "shop/last", writes("busy", 1), now).is_some());
}

#[test]
fn an_import_waits_for_nobody_who_has_tokens() {
    let now = Instant::now();
    let mut budgets = budgets();
    assert_eq!(take(&mut budgets, "shop/other", writes("busy", 1000), now), None);
    let mut left = |clusters: &[&str]| {
        let mut all =
            [writes("quiet", 1), vec![import_of("shop/web", 0), deletion("quiet")]].concat();
        let shop = name("shop/web");
        budgets.take(&shop, &mut all, &causes(clusters), &present(&["quiet", "busy"]), now);
        all.len()
    };
    assert_eq!(left(&["busy"]), 2, "the slices of another cluster do not wait, and go");
    for causes in [&["busy", "quiet"][..], &["busy", "own"], &[]] {
        assert_eq!(left(causes), 3, "{causes:?}");
    }
    assert!(budgets.promises.is_empty(), "nobody pays for what another one has paid for");
}

#[test]
fn the_last_slice_waits_for_an_import_that_names_a_derived_service() {
    let import = import_of("shop/web", 0);
    let gone = Write::DeleteDerivedService(name("shop/web"));
    let left = |present: &[&str]| {
        let now = Instant::now();
        let mut budgets = budgets();
        assert_eq!(take(&mut budgets, "shop/other", writes("busy", 1000), now), None);
        let mut all = vec![import.clone(), deletion("busy"), gone.clone()];
        let shop = name("shop/web");
        budgets.take(&shop, &mut all, &causes(&["busy"]), &self::present(present), now);
        all
    };
    assert_eq!(left(&["busy"]), []);
    assert_eq!(left(&["busy", "quiet"]), [deletion("busy")]);
}

#[test]
fn publications_have_a_budget() {
    let now = Instant::now();
    let mut budgets = budgets();
    let slice = crate::clusterset::fixture::slice("web-1", &[]);
    let apply = MailboxWrite::ApplySlice(name("shop/web"), Arc::new(slice));
    let mut take = |service: &str, mut writes: Vec<MailboxWrite>| {
        let wait = budgets.take_publication(&name(service), &mut writes, now);
        assert_eq!(wait.is_some(), writes.is_empty());
        wait.is_none()
    };
    let taken = (0..3000).filter(|number| take(&format!("shop/s{number}"), vec![apply.clone()]));
    assert_eq!(taken.count(), 2500);
    assert!(take("shop/gone", vec![MailboxWrite::DeleteService(name("shop/gone"))]));
}
