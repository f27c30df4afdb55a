//! A client that talks to a VIP: its flow, and what each packet of it becomes.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use mcs_common::{Counter, Flow, FlowFlags, FlowsUsed, Fragment, FragmentKey, Seen, Tuple};

use crate::{
    expect::Expect,
    lab::{Hook, Lab, Pick, Service},
    packet::{DEVICE, Packet, Protocol, flag, tuple},
    tables::{Tables, Time, Timed},
};

/// Source ports that flows get instead of their own begin here.
pub(crate) const FIRST_OTHER_PORT: u16 = 61_000;

/// A direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Backend,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Backend];
}

/// A flow as it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    pub(crate) protocol: Protocol,
    pub(crate) client: SocketAddr,
    pub(crate) vip: SocketAddr,
    frontend: u32,
    pub(crate) pick: Pick,
    /// The client as the backend sees it.
    pub(crate) source: SocketAddr,
}

impl Talk {
    /// A client's flow to the frontend's only backend.
    pub(crate) fn new(client: SocketAddr, service: &Service) -> Self {
        let [pick] = service.backends[..] else { panic!("there is more than one backend") };
        Self::with(client, service, pick)
    }

    /// A client's flow to this backend.
    pub(crate) fn with(client: SocketAddr, service: &Service, pick: Pick) -> Self {
        let Service { vip, protocol, frontend, .. } = *service;
        let mut talk = Self { protocol, client, vip, frontend, pick, source: client };
        if talk.is_hairpin() {
            talk.source.set_ip(vip.ip());
        }
        talk
    }

    /// The same, with another source port at the backend.
    pub(crate) fn source_port(mut self, port: u16) -> Self {
        self.source.set_port(port);
        self
    }

    /// Index into `states`.
    pub(crate) const fn frontend(&self) -> u32 {
        self.frontend
    }

    /// Whether the client is the backend.
    pub(crate) fn is_hairpin(&self) -> bool {
        self.pick.address.ip() == self.client.ip()
    }

    /// The program that sees packets of this side.
    pub(crate) fn hook(&self, side: Side) -> Hook {
        match side {
            Side::Backend if !self.is_hairpin() => Hook::ToPod,
            Side::Client | Side::Backend => Hook::FromPod,
        }
    }

    /// The ends of a packet of this side, before it is translated.
    pub(crate) fn ends(&self, side: Side) -> (SocketAddr, SocketAddr) {
        match side {
            Side::Client => (self.client, self.vip),
            Side::Backend => (self.pick.address, self.source),
        }
    }

    /// The ends of a packet of this side, translated.
    pub(crate) fn translated_ends(&self, side: Side) -> (SocketAddr, SocketAddr) {
        match side {
            Side::Client => (self.source, self.pick.address),
            Side::Backend => (self.vip, self.client),
        }
    }

    /// The key of the entry for packets of this side.
    pub(crate) fn key(&self, side: Side) -> Tuple {
        let (from, to) = self.ends(side);
        tuple(from, to, self.protocol.number())
    }

    /// A packet of this side, translated.
    pub(crate) fn translated(&self, side: Side, packet: &Packet) -> Packet {
        let (from, to) = self.translated_ends(side);
        packet.clone().between(from, to)
    }

    /// The packet that begins it.
    pub(crate) fn first(&self) -> Packet {
        Packet::first(self.protocol, self.client, self.vip)
    }

    /// A packet that goes on with it.
    pub(crate) fn later(&self, side: Side) -> Packet {
        let (from, to) = self.ends(side);
        Packet::later(self.protocol, from, to)
    }

    /// Where such a packet goes.
    pub(crate) fn outcome(&self, side: Side, packet: &Packet) -> Expect {
        let out = self.translated(side, packet);
        self.carried(side, &out.bytes())
    }

    /// Where a packet of this side goes that has become this.
    pub(crate) fn carried(&self, side: Side, out: &Vec<u8>) -> Expect {
        let expect = if self.is_hairpin() { Expect::back(out) } else { Expect::next(out) };
        expect.counts(&[match side {
            Side::Client => Counter::PacketTranslated,
            Side::Backend => Counter::PacketReversed,
        }])
    }

    /// The flags of its entry.
    pub(crate) fn flow_flags(&self, side: Side) -> u32 {
        let reply = if side == Side::Backend { FlowFlags::REPLY } else { 0 };
        reply | if self.is_hairpin() { FlowFlags::HAIRPIN } else { 0 }
    }

    /// The entry of a side, when it is made.
    pub(crate) fn entry(&self, side: Side, seen: u32) -> Flow {
        let (from, to) = self.translated_ends(side);
        Flow {
            to: tuple(from, to, self.protocol.number()),
            chosen: self.pick.chosen,
            frontend: self.frontend,
            flags: self.flow_flags(side),
            last_seen_ns: 0,
            seen,
            pad: 0,
        }
    }

    /// The flow is made, by a packet with these TCP flags.
    pub(crate) fn begins(&self, tables: &mut Tables, flags: u8) {
        tables.flows_used = FlowsUsed::YES;
        let client = Timed { value: self.entry(Side::Client, seen(0, flags)), time: Time::Now };
        tables.flows.insert(self.key(Side::Client), client);
        self.is_made(tables, Side::Backend);
    }

    /// One side's entry is made, without a packet of that side.
    pub(crate) fn is_made(&self, tables: &mut Tables, side: Side) {
        let entry = Timed { value: self.entry(side, 0), time: Time::Now };
        tables.flows.insert(self.key(side), entry);
    }

    /// The flow takes note of a packet with these TCP flags.
    pub(crate) fn passes(&self, tables: &mut Tables, side: Side, flags: u8) {
        let Some(entry) = tables.flows.get_mut(&self.key(side)) else { return };
        entry.value.seen = seen(entry.value.seen, flags);
        if let Time::At(before) = entry.time {
            entry.time = Time::Touched(before);
        }
    }

    /// Its entries are gone; but UDP still has the one for what the backend has yet to answer.
    pub(crate) fn ends_in(&self, tables: &mut Tables) {
        tables.flows.remove(&self.key(Side::Client));
        if self.protocol == Protocol::Tcp {
            tables.flows.remove(&self.key(Side::Backend));
        }
    }

    /// The first piece of a datagram is remembered.
    pub(crate) fn remembers(&self, tables: &mut Tables, side: Side, packet: &Packet) {
        let (from, to) = self.translated_ends(side);
        let is_v4 = packet.src.is_ipv4();
        let id = if is_v4 { packet.id << 16 } else { packet.id };
        let key = FragmentKey {
            src: packet.src.into(),
            dst: packet.dst.into(),
            // In network order: 16 bits of it for IPv4.
            id: if is_v4 { u32::from_be(id) } else { id.to_be() },
            protocol: if is_v4 { packet.protocol() } else { 0 },
            pad: 0,
            pad2: 0,
            device: DEVICE,
            pad3: 0,
        };
        let value = Fragment {
            to: tuple(from, to, self.protocol.number()),
            first_seen_ns: 0,
            flags: self.flow_flags(side),
            pad: 0,
        };
        let key = crate::tables::Key::sorted(key);
        tables.fragments.insert(key, Timed { value, time: Time::Now });
    }
}

/// What an entry knows after a packet with these TCP flags, as the flow table defines it.
fn seen(before: u32, flags: u8) -> u32 {
    let told = [
        (flag::FIN, Seen::FIN),
        (flag::SYN, Seen::SYN),
        (flag::RST, Seen::RST),
        (flag::ACK, Seen::ACK),
    ];
    let news: u32 = told.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, seen)| seen).sum();
    // Whoever goes on after a reset has not believed it.
    let goes_on = news & (Seen::RST | Seen::SYN) == 0;
    (if goes_on { before & !Seen::RST } else { before }) | news | Seen::ANY
}

impl Lab {
    /// A packet that begins a flow.
    #[track_caller]
    pub(crate) fn opens(&mut self, talk: &Talk, packet: &Packet) -> anyhow::Result<()> {
        let (talk, flags) = (*talk, packet.flags());
        let expect = talk
            .outcome(Side::Client, packet)
            .counts(&[Counter::FlowCreated])
            .writes(move |tables| talk.begins(tables, flags));
        self.expect(Hook::FromPod, packet, expect)
    }

    /// A first packet to a frontend whose choice is up to the program: any backend of the frontend,
    /// and any source port. Returns the flow that it began, and the packet.
    #[track_caller]
    pub(crate) fn opens_somehow(
        &mut self,
        client: SocketAddr,
        service: &Service,
    ) -> anyhow::Result<(Talk, Packet)> {
        let packet = Packet::first(service.protocol, client, service.vip);
        let talk = self.opens_with(service, &packet, |_, _| ())?;
        Ok((talk, packet))
    }

    /// As [`Lab::opens_somehow`], by this packet, with other changes of the tables.
    #[track_caller]
    pub(crate) fn opens_with(
        &mut self,
        service: &Service,
        packet: &Packet,
        others: impl FnOnce(&mut Tables, &Talk) + 'static,
    ) -> anyhow::Result<Talk> {
        let sent = self.send(Hook::FromPod, packet)?;
        let talk = self.chosen(service, packet)?;
        let flags = packet.flags();
        let mut expect = talk.outcome(Side::Client, packet).counts(&[Counter::FlowCreated]).writes(
            move |tables| {
                others(tables, &talk);
                talk.begins(tables, flags);
            },
        );
        if talk.source.port() != talk.client.port() {
            ensure!(talk.source.port() >= FIRST_OTHER_PORT, "{} is another port", talk.source);
            expect = expect.counts(&[Counter::FlowPortChanged]);
        }
        self.compare(&sent, expect)?;
        Ok(talk)
    }

    /// What the program has chosen for a packet to a frontend.
    fn chosen(&self, service: &Service, packet: &Packet) -> anyhow::Result<Talk> {
        let (client, _) = packet.ends();
        let entry = self.read()?.flows.remove(&packet.tuple()).context("no flow was made")?;
        let chosen = entry.value.chosen;
        let pick = service.backends.iter().find(|pick| pick.chosen == chosen);
        let pick = pick.with_context(|| format!("{chosen:?} is no backend of the frontend"))?;
        let port = entry.value.to.src_port;
        Ok(Talk::with(client, service, *pick).source_port(port))
    }

    /// A packet of a flow that is there.
    #[track_caller]
    pub(crate) fn carries(
        &mut self,
        talk: &Talk,
        side: Side,
        packet: &Packet,
    ) -> anyhow::Result<()> {
        let (talk, flags) = (*talk, packet.flags());
        let expect =
            talk.outcome(side, packet).writes(move |tables| talk.passes(tables, side, flags));
        self.expect(talk.hook(side), packet, expect)
    }

    /// The client sends what begins a flow, and gets an answer.
    #[track_caller]
    pub(crate) fn established(&mut self, talk: &Talk) -> anyhow::Result<()> {
        let first = talk.first();
        self.opens(talk, &first)?;
        let (from, to) = talk.ends(Side::Backend);
        let answer = match talk.protocol {
            Protocol::Tcp => Packet::tcp(from, to, flag::SYN | flag::ACK),
            Protocol::Udp => Packet::udp(from, to),
        };
        self.carries(talk, Side::Backend, &answer)
    }
}
