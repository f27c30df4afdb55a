//! When backends are ejected, when they return, and what no client can bring about.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::core::model::fixture::key;

/// The backends of an import as the programs see them: each has a port, and is in cluster east unless it is odd.
struct World {
    verdicts: Verdicts,
    records: BTreeMap<u8, HealthRecord>,
    now: u64,
    answers_since: Option<u64>,
    /// The cookie of the next socket.
    socket: u64,
    log: Vec<VerdictChange>,
}

fn address(number: u8) -> SocketAddr {
    ([10, 1, 0, number], 80).into()
}

impl World {
    fn new(confirms: bool, backends: u8) -> Self {
        let zeroed: HealthRecord = bytemuck::Zeroable::zeroed();
        let records = (0..backends).map(|one| (one, zeroed)).collect();
        Self {
            verdicts: Verdicts::new(confirms),
            records,
            now: 1000 * SECOND,
            answers_since: Some(0),
            socket: 1,
            log: vec![],
        }
    }

    /// A client does not get an answer.
    fn fails(&mut self, backend: u8, client: u64) {
        let record = self.records.get_mut(&backend).unwrap();
        let place = record.place_of(client);
        record.failures[place] = record.failures[place].failed(client, self.socket, self.now);
        self.socket += 1;
    }

    /// Three connects of two clients get no answer.
    fn dies(&mut self, backend: u8) {
        for client in [1, 1, 2] {
            self.fails(backend, client);
        }
    }

    fn answers(&mut self, backend: u8) {
        self.records.get_mut(&backend).unwrap().answered_ns = self.now;
    }

    /// Waits for a quarter of a second, and looks. Backends that are ejected leave the maps, and come back as new ones.
    fn observe(&mut self) {
        self.now += SECOND / 4;
        let out = self.out();
        let observed = self.records.iter_mut().filter_map(|(number, record)| {
            if out.contains(number) {
                *record = bytemuck::Zeroable::zeroed();
                return None;
            }
            let cluster = if number % 2 == 0 { "east" } else { "west" };
            let backend = Backend { address: address(*number), cluster: cluster.into() };
            Some(Observed { import: key("shop/web"), backend, record: *record })
        });
        let observed = observed.collect();
        self.log.extend(self.verdicts.observe(self.now, self.answers_since, observed));
    }

    /// The agent connects to what fails.
    fn confirm(&mut self, confirmation: Confirmation) -> usize {
        let suspects = self.verdicts.suspects();
        for suspect in &suspects {
            self.log.extend(self.verdicts.confirm(self.now, suspect, confirmation));
        }
        suspects.len()
    }

    fn with(&self, state: EjectionState) -> Vec<u8> {
        let ejections = self.verdicts.ejections();
        let of_state = ejections.iter().filter(|one| one.state == state);
        of_state.map(|one| (0..=255).find(|n| address(*n) == one.backend).unwrap()).collect()
    }

    fn out(&self) -> Vec<u8> {
        self.with(EjectionState::Ejected)
    }

    fn half_open(&self) -> Vec<u8> {
        self.with(EjectionState::HalfOpen)
    }

    /// Until something else is ejected or half open; so many seconds.
    fn wait(&mut self) -> u64 {
        let (began, before) = (self.now, (self.out(), self.half_open()));
        while (self.out(), self.half_open()) == before && self.now < began + 2000 * SECOND {
            self.observe();
        }
        (self.now - began) / SECOND
    }
}

#[test]
fn failures_of_both_paths_count_together() {
    let (pod, other_pod, device, other_device) = (1, 2, 1 << 63 | 1, 1 << 63 | 2);
    for (confirms, clients, expected) in [
        (true, vec![pod, pod, device], true),
        (true, vec![pod, device, device], true),
        (true, vec![pod, device], false),
        (true, vec![device, device, device], false),
        // A pod can be a client of both paths, and no client alone decides.
        (false, vec![pod, pod, device, device], false),
        (false, vec![pod, other_pod, device], true),
        (false, vec![pod, device, other_device], true),
    ] {
        let mut world = World::new(confirms, 4);
        for client in &clients {
            world.fails(0, *client);
        }
        world.observe();
        world.confirm(Confirmation::Dead);
        assert_eq!(world.out() == [0], expected, "confirms: {confirms}, {clients:?}");
    }
}

#[test]
fn three_failures_of_two_clients_and_no_answer() {
    for (failures, answered_before, ejected) in [
        (vec![1, 1, 2], None, true),
        (vec![1, 2, 3], None, true),
        (vec![1, 2], None, false),
        (vec![1, 1, 1, 1, 1], None, false),
        // The answer came after the first failure, and one of the others is missing.
        (vec![1, 1, 2], Some(1), false),
        (vec![3, 1, 1, 2], Some(1), true),
    ] {
        let mut world = World::new(false, 2);
        for (nth, client) in failures.iter().enumerate() {
            if answered_before == Some(nth) {
                world.answers(0);
                world.now += 1;
            }
            world.fails(0, *client);
            world.observe();
        }
        assert_eq!(world.out(), if ejected { vec![0] } else { vec![] }, "{failures:?}");
    }
}

#[test]
fn failures_count_while_answers_are_recorded() {
    let mut world = World::new(false, 2);
    world.answers_since = None;
    world.observe();
    assert!(!world.verdicts.takes_answers(), "nothing fails");
    world.dies(0);
    world.observe();
    assert!(world.verdicts.takes_answers());
    world.answers_since = Some(world.now);
    world.observe();
    assert!(world.out().is_empty(), "there may have been answers before");
    world.dies(1);
    world.observe();
    assert_eq!(world.out(), [1]);
    world.wait();
    world.now += WINDOW;
    world.observe();
    assert!(world.verdicts.takes_answers(), "it is half open");
    world.now += FORGET;
    world.observe();
    world.observe();
    assert!(!world.verdicts.takes_answers());
}

#[test]
fn failures_far_apart_do_not_count() {
    let mut world = World::new(false, 2);
    world.fails(0, 1);
    world.now += WINDOW + 1;
    world.fails(0, 2);
    world.fails(0, 2);
    world.observe();
    assert!(world.out().is_empty());
}

#[test]
fn what_answers_the_agent_stays_and_is_left_in_peace() {
    let mut world = World::new(true, 2);
    let mut connects = 0;
    for _ in 0..80 {
        world.dies(0);
        world.observe();
        connects += world.confirm(Confirmation::Answers);
    }
    assert!((1..=2).contains(&connects), "{connects} in 20 seconds");
    assert_eq!(world.log.len(), 1, "it is said once that no client gets an answer");
    for confirmation in [Confirmation::Unknown, Confirmation::Dead] {
        let mut world = World::new(true, 2);
        world.dies(0);
        world.observe();
        world.confirm(confirmation);
        assert_eq!(world.out().len(), usize::from(confirmation == Confirmation::Dead));
    }
    // It answers a client while the agent waits.
    let mut world = World::new(true, 2);
    world.dies(0);
    world.observe();
    world.answers(0);
    world.observe();
    assert_eq!(world.confirm(Confirmation::Dead), 0);
}

#[test]
fn each_ejection_is_longer_until_it_answers_for_a_while() {
    let mut world = World::new(true, 2);
    world.dies(0);
    world.observe();
    world.confirm(Confirmation::Dead);
    let mut times = vec![];
    for _ in 0..12 {
        times.push(world.wait());
        assert_eq!((world.out(), world.half_open()), (vec![], vec![0]));
        // One failure is enough now.
        world.now += 1;
        world.fails(0, 1);
        world.observe();
        world.confirm(Confirmation::Dead);
        assert_eq!(world.out(), [0]);
    }
    assert_eq!(times, [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]);
    world.wait();
    world.now += 1;
    world.answers(0);
    world.wait();
    assert!(world.half_open().is_empty(), "it answers");
    world.now += FORGET;
    world.observe();
    world.dies(0);
    world.observe();
    world.confirm(Confirmation::Dead);
    assert_eq!(world.wait(), 30, "that is forgotten");
    let last = world.log.last().unwrap().to_string();
    assert_eq!(last, "backend 10.1.0.0:80 is half open");
}

#[test]
fn one_client_keeps_nothing_ejected_without_the_agents_connects() {
    let mut world = World::new(false, 2);
    world.dies(0);
    world.observe();
    world.wait();
    assert_eq!(world.half_open(), [0]);
    for _ in 0..100 {
        world.fails(0, 1);
        world.observe();
    }
    assert_eq!(world.half_open(), [0]);
}

#[test]
fn a_cluster_none_of_whose_backends_answers_is_ejected() {
    for (answers, expected) in [(None, 5), (Some(2), 3), (Some(1), 5)] {
        // Five in east (the even ones), five in west.
        let mut world = World::new(true, 10);
        (0..10).for_each(|backend| world.answers(backend));
        world.observe();
        for backend in [4, 6, 8] {
            world.dies(backend);
        }
        world.now += 1;
        if let Some(backend) = answers {
            world.answers(backend);
        }
        world.observe();
        world.confirm(Confirmation::Dead);
        assert_eq!(world.out().len(), expected, "{answers:?} answers");
        assert!(world.out().iter().all(|backend| backend % 2 == 0));
        world.wait();
        assert_eq!(world.half_open().len(), expected, "all at once");
    }
}

#[test]
fn a_backend_that_answers_the_agent_alone_is_named_until_it_answers_a_client() {
    for answers in [true, false] {
        let mut world = World::new(true, 2);
        let alone = |world: &World| world.with(EjectionState::AnswersAgent);
        world.dies(0);
        world.observe();
        world.confirm(Confirmation::Answers);
        assert_eq!((alone(&world), world.out()), (vec![0], vec![]), "it stays in use");
        assert!(world.log.last().unwrap().to_string().contains("no client of this node"));
        let said = world.log.len();
        world.now += WINDOW + 1;
        world.dies(0);
        world.observe();
        world.confirm(Confirmation::Answers);
        assert_eq!((alone(&world), world.log.len()), (vec![0], said), "said once");
        world.now += if answers { SECOND } else { ALONE };
        if answers {
            world.answers(0);
        }
        world.observe();
        assert_eq!(alone(&world), [0; 0], "answers: {answers}");
        assert_eq!(world.log.len() > said, answers);
    }
    let mut world = World::new(true, 2);
    world.dies(0);
    world.observe();
    world.confirm(Confirmation::Unknown);
    assert_eq!(world.with(EjectionState::AnswersAgent), [0; 0], "nobody was asked");
}

#[test]
fn what_is_not_asked_for_any_more_is_forgotten() {
    let mut world = World::new(false, 2);
    world.dies(0);
    world.observe();
    let all = |_: &ObjectKey| (0..2).map(address).collect();
    world.verdicts.retain(&[key("shop/web")].into(), all);
    assert!(!world.verdicts.is_empty());
    world.verdicts.retain(&[key("shop/api")].into(), all);
    assert!(world.verdicts.is_empty());
}

#[test]
fn a_verdict_ends_with_its_endpoint() {
    let without = |gone: &'static [u8]| {
        move |_: &ObjectKey| (0..4).filter(|one| !gone.contains(one)).map(address).collect()
    };
    let web = key("shop/web");
    let mut world = World::new(true, 4);
    world.dies(0);
    world.observe();
    world.confirm(Confirmation::Dead);
    world.wait();
    world.dies(1);
    world.observe();
    world.confirm(Confirmation::Dead);
    world.dies(2);
    world.observe();
    world.confirm(Confirmation::Answers);
    let alone = |world: &World| world.with(EjectionState::AnswersAgent);
    world.verdicts.retain(&[web.clone()].into(), without(&[]));
    assert_eq!((world.half_open(), world.out(), alone(&world)), (vec![0], vec![1], vec![2]));
    // It fails, and its endpoint goes before the agent is answered.
    world.dies(3);
    world.observe();
    let suspect = world.verdicts.suspects();
    assert_eq!(suspect, [(web.clone(), address(3))]);
    world.verdicts.retain(&[web.clone()].into(), without(&[0, 1, 2, 3]));
    assert_eq!(world.verdicts.ejections(), []);
    assert_eq!(world.verdicts.confirm(world.now, &suspect[0], Confirmation::Dead), []);
    assert!(world.verdicts.is_empty());
}

#[derive(Clone, Debug)]
enum Event {
    Fails(u8, u64),
    Answers(u8),
    Look,
    Confirm(bool),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..8_u8, 1..4_u64).prop_map(|(backend, client)| Event::Fails(backend, client)),
        (0..8_u8).prop_map(Event::Answers),
        Just(Event::Look),
        any::<bool>().prop_map(Event::Confirm),
        (0..100_u64).prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn nothing_is_ejected_without_a_reason_or_for_ever(confirms: bool, events in vec(event(), 1..200)) {
        let mut world = World::new(confirms, 8);
        for event in events {
            let before = world.out();
            match event {
                Event::Fails(backend, client) => world.fails(backend, client),
                Event::Answers(backend) => world.answers(backend),
                Event::Look => world.observe(),
                Event::Confirm(is_dead) => {
                    let confirmation =
                        if is_dead { Confirmation::Dead } else { Confirmation::Answers };
                    world.confirm(confirmation);
                    prop_assert!(is_dead || world.out() == before, "they answer the agent");
                }
                Event::Wait(seconds) => world.now += seconds * SECOND,
            }
            if confirms && !matches!(event, Event::Confirm(_)) {
                let out = world.out();
                prop_assert!(out.iter().all(|one| before.contains(one)), "without a connect");
            }
            // Without their clusters: as many as have failures of two clients.
            let with_reason = |record: &HealthRecord| {
                record.failures.iter().filter(|one| one.netns_cookie != 0).count() > 1
            };
            let new: Vec<_> = world.out().into_iter().filter(|one| !before.contains(one)).collect();
            if !confirms && new.len() == 1 {
                prop_assert!(with_reason(&world.records[&new[0]]), "one client alone");
            }
        }
        world.now += EJECTED * u64::from(MOST_TIMES);
        world.observe();
        prop_assert!(world.out().is_empty());
        world.now += FORGET;
        world.observe();
        prop_assert!(world.half_open().is_empty());
    }
}
