//! Invariants of every program for arbitrary packets: what a program may do with a packet, as etherparse parses it.

use std::ops::Range;

use etherparse::{
    IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, Ipv6RawExtHeaderSlice,
    TcpHeaderSlice, UdpHeaderSlice,
};

use crate::{
    expect::{NEXT, REDIRECT},
    prelude::*,
};

/// Counters of the outcome of a packet: each packet to a VIP increments exactly one of them by one.
const FATES: &[Counter] = &[
    Counter::PacketTranslated,
    Counter::PacketReversed,
    Counter::IcmpTranslated,
    Counter::RedirectDropped,
    Counter::EchoAnswered,
    Counter::PacketRefusedNoBackend,
    Counter::PacketRefusedUnknownPort,
    Counter::PacketRefusedInconsistent,
    Counter::PacketRefusedCollision,
    Counter::PacketRefusedGone,
    Counter::PacketRefusedSctp,
    Counter::PacketDroppedProtocol,
    Counter::PacketDroppedMalformed,
    Counter::PacketDroppedFragment,
    Counter::PacketDroppedIcmp,
    Counter::LeakPrevented,
    Counter::PacketPassed,
];
/// Counters that a program increments besides one of [`FATES`].
const COMPANIONS: &[Counter] = &[
    Counter::FlowCreated,
    Counter::FlowPortChanged,
    Counter::RefusalSilent,
    Counter::RefusalLimited,
];

/// A well-formed IP packet, as etherparse parses it.
struct ParsedPacket<'a> {
    bytes: &'a [u8],
    src: IpAddr,
    dst: IpAddr,
    /// Where the addresses are.
    addresses: Range<usize>,
    /// The places of the header's checksum, if it has one, and of that header.
    header_checksum: Option<(Range<usize>, Range<usize>)>,
    protocol: IpNumber,
    /// From the end of all headers to the end that the length in the header gives.
    body: Range<usize>,
    is_first: bool,
    is_whole: bool,
}

impl<'a> ParsedPacket<'a> {
    /// Parses a packet. A quoted packet may be shorter than the length in its header.
    fn new(bytes: &'a [u8], quoted: bool) -> Result<Self> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::ipv4(bytes, quoted),
            Some(6) => Self::ipv6(bytes, quoted),
            _ => bail!("no IP"),
        }
    }

    fn ipv4(bytes: &'a [u8], quoted: bool) -> Result<Self> {
        let header = Ipv4HeaderSlice::from_slice(bytes)?;
        let begin = header.slice().len();
        let total = usize::from(header.total_len());
        ensure!(total >= begin && (quoted || total <= bytes.len()), "the length is wrong");
        let end = if quoted { bytes.len() } else { total };
        let offset = header.fragments_offset().value();
        Ok(Self {
            bytes,
            src: header.source_addr().into(),
            dst: header.destination_addr().into(),
            addresses: 12..20,
            header_checksum: Some((10..12, 0..begin)),
            protocol: header.protocol(),
            body: begin..end,
            is_first: offset == 0,
            is_whole: offset == 0 && !header.more_fragments(),
        })
    }

    fn ipv6(bytes: &'a [u8], quoted: bool) -> Result<Self> {
        let header = Ipv6HeaderSlice::from_slice(bytes)?;
        let end = header.slice().len() + usize::from(header.payload_length());
        ensure!(quoted || end <= bytes.len(), "the length is wrong");
        let end = if quoted { bytes.len() } else { end };
        let mut read = Self {
            bytes,
            src: header.source_addr().into(),
            dst: header.destination_addr().into(),
            addresses: 8..40,
            header_checksum: None,
            protocol: header.next_header(),
            body: header.slice().len()..end,
            is_first: true,
            is_whole: true,
        };
        while read.is_first {
            let rest = &bytes[read.body.clone()];
            let length = match read.protocol {
                IpNumber::IPV6_FRAGMENTATION_HEADER => {
                    let fragment = Ipv6FragmentHeaderSlice::from_slice(rest)?;
                    read.is_first = fragment.fragment_offset().value() == 0;
                    read.is_whole &= read.is_first && !fragment.more_fragments();
                    read.protocol = fragment.next_header();
                    fragment.slice().len()
                }
                IpNumber::IPV6_HEADER_HOP_BY_HOP
                | IpNumber::IPV6_ROUTE_HEADER
                | IpNumber::IPV6_DESTINATION_OPTIONS => {
                    let is_route = read.protocol == IpNumber::IPV6_ROUTE_HEADER;
                    let extension = Ipv6RawExtHeaderSlice::from_slice(rest)?;
                    let is_under_way = extension.payload().get(1).is_some_and(|left| *left != 0);
                    ensure!(!is_route || !is_under_way, "the destination is not the last");
                    read.protocol = extension.next_header();
                    extension.slice().len()
                }
                _ => break,
            };
            read.body.start += length;
        }
        Ok(read)
    }

    fn body(&self) -> &'a [u8] {
        &self.bytes[self.body.clone()]
    }

    fn is_icmp(&self) -> bool {
        let icmp = if self.src.is_ipv4() { IpNumber::ICMP } else { IpNumber::IPV6_ICMP };
        self.protocol == icmp
    }

    fn has_ports(&self) -> bool {
        Protocol::ALL.iter().any(|protocol| protocol.number() == self.protocol.0)
    }

    /// The place of the body's checksum in the packet. `None` if the quote ends before it.
    fn checksum(&self) -> Option<Range<usize>> {
        let offset = match self.protocol {
            IpNumber::TCP => 16,
            IpNumber::UDP => 6,
            IpNumber::ICMP | IpNumber::IPV6_ICMP => 2,
            _ => return None,
        };
        let at = self.body.start + offset;
        (self.is_first && at + 2 <= self.body.end).then_some(at..at + 2)
    }

    /// Fails unless the body's header is well-formed.
    fn check_ports(&self) -> Result {
        if !self.is_first {
            return Ok(());
        }
        if self.protocol == IpNumber::TCP {
            TcpHeaderSlice::from_slice(self.body())?;
            return Ok(());
        }
        let length = usize::from(UdpHeaderSlice::from_slice(self.body())?.length());
        let fits = length >= 8 && (length <= self.body.len() || !self.is_whole);
        ensure!(fits, "UDP of {length} bytes in {}", self.body.len());
        Ok(())
    }

    fn tuple(&self) -> Tuple {
        let body = self.body();
        let port = |at: usize| {
            body.get(at..at + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]))
        };
        Tuple::new(self.src.into(), port(0), self.dst.into(), port(2), self.protocol.0, DEVICE)
    }

    /// The sum of the body with its pseudo-header. A translation does not change it, whether it is right or wrong.
    fn sum(&self) -> u16 {
        let mut sum = Sum16BitWords::new();
        if self.protocol != IpNumber::ICMP {
            let length = u16::try_from(self.body.len()).unwrap_or_default();
            sum = sum
                .add_slice(&self.bytes[self.addresses.clone()])
                .add_2bytes([0, self.protocol.0])
                .add_2bytes(length.to_be_bytes());
        }
        sum.add_slice(self.body()).ones_complement()
    }

    /// The sum of the header, if it has a checksum.
    fn header_sum(&self) -> Option<u16> {
        let (_, header) = self.header_checksum.clone()?;
        Some(Sum16BitWords::new().add_slice(&self.bytes[header]).ones_complement())
    }

    /// All bytes that a translation may change, except ports.
    fn writable(&self) -> Vec<Range<usize>> {
        let header = self.header_checksum.iter().map(|(checksum, _)| checksum.clone());
        header.chain([self.addresses.clone()]).chain(self.checksum()).collect()
    }
}

/// Fails if bytes differ outside of these.
fn same_but_for(old: &[u8], new: &[u8], written: &[Range<usize>]) -> Result {
    ensure!(old.len() == new.len(), "{} bytes have become {}", old.len(), new.len());
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        let may_differ = written.iter().any(|range| range.contains(&at));
        ensure!(old == new || may_differ, "byte {at} of the packet was changed");
    }
    Ok(())
}

impl Fixture {
    /// Runs a program on any IP packet, and checks that the result is allowed.
    pub(crate) fn check_invariants(&mut self, hook: Hook, ip: &[u8]) -> Result {
        let frame = self.medium.frame_of(self.family.ethertype(), ip, Way::On);
        let sent = self.send_frame(hook, frame.clone())?;
        let counts = self.counters()?;
        let before = std::mem::replace(&mut self.tables.counters, counts);
        let changes = changes(&before, &self.tables.counters);
        let (verdict, out) = (sent.verdict(), sent.frame_out());
        Trial { fixture: self, hook, frame: &frame, out, verdict, changes }
            .check_invariants()
            .with_context(|| sent.describe())
    }
}

fn changes(
    before: &BTreeMap<&'static str, u64>,
    after: &BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    let change = |(name, count): (&&'static str, &u64)| (*name, count - before[name]);
    after.iter().map(change).filter(|(_, change)| *change > 0).collect()
}

struct Trial<'a> {
    fixture: &'a Fixture,
    hook: Hook,
    frame: &'a [u8],
    out: &'a [u8],
    verdict: i32,
    /// Counters that have increased.
    changes: BTreeMap<&'static str, u64>,
}

impl Trial<'_> {
    fn check_invariants(&self) -> Result {
        let fate = self.fate()?;
        let before = self.fixture.medium.packet(self.frame);
        if self.hook != Hook::ToPod {
            let is_to_vip = self.is_to_vip(before);
            ensure!(fate.is_some() == is_to_vip, "to a VIP: {is_to_vip}, counted: {fate:?}");
        }
        let Some(fate) = fate else {
            ensure!(self.verdict == NEXT, "verdict {} without a counter", self.verdict);
            ensure!(self.frame == self.out, "changed without a counter");
            return Ok(());
        };
        match self.verdict {
            SHOT => {
                let dropped = fate.name().contains("dropped")
                    || fate.name().contains("refused")
                    || fate == Counter::LeakPrevented;
                let may_be = self.hook != Hook::ToPod || fate == Counter::RedirectDropped;
                ensure!(dropped && may_be, "dropped, and counted as {fate:?}");
                Ok(())
            }
            NEXT | REDIRECT => {
                let before = ParsedPacket::new(before, false).context("it was malformed")?;
                let is_refused = fate.name().contains("refused");
                if is_refused
                    && self.fixture.medium == Medium::Bare
                    && before.protocol != IpNumber::TCP
                {
                    // As in the cases of refusals: BPF_PROG_TEST_RUN cannot do this.
                    return Ok(());
                }
                let after = ParsedPacket::new(self.fixture.medium.packet(self.out), false)
                    .context("it has become malformed")?;
                self.passed(fate, &before, &after).with_context(|| format!("{fate:?}"))
            }
            verdict => bail!("verdict {verdict}"),
        }
    }

    /// The counter of the packet's outcome.
    fn fate(&self) -> Result<Option<Counter>> {
        let counted = |counters: &[Counter]| -> Vec<Counter> {
            let moved = |counter: &&Counter| self.changes.contains_key(counter.name());
            counters.iter().filter(moved).copied().collect()
        };
        let (fates, companions) = (counted(FATES), counted(COMPANIONS));
        let known = fates.len() + companions.len() == self.changes.len();
        let once = self.changes.values().all(|count| *count == 1);
        ensure!(known && once && fates.len() <= 1, "counted {:?}", self.changes);
        let is_refusal = fates.iter().any(|fate| fate.name().contains("refused"));
        let silent = companions.contains(&Counter::RefusalSilent)
            || companions.contains(&Counter::RefusalLimited);
        ensure!((is_refusal && self.verdict == SHOT) == silent, "counted {:?}", self.changes);
        Ok(fates.first().copied())
    }

    fn is_to_vip(&self, packet: &[u8]) -> bool {
        let vip = self.fixture.family.vip(1).ip();
        match vip {
            IpAddr::V4(vip) => packet.get(16..20) == Some(&vip.octets()),
            IpAddr::V6(vip) => packet.get(24..40) == Some(&vip.octets()),
        }
    }

    /// Checks a packet that the program passed on or sent back.
    fn passed(&self, fate: Counter, before: &ParsedPacket<'_>, after: &ParsedPacket<'_>) -> Result {
        match fate {
            Counter::PacketTranslated | Counter::PacketReversed => {
                before.check_ports().context("it was malformed")?;
                self.is_translated(before, after)
            }
            Counter::PacketPassed => {
                ensure!(before.bytes == after.bytes, "it was changed");
                Ok(())
            }
            Counter::IcmpTranslated => is_error_translated(before, after),
            Counter::EchoAnswered => {
                ensure!(before.is_icmp() && before.is_whole, "no ping");
                let mut written = before.writable();
                written.push(before.body.start..before.body.start + 1);
                same_but_for(before.bytes, after.bytes, &written)?;
                is_between(after, before.dst, before.src)?;
                same_sums(before, after)
            }
            _ if before.protocol == IpNumber::TCP => {
                let body = before.body.start;
                let mut written = before.writable();
                written.push(body..body + 18);
                same_but_for(before.bytes, after.bytes, &written)?;
                is_between(after, before.dst, before.src)?;
                let reset = TcpHeaderSlice::from_slice(after.body())?;
                let syn = TcpHeaderSlice::from_slice(before.body())?;
                ensure!(reset.rst() && !syn.rst(), "no reset, or of a reset");
                same_sums(before, after)
            }
            _ => {
                is_between(after, before.dst, before.src)?;
                ensure!(after.is_icmp() && after.is_whole, "no ICMP");
                ensure!(
                    after.sum() == 0 && after.header_sum().unwrap_or(0) == 0,
                    "its checksum is wrong"
                );
                let quote = &after.body()[8..];
                ensure!(before.bytes.starts_with(quote), "the quote is another packet");
                ensure!(quote.len() >= before.body.start + 8, "the quote is too short");
                Ok(())
            }
        }
    }

    fn is_translated(&self, before: &ParsedPacket<'_>, after: &ParsedPacket<'_>) -> Result {
        let mut written = before.writable();
        if before.is_first {
            let ports = before.body.start..before.body.start + 4;
            written.push(ports);
            let flow = self.fixture.flow(&before.tuple())?.context("it has no flow")?;
            ensure!(after.tuple() == flow.to, "{:?} is not what the flow says", after.tuple());
        }
        same_but_for(before.bytes, after.bytes, &written)?;
        same_sums(before, after)?;
        let vip = self.fixture.family.vip(1).ip();
        ensure!(after.dst != vip && (before.dst == vip || after.src == vip), "not between the two");
        let kept = match self.hook {
            Hook::ToPod => after.dst == before.dst,
            Hook::FromPod | Hook::Uplink => after.src == before.src,
        };
        ensure!(kept || self.verdict == REDIRECT, "the client's address was changed");
        Ok(())
    }
}

fn is_between(packet: &ParsedPacket<'_>, src: IpAddr, dst: IpAddr) -> Result {
    ensure!(packet.src == src && packet.dst == dst, "from {} to {}", packet.src, packet.dst);
    Ok(())
}

/// Fails unless the checksums are as right or as wrong as before.
fn same_sums(before: &ParsedPacket<'_>, after: &ParsedPacket<'_>) -> Result {
    ensure!(before.header_sum() == after.header_sum(), "the header's checksum is another");
    let Some(checksum) = before.checksum() else { return Ok(()) };
    let none = |read: &ParsedPacket<'_>| {
        read.protocol == IpNumber::UDP && read.bytes[checksum.clone()] == [0, 0]
    };
    ensure!(none(before) == none(after), "a checksum has come or gone");
    ensure!(none(before) || before.sum() == after.sum(), "the checksum is another");
    Ok(())
}

fn is_error_translated(before: &ParsedPacket<'_>, after: &ParsedPacket<'_>) -> Result {
    ensure!(before.is_icmp() && before.is_whole && before.body.len() >= 8, "no error");
    let quote = before.body.start + 8;
    let inner =
        ParsedPacket::new(&before.bytes[quote..before.body.end], true).context("its quote")?;
    let inner_after = ParsedPacket::new(&after.bytes[quote..before.body.end], true)?;
    ensure!(inner.has_ports() && inner.is_first, "its quote has no ports");
    let ports = inner.body.start..inner.body.start + 4;
    let moved = |range: Range<usize>| range.start + quote..range.end + quote;
    let inside = inner.writable().into_iter().chain([ports]).map(moved);
    let written: Vec<_> = before.writable().into_iter().chain(inside).collect();
    same_but_for(before.bytes, after.bytes, &written)?;
    ensure!(before.header_sum() == after.header_sum(), "the header's checksum is another");
    ensure!(before.sum() == after.sum(), "the checksum is another");
    same_sums(&inner, &inner_after).context("its quote")?;
    ensure!(after.dst == inner_after.src, "it goes to another one than the packet's sender");
    Ok(())
}
