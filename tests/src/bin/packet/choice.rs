//! Which backend: always the same for a flow, evenly over flows, and by the client with affinity.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use mcs_common::{Affinity, ClientKey};
use mcs_tests::suite::Suite;

use crate::{
    each, each_on,
    lab::{Lab, Pick, Service},
    medium::Medium,
    packet::{Packet, Protocol},
    tables::{Key as _, Time, Timed},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "choice: the same again for a flow that was evicted", stable);
    let one = &[Medium::Ethernet];
    each_on(suite, "choice: evenly over flows", one, spread);
    each_on(suite, "choice: evenly over clients with affinity", one, spread_of_clients);
    each(suite, "affinity: all flows of a client", one_client);
    each(suite, "affinity: until it is over", expiry);
    each(suite, "affinity: until the backend is gone", backend_gone);
    each(suite, "affinity: a client that was evicted", evicted);
    each(suite, "affinity: of each frontend by itself", by_frontend);
}

/// A client's address with another port.
const fn from_port(client: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(client.ip(), port)
}

fn service(lab: &mut Lab, protocol: Protocol, pods: &[u8]) -> anyhow::Result<Service> {
    lab.reset(lab.family, lab.medium)?;
    let backends: Vec<_> = pods.iter().map(|pod| lab.family.pod(*pod)).collect();
    lab.service(protocol, lab.family.vip(1), &backends)
}

fn stable(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let service = service(lab, protocol, &[1, 2, 3])?;
        for port in 50_000..50_050 {
            let client = from_port(lab.family.client(1), port);
            let (talk, packet) = lab.opens_somehow(client, &service)?;
            lab.evict_flows()?;
            lab.opens(&talk, &packet)?;
            lab.evict_flows()?;
            lab.opens(&talk, &talk.later(Side::Client))?;
        }
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

fn spread(lab: &mut Lab) -> anyhow::Result<()> {
    const FLOWS: usize = 600;
    let service = service(lab, Protocol::Udp, &[1, 2, 3, 4, 5, 6])?;
    let mut tally = Tally::new();
    // Ports as a client uses them: one after the other.
    for port in (20_000..).take(FLOWS) {
        let client = from_port(lab.family.client(1), port);
        let (talk, _) = lab.opens_somehow(client, &service)?;
        *tally.entry(talk.pick.address).or_default() += 1;
        lab.evict_flows()?;
    }
    assert_even(&tally, 6, FLOWS);
    Ok(())
}

fn spread_of_clients(lab: &mut Lab) -> anyhow::Result<()> {
    let service = service(lab, Protocol::Udp, &[1, 2, 3])?;
    lab.stick(&service, Duration::from_secs(10))?;
    let mut tally = Tally::new();
    for host in 0..=255 {
        let talk = sticks(lab, lab.family.client(host), &service)?;
        *tally.entry(talk.pick.address).or_default() += 1;
        lab.evict_flows()?;
    }
    assert_even(&tally, 3, 256);
    Ok(())
}

/// A new flow of a client to a frontend with affinity, wherever that leads.
#[track_caller]
pub(crate) fn sticks(lab: &mut Lab, client: SocketAddr, service: &Service) -> anyhow::Result<Talk> {
    let packet = Packet::first(service.protocol, client, service.vip);
    let frontend = service.frontend;
    lab.opens_with(service, &packet, move |tables, talk| {
        let key = ClientKey { client: client.ip().into(), frontend, pad: 0 };
        let value = Affinity { backend: talk.pick.chosen, last_used_ns: 0 };
        tables.affinity.insert(key.sorted(), Timed { value, time: Time::Now });
    })
}

/// As [`sticks`], where it has to lead to this backend.
#[track_caller]
fn sticks_to(
    lab: &mut Lab,
    client: SocketAddr,
    service: &Service,
    pick: Pick,
) -> anyhow::Result<Talk> {
    let talk = sticks(lab, client, service)?;
    assert_eq!(talk.pick, pick, "the client's backend");
    Ok(talk)
}

fn one_client(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let service = service(lab, protocol, &[1, 2, 3])?;
        lab.stick(&service, Duration::from_secs(10))?;
        let client = lab.family.client(1);
        let first = sticks(lab, client, &service)?;
        for port in 1..40 {
            let talk = sticks_to(lab, from_port(client, 50_000 + port), &service, first.pick)?;
            // Only a new flow counts.
            lab.age_affinity(Duration::from_millis(10))?;
            for side in [Side::Backend, Side::Client] {
                lab.carries(&talk, side, &talk.later(side))?;
            }
        }
    }
    Ok(())
}

/// A backend of the frontend that is not this one.
fn another(service: &Service, pick: Pick) -> anyhow::Result<Pick> {
    service.backends.iter().copied().find(|other| *other != pick).context("there is only one")
}

fn expiry(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let service = service(lab, protocol, &[1, 2, 3])?;
        lab.stick(&service, Duration::from_secs(10))?;
        let client = lab.family.client(1);
        let own = sticks(lab, client, &service)?.pick;
        // One that the client would not get by itself.
        let given = another(&service, own)?;
        lab.give(client, &service, given)?;
        for port in 1..4 {
            // The time begins anew with each flow.
            lab.age_affinity(Duration::from_secs(5))?;
            sticks_to(lab, from_port(client, port), &service, given)?;
        }
        lab.age_affinity(Duration::from_secs(10))?;
        sticks_to(lab, from_port(client, 4), &service, own)?;
        sticks_to(lab, from_port(client, 5), &service, own)?;
    }
    Ok(())
}

fn backend_gone(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let mut service = service(lab, protocol, &[1, 2, 3])?;
        lab.stick(&service, Duration::from_secs(10))?;
        let client = lab.family.client(1);
        let gone = sticks(lab, client, &service)?.pick;
        let left: Vec<_> = service.backends.iter().filter(|pick| **pick != gone).collect();
        let left: Vec<_> = left.iter().map(|pick| pick.address).collect();
        lab.change(&mut service, &left)?;
        let second = sticks(lab, from_port(client, 1), &service)?.pick;
        assert_ne!(second, gone);
        sticks_to(lab, from_port(client, 2), &service, second)?;
        // Its id comes back as another backend: not what was remembered.
        lab.give(client, &service, gone)?;
        lab.reuse(&mut service, gone, lab.family.pod(9))?;
        let third = sticks(lab, from_port(client, 3), &service)?.pick;
        assert_ne!(third.chosen, gone.chosen);
        sticks_to(lab, from_port(client, 4), &service, third)?;
    }
    Ok(())
}

fn evicted(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let service = service(lab, protocol, &[1, 2, 3])?;
        lab.stick(&service, Duration::from_secs(10))?;
        for host in 1..30 {
            let client = lab.family.client(host);
            let pick = sticks(lab, client, &service)?.pick;
            lab.evict_affinity()?;
            sticks_to(lab, from_port(client, 7), &service, pick)?;
        }
    }
    Ok(())
}

fn by_frontend(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let service = service(lab, protocol, &[1, 2, 3])?;
        let pods = [4, 5, 6].map(|pod| lab.family.pod(pod));
        let other = lab.service(protocol, lab.family.vip(2), &pods)?;
        for service in [&service, &other] {
            lab.stick(service, Duration::from_secs(10))?;
        }
        let client = lab.family.client(1);
        let picks = [sticks(lab, client, &service)?.pick, sticks(lab, client, &other)?.pick];
        sticks_to(lab, from_port(client, 1), &other, picks[1])?;
        sticks_to(lab, from_port(client, 2), &service, picks[0])?;
    }
    Ok(())
}
