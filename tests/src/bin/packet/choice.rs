//! The choice of a backend: stable for a flow, even over all flows, and by client with affinity.

use crate::{prelude::*, tables::Key as _};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "choice: the same again for a flow that was evicted", both(stable));
    let one = &[Medium::Ethernet];
    each_on(suite, "choice: evenly over flows", one, spread);
    each_on(suite, "choice: evenly over clients with affinity", one, spread_of_clients);
    each(suite, "affinity: all flows of a client", one_client);
    each(suite, "affinity: until it is over", both(expiry));
    each(suite, "affinity: until the backend is gone", both(backend_gone));
    each(suite, "affinity: a client that was evicted", both(evicted));
    each(suite, "affinity: of each frontend by itself", both(by_frontend));
}

/// A client's address with another port.
const fn from_port(client: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(client.ip(), port)
}

/// A frontend with affinity and three backends.
fn sticky(fixture: &mut Fixture, protocol: Protocol) -> Result<Service> {
    let service = fixture.new_service(protocol, &[1, 2, 3])?;
    fixture.stick(&service, Duration::from_secs(10))?;
    Ok(service)
}

fn stable(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let service = fixture.new_service(protocol, &[1, 2, 3])?;
    for port in 50_000..50_050 {
        let client = from_port(fixture.family.client(1), port);
        let (flow, packet) = fixture.opens_with_any_choice(client, &service)?;
        fixture.evict_flows()?;
        fixture.opens(&flow, &packet)?;
        fixture.evict_flows()?;
        fixture.opens(&flow, &flow.later(Side::Client))?;
    }
    Ok(())
}

/// How often each was picked.
type Tally = BTreeMap<SocketAddr, usize>;

/// Within five standard deviations of an even distribution.
fn assert_even(tally: &Tally, backends: usize, flows: usize) {
    assert_eq!(tally.len(), backends, "{tally:?}");
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (count, even) = (flows as f64, 1.0 / backends as f64);
    let deviation = 5.0 * (count * even * (1.0 - even)).sqrt();
    for hits in tally.values() {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let off = (*hits as f64 - count * even).abs();
        assert!(off < deviation, "{tally:?} is not even");
    }
}

fn spread(fixture: &mut Fixture) -> Result {
    const FLOWS: usize = 600;
    let service = fixture.new_service(Protocol::Udp, &[1, 2, 3, 4, 5, 6])?;
    let mut tally = Tally::new();
    // Ports as a client uses them: one after the other.
    for port in (20_000..).take(FLOWS) {
        let client = from_port(fixture.family.client(1), port);
        let (flow, _) = fixture.opens_with_any_choice(client, &service)?;
        *tally.entry(flow.pick.address).or_default() += 1;
        fixture.evict_flows()?;
    }
    assert_even(&tally, 6, FLOWS);
    Ok(())
}

fn spread_of_clients(fixture: &mut Fixture) -> Result {
    let service = sticky(fixture, Protocol::Udp)?;
    let mut tally = Tally::new();
    for host in 0..=255 {
        let flow = sticks(fixture, fixture.family.client(host), &service)?;
        *tally.entry(flow.pick.address).or_default() += 1;
        fixture.evict_flows()?;
    }
    assert_even(&tally, 3, 256);
    Ok(())
}

/// A new flow of a client to a frontend with affinity, wherever that leads.
#[track_caller]
pub(crate) fn sticks(
    fixture: &mut Fixture,
    client: SocketAddr,
    service: &Service,
) -> Result<TestFlow> {
    let packet = Packet::first(service.protocol, client, service.vip);
    let frontend = service.frontend;
    fixture.opens_with(service, &packet, move |tables, flow| {
        let key = ClientKey { client: client.ip().into(), frontend, pad: 0 };
        let value = Affinity { backend: flow.pick.chosen, last_used_ns: 0 };
        tables.affinity.insert(key.sorted(), Timed { value, time: Time::Now });
    })
}

/// As [`sticks`], where it has to lead to this backend.
#[track_caller]
fn sticks_to(
    fixture: &mut Fixture,
    client: SocketAddr,
    service: &Service,
    pick: Pick,
) -> Result<TestFlow> {
    let flow = sticks(fixture, client, service)?;
    assert_eq!(flow.pick, pick, "the client's backend");
    Ok(flow)
}

pub(crate) fn one_client(fixture: &mut Fixture) -> Result {
    for protocol in Protocol::ALL {
        let service = sticky(fixture, protocol)?;
        let client = fixture.family.client(1);
        let first = sticks(fixture, client, &service)?;
        for port in 1..40 {
            let flow = sticks_to(fixture, from_port(client, 50_000 + port), &service, first.pick)?;
            // Only a new flow counts.
            fixture.age_affinity(Duration::from_millis(10))?;
            fixture.answers(&flow)?;
            fixture.carries(&flow, Side::Client, &flow.later(Side::Client))?;
        }
    }
    Ok(())
}

/// A backend of the frontend that is not this one.
fn another(service: &Service, pick: Pick) -> Result<Pick> {
    service.backends.iter().copied().find(|other| *other != pick).context("there is only one")
}

fn expiry(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let service = sticky(fixture, protocol)?;
    let client = fixture.family.client(1);
    let own = sticks(fixture, client, &service)?.pick;
    // One that the client would not get by itself.
    let given = another(&service, own)?;
    fixture.give(client, &service, given)?;
    for port in 1..4 {
        // Each flow restarts the timeout.
        fixture.age_affinity(Duration::from_secs(5))?;
        sticks_to(fixture, from_port(client, port), &service, given)?;
    }
    // A client whose time is over gets any backend, and keeps it.
    let mut seen = Vec::new();
    for port in 4..64 {
        fixture.age_affinity(Duration::from_secs(10))?;
        let pick = sticks(fixture, from_port(client, port), &service)?.pick;
        sticks_to(fixture, from_port(client, 1000 + port), &service, pick)?;
        seen.push(pick);
    }
    assert!(service.backends.iter().all(|pick| seen.contains(pick)), "{seen:?}");
    Ok(())
}

fn backend_gone(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let mut service = sticky(fixture, protocol)?;
    let client = fixture.family.client(1);
    let gone = sticks(fixture, client, &service)?.pick;
    let left = service.backends.iter().filter(|pick| **pick != gone);
    let left: Vec<_> = left.map(|pick| pick.address).collect();
    fixture.change(&mut service, &left)?;
    let second = sticks(fixture, from_port(client, 1), &service)?.pick;
    assert_ne!(second, gone);
    sticks_to(fixture, from_port(client, 2), &service, second)?;
    // A kept backend gets no new client.
    fixture.keep(&mut service, second)?;
    let third = sticks(fixture, from_port(client, 5), &service)?.pick;
    assert_ne!(third, second);
    // Its id comes back as another backend: not what was remembered.
    fixture.give(client, &service, gone)?;
    fixture.reuse(&mut service, gone, fixture.family.pod(9))?;
    let third = sticks(fixture, from_port(client, 3), &service)?.pick;
    assert_ne!(third.chosen, gone.chosen);
    sticks_to(fixture, from_port(client, 4), &service, third).map(drop)
}

fn evicted(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let service = sticky(fixture, protocol)?;
    for host in 1..30 {
        let client = fixture.family.client(host);
        let pick = sticks(fixture, client, &service)?.pick;
        fixture.evict_affinity()?;
        sticks_to(fixture, from_port(client, 7), &service, pick)?;
    }
    Ok(())
}

fn by_frontend(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let service = sticky(fixture, protocol)?;
    let other = fixture.service_of(protocol, 2, &[4, 5, 6])?;
    fixture.stick(&other, Duration::from_secs(10))?;
    let client = fixture.family.client(1);
    let picks = [sticks(fixture, client, &service)?.pick, sticks(fixture, client, &other)?.pick];
    sticks_to(fixture, from_port(client, 1), &other, picks[1])?;
    sticks_to(fixture, from_port(client, 2), &service, picks[0]).map(drop)
}
