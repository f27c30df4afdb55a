//! Random packets through every program.

use std::cell::RefCell;

use mcs_tests::fuzz::{Regressions, fuzz};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
};

use crate::{
    hostile::{furnish, is_runnable},
    prelude::*,
};

/// How many series of packets are tried, unless there is time for more.
const SERIES: u32 = 400;
/// Packets of one series.
const PACKETS: usize = 24;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    suite.case("fuzz: packets of every sort, through every program", |fixture| {
        let fixture = RefCell::new(fixture);
        fuzz(Regressions::PACKETS, SERIES, &Series::any(), |series| {
            series.run(&mut fixture.borrow_mut())
        })
    });
}

/// Packets one after the other, among flows.
#[derive(Clone, Debug)]
struct Series {
    family: Family,
    medium: Medium,
    packets: Vec<Broken>,
}

/// A packet of a series: a changed valid packet, or noise.
#[derive(Clone, Debug)]
enum Broken {
    /// A valid packet with these changes, for its own program or another one.
    Seed { seed: Index, hook: Option<Hook>, changes: Vec<Change>, summed: bool },
    /// Noise behind the version of IP.
    Noise { hook: Hook, bytes: Vec<u8> },
}

/// A change of a packet.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Word(Index, u16),
    Truncate(Index),
    Append(Vec<u8>),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Corrects the lengths in its headers.
    Lengths,
    /// The flags and the offset of a fragment of IPv4.
    Fragment(u16),
    /// IPv6 extension headers in front of all others: kinds and contents.
    Extensions(Vec<(u8, [u8; 7])>),
}

/// Bytes that are worth a change: all headers, those inside an error included.
const HEADERS: usize = 110;
/// Hop-by-hop options, routing, fragment, destination options, authentication, ESP, mobility, none.
const KINDS: [u8; 8] = [0, 43, 44, 60, 51, 50, 135, 59];

impl Series {
    fn any() -> impl Strategy<Value = Self> {
        // Refusals cut the packet, which is more than the kernel's check of its sum allows for.
        let medium = select(Medium::UNSUMMED);
        (select(Family::ALL.as_slice()), medium, vec(broken(), 1..PACKETS))
            .prop_map(|(family, medium, packets)| Self { family, medium, packets })
    }

    /// Runs the programs and checks each result with [`Fixture::check_invariants`].
    fn run(&self, fixture: &mut Fixture) -> Result {
        fixture.reset(self.family, self.medium)?;
        let seeds = furnish(fixture)?;
        for (nth, broken) in self.packets.iter().enumerate() {
            let (hook, packet) = match broken {
                Broken::Seed { seed, hook, changes, summed } => {
                    let (usual, seed) = seed.get(&seeds);
                    let mut packet = seed.clone();
                    for change in changes {
                        change.make(self.family, &mut packet);
                    }
                    if *summed {
                        sum(self.family, &mut packet);
                    }
                    (hook.unwrap_or(*usual), packet)
                }
                Broken::Noise { hook, bytes } => (*hook, noise(self.family, bytes)),
            };
            if is_runnable((self.family, self.medium), &packet) {
                fixture.check_invariants(hook, &packet).with_context(|| format!("packet {nth}"))?;
            }
        }
        Ok(())
    }
}

fn broken() -> impl Strategy<Value = Broken> {
    let hook = || select(Hook::ALL.as_slice());
    let seed = (
        any::<Index>(),
        // What is to a VIP is not routed to a pod.
        option::weighted(0.2, select(vec![Hook::FromPod, Hook::Uplink])),
        vec(change(), 0..5),
        prop::bool::weighted(0.5),
    )
        .prop_map(|(seed, hook, changes, summed)| Broken::Seed { seed, hook, changes, summed });
    let noise =
        (hook(), vec(any::<u8>(), 20..120)).prop_map(|(hook, bytes)| Broken::Noise { hook, bytes });
    prop_oneof![12 => seed, 1 => noise]
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    let odd = select(vec![0, 1, 7, 8, 19, 20, 21, 39, 40, 0x1fff, 0x2000, 0x7fff, 0x8000, 0xffff]);
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        2 => (place(), prop_oneof![odd, any::<u16>()]).prop_map(|(at, word)| Change::Word(at, word)),
        2 => place().prop_map(Change::Truncate),
        1 => vec(any::<u8>(), 1..60).prop_map(Change::Append),
        1 => (place(), vec(any::<u8>(), 1..24)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (place(), 1..24_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        2 => Just(Change::Lengths),
        1 => prop_oneof![Just(0x2000), 0..0x2000_u16, any::<u16>()].prop_map(Change::Fragment),
        2 => vec((select(KINDS.as_slice()), any::<[u8; 7]>()), 1..10).prop_map(Change::Extensions),
    ]
}

impl Change {
    fn make(&self, family: Family, packet: &mut Vec<u8>) {
        let headers = packet.len().min(HEADERS);
        let within = |index: &Index| if headers == 0 { 0 } else { index.index(headers) };
        match self {
            Self::Byte(at, byte) => put(packet, within(at), &[*byte]),
            Self::Word(at, word) => put(packet, within(at), &word.to_be_bytes()),
            Self::Truncate(at) => packet.truncate(at.index(packet.len() + 1)),
            Self::Append(bytes) => packet.extend(bytes),
            Self::Insert(at, bytes) => {
                let at = within(at);
                packet.splice(at..at, bytes.iter().copied());
            }
            Self::Remove(at, length) => {
                let at = within(at);
                packet.drain(at..packet.len().min(at + length));
            }
            Self::Lengths => set_length(family, packet),
            Self::Fragment(word) => match family {
                Family::V4 => put(packet, 6, &word.to_be_bytes()),
                Family::V6 => {
                    let [high, low] = word.to_be_bytes();
                    extend(packet, &[(44, [0, high, low, 0, 0, 0, 1])]);
                }
            },
            Self::Extensions(headers) => {
                if family == Family::V6 {
                    extend(packet, headers);
                }
            }
        }
    }
}

/// Writes bytes, as far as there is something there.
fn put(packet: &mut [u8], at: usize, bytes: &[u8]) {
    packet.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
}

/// Puts IPv6 extension headers of eight bytes, linked, behind the first header.
fn extend(packet: &mut Vec<u8>, headers: &[(u8, [u8; 7])]) {
    let Some(last) = packet.get(6).copied().filter(|_| packet.len() >= 40) else { return };
    let mut next: Vec<u8> = headers.iter().map(|(kind, _)| *kind).collect();
    next.push(last);
    packet[6] = next[0];
    let bytes: Vec<u8> = headers
        .iter()
        .zip(&next[1..])
        .flat_map(|((_, content), next)| {
            // Most of them are no longer than that.
            let length = if content[0] < 240 { 0 } else { content[0] };
            [&[*next, length], &content[1..]].concat()
        })
        .collect();
    packet.splice(40..40, bytes);
    set_length(Family::V6, packet);
}

fn set_length(family: Family, packet: &mut [u8]) {
    let (at, length) = match family {
        Family::V4 => (2, packet.len()),
        Family::V6 => (4, packet.len().saturating_sub(40)),
    };
    put(packet, at, &u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
}

/// Makes the checksums right of a packet without extension headers: what comes out of one that goes
/// in right is right.
fn sum(family: Family, packet: &mut [u8]) {
    let (protocol, begin, addresses) = match family {
        Family::V4 => {
            let Some(begin) = packet.first().map(|first| usize::from(first & 15) * 4) else {
                return;
            };
            if begin < 20 || begin > packet.len() {
                return;
            }
            put(packet, 10, &[0, 0]);
            let sum = Sum16BitWords::new().add_slice(&packet[..begin]).ones_complement();
            put(packet, 10, &sum.to_ne_bytes());
            (packet[9], begin, 12..20)
        }
        Family::V6 if packet.len() >= 40 => (packet[6], 40, 8..40),
        Family::V6 => return,
    };
    let at = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return,
    };
    if packet.len() < begin + at + 2 {
        return;
    }
    put(packet, begin + at, &[0, 0]);
    let body = &packet[begin..];
    let mut sum = Sum16BitWords::new().add_slice(body);
    if protocol != 1 {
        let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
        sum = sum.add_slice(&packet[addresses]).add_4bytes(length).add_2bytes([0, protocol]);
    }
    let sum = sum.ones_complement().to_ne_bytes();
    put(packet, begin + at, &sum);
}

/// Bytes that begin with the version of IP.
fn noise(family: Family, bytes: &[u8]) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    let version = if family == Family::V4 { 0x45 } else { 0x60 };
    put(&mut packet, 0, &[version]);
    packet
}
