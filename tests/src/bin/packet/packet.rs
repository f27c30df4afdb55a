//! Builds packets with etherparse: the independent side of every comparison.

use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpAuthHeader, IpFragOffset, IpNumber,
    Ipv4Header, Ipv4Options, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, TcpHeader,
    UdpHeader,
};

use crate::prelude::*;

/// Bits of the TCP header.
pub(crate) mod flag {
    pub(crate) const FIN: u8 = 0x01;
    pub(crate) const SYN: u8 = 0x02;
    pub(crate) const RST: u8 = 0x04;
    pub(crate) const PSH: u8 = 0x08;
    pub(crate) const ACK: u8 = 0x10;
    pub(crate) const URG: u8 = 0x20;
    /// With `SYN`: the sender can do explicit congestion notification (RFC 3168).
    pub(crate) const ECN: u8 = 0xc0;

    /// The bits by their name.
    pub(crate) fn of(name: &str) -> crate::prelude::Result<u8> {
        Ok(match name {
            "fin" => FIN,
            "syn" => SYN,
            "rst" => RST,
            "ack" => ACK,
            "ecn" => ECN,
            _ => anyhow::bail!("no flag {name}"),
        })
    }
}

/// A protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Tcp => IpNumber::TCP.0,
            Self::Udp => IpNumber::UDP.0,
        }
    }
}

/// A header between that of IPv6 and the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extension {
    HopByHop,
    Destination,
    /// As [`Extension::Destination`], 24 bytes long.
    LongDestination,
    Routing {
        segments_left: u8,
    },
    Authentication,
    /// A fragment header of a datagram that is not fragmented (RFC 6946).
    Atomic,
}

impl Extension {
    const fn number(self) -> IpNumber {
        match self {
            Self::HopByHop => IpNumber::IPV6_HEADER_HOP_BY_HOP,
            Self::Destination | Self::LongDestination => IpNumber::IPV6_DESTINATION_OPTIONS,
            Self::Routing { .. } => IpNumber::IPV6_ROUTE_HEADER,
            Self::Authentication => IpNumber::AUTHENTICATION_HEADER,
            Self::Atomic => IpNumber::IPV6_FRAGMENTATION_HEADER,
        }
    }

    fn bytes(self, next: IpNumber, id: u32) -> Vec<u8> {
        /// An option `PadN` that fills the header.
        const fn padding<const N: usize>() -> [u8; N] {
            let mut bytes = [0; N];
            bytes[0] = 1;
            #[expect(clippy::cast_possible_truncation, reason = "at most 22")]
            {
                bytes[1] = (N - 2) as u8;
            }
            bytes
        }
        let raw = |payload: &[u8]| {
            built(Ipv6RawExtHeader::new_raw(next, payload)).to_bytes().as_slice().to_vec()
        };
        match self {
            Self::HopByHop | Self::Destination => raw(&padding::<6>()),
            Self::LongDestination => raw(&padding::<22>()),
            // A type for experiments (RFC 4727), with four bytes of data.
            Self::Routing { segments_left } => raw(&[253, segments_left, 0, 0, 0, 0]),
            Self::Authentication => {
                let header = built(IpAuthHeader::new(next, 0x1234, 7, &[0x5a; 12]));
                header.to_bytes().as_slice().to_vec()
            }
            Self::Atomic => fragment_header(next, 0, false, id),
        }
    }
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Ports are in the header; its checksum is not.
    Tcp {
        header: TcpHeader,
        payload: Vec<u8>,
    },
    Udp {
        from: u16,
        to: u16,
        checksum: bool,
        payload: Vec<u8>,
    },
    /// An ICMP message of the packet's family.
    Icmp {
        kind: u8,
        code: u8,
        rest: [u8; 4],
        payload: Vec<u8>,
    },
    /// Anything else.
    Other {
        protocol: u8,
        bytes: Vec<u8>,
    },
}

/// A packet, by what its headers say.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Time to live, or hop limit.
    pub(crate) hops: u8,
    /// Type of service, or traffic class.
    pub(crate) class: u8,
    /// Of the datagram; 16 bits for IPv4.
    pub(crate) id: u32,
    /// Of IPv4.
    pub(crate) dont_fragment: bool,
    /// Options of IPv4, a multiple of 4 bytes.
    pub(crate) options: Vec<u8>,
    pub(crate) extensions: Vec<Extension>,
    /// How many of `extensions`, the last ones, are cut into pieces with the payload.
    pub(crate) fragmentable: usize,
    pub(crate) body: Body,
}

impl Packet {
    fn new(src: IpAddr, dst: IpAddr, body: Body) -> Self {
        Self {
            src,
            dst,
            hops: 61,
            class: 0,
            id: 0x4d2,
            dont_fragment: false,
            options: Vec::new(),
            extensions: Vec::new(),
            fragmentable: 0,
            body,
        }
    }

    /// A TCP segment with these bits of [`flag`] and no payload.
    pub(crate) fn tcp(from: SocketAddr, to: SocketAddr, flags: u8) -> Self {
        let mut header = TcpHeader::new(from.port(), to.port(), 0x0a0b_0c0d, 0xfaf0);
        header.fin = flags & flag::FIN != 0;
        header.syn = flags & flag::SYN != 0;
        header.rst = flags & flag::RST != 0;
        header.psh = flags & flag::PSH != 0;
        header.ack = flags & flag::ACK != 0;
        header.urg = flags & flag::URG != 0;
        (header.ece, header.cwr) = (flags & flag::ECN != 0, flags & flag::ECN != 0);
        if header.ack {
            header.acknowledgment_number = 0x1122_3344;
        }
        if header.syn {
            // Maximum segment size 1460, SACK permitted, no operation, window scale 7.
            let options = [2, 4, 5, 0xb4, 4, 2, 1, 1, 1, 3, 3, 7];
            built(header.set_options_raw(&options));
        }
        Self::new(from.ip(), to.ip(), Body::Tcp { header, payload: Vec::new() })
    }

    /// A SYN.
    pub(crate) fn syn(from: SocketAddr, to: SocketAddr) -> Self {
        Self::tcp(from, to, flag::SYN)
    }

    /// A TCP segment with data.
    pub(crate) fn data(from: SocketAddr, to: SocketAddr) -> Self {
        Self::tcp(from, to, flag::ACK | flag::PSH).payload(b"what a wonderful world")
    }

    /// A UDP datagram.
    pub(crate) fn udp(from: SocketAddr, to: SocketAddr) -> Self {
        let (src, dst) = (from.ip(), to.ip());
        let payload = b"who are you?".to_vec();
        let body = Body::Udp { from: from.port(), to: to.port(), checksum: true, payload };
        Self::new(src, dst, body)
    }

    /// The first packet of a flow of this protocol.
    pub(crate) fn first(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Self {
        match protocol {
            Protocol::Tcp => Self::syn(from, to),
            Protocol::Udp => Self::udp(from, to),
        }
    }

    /// A later packet of a flow of this protocol.
    pub(crate) fn later(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Self {
        match protocol {
            Protocol::Tcp => Self::data(from, to),
            Protocol::Udp => Self::udp(from, to).payload(b"and who are they"),
        }
    }

    /// An ICMP message: type, code, and the four bytes after the checksum.
    pub(crate) fn icmp(
        src: IpAddr,
        dst: IpAddr,
        (kind, code, rest): (u8, u8, [u8; 4]),
        payload: &[u8],
    ) -> Self {
        Self::new(src, dst, Body::Icmp { kind, code, rest, payload: payload.to_vec() })
    }

    /// A packet of another protocol.
    pub(crate) fn other(src: IpAddr, dst: IpAddr, protocol: u8, bytes: &[u8]) -> Self {
        Self::new(src, dst, Body::Other { protocol, bytes: bytes.to_vec() })
    }

    /// The same with another payload.
    pub(crate) fn payload(mut self, bytes: &[u8]) -> Self {
        match &mut self.body {
            Body::Tcp { payload, .. }
            | Body::Udp { payload, .. }
            | Body::Icmp { payload, .. }
            | Body::Other { bytes: payload, .. } => *payload = bytes.to_vec(),
        }
        self
    }

    /// The same after some hops.
    pub(crate) fn hops(self, hops: u8) -> Self {
        Self { hops, ..self }
    }

    /// The same with the identification.
    pub(crate) fn id(self, id: u32) -> Self {
        Self { id, ..self }
    }

    /// The same with options of IPv4.
    pub(crate) fn options(self, options: &[u8]) -> Self {
        Self { options: options.to_vec(), ..self }
    }

    /// The same with extension headers of IPv6.
    pub(crate) fn extensions(self, extensions: &[Extension]) -> Self {
        Self { extensions: extensions.to_vec(), ..self }
    }

    /// The same packet; UDP gets a checksum of 0, which means none.
    pub(crate) fn without_checksum(mut self) -> Self {
        if let Body::Udp { checksum, .. } = &mut self.body {
            *checksum = false;
        }
        self
    }

    /// The same packet with another source and destination.
    pub(crate) fn between(mut self, from: SocketAddr, to: SocketAddr) -> Self {
        (self.src, self.dst) = (from.ip(), to.ip());
        match &mut self.body {
            Body::Tcp { header, .. } => {
                (header.source_port, header.destination_port) = (from.port(), to.port());
            }
            Body::Udp { from: src, to: dst, .. } => (*src, *dst) = (from.port(), to.port()),
            Body::Icmp { .. } | Body::Other { .. } => {}
        }
        self
    }

    /// Source and destination; port 0 where there is none.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        let (from, to) = match &self.body {
            Body::Tcp { header, .. } => (header.source_port, header.destination_port),
            Body::Udp { from, to, .. } => (*from, *to),
            Body::Icmp { .. } | Body::Other { .. } => (0, 0),
        };
        (SocketAddr::new(self.src, from), SocketAddr::new(self.dst, to))
    }

    /// The family of an address.
    pub(crate) const fn family_of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// As the flow table knows it.
    pub(crate) fn tuple(&self) -> Tuple {
        let (from, to) = self.ends();
        tuple(from, to, self.protocol())
    }

    /// The IP protocol number of the body.
    pub(crate) const fn protocol(&self) -> u8 {
        match &self.body {
            Body::Tcp { .. } => IpNumber::TCP.0,
            Body::Udp { .. } => IpNumber::UDP.0,
            Body::Icmp { .. } if self.src.is_ipv4() => IpNumber::ICMP.0,
            Body::Icmp { .. } => IpNumber::IPV6_ICMP.0,
            Body::Other { protocol, .. } => *protocol,
        }
    }

    /// The bits of [`flag`] that flows record; 0 for other protocols than TCP.
    pub(crate) fn flags(&self) -> u8 {
        let Body::Tcp { header, .. } = &self.body else { return 0 };
        let bits = [
            (header.fin, flag::FIN),
            (header.syn, flag::SYN),
            (header.rst, flag::RST),
            (header.ack, flag::ACK),
        ];
        bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
    }

    /// The packet in one piece.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (next, payload) = self.chain(self.extensions.len());
        self.ip(next, &payload, None)
    }

    /// The packet in pieces, cut at these offsets (multiples of 8) into what can be cut.
    pub(crate) fn pieces(&self, cuts: &[usize]) -> Vec<Vec<u8>> {
        let (next, body) = self.chain(self.fragmentable);
        let ends = cuts.iter().copied().chain([body.len()]);
        let begins = [0].into_iter().chain(cuts.iter().copied());
        begins
            .zip(ends)
            .map(|(begin, end)| self.ip(next, &body[begin..end], Some((begin, end < body.len()))))
            .collect()
    }

    /// The body with its last `extensions` in front, and the number of the first of these.
    fn chain(&self, extensions: usize) -> (IpNumber, Vec<u8>) {
        let behind = &self.extensions[self.extensions.len() - extensions..];
        let body = (IpNumber(self.protocol()), self.body_bytes());
        behind.iter().rev().fold(body, |(next, bytes), extension| {
            (extension.number(), [extension.bytes(next, self.id), bytes].concat())
        })
    }

    /// The header and what stands before `payload`. A piece is told its offset and whether others
    /// follow.
    fn ip(&self, next: IpNumber, payload: &[u8], piece: Option<(usize, bool)>) -> Vec<u8> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.ipv4((src, dst), next, payload, piece),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.ipv6((src, dst), next, payload, piece),
            _ => panic!("{} and {} are not of one family", self.src, self.dst),
        }
    }

    fn ipv4(
        &self,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        protocol: IpNumber,
        payload: &[u8],
        piece: Option<(usize, bool)>,
    ) -> Vec<u8> {
        let length = u16_of(payload.len());
        let header =
            built(Ipv4Header::new(length, self.hops, protocol, src.octets(), dst.octets()));
        let (offset, more) = piece.unwrap_or_default();
        let mut header = Ipv4Header {
            identification: u16_of(self.id),
            dont_fragment: self.dont_fragment,
            more_fragments: more,
            fragment_offset: offset_of(offset),
            ..header
        };
        header.options = built(Ipv4Options::try_from(self.options.as_slice()));
        built(header.set_payload_len(payload.len()));
        header.dscp = built((self.class >> 2).try_into());
        header.ecn = built((self.class & 3).try_into());
        header.header_checksum = header.calc_header_checksum();
        [header.to_bytes().as_slice(), payload].concat()
    }

    fn ipv6(
        &self,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        next: IpNumber,
        payload: &[u8],
        piece: Option<(usize, bool)>,
    ) -> Vec<u8> {
        let (next, payload) = match piece {
            None => (next, payload.to_vec()),
            Some((offset, more)) => {
                let in_front = &self.extensions[..self.extensions.len() - self.fragmentable];
                let fragment = [&fragment_header(next, offset, more, self.id), payload].concat();
                let payload = (IpNumber::IPV6_FRAGMENTATION_HEADER, fragment);
                in_front.iter().rev().fold(payload, |(next, bytes), extension| {
                    (extension.number(), [extension.bytes(next, self.id), bytes].concat())
                })
            }
        };
        let header = Ipv6Header {
            traffic_class: self.class,
            payload_length: u16_of(payload.len()),
            next_header: next,
            hop_limit: self.hops,
            source: src.octets(),
            destination: dst.octets(),
            ..Ipv6Header::default()
        };
        [header.to_bytes().as_slice(), &payload].concat()
    }

    fn body_bytes(&self) -> Vec<u8> {
        match &self.body {
            Body::Tcp { header, payload } => {
                let mut header = header.clone();
                header.checksum = match (self.src, self.dst) {
                    (IpAddr::V4(src), IpAddr::V4(dst)) => {
                        built(header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), payload))
                    }
                    (src, dst) => built(header.calc_checksum_ipv6_raw(v6(src), v6(dst), payload)),
                };
                [header.to_bytes().as_slice(), payload].concat()
            }
            Body::Udp { from, to, checksum, payload } => {
                let length = u16_of(UdpHeader::LEN + payload.len());
                let mut header =
                    UdpHeader { source_port: *from, destination_port: *to, length, checksum: 0 };
                if *checksum {
                    header.checksum =
                        match (self.src, self.dst) {
                            (IpAddr::V4(src), IpAddr::V4(dst)) => built(
                                header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), payload),
                            ),
                            (src, dst) => {
                                built(header.calc_checksum_ipv6_raw(v6(src), v6(dst), payload))
                            }
                        };
                }
                [header.to_bytes().as_slice(), payload].concat()
            }
            Body::Icmp { kind, code, rest, payload } => {
                let (type_u8, code_u8, bytes5to8) = (*kind, *code, *rest);
                let header = match (self.src, self.dst) {
                    (IpAddr::V4(_), IpAddr::V4(_)) => {
                        let kind = Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8 };
                        Icmpv4Header::with_checksum(kind, payload).to_bytes().as_slice().to_vec()
                    }
                    (src, dst) => {
                        let kind = Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8 };
                        let header = Icmpv6Header::with_checksum(kind, v6(src), v6(dst), payload);
                        built(header).to_bytes().as_slice().to_vec()
                    }
                };
                [header, payload.clone()].concat()
            }
            Body::Other { bytes, .. } => bytes.clone(),
        }
    }
}

/// The device of `BPF_PROG_TEST_RUN`: the loopback.
pub(crate) const DEVICE: u32 = 1;

/// A tuple of the flow table.
pub(crate) fn tuple(from: SocketAddr, to: SocketAddr, protocol: u8) -> Tuple {
    Tuple::new(from.ip().into(), from.port(), to.ip().into(), to.port(), protocol, DEVICE)
}

fn fragment_header(next: IpNumber, offset: usize, more: bool, id: u32) -> Vec<u8> {
    Ipv6FragmentHeader::new(next, offset_of(offset), more, id).to_bytes().to_vec()
}

fn offset_of(bytes: usize) -> IpFragOffset {
    assert!(bytes.is_multiple_of(8), "fragments begin at multiples of 8");
    built(IpFragOffset::try_new(u16_of(bytes / 8)))
}

fn u16_of(number: impl TryInto<u16, Error: fmt::Debug>) -> u16 {
    built(number.try_into())
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => panic!("{address} is not of this family"),
    }
}

/// Panics if etherparse refuses to build the packet: that is a mistake in the case.
#[track_caller]
pub(crate) fn built<T, E: fmt::Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("no such packet: {error:?}"))
}
