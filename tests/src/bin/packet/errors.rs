//! ICMP errors: the programs translate the quoted packet and the source address to what the receiver knows.

use crate::{CheckOf, prelude::*};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "errors: of every type and code", every_kind);
    each(suite, "errors: about packets of every shape", errors(shapes));
    one(suite, "errors: about packets with options", Family::V4, errors(options));
    one(suite, "errors: about packets with extensions", Family::V6, errors(extensions));
    each(suite, "errors: that quote little", errors(cut));
    each(suite, "errors: with extensions of ICMP behind", errors(multipart));
    each(suite, "errors: with a wrong checksum", errors(wrong_checksum));
    each(suite, "errors: about fragments", errors(fragments));
    each(suite, "errors: in fragments", in_fragments);
    each(suite, "errors: about a pod's packets to itself", both(hairpin));
    each(suite, "errors: about a flow with another source port", of_flow(other_port));
    each(suite, "errors: about no flow", unknown);
    each(suite, "errors: about a flow of another VIP", other_vip);
    each(suite, "errors: about packets that only the far side knows", foreign_view);
    each(suite, "errors: within headers of their own", errors(outer_headers));
    each(suite, "errors: redirects", of_flow(redirects));
}

/// Type, code, and the rest of the header.
type Kind = (u8, u8, [u8; 4]);

const MTU: [u8; 4] = [0, 0, 0x05, 0];

/// The types and codes of errors (RFC 792, 1191, 1812 and 4443).
fn kinds(family: Family) -> Vec<Kind> {
    let codes = |kind, codes: std::ops::RangeInclusive<u8>, rest| {
        codes.map(move |code| (kind, code, rest)).collect::<Vec<_>>()
    };
    let none = [0; 4];
    match family {
        Family::V4 => [
            codes(3, 0..=3, none),
            // Fragmentation needed, with the MTU of the next hop, and without (before RFC 1191).
            codes(3, 4..=4, MTU),
            codes(3, 4..=4, none),
            codes(3, 5..=15, none),
            // Source quench.
            codes(4, 0..=0, none),
            // Time exceeded: on the way, and while putting fragments together.
            codes(11, 0..=1, none),
            // Parameter problem, with a pointer.
            codes(12, 0..=2, [9, 0, 0, 0]),
        ]
        .concat(),
        Family::V6 => [
            codes(1, 0..=8, none),
            // Packet too big.
            codes(2, 0..=0, MTU),
            codes(3, 0..=1, none),
            codes(4, 0..=10, [0, 0, 0, 6]),
        ]
        .concat(),
    }
}

/// A typical error, for cases that need only one.
fn some(family: Family) -> Kind {
    family.of((3, 4, MTU), (2, 0, MTU))
}

/// A check that is repeated for a typical error about each side of an open flow, from the far end and from a router.
fn errors(check: fn(&mut Fixture, &Error) -> Result) -> impl CheckOf {
    move |fixture| {
        Protocol::ALL.into_iter().try_for_each(|protocol| {
            let flow = fixture.open_flow(protocol)?;
            let errors = every_error(flow, &[some(fixture.family)]);
            errors.iter().try_for_each(|error| check(fixture, error))
        })
    }
}

/// An error about a packet of a flow's side.
#[derive(Clone, Copy)]
struct Error {
    flow: TestFlow,
    /// The side whose packet it quotes.
    about: Side,
    kind: Kind,
    /// Whether a router sends it, instead of the far end.
    from_router: bool,
}

impl Error {
    /// The program that sees it: it sees packets from the far end.
    fn hook(&self) -> Hook {
        self.flow.hook(self.about.other())
    }

    fn router(&self) -> IpAddr {
        Packet::family_of(self.flow.client.ip()).router()
    }

    /// The packet that it is about.
    fn packet(&self) -> Packet {
        self.flow.later(self.about)
    }

    /// The packet that it quotes when it is sent.
    fn quoted(&self, packet: &Packet) -> Packet {
        self.flow.translated(self.about, packet)
    }

    /// The error as it is sent, with this inside.
    fn sent(&self, quote: &[u8]) -> Packet {
        self.between(self.flow.translated_ends(self.about), quote)
    }

    /// The error as it has to arrive, with this inside.
    fn received(&self, quote: &[u8]) -> Packet {
        self.between(self.flow.ends(self.about), quote)
    }

    fn between(&self, (from, to): (SocketAddr, SocketAddr), quote: &[u8]) -> Packet {
        let src = if self.from_router { self.router() } else { to.ip() };
        Packet::icmp(src, from.ip(), self.kind, quote)
    }

    /// Sends it with the first bytes of the packet inside, or with all of them.
    #[track_caller]
    fn check(&self, fixture: &mut Fixture, packet: &Packet, quoted: Option<usize>) -> Result {
        let cut = |packet: &Packet| {
            let mut bytes = packet.bytes();
            bytes.truncate(quoted.unwrap_or(bytes.len()));
            bytes
        };
        let sent = self.sent(&cut(&self.quoted(packet)));
        self.becomes(fixture, &sent, self.received(&cut(packet)))
    }

    /// Sends an error that has to arrive as `received`.
    #[track_caller]
    fn becomes(
        &self,
        fixture: &mut Fixture,
        sent: impl crate::expect::Wire,
        received: impl crate::expect::Wire,
    ) -> Result {
        let (flow, ends_flow) = (self.flow, self.ends_flow());
        let expect =
            if flow.is_hairpin() { Expect::back(received) } else { Expect::next(received) };
        let expect = expect.counts(&[Counter::IcmpTranslated]).writes(move |tables| {
            if ends_flow {
                flow.is_gone(tables);
            }
        });
        fixture.expect(self.hook(), sent, expect)
    }

    /// Whether it says that the client has no socket for a datagram of the flow.
    fn ends_flow(&self) -> bool {
        let (kind, code, _) = self.kind;
        let (port, of_port, _) = Packet::family_of(self.flow.client.ip()).port_unreachable();
        let of_client = self.about == Side::Backend && !self.from_router;
        let has_socket = self.flow.protocol == Protocol::Tcp || self.flow.is_hairpin();
        of_client && !has_socket && (kind, code) == (port, of_port)
    }
}

/// Every error about either side's packets, from the far end and from a router.
fn every_error(flow: TestFlow, kinds: &[Kind]) -> Vec<Error> {
    let mut errors = Vec::new();
    for about in Side::BOTH {
        for from_router in [false, true] {
            errors.extend(kinds.iter().map(|kind| Error { flow, about, kind: *kind, from_router }));
        }
    }
    errors
}

pub(crate) fn every_kind(fixture: &mut Fixture) -> Result {
    for protocol in Protocol::ALL {
        let flow = fixture.open_flow(protocol)?;
        for error in every_error(flow, &kinds(fixture.family)) {
            let packet = flow.later(error.about);
            for packet in [packet.clone(), packet.hops(1)] {
                error.check(fixture, &packet, None).with_context(|| format!("{:?}", error.kind))?;
                if error.ends_flow() {
                    fixture.established(&flow)?;
                }
            }
        }
    }
    Ok(())
}

fn shapes(fixture: &mut Fixture, error: &Error) -> Result {
    let packets = match error.flow.protocol {
        Protocol::Tcp => [flag::SYN, flag::SYN | flag::ACK, flag::FIN | flag::ACK, flag::RST]
            .map(|flags| error.flow.tcp(error.about, flags))
            .to_vec(),
        Protocol::Udp => {
            let (from, to) = error.flow.ends(error.about);
            let packet = Packet::udp(from, to);
            vec![packet.clone().payload(&[]), packet.without_checksum()]
        }
    };
    packets.into_iter().try_for_each(|packet| {
        error.check(fixture, &packet, None)?;
        error.check(fixture, &packet.clone().payload(&[0x21; 1000]), None)?;
        // The word before the last bit of the checksum is odd.
        error.check(fixture, &packet.payload(&[0xff; 3]), None)
    })
}

fn options(fixture: &mut Fixture, error: &Error) -> Result {
    [&[1, 1, 1, 0][..], &[0x9e; 40]].into_iter().try_for_each(|options| {
        let packet = error.packet().options(options);
        error.check(fixture, &packet, None)?;
        error.check(fixture, &packet, Some(20 + options.len() + 8))
    })
}

fn extensions(fixture: &mut Fixture, error: &Error) -> Result {
    let chains: [&[Extension]; 4] = [
        &[Extension::HopByHop],
        &[Extension::Atomic],
        &[Extension::LongDestination],
        &[Extension::HopByHop, Extension::Routing { segments_left: 0 }, Extension::Destination],
    ];
    chains
        .into_iter()
        .try_for_each(|chain| error.check(fixture, &error.packet().extensions(chain), None))
}

fn cut(fixture: &mut Fixture, error: &Error) -> Result {
    let header = fixture.family.header();
    let packet = error.packet();
    // From the least that RFC 792 allows, past the checksum of TCP.
    // A truncated checksum is not changed.
    for quoted in (header + 8..header + 26).filter(|quoted| *quoted != header + 17) {
        error.check(fixture, &packet, Some(quoted)).with_context(|| format!("{quoted} bytes"))?;
    }
    // The quote is too short to identify the flow.
    (0..header + 8).try_for_each(|quoted| {
        let mut quote = error.quoted(&packet).bytes();
        quote.truncate(quoted);
        not_ours(fixture, error.hook(), &error.sent(&quote))
            .with_context(|| format!("{quoted} bytes"))
    })
}

/// An error that belongs to no flow.
#[track_caller]
fn not_ours(fixture: &mut Fixture, hook: Hook, error: &Packet) -> Result {
    match hook {
        Hook::FromPod => fixture.drops(hook, error, Counter::PacketDroppedIcmp),
        Hook::ToPod | Hook::Uplink => fixture.ignores(hook, error),
    }
}

fn multipart(fixture: &mut Fixture, error: &Error) -> Result {
    // RFC 4884: the quote is padded to 128 bytes, and its length is in the header.
    const QUOTED: usize = 128;
    let objects = [0x20, 0, 0xdf, 0xff, 0, 8, 1, 1, 0x12, 0x34, 0x50, 0x01];
    let kind = fixture.family.of((11, 0, [0, 32, 0, 0]), (3, 0, [16, 0, 0, 0]));
    let error = Error { kind, ..*error };
    let quote = |packet: &Packet| {
        let mut bytes = packet.bytes();
        bytes.resize(QUOTED, 0);
        [&bytes[..], &objects].concat()
    };
    let sent = error.sent(&quote(&error.quoted(&error.packet())));
    error.becomes(fixture, sent, error.received(&quote(&error.packet())))
}

/// The checksum of the error itself: it stays wrong, so that the receiver notices.
fn wrong_checksum(fixture: &mut Fixture, error: &Error) -> Result {
    let at = fixture.family.header() + 2;
    let spoilt = |packet: Packet| {
        let mut bytes = packet.bytes();
        crate::checksums::spoil(&mut bytes, at, 0x0100);
        bytes
    };
    let sent = spoilt(error.sent(&error.quoted(&error.packet()).bytes()));
    error.becomes(fixture, sent, spoilt(error.received(&error.packet().bytes())))
}

fn fragments(fixture: &mut Fixture, error: &Error) -> Result {
    let packet = error.packet().payload(&[3; 100]);
    let quotes = error.quoted(&packet).pieces(&[64]);
    error.becomes(fixture, error.sent(&quotes[0]), error.received(&packet.pieces(&[64])[0]))?;
    // It has no ports.
    not_ours(fixture, error.hook(), &error.sent(&quotes[1]))
}

fn in_fragments(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    for error in every_error(flow, &[some(fixture.family)]) {
        let pieces = error.sent(&error.quoted(&error.packet()).bytes()).pieces(&[24]);
        let reasons = [Counter::PacketDroppedIcmp, Counter::PacketDroppedFragment];
        for (piece, reason) in pieces.iter().zip(reasons) {
            match error.hook() {
                Hook::FromPod => fixture.drops(Hook::FromPod, piece, reason)?,
                hook => fixture.ignores(hook, piece)?,
            }
        }
    }
    Ok(())
}

fn hairpin(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let flow = fixture.hairpin(protocol)?;
    every_error(flow, &kinds(fixture.family)).iter().try_for_each(|error| {
        error.check(fixture, &error.packet(), None)?;
        // What it has become comes by on its way into the pod.
        fixture.ignores(Hook::ToPod, error.received(&error.packet().bytes()))
    })
}

fn other_port(fixture: &mut Fixture, flow: TestFlow) -> Result {
    let service = fixture.service_of(flow.protocol, 2, &[1])?;
    let (other, first) = fixture.opens_with_any_choice(flow.client, &service)?;
    assert_ne!(other.source, flow.client, "{first:?} has kept its port");
    let errors = every_error(other, &[some(fixture.family)]);
    errors.iter().try_for_each(|error| error.check(fixture, &error.packet(), None))
}

fn unknown(fixture: &mut Fixture) -> Result {
    fixture.service_of(Protocol::Udp, 1, &[1])?;
    fixture.set_flows_used(FlowsUsed::YES)?;
    let (client, vip, pod) =
        (fixture.family.client(1), fixture.family.vip(1), fixture.family.pod(1));
    for kind in kinds(fixture.family) {
        for protocol in Protocol::ALL {
            let quote = Packet::first(protocol, vip, client).bytes();
            let to_vip = Packet::icmp(client.ip(), vip.ip(), kind, &quote);
            // Whoever served the VIP before may have sent the quoted packet.
            let passed = Expect::next(&to_vip).counts(&[Counter::PacketPassed]);
            fixture.expect(Hook::FromPod, &to_vip, passed)?;
            let quote = Packet::first(protocol, client, pod).bytes();
            let to_pod = Packet::icmp(pod.ip(), client.ip(), kind, &quote);
            not_ours(fixture, Hook::ToPod, &to_pod)?;
        }
    }
    // About what has no ports.
    let quote = Packet::other(vip.ip(), client.ip(), 47, &[0; 16]).bytes();
    let to_vip = Packet::icmp(client.ip(), vip.ip(), some(fixture.family), &quote);
    not_ours(fixture, Hook::FromPod, &to_vip)
}

/// An error about a packet of an address other than the error's destination is forged.
fn other_vip(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    let other = fixture.family.vip(2);
    fixture.service(Protocol::Udp, other, &[fixture.family.pod(2)])?;
    let quote = flow.translated(Side::Backend, &flow.later(Side::Backend)).bytes();
    let error = Packet::icmp(flow.client.ip(), other.ip(), some(fixture.family), &quote);
    not_ours(fixture, Hook::FromPod, &error)
}

/// An error to the VIP about a packet that the client has never had.
fn foreign_view(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    let (client, vip) = (flow.client.ip(), flow.vip.ip());
    let quotes = [
        flow.translated(Side::Client, &flow.later(Side::Client)),
        flow.later(Side::Backend),
        flow.later(Side::Client),
    ];
    for quote in quotes {
        let error = Packet::icmp(client, vip, some(fixture.family), &quote.bytes());
        not_ours(fixture, Hook::FromPod, &error)?;
    }
    Ok(())
}

fn outer_headers(fixture: &mut Fixture, error: &Error) -> Result {
    let shape = |packet: Packet| match Packet::family_of(packet.src) {
        Family::V4 => packet.hops(255).options(&[148, 4, 0, 0]),
        Family::V6 => packet.hops(255).extensions(&[Extension::HopByHop, Extension::Destination]),
    };
    let sent = shape(error.sent(&error.quoted(&error.packet()).bytes()));
    error.becomes(fixture, sent, shape(error.received(&error.packet().bytes())))
}

/// A router knows of a better way for a packet: its ICMP, with the packet inside.
fn redirect(router: IpAddr, packet: &Packet, station: bool) -> Packet {
    let (quote, client) = (packet.bytes(), packet.src);
    match (router, packet.dst) {
        (IpAddr::V6(gateway), IpAddr::V6(destination)) => {
            // RFC 4861, 4.5: the better way, where it leads, and options in units of 8 bytes.
            let padded = [quote.as_slice(), &[0; 8]].concat();
            let quote = &padded[..quote.len().next_multiple_of(8)];
            let units = u8::try_from(quote.len() / 8 + 1).unwrap_or_default();
            let station: &[u8] = if station { &[2, 1, 2, 0, 0, 0, 0, 0xc] } else { &[] };
            let addresses = [gateway.octets(), destination.octets()].concat();
            let payload = [&addresses[..], station, &[4, units, 0, 0, 0, 0, 0, 0], quote].concat();
            Packet::icmp(router, client, (137, 0, [0; 4]), &payload)
        }
        (IpAddr::V4(gateway), _) => {
            Packet::icmp(router, client, (5, u8::from(station), gateway.octets()), &quote)
        }
        _ => panic!("{router} and {packet:?} are not of one family"),
    }
}

fn redirects(fixture: &mut Fixture, flow: TestFlow) -> Result {
    for station in [false, true] {
        // The redirect is for one backend; the client must not learn its address.
        let packet = flow.translated(Side::Client, &flow.later(Side::Client));
        let about_ours = redirect(fixture.family.router(), &packet, station);
        fixture.drops(Hook::ToPod, about_ours, Counter::RedirectDropped)?;

        let packet = Packet::first(flow.protocol, flow.client, fixture.family.stranger());
        let about_others = redirect(fixture.family.router(), &packet, station);
        fixture.ignores(Hook::ToPod, about_others)?;

        let packet = flow.translated(Side::Backend, &flow.later(Side::Backend));
        let to_vip = redirect(fixture.family.client(1).ip(), &packet, station);
        not_ours(fixture, Hook::FromPod, &to_vip)?;
    }
    Ok(())
}
