//! Spill: its arithmetic, its times, and what it makes of imports.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::core::{
    model::{
        ClusterAffinity, DesiredState, EndpointSlice, EventBatch, ImportReport, NodeContext,
        ObjectEvent, Tiers, Traffic,
        fixture::{endpoint, import, key, knowing, plain_node, slice},
    },
    rules::{self, Fate, Rules, candidate::Fates, full_round, preference::Preferences},
    store::ObjectStore,
};

const FRONTEND: FrontendId = FrontendId {
    ip: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    port: 80,
    protocol: crate::core::model::Protocol::Tcp,
};

fn asking(spill: &str, delay: Option<&str>) -> ServiceImport {
    let delay = delay.map(|delay| (wish::FAILBACK_DELAY, delay.into()));
    let settings = [(wish::SPILL, spill.into())].into_iter().chain(delay).collect();
    let web = import("shop/web").ip("10.0.0.1").port("http", 80);
    let tiers = Some(Box::new(Tiers::parse(r#"[{"clusters":["east"]}]"#)));
    ServiceImport { tiers, settings, ..web }
}

fn rule(spill: &str) -> SpillRule {
    SpillRule::of(&asking(spill, None), &mut vec![]).unwrap()
}

fn tally(ready: u32, total: u32) -> Tally {
    Tally { ready, total, ..Tally::default() }
}

#[test]
fn annotations_are_read() {
    use Threshold::{Percent, Ready};
    for (spill, delay, expected, problems) in [
        ("70%", None, Some((Percent(70), 300)), 0),
        ("100%", Some("10s"), Some((Percent(100), 10)), 0),
        ("min-ready=3", Some("1m30s"), Some((Ready(3), 90)), 0),
        ("min-ready=1000", Some("24h"), Some((Ready(1000), 86_400)), 0),
        ("1%", Some("9s"), Some((Percent(1), 300)), 1),
        ("1%", Some("25h"), Some((Percent(1), 300)), 1),
        ("1%", Some("soon"), Some((Percent(1), 300)), 1),
        ("0%", None, None, 1),
        ("101%", None, None, 1),
        ("+7%", None, None, 1),
        ("7", None, None, 1),
        ("", None, None, 1),
        ("min-ready=0", None, None, 1),
        ("min-ready=1001", Some("soon"), None, 1),
        ("min-ready=70%", None, None, 1),
        ("on", None, None, 1),
    ] {
        let mut found = vec![];
        let rule = SpillRule::of(&asking(spill, delay), &mut found);
        let rule = rule.map(|rule| (rule.threshold, rule.failback_delay.as_secs()));
        assert_eq!((rule, found.len()), (expected, problems), "{spill} {delay:?}");
        for ObjectProblem { reason, message } in found {
            let value = format!("{:?}", delay.filter(|_| rule.is_some()).unwrap_or(spill));
            assert!(
                reason == RejectionReason::SpillInvalid && message.contains(&value),
                "{message}"
            );
        }
    }
    assert_eq!(SpillRule::of(&import("shop/web"), &mut vec![]), None);
}

/// Each tier: how many are ready, and of how many. The shares are in percent.
#[test]
fn shares_are_those_of_envoy() {
    for (spill, tiers, expected) in [
        ("70%", vec![(1, 20), (20, 20)], vec![7, 93]),
        ("70%", vec![(0, 20), (20, 20)], vec![0, 100]),
        ("70%", vec![(14, 20), (20, 20)], vec![100, 0]),
        ("70%", vec![(13, 20), (20, 20)], vec![91, 9]),
        // The threshold is lower than what Envoy's factor covers.
        ("50%", vec![(10, 20), (20, 20)], vec![100, 0]),
        ("50%", vec![(9, 20), (20, 20)], vec![63, 37]),
        // A higher threshold: the tier is below it, and still takes all clients.
        ("90%", vec![(15, 20), (20, 20)], vec![100, 0]),
        ("min-ready=3", vec![(3, 20), (1, 1)], vec![100, 0]),
        ("min-ready=3", vec![(2, 20), (3, 3)], vec![66, 33]),
        ("min-ready=3", vec![(1, 1), (1, 1), (9, 9)], vec![33, 33, 33]),
        ("70%", vec![(1, 4), (1, 4), (4, 4)], vec![35, 35, 30]),
        // All together take less than all clients.
        ("70%", vec![(1, 20), (2, 20)], vec![33, 66]),
        ("70%", vec![(1, 20), (0, 0)], vec![100, 0]),
        ("70%", vec![(0, 0), (1, 20)], vec![0, 100]),
        ("70%", vec![(0, 0), (0, 9)], vec![0, 0]),
    ] {
        let tallies: Vec<_> = tiers.iter().map(|(ready, total)| tally(*ready, *total)).collect();
        let rule = rule(spill);
        let most: Vec<_> =
            tallies.iter().map(|tally| State::first(rule, tally).most(tally)).collect();
        let shares: Vec<_> = shares(most, rule, &tallies).iter().map(|one| one / 10_000).collect();
        assert_eq!(shares, expected, "{spill} {tiers:?}");
    }
}

#[test]
fn where_nothing_is_ready_what_drains_serves() {
    let draining = Tally { draining: 1, ..tally(0, 1) };
    let shares = |tallies: [Tally; 2]| shares(vec![0, 0], rule("70%"), &tallies);
    assert_eq!(shares([tally(0, 1), draining.clone()]), [0, ALL]);
    assert_eq!(shares([draining, tally(1, 1)]), [0, ALL], "the other one waits");
}

/// Tiers that wait at these shares, in percent.
#[test]
fn what_no_other_tier_can_take_does_not_wait() {
    for (waiting, tiers, expected) in [
        ([7, 100], [tally(20, 20), tally(2, 2)], [7, 93]),
        ([7, 21], [tally(20, 20), tally(3, 20)], [79, 21]),
        ([0, 0], [tally(1, 1), tally(0, 2)], [100, 0]),
        ([0, 0], [tally(1, 4), tally(1, 4)], [50, 50]),
    ] {
        let most = waiting.map(|percent| percent * ALL / 100).to_vec();
        let shares = shares(most, rule("70%"), &tiers);
        assert_eq!(shares, expected.map(|percent| percent * ALL / 100), "{waiting:?} {tiers:?}");
    }
}

/// A tier of `total` endpoints at some seconds: how many are ready, and what it takes at most in percent.
fn follow(spill: &str, delay: &str, total: u32, script: &[(u64, u32, u64)]) {
    let rule = SpillRule::of(&asking(spill, Some(delay)), &mut vec![]).unwrap();
    let start = Instant::now();
    let mut state: Option<State> = None;
    for (second, ready, expected) in script {
        let (now, tally) = (start + Duration::from_secs(*second), tally(*ready, total));
        let next = match state {
            Some(former) => former.next(rule, &tally, now),
            None => State::first(rule, &tally),
        };
        assert_eq!(next.next(rule, &tally, now), next, "a round more at second {second}");
        assert!(next.due(rule, &tally).is_none_or(|due| due > now), "{next:?}");
        let most = next.most(&tally) / 10_000;
        assert_eq!(most, *expected, "{spill}: {ready} of {total} at second {second}: {next:?}");
        state = Some(next);
    }
}

#[test]
fn a_tier_spills_after_a_while_and_fails_back_after_the_delay() {
    // Below for less than ten seconds.
    follow(
        "70%",
        "1m",
        20,
        &[(0, 20, 100), (5, 1, 100), (14, 1, 100), (14, 14, 100), (99, 14, 100)],
    );
    follow(
        "70%",
        "1m",
        20,
        &[(0, 20, 100), (5, 1, 100), (14, 14, 100), (15, 1, 100), (24, 1, 100), (25, 1, 7)],
    );
    // It falls at once, and rises once the delay is over.
    follow(
        "70%",
        "1m",
        20,
        &[
            (0, 20, 100),
            (0, 5, 100),
            (10, 5, 35),
            (20, 1, 7),
            (30, 5, 7),
            (79, 5, 7),
            (80, 5, 35),
            (81, 6, 42),
        ],
    );
    // Whole again only far above the threshold for the delay.
    follow(
        "50%",
        "1m",
        20,
        &[
            (0, 20, 100),
            (0, 8, 100),
            (10, 8, 56),
            (20, 12, 56),
            (79, 12, 56),
            (80, 12, 100),
            (81, 9, 100),
        ],
    );
    follow(
        "50%",
        "1m",
        20,
        &[
            (0, 20, 100),
            (0, 8, 100),
            (10, 8, 56),
            (20, 11, 56),
            (80, 11, 77),
            (200, 11, 77),
            (300, 12, 77),
            (359, 12, 77),
            (360, 12, 100),
        ],
    );
    // The delay begins anew each time it comes there.
    follow(
        "70%",
        "1m",
        20,
        &[
            (0, 1, 7),
            (5, 20, 7),
            (30, 13, 7),
            (40, 20, 7),
            (99, 20, 7),
            (100, 20, 100),
            (101, 13, 100),
        ],
    );
    // All that there are suffice.
    follow(
        "95%",
        "1m",
        2,
        &[(0, 0, 0), (5, 2, 0), (64, 2, 0), (65, 2, 100), (66, 1, 100), (76, 1, 70)],
    );
    follow(
        "min-ready=3",
        "1m",
        9,
        &[
            (0, 2, 66),
            (5, 3, 66),
            (65, 3, 100),
            (70, 2, 66),
            (75, 4, 66),
            (135, 4, 100),
            (140, 2, 100),
        ],
    );
}

#[test]
fn a_tier_without_a_ready_endpoint_spills_at_once() {
    follow(
        "70%",
        "1m",
        1,
        &[(0, 1, 100), (5, 0, 0), (6, 1, 0), (7, 0, 0), (8, 1, 0), (67, 1, 0), (68, 1, 100)],
    );
    follow("min-ready=1", "1m", 1, &[(0, 1, 100), (5, 0, 0), (6, 1, 0), (66, 1, 100)]);
}

#[test]
fn without_memory_the_present_decides() {
    // The first endpoint of many draws its part at once, and more do.
    follow(
        "70%",
        "1m",
        20,
        &[(0, 0, 0), (1, 1, 7), (2, 2, 14), (3, 13, 91), (4, 20, 91), (64, 20, 100)],
    );
    follow("70%", "1m", 20, &[(0, 20, 100)]);
}

proptest! {
    /// However the endpoints of a tier flap, after its share fell it does not rise for the delay.
    #[test]
    fn a_tier_flips_at_most_once_in_each_delay(
        spill in prop_oneof![Just("70%"), Just("20%"), Just("100%"), Just("min-ready=2")],
        total in 1..6_u32,
        script in vec((0..40_u64, 0..6_u32), 1..80),
    ) {
        let rule = SpillRule::of(&asking(spill, Some("1m")), &mut vec![]).unwrap();
        let mut now = Instant::now();
        let mut state = State::first(rule, &tally(total, total));
        let (mut before, mut fell) = (u64::MAX, None);
        for (seconds, ready) in script {
            let tally = tally(ready.min(total), total);
            let then = now + Duration::from_secs(seconds);
            // A round comes when it is due, and when the endpoints change.
            let due = state.due(rule, &tally).filter(|due| *due < then);
            for at in due.into_iter().chain([then]) {
                now = at;
                state = state.next(rule, &tally, now);
                let most = state.most(&tally);
                if most > before {
                    prop_assert!(fell.is_none_or(|fell| now >= fell + rule.failback_delay));
                } else if most < before {
                    fell = Some(now);
                }
                before = most;
            }
        }
    }
}

fn new_rules() -> Rules {
    let mut rules = Rules::default();
    rules.preferences.add((FEATURE.preference)(None));
    rules
}

/// The first frontend of the report.
fn reported(report: &ImportReport) -> Spill {
    report::of(&report.sections).remove(0)
}

/// The rules, the objects that they evaluate, and a clock.
struct World {
    store: ObjectStore,
    rules: Rules,
    node: NodeContext,
    now: Instant,
}

impl World {
    fn new(node: NodeContext) -> Self {
        Self { store: ObjectStore::default(), rules: new_rules(), node, now: Instant::now() }
    }

    /// A round after `seconds`. Returns the share of each cluster in percent, and whether every import was evaluated.
    fn round(
        &mut self,
        seconds: u64,
        objects: Vec<crate::core::model::Object>,
    ) -> (Vec<String>, bool) {
        self.now += Duration::from_secs(seconds);
        let events = objects.into_iter().map(ObjectEvent::Apply).collect();
        self.store.apply(EventBatch { events, ..EventBatch::default() });
        let dirty = self.store.take_dirty();
        let rules = self.rules.at(self.now);
        let round = rules.evaluate(&self.store.snapshot(), dirty, &self.node, None);
        let is_full = round.changes == crate::core::model::DesiredChanges::Everything;
        (shares_of(self.rules.desired()), is_full)
    }
}

impl World {
    /// In a process that knows this state from a report: the share of the first tier, and who does not serve.
    fn explained(&self, state: &DesiredState) -> (u32, Vec<Fate>) {
        let (snapshot, web) = (self.store.snapshot(), key("shop/web"));
        let mut preferences = Preferences::default();
        preferences.add((FEATURE.preference)(None));
        let all = full_round::evaluate(&snapshot, &self.node, state, &mut preferences);
        state
            .imports
            .iter()
            .for_each(|report| preferences.each(|one| one.recall(&report.sections)));
        let (claim, import) = (&all.claims[&web], snapshot.import(&web).unwrap());
        let mut fates = Fates(vec![]);
        let assigned = claim.select_backends(
            import,
            &snapshot,
            &all.vips,
            &self.node,
            &mut preferences,
            &mut fates,
        );
        (reported(&rules::report::of_assigned(&assigned)).tiers[0].share, fates.0)
    }
}

fn shares_of(desired: &DesiredState) -> Vec<String> {
    let frontend = &desired.frontends[&FRONTEND];
    let mut slots = BTreeMap::<&str, usize>::new();
    for backend in frontend.by_slot() {
        *slots.entry(&backend.cluster).or_default() += 1;
    }
    let share = |count: usize| (count * 100 + frontend.slot_count() / 2) / frontend.slot_count();
    slots.into_iter().map(|(cluster, count)| format!("{cluster} {}", share(count))).collect()
}

/// A slice with `total` endpoints, of which the first `ready` are ready. The first endpoint is in the zone of the node.
fn of(cluster: &str, number: u8, ready: u8, total: u8) -> EndpointSlice {
    let empty = slice(&format!("shop/web-{cluster}"), "web").cluster(cluster).port("http", 8080);
    (0..total).fold(empty, |slice, nth| {
        let zone = if nth == 0 { "z1" } else { "z2" };
        let one = endpoint(&format!("10.{number}.0.{}", nth + 1)).in_zone(zone);
        slice.endpoint(one.conditions(nth < ready, nth < ready, false))
    })
}

fn here() -> NodeContext {
    knowing(plain_node(), |facts| {
        (facts.cluster_id, facts.zone) = (Some("east".to_owned()), Some("z1".to_owned()));
    })
}

#[test]
fn one_of_twenty_gets_its_share_and_the_others_the_rest() {
    let traffic = |value| knowing(here(), |facts| facts.traffic = Traffic::parse(value).unwrap());
    let affinity = ClusterAffinity { annotation: "example.io/affinity", value: "local".to_owned() };
    let by_affinity = ServiceImport {
        tiers: None,
        cluster_affinity: Some(affinity.into()),
        ..asking("70%", None)
    };
    let by_operator = ServiceImport { tiers: None, ..asking("70%", None) };
    let near = ServiceImport {
        traffic_distribution: Some("PreferSameZone".into()),
        ..asking("70%", None)
    };
    let nested = r#"[{"clusters":["east"]},{"clusters":["east","west"]}]"#;
    let nested =
        ServiceImport { tiers: Some(Box::new(Tiers::parse(nested))), ..asking("70%", None) };
    for (import, node, expected) in [
        (asking("70%", None), here(), vec!["east 7", "north 46", "west 47"]),
        (by_affinity, here(), vec!["east 7", "north 46", "west 47"]),
        (near, here(), vec!["east 7", "north 47", "west 47"]),
        (nested, here(), vec!["east 7", "west 93"]),
        (
            by_operator.clone(),
            traffic(r#"{"east":{"preferred":true}}"#),
            vec!["east 7", "north 46", "west 47"],
        ),
        // Weights count inside a tier, and drained clusters are passed over.
        (
            asking("70%", None),
            traffic(r#"{"north":{"weight":300}}"#),
            vec!["east 7", "north 70", "west 23"],
        ),
        (asking("70%", None), traffic(r#"{"north":{"drain":true}}"#), vec!["east 7", "west 93"]),
        (asking("70%", None), traffic(r#"{"east":{"drain":true}}"#), vec!["north 50", "west 50"]),
        // Without tiers nothing spills, nor what asks for it badly.
        (by_operator, here(), vec!["east 11", "north 44", "west 44"]),
        (asking("seven", None), here(), vec!["east 100"]),
    ] {
        let mut world = World::new(node);
        let slices = [of("east", 1, 1, 20), of("west", 2, 4, 4), of("north", 3, 4, 4)];
        let objects = slices.map(Into::into).into_iter().chain([import.clone().into()]).collect();
        let (shares, _) = world.round(0, objects);
        // Endpoints of one tier get equal parts to one slot, whichever clusters they are of.
        let is_close = |(found, expected): (&String, &&str)| {
            let (cluster, share) = found.split_once(' ').unwrap();
            let (wanted, percent) = expected.split_once(' ').unwrap();
            let most = if cluster == "east" { 1 } else { 3 };
            let [share, percent] = [share, percent].map(|one| one.parse::<i32>().unwrap());
            cluster == wanted && (share - percent).abs() <= most
        };
        let close = shares.iter().zip(&expected).all(is_close);
        assert!(close && shares.len() == expected.len(), "{shares:?} for {expected:?}: {import:?}");
    }
}

#[test]
fn time_alone_moves_clients_of_its_import_alone() {
    let mut world = World::new(here());
    let all =
        vec![asking("70%", None).into(), of("east", 1, 20, 20).into(), of("west", 2, 2, 2).into()];
    assert_eq!(world.round(0, all), (vec!["east 100".to_owned()], true));
    assert_eq!(world.rules.due(), None);
    assert_eq!(
        world.round(5, vec![of("east", 1, 1, 20).into()]),
        (vec!["east 100".to_owned()], false)
    );
    assert_eq!(world.rules.due(), Some(world.now + SPILL_AFTER));
    let spilled = vec!["east 7".to_owned(), "west 93".to_owned()];
    assert_eq!(world.round(10, vec![]), (spilled.clone(), false));
    assert_eq!(world.rules.due(), None);
    let report = reported(&world.rules.desired().imports[0]);
    assert_eq!(
        report.to_string(),
        "10.0.0.1:80/TCP: tier 1 (east) 1 of 20 ready, spills, 7.0%; tier 2 (west) 2 of 2 ready, 93.0%"
    );

    assert_eq!(world.round(5, vec![of("east", 1, 20, 20).into()]).0.len(), 2);
    assert_eq!(world.rules.due(), Some(world.now + DEFAULT_DELAY));
    let report = reported(&world.rules.desired().imports[0]);
    assert!(report.to_string().contains("20 of 20 ready, waits for failback-delay, 7.0%"));
    // Full rounds remember as well.
    world.node.node_name = Some("n1".to_owned());
    let (shares, is_full) = world.round(5, vec![]);
    assert!(is_full && shares.len() == 2, "{shares:?}");

    // `explain` knows what the agent remembers.
    assert_eq!(world.explained(world.rules.desired()).0, 70_000);
    assert_eq!(world.explained(&DesiredState::default()).0, TierShare::ALL);

    assert_eq!(world.round(295, vec![]).0, ["east 100"]);
    assert_eq!(world.rules.due(), None);
}

#[test]
fn what_a_tier_had_is_forgotten_with_the_wish() {
    let mut world = World::new(here());
    let of_west = of("west", 2, 2, 2);
    let waits = |world: &mut World| {
        let none =
            vec![asking("70%", None).into(), of("east", 1, 0, 1).into(), of_west.clone().into()];
        assert_eq!(world.round(5, none).0, ["west 100"]);
        assert_eq!(world.round(5, vec![of("east", 1, 1, 1).into()]).0, ["west 100"]);
        assert!(world.rules.due().is_some());
        assert_eq!(world.explained(world.rules.desired()).1, [Fate::FailbackDelay]);
    };
    waits(&mut world);
    assert_eq!(world.round(5, vec![asking("60%", None).into()]).0, ["east 100"]);
    waits(&mut world);
    let without = ServiceImport { settings: [].into(), ..asking("70%", None) };
    assert_eq!(world.round(5, vec![without.into()]).0, ["east 100"]);
    assert_eq!(world.rules.due(), None);
    waits(&mut world);
    // Another agent takes over.
    world.rules = new_rules();
    world.store.apply(EventBatch {
        events: vec![ObjectEvent::Apply(asking("70%", None).into())],
        ..EventBatch::default()
    });
    assert_eq!(world.round(5, vec![of("east", 1, 1, 1).into()]).0, ["east 100"]);
}
