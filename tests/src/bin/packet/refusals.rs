//! Refusals: a client of a VIP without a usable backend gets an answer at once.

use etherparse::Ethernet2Header;

use crate::{fixture::REFUSALS_AT_ONCE, prelude::*};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "refusals: TCP gets a reset", resets);
    each(suite, "refusals: UDP gets ICMP", unreachable);
    each(suite, "refusals: for every reason", both(reasons));
    each(suite, "refusals: SCTP", sctp);
    each(suite, "refusals: protocols without ports", protocols);
    each(suite, "refusals: a reset is not answered", reset_of_a_reset);
    one(suite, "refusals: quotes with options", Family::V4, options);
    one(suite, "refusals: quotes with extensions", Family::V6, extensions);
    each(suite, "refusals: of fragments", fragments);
    each(suite, "refusals: of packets with bytes behind", trailer);
    each(suite, "refusals: of segments to be cut by the device", segments);
    each(suite, "refusals: the rate limit", limit);
    each(suite, "refusals: a flow continues without its frontend", known_flow);
}

/// The reset that answers a segment (RFC 9293, 3.10.7.1). It is made in the packet of the segment, whose options and payload stay.
pub(crate) fn reset(packet: &Packet) -> Packet {
    let (from, to) = packet.ends();
    let mut answer = packet.clone().between(to, from);
    let Body::Tcp { header, payload } = &mut answer.body else { panic!("not TCP") };
    let (syn, fin, ack) = (header.syn, header.fin, header.ack);
    let length = u32::try_from(payload.len()).unwrap_or_default();
    if ack {
        header.sequence_number = header.acknowledgment_number;
        header.acknowledgment_number = 0;
        header.ack = false;
    } else {
        let length = length + u32::from(syn) + u32::from(fin);
        header.acknowledgment_number = header.sequence_number.wrapping_add(length);
        header.sequence_number = 0;
        header.ack = true;
    }
    (header.syn, header.fin, header.psh, header.urg) = (false, false, false, false);
    (header.ece, header.cwr, header.rst) = (false, false, true);
    header.window_size = 0;
    answer
}

/// The ICMP error that answers a packet which begins like this.
fn port_unreachable(packet: &Packet, quote: &[u8]) -> Packet {
    let family = Packet::family_of(packet.src);
    let kind = family.port_unreachable();
    // Internetwork control (RFC 1812, 4.3.2.5).
    let class = family.of(0xc0, 0);
    let answer = Packet::icmp(packet.dst, packet.src, kind, quote);
    Packet { class, id: 0, dont_fragment: true, hops: 64, ..answer }
}

/// Bytes behind the header that are quoted.
const QUOTED: usize = 8;

impl Fixture {
    /// A packet with a header of this length is refused for this reason.
    #[track_caller]
    fn refuses_with(&mut self, packet: &Packet, header: usize, reason: Counter) -> Result {
        let bytes = packet.bytes();
        let answer = match (&packet.body, self.medium) {
            (Body::Tcp { .. }, _) => reset(packet),
            // The kernel would cut bytes off behind an Ethernet header that is not there: not to be
            // had here.
            (_, Medium::Bare) => return Ok(()),
            // Tags would not stay in front of the error.
            (_, Medium::Vlan | Medium::DoubleVlan) => return self.refuses_silently(packet, reason),
            _ => port_unreachable(packet, &bytes[..header + QUOTED]),
        };
        let is_resized = bytes.len() != header + steady_payload(&answer) + QUOTED;
        let is_tcp = matches!(packet.body, Body::Tcp { .. });
        if self.medium == Medium::Summed && !is_tcp && is_resized {
            // The kernel gives up the sum of a packet whose length changes, and then finds it wrong.
            return Ok(());
        }
        self.allow_refusals(1)?;
        let expect = Expect::back(&answer).counts(&[reason]);
        let sent = self.send(Hook::FromPod, packet)?;
        self.compare(&sent, expect)?;
        // On its way to the pod nothing happens to it.
        self.control = sent.control_out();
        self.ignores(Hook::ToPod, answer)?;
        self.control = 0;
        Ok(())
    }

    /// As [`Fixture::refuses_with`], without options or extensions.
    #[track_caller]
    pub(crate) fn refuses(&mut self, packet: &Packet, reason: Counter) -> Result {
        self.refuses_with(packet, self.family.header(), reason)
    }

    /// Checks that a packet is refused for this reason, and not answered.
    #[track_caller]
    fn refuses_silently(&mut self, packet: &Packet, reason: Counter) -> Result {
        self.allow_refusals(1)?;
        let expect = Expect::dropped(reason).counts(&[Counter::RefusalSilent]);
        self.expect(Hook::FromPod, packet, expect)
    }
}

/// Bytes of payload by which a UDP packet is as long as what its error is made in: the error, with the
/// packet's link and IP headers and half of its UDP header in front, which are cut off then.
fn steady_payload(answer: &Packet) -> usize {
    answer.bytes().len() + Ethernet2Header::LEN + 4 - QUOTED
}

/// Where nothing listens.
fn unknown_port(fixture: &mut Fixture) -> Result<(SocketAddr, SocketAddr)> {
    let mut vip = fixture.family.vip(1);
    for protocol in Protocol::ALL {
        fixture.service(protocol, vip, &[fixture.family.pod(1)])?;
    }
    fixture.set_flows_used(FlowsUsed::YES)?;
    // Packets without a SYN are then refused too.
    fixture.set_evicted()?;
    vip.set_port(7);
    Ok((fixture.family.client(1), vip))
}

pub(crate) fn resets(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    let (fin, syn, ack, psh) = (flag::FIN, flag::SYN, flag::ACK, flag::PSH);
    let (urgent, ecn) = (flag::URG | ack, flag::ECN | syn);
    for flags in [syn, ack, syn | ack, ack | psh, fin | ack, fin, 0, syn | fin, urgent, ecn] {
        for payload in [&[][..], b"x", b"even", &[0x99; 999]] {
            let packet = Packet::tcp(client, vip, flags).payload(payload);
            fixture
                .refuses(&packet, Counter::PacketRefusedUnknownPort)
                .with_context(|| format!("flags {flags:#x}, {} bytes", payload.len()))?;
        }
    }
    // Numbers that wrap around.
    let mut packet = Packet::syn(client, vip).payload(b"fast open");
    if let Body::Tcp { header, .. } = &mut packet.body {
        header.sequence_number = u32::MAX;
    }
    fixture.refuses(&packet, Counter::PacketRefusedUnknownPort)?;
    let shaped = match fixture.family {
        Family::V4 => packet.options(&[148, 4, 0, 0]),
        Family::V6 => packet.extensions(&[Extension::HopByHop, Extension::LongDestination]),
    };
    fixture.refuses(&shaped, Counter::PacketRefusedUnknownPort)
}

pub(crate) fn unreachable(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    // The length that does not change while the error is made.
    let answer =
        port_unreachable(&Packet::udp(client, vip), &Packet::udp(client, vip).payload(&[]).bytes());
    let steady = vec![0x98; steady_payload(&answer)];
    for payload in [&[][..], b"x", b"even", &steady, &[0x99; 1400]] {
        for port in [1, 40_001, 65_535] {
            let client = SocketAddr::new(client.ip(), port);
            let packet = Packet::udp(client, vip).payload(payload);
            fixture.refuses(&packet, Counter::PacketRefusedUnknownPort)?;
            fixture.refuses(&packet.without_checksum(), Counter::PacketRefusedUnknownPort)?;
        }
    }
    Ok(())
}

fn reasons(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let (client, mut vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.reset(fixture.family, fixture.medium)?;
    let first = |vip| Packet::first(protocol, client, vip);
    // A VIP without any port.
    fixture.vip(vip)?;
    fixture.refuses(&first(vip), Counter::PacketRefusedUnknownPort)?;
    // A frontend of the other protocol.
    let [tcp, udp] = Protocol::ALL;
    let other = if protocol == tcp { udp } else { tcp };
    fixture.service(other, vip, &[fixture.family.pod(1)])?;
    fixture.refuses(&first(vip), Counter::PacketRefusedUnknownPort)?;

    let mut empty = |fixture: &mut Fixture, backends: &[SocketAddr]| {
        vip.set_port(vip.port() + 1);
        fixture.service(protocol, vip, backends)
    };
    let service = empty(fixture, &[])?;
    fixture.refuses(&first(service.vip), Counter::PacketRefusedNoBackend)?;
    let service = empty(fixture, &[fixture.family.pod(1)])?;
    fixture.overrun_slots(&service)?;
    fixture.refuses(&first(service.vip), Counter::PacketRefusedNoBackend)?;
    let service = empty(fixture, &[fixture.family.pod(1)])?;
    fixture.mismatch_state(&service)?;
    fixture.refuses(&first(service.vip), Counter::PacketRefusedInconsistent)
}

fn sctp(fixture: &mut Fixture) -> Result {
    let (client, mut vip) = unknown_port(fixture)?;
    for port in [7, 80] {
        vip.set_port(port);
        // An INIT chunk.
        let ports = [client.port().to_be_bytes(), vip.port().to_be_bytes()].concat();
        let init = [&ports[..], &[0; 4], &[0xab; 4], &[1, 0, 0, 20], &[0; 16]].concat();
        let packet = Packet::other(client.ip(), vip.ip(), 132, &init);
        fixture.refuses(&packet, Counter::PacketRefusedSctp)?;
        let cut = Packet::other(client.ip(), vip.ip(), 132, &init[..7]);
        fixture.refuses_silently(&cut, Counter::PacketRefusedSctp)?;
    }
    Ok(())
}

fn protocols(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    // IGMP, IP in IP, IPv6 in IP, GRE, ESP, AH, no next header, OSPF, UDP-Lite, ICMP of the other
    // family, and what is reserved.
    let other_icmp = fixture.family.of(58, 1);
    for protocol in [2, 4, 41, 47, 50, 51, 59, 89, 136, other_icmp, 255] {
        let packet = Packet::other(client.ip(), vip.ip(), protocol, &[1; 40]);
        fixture
            .drops(Hook::FromPod, packet, Counter::PacketDroppedProtocol)
            .with_context(|| format!("protocol {protocol}"))?;
    }
    Ok(())
}

fn reset_of_a_reset(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    for flags in [flag::RST, flag::RST | flag::ACK] {
        let packet = Packet::tcp(client, vip, flags);
        fixture.refuses_silently(&packet, Counter::PacketRefusedUnknownPort)?;
    }
    Ok(())
}

fn options(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    for options in [&[148, 4, 0, 0][..], &[0x9e; 40]] {
        let packet = Packet::udp(client, vip).options(options);
        let header = 20 + options.len();
        fixture.refuses_with(&packet, header, Counter::PacketRefusedUnknownPort)?;
    }
    Ok(())
}

fn extensions(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    let chains: [(&[Extension], usize); 3] = [
        (&[Extension::HopByHop], 8),
        (&[Extension::HopByHop, Extension::Routing { segments_left: 0 }, Extension::Atomic], 24),
        (&[Extension::LongDestination, Extension::HopByHop], 32),
    ];
    for (chain, length) in chains {
        let packet = Packet::udp(client, vip).extensions(chain);
        fixture.refuses_with(&packet, 40 + length, Counter::PacketRefusedUnknownPort)?;
    }
    // More than is quoted.
    let packet = Packet::udp(client, vip).extensions(&[Extension::LongDestination; 3]);
    fixture.refuses_silently(&packet, Counter::PacketRefusedUnknownPort)
}

fn fragments(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    for protocol in Protocol::ALL {
        let packet = Packet::later(protocol, client, vip).payload(&[4; 100]);
        let pieces = packet.pieces(&[64]);
        let header = pieces[0].len() - 64;
        let reason = Counter::PacketRefusedUnknownPort;
        fixture.allow_refusals(1)?;
        let expect = match (protocol, fixture.medium) {
            // What the reset would have to acknowledge is not known.
            (Protocol::Tcp, _) | (Protocol::Udp, Medium::Vlan | Medium::DoubleVlan) => {
                Some(Expect::dropped(reason).counts(&[Counter::RefusalSilent]))
            }
            // As in `refuses_with`.
            (Protocol::Udp, Medium::Bare | Medium::Summed) => None,
            (Protocol::Udp, Medium::Ethernet) => {
                let answer = port_unreachable(&packet, &pieces[0][..header + QUOTED]);
                Some(Expect::back(answer).counts(&[reason]))
            }
        };
        if let Some(expect) = expect {
            fixture.expect(Hook::FromPod, &pieces[0], expect)?;
        }
        fixture.drops(Hook::FromPod, &pieces[1], Counter::PacketDroppedFragment)?;
    }
    Ok(())
}

fn trailer(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    let reason = Counter::PacketRefusedUnknownPort;
    let padded = |packet: &Packet| [packet.bytes(), vec![0x77; 26]].concat();
    let syn = Packet::syn(client, vip).payload(b"x");
    let expect = Expect::back(padded(&reset(&syn))).counts(&[reason]);
    fixture.expect(Hook::FromPod, padded(&syn), expect)?;
    if fixture.medium == Medium::Ethernet {
        let packet = Packet::udp(client, vip).payload(&[]);
        let expect = Expect::back(port_unreachable(&packet, &packet.bytes())).counts(&[reason]);
        fixture.expect(Hook::FromPod, padded(&packet), expect)?;
    }
    Ok(())
}

fn segments(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    fixture.segment = SEGMENT;
    let packet = Packet::data(client, vip).payload(&[5; 1400]);
    fixture.refuses_silently(&packet, Counter::PacketRefusedUnknownPort)
}

fn limit(fixture: &mut Fixture) -> Result {
    let (client, vip) = unknown_port(fixture)?;
    let reason = Counter::PacketRefusedUnknownPort;
    let packet = Packet::syn(client, vip);
    let answered = || Expect::back(reset(&packet)).counts(&[reason]);
    for _ in 0..3 {
        fixture.refuses_limited(Hook::FromPod, &packet, reason)?;
    }
    fixture.allow_refusals(1)?;
    fixture.expect(Hook::FromPod, &packet, answered())?;
    // A long silence gives no more credit than one burst.
    fixture.allow_refusals(1000 * REFUSALS_AT_ONCE)?;
    let begin = Instant::now();
    let mut count = 0;
    let limited = loop {
        let sent = fixture.send(Hook::FromPod, &packet)?;
        if sent.verdict() == SHOT {
            fixture.compare(&sent, Expect::limited(reason))?;
            break count;
        }
        fixture.compare(&sent, answered())?;
        count += 1;
        if begin.elapsed() > Duration::from_secs(20) {
            return Err(skip("packets take longer here than the time that earns an answer"));
        }
    };
    // One more for each millisecond that it took.
    let earned = u64::try_from(begin.elapsed().as_millis())? + 1;
    let expected = REFUSALS_AT_ONCE..=REFUSALS_AT_ONCE + earned;
    ensure!(expected.contains(&limited), "{limited} refusals, and not {expected:?}");
    Ok(())
}

fn known_flow(fixture: &mut Fixture) -> Result {
    let service = fixture.service_of(Protocol::Tcp, 1, &[1])?;
    let flow = TestFlow::new(fixture.family.client(1), &service);
    fixture.established(&flow)?;
    fixture.withdraw(&service)?;
    fixture.carries(&flow, Side::Client, &flow.later(Side::Client))?;
    let other = Packet::syn(fixture.family.client(2), flow.vip);
    fixture.refuses(&other, Counter::PacketRefusedUnknownPort)
}
