//! Collisions: flows of one client and port to one backend through two VIPs, whose replies would look the same.

use crate::{prelude::*, row::rows, test_flow::FIRST_OTHER_PORT};

const ROWS: &str = "
    collision: a flow that has ended gives way | TCP | open =fin+ack vip:2 >first! talk
        open <fin+ack >fin+ack <ack vip:2 >first! talk
        open >rst vip:2 >first! talk
        open <rst+ack vip:2 >first! talk
        # Half closed is not over.
        open >fin+ack vip:2 >first* talk:both
    # nf_conntrack's timeouts: UDP without and with a reply, TCP without one.
    collision: a flow that is long silent gives way, UDP | UDP | >first! age=15 vip:2 >first*
        >first! age=30 vip:2 >first! talk
        open age=60 vip:2 >first*
        open age=120 vip:2 >first! talk
    collision: a flow that is long silent gives way, TCP | TCP | >first! age=60 vip:2 >first*
        >first! age=120 vip:2 >first! talk
    # What limits.md says: datagrams of the backend look the same. The direct socket has the second one without the flow.
    collision: with direct datagrams, which go to the VIP's socket | UDP | <data~ >first! <data direct>data~ >data
";

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, ROWS);
    each(suite, "collision: another backend is found", both(another_backend));
    each(suite, "collision: another source port is found", both(another_port));
    each(suite, "collision: of clients with affinity", both(with_affinity));
    each(suite, "collision: nothing is found", both(nothing));
    each(suite, "collision: a flow that has given way comes back", both(comes_back));
    each(suite, "collision: of other protocols", other_protocol);
    each(suite, "collision: with a direct connection that was first", direct_first);
    each(suite, "collision: with a direct connection that comes later", direct_later);
    each(suite, "collision: with direct datagrams, once the VIP's socket is closed", closed);
}

/// Sends packets of all flows, alternately.
#[track_caller]
pub(crate) fn exchange_on_all(fixture: &mut Fixture, flows: &[TestFlow]) -> Result {
    flows.iter().try_for_each(|flow| fixture.answers(flow))?;
    Side::BOTH.into_iter().try_for_each(|side| {
        flows.iter().try_for_each(|flow| fixture.carries(flow, side, &flow.later(side)))
    })
}

fn another_backend(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let one = fixture.service_of(protocol, 1, &[1])?;
    let three = fixture.service_of(protocol, 2, &[1, 2, 3])?;
    let mut collided = 0;
    for port in 50_000..50_040 {
        let client = SocketAddr::new(fixture.family.client(1).ip(), port);
        // The backend that it would get without a collision.
        let (alone, _) = fixture.opens_with_any_choice(client, &three)?;
        fixture.evict_flows()?;
        let first = TestFlow::new(client, &one);
        fixture.established(&first)?;
        let (second, _) = fixture.opens_with_any_choice(client, &three)?;
        assert_eq!(second.source, client, "it keeps its port");
        if alone.pick.address == first.pick.address {
            assert_ne!(second.pick, alone.pick);
            collided += 1;
        } else {
            assert_eq!(second.pick, alone.pick);
        }
        exchange_on_all(fixture, &[first, second])?;
    }
    assert!(collided > 0, "no flow collided");
    Ok(())
}

fn another_port(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let mut flows = vec![fixture.open_flow(protocol)?];
    for vip in 2..6 {
        let service = fixture.service_of(protocol, vip, &[1])?;
        let (flow, _) = fixture.opens_with_any_choice(fixture.family.client(1), &service)?;
        assert!(flow.source.port() >= FIRST_OTHER_PORT);
        flows.push(flow);
    }
    exchange_on_all(fixture, &flows)?;
    let ports: BTreeSet<_> = flows.iter().map(|flow| flow.source.port()).collect();
    assert_eq!(ports.len(), flows.len());
    Ok(())
}

fn with_affinity(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let first = fixture.open_flow(protocol)?;
    let service = fixture.service_of(protocol, 2, &[1, 2, 3])?;
    fixture.stick(&service, Duration::from_secs(10))?;
    fixture.give(first.client, &service, service.backends[0])?;
    let second = crate::choice::sticks(fixture, first.client, &service)?;
    assert_eq!(second.pick, service.backends[0], "the client's backend");
    assert_ne!(second.source, first.client);
    exchange_on_all(fixture, &[first, second])
}

fn nothing(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let first = fixture.open_flow(protocol)?;
    let other = fixture.service_of(protocol, 3, &[1])?;
    let all = (FIRST_OTHER_PORT..=u16::MAX).map(|port| {
        let flow = TestFlow::new(first.client, &other).source_port(port);
        (flow.key(Side::Backend), flow.entry(Side::Backend, Seen::ANY))
    });
    fixture.plant(all)?;
    let service = fixture.service_of(protocol, 2, &[1])?;
    let packet = Packet::first(protocol, first.client, service.vip);
    fixture.refuses_limited(Hook::FromPod, packet, Counter::PacketRefusedCollision)
}

/// A flow to the same pod through the second VIP, which takes the place of one that is over.
#[track_caller]
fn takes_over(fixture: &mut Fixture, old: &TestFlow) -> Result<TestFlow> {
    let service = fixture.service_of(old.protocol, 2, &[1])?;
    let flow = TestFlow::new(old.client, &service);
    // With the port that it came with.
    fixture.opens(&flow, &flow.first())?;
    exchange_on_all(fixture, &[flow])?;
    Ok(flow)
}

/// Makes both entries of a flow older.
fn age(fixture: &mut Fixture, flow: &TestFlow, by: Duration) -> Result {
    Side::BOTH.iter().try_for_each(|side| fixture.age_flow(&flow.key(*side), by))
}

fn comes_back(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let old = fixture.open_flow(protocol)?;
    match protocol {
        Protocol::Tcp => fixture.closes(&old)?,
        Protocol::Udp => age(fixture, &old, Duration::from_mins(2))?,
    }
    let one =
        Service { vip: old.vip, protocol, frontend: old.frontend(), backends: vec![old.pick] };
    let new = takes_over(fixture, &old)?;
    // The client begins again from the port of its old flow. The backend has to see another flow than `new`.
    let again = fixture.opens_with(&one, &old.first(), |_, _| ())?;
    assert_ne!(again.source, new.source);
    exchange_on_all(fixture, &[new, again])
}

fn other_protocol(fixture: &mut Fixture) -> Result {
    let tcp = fixture.open_flow(Protocol::Tcp)?;
    let service = fixture.service_of(Protocol::Udp, 2, &[1])?;
    let udp = TestFlow::new(tcp.client, &service);
    fixture.opens(&udp, &udp.first())?;
    exchange_on_all(fixture, &[tcp, udp])
}

/// The client has connected to the backend directly, from the port that it now connects to the VIP from. What
/// the backend sends is of that connection.
fn direct_first(fixture: &mut Fixture) -> Result {
    for (pods, flags) in
        [(&[1][..], flag::ACK), (&[1], flag::PSH | flag::ACK), (&[1, 2], flag::ACK)]
    {
        let service = fixture.new_service(Protocol::Tcp, pods)?;
        let (flow, syn) = fixture.opens_with_any_choice(fixture.family.client(1), &service)?;
        let (backend, client) = (flow.pick.address, flow.client);
        let of_backend = Packet::tcp(backend, client, flags);
        let expect = Expect::next(&of_backend).writes(move |tables| {
            flow.ends_in(tables);
            let key = flow.key(Side::Backend);
            let entry = flow.entry(Side::Backend, Seen::ANY | Seen::ACK);
            let value = Flow { to: key, flags: entry.flags | FlowFlags::PASSED, ..entry };
            tables.flows.insert(key, Timed { value, time: Time::Now });
        });
        fixture.expect(Hook::ToPod, &of_backend, expect)?;
        // The client sends its SYN again.
        let again = fixture.opens_with(&service, &syn, |_, _| ())?;
        assert_ne!((again.pick, again.source), (flow.pick, flow.source));
        exchange_on_all(fixture, &[again])?;
        for (hook, from, to) in [(Hook::ToPod, backend, client), (Hook::FromPod, client, backend)] {
            fixture.ignores(hook, Packet::later(Protocol::Tcp, from, to))?;
        }
    }
    // Without a handshake the flow has been evicted, and the packet is its own.
    let flow = fixture.open_flow(Protocol::Tcp)?;
    fixture.carries(&flow, Side::Client, &flow.later(Side::Client))?;
    fixture.plant([(flow.key(Side::Backend), flow.entry(Side::Backend, 0))])?;
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))
}

/// A client connects to the backend of its flow, from the flow's port.
fn direct_later(fixture: &mut Fixture) -> Result {
    let refuses = |fixture: &mut Fixture, flow: &TestFlow| {
        let syn = Packet::syn(flow.client, flow.pick.address);
        match fixture.medium {
            // The programs look for it where a header can be read in place.
            Medium::Vlan | Medium::DoubleVlan => fixture.ignores(Hook::FromPod, syn),
            _ => fixture.refuses(&syn, Counter::PacketRefusedCollision),
        }
    };
    let flow = fixture.open_flow(Protocol::Tcp)?;
    refuses(fixture, &flow)?;
    // Nobody knows whether a flow is in use that is idle, and the backend answers the first SYN.
    age(fixture, &flow, Duration::from_secs(4))?;
    let syn = Packet::syn(flow.client, flow.pick.address);
    fixture.ignores(Hook::FromPod, &syn)?;
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
    refuses(fixture, &flow)?;
    for other in [
        Packet::tcp(flow.client, flow.pick.address, flag::SYN | flag::ACK),
        Packet::later(Protocol::Tcp, flow.client, flow.pick.address),
        Packet::syn(fixture.family.client(2), flow.pick.address),
    ] {
        fixture.ignores(Hook::FromPod, other)?;
    }
    fixture.closes(&flow)?;
    fixture.ignores(Hook::FromPod, &syn)?;
    // The backend has not answered.
    let flow = fixture.new_flow(Protocol::Tcp)?;
    fixture.opens(&flow, &flow.first())?;
    fixture.ignores(Hook::FromPod, &syn)
}

/// The pod has no socket for the reply as it arrives, and says so to the VIP. The next reply arrives as it is.
fn closed(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    let of_backend = flow.later(Side::Backend);
    fixture.carries(&flow, Side::Backend, &of_backend)?;
    let kind = fixture.family.port_unreachable();
    let arrived = flow.translated(Side::Backend, &of_backend).bytes();
    let error = Packet::icmp(flow.client.ip(), flow.vip.ip(), kind, &arrived);
    let (client, backend) = (flow.client.ip(), flow.pick.address.ip());
    let expect = Expect::next(Packet::icmp(client, backend, kind, &of_backend.bytes()))
        .counts(&[Counter::IcmpTranslated])
        .writes(move |tables| flow.is_gone(tables));
    fixture.expect(Hook::FromPod, error, expect)?;
    fixture.ignores(Hook::ToPod, of_backend)?;
    // A client of the VIP begins anew.
    fixture.opens(&flow, &flow.later(Side::Client))?;
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))
}
