//! Publishers of one mailbox: which one writes.

use serde_json::Value;

use super::*;
use crate::core::objects::{PublisherLeaseDecoder, decoded};

/// An API server with one Lease.
struct Server {
    lease: Option<PublisherLease>,
    version: u64,
    lists: u64,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        Self { lease: None, version: 0, lists: 1, now: Instant::now() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// What the API server does with a write: the new version, or a conflict.
    fn write(&mut self, request: &Request) -> Option<String> {
        let Action::Update(object) = &request.action else { panic!("{request:?}") };
        let mut object = object.clone();
        let expected = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        if expected != self.lease.as_ref().and_then(|lease| lease.version.clone()) {
            return None;
        }
        self.version += 1;
        let version = self.version.to_string();
        object["metadata"]["resourceVersion"] = Value::String(version.clone());
        object["spec"]["renewTime"] = format!("2026-01-01T00:00:00.{version:0>6}Z").into();
        self.lease = Some(decoded::<PublisherLeaseDecoder>(&object).unwrap());
        Some(version)
    }

    /// Lets a publisher look and write once. Returns whether it holds the Lease.
    fn turn(&mut self, term: &mut PublisherTerm) -> bool {
        term.observe(self.lease.as_ref(), self.lists, self.now);
        let statement = Statement { complete: true, services: 3, ..Statement::default() };
        if let Some(request) = term.next(statement, &Membership::default(), self.now) {
            match self.write(&request) {
                Some(version) => {
                    term.written(Some(version), self.now);
                }
                None => {
                    if term.failed(true, self.lists, self.now) {
                        self.lists += 1;
                    }
                }
            }
        }
        term.holds()
    }

    fn said(&self) -> (bool, usize) {
        let lease = self.lease.as_ref().unwrap();
        (lease.complete, lease.services)
    }
}

fn term(server: &Server, uid: &str) -> PublisherTerm {
    let identity = PublisherIdentity {
        cluster: "east".parse().unwrap(),
        uid: uid.to_owned(),
        mailbox: "mcs-east".to_owned(),
        is_at_home: false,
        is_elected: true,
    };
    PublisherTerm::new(identity, server.now)
}

/// So many seconds with both, each second once.
fn both(
    server: &mut Server,
    one: &mut PublisherTerm,
    two: &mut PublisherTerm,
    seconds: u64,
) -> (bool, bool) {
    let mut last = (false, false);
    for _ in 0..seconds {
        server.pass(1);
        last = (server.turn(one), server.turn(two));
        assert!(!(last.0 && last.1), "both publish");
    }
    last
}

/// Readers would send clients to a cluster under maintenance each time that its controller starts.
#[test]
fn the_first_lease_of_a_term_says_that_the_cluster_drains() {
    let mut server = Server::new();
    let mut term = term(&server, "u");
    term.observe(None, server.lists, server.now);
    let statement =
        Statement { complete: true, drain: Some(Drain::default()), ..Statement::default() };
    let request = term.next(statement, &Membership::default(), server.now).unwrap();
    server.write(&request).unwrap();
    let lease = server.lease.unwrap();
    assert!(lease.drain.is_some() && !lease.complete);
}

#[test]
fn a_lease_says_complete_after_it_was_taken() {
    let mut server = Server::new();
    let mut term = term(&server, "u");
    assert!(server.turn(&mut term), "nobody has it");
    assert_eq!(server.said(), (false, 0), "nothing is published before it is taken");
    server.pass(1);
    server.turn(&mut term);
    assert_eq!(server.said(), (true, 3));
    let version = server.version;
    server.pass(9);
    server.turn(&mut term);
    assert_eq!(server.version, version, "nothing to say");
    server.pass(1);
    server.turn(&mut term);
    assert_eq!(server.version, version + 1, "a sign of life");
}

#[test]
fn a_copy_of_a_cluster_publishes_nothing() {
    let mut server = Server::new();
    let mut production = term(&server, "u");
    server.turn(&mut production);
    for _ in 0..3 {
        let mut copy = term(&server, "u");
        assert_eq!(both(&mut server, &mut production, &mut copy, 60), (true, false));
        let problem = copy.problem(server.now).unwrap();
        assert!(problem.contains("a copy of this cluster"), "{problem}");
        assert_eq!(production.problem(server.now), None);
        // Not even while no replica of the other one leads.
        let release = production.release(&Membership::default()).unwrap();
        server.write(&release).unwrap();
        server.pass(1);
        assert!(!server.turn(&mut copy));
        production = production.next_term(server.now);
        assert!(server.turn(&mut production), "the next replica need not wait");
    }
}

#[test]
fn the_next_publisher_of_a_cluster_goes_on_in_its_epoch() {
    let mut server = Server::new();
    let mut first = term(&server, "u");
    server.turn(&mut first);
    let epoch = first.epoch();
    assert!(epoch > 1_700_000_000, "later than a Lease that was deleted");
    let mut next = term(&server, "u");
    for _ in 0..19 {
        server.turn(&mut next);
        server.pass(1);
    }
    assert!(!server.turn(&mut next), "the first one may live");
    server.pass(1);
    assert!(server.turn(&mut next), "it was killed");
    assert_eq!(next.epoch(), epoch);
    assert!(next.next_stamp() > first.next_stamp());
    let mut rebuilt = term(&server, "other");
    server.turn(&mut rebuilt);
    server.pass(20);
    assert!(server.turn(&mut rebuilt));
    assert!(rebuilt.epoch() > epoch, "what the former cluster writes is not believed");
}

#[test]
fn of_two_publishers_that_begin_one_wins() {
    let mut server = Server::new();
    let (mut one, mut two) = (term(&server, "u"), term(&server, "v"));
    for term in [&mut one, &mut two] {
        term.observe(None, server.lists, server.now);
    }
    let requests = [&mut one, &mut two]
        .map(|term| term.next(Statement::default(), &Membership::default(), server.now).unwrap());
    let version = server.write(&requests[0]);
    assert!(one.written(version, server.now), "a term begins");
    assert_eq!(server.write(&requests[1]), None);
    assert!(two.failed(true, server.lists, server.now), "it has to look again");
    assert_eq!(both(&mut server, &mut one, &mut two, 50), (true, false));
}

#[test]
fn a_publisher_begins_anew_when_the_mailbox_was_restored() {
    let mut server = Server::new();
    let mut term = term(&server, "u");
    server.turn(&mut term);
    let yesterday = server.lease.clone();
    for _ in 0..12 {
        server.pass(10);
        assert!(server.turn(&mut term));
    }
    server.lease = yesterday;
    let latest = term.next_stamp();
    server.pass(10);
    assert!(!server.turn(&mut term), "the Lease is not the one that it wrote");
    assert_eq!(
        term.observe(server.lease.as_ref(), server.lists, server.now),
        StatementChange::Began
    );
    server.pass(1);
    assert!(server.turn(&mut term));
    assert!(server.lease.as_ref().unwrap().stamp > latest);
}

#[test]
fn a_publisher_that_was_followed_stops() {
    let mut server = Server::new();
    let mut old = term(&server, "u");
    server.turn(&mut old);
    // It was cut off for a while.
    server.pass(100);
    let mut new = term(&server, "u");
    server.turn(&mut new);
    server.pass(20);
    assert!(server.turn(&mut new));
    assert_eq!(old.observe(server.lease.as_ref(), server.lists, server.now), StatementChange::Lost);
    assert!(!old.holds());
    let problem = old.problem(server.now).unwrap();
    assert!(problem.contains("taken over"), "{problem}");
}

#[test]
fn at_home_the_election_is_enough() {
    let mut server = Server::new();
    let mut killed = term(&server, "u");
    server.turn(&mut killed);
    let mut next = term(&server, "u");
    next.identity.is_at_home = true;
    assert!(server.turn(&mut next), "at once");
}

#[test]
fn objects_of_a_clock_that_was_ahead_are_followed() {
    let mut server = Server::new();
    let mut term = term(&server, "u1");
    assert!(server.turn(&mut term));
    let ahead = Stamp { mailbox: 0, epoch: term.epoch() + 1_000_000, sequence: 7 };
    term.follow(ahead);
    assert_eq!(term.epoch(), ahead.epoch + 1);
    server.turn(&mut term);
    assert_eq!(server.lease.as_ref().unwrap().stamp.epoch, ahead.epoch + 1, "it is said at once");
    term.follow(Stamp { epoch: 1, ..ahead });
    assert_eq!(term.epoch(), ahead.epoch + 1);
}
