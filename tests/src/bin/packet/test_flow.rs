//! The flow of a client to a VIP, and the expected translation of each of its packets.

use crate::{packet::tuple, prelude::*};

/// The first source port that the programs substitute.
pub(crate) const FIRST_OTHER_PORT: u16 = 61_000;

/// A direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Backend,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Backend];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Backend,
            Self::Backend => Self::Client,
        }
    }
}

/// A flow as the programs should translate it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestFlow {
    pub(crate) protocol: Protocol,
    pub(crate) client: SocketAddr,
    pub(crate) vip: SocketAddr,
    frontend: u32,
    pub(crate) pick: Pick,
    /// The client as the backend sees it.
    pub(crate) source: SocketAddr,
}

impl TestFlow {
    /// A client's flow to the frontend's only backend.
    pub(crate) fn new(client: SocketAddr, service: &Service) -> Self {
        let [pick] = service.backends[..] else { panic!("there is more than one backend") };
        Self::with(client, service, pick)
    }

    /// A client's flow to this backend.
    pub(crate) fn with(client: SocketAddr, service: &Service, pick: Pick) -> Self {
        let Service { vip, protocol, frontend, .. } = *service;
        let mut flow = Self { protocol, client, vip, frontend, pick, source: client };
        if flow.is_hairpin() {
            flow.source.set_ip(vip.ip());
        }
        flow
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

    /// The first packet of the flow.
    pub(crate) fn first(&self) -> Packet {
        Packet::first(self.protocol, self.client, self.vip)
    }

    /// A later packet of the flow.
    pub(crate) fn later(&self, side: Side) -> Packet {
        let (from, to) = self.ends(side);
        Packet::later(self.protocol, from, to)
    }

    /// A segment of this side with these bits of [`flag`].
    pub(crate) fn tcp(&self, side: Side, flags: u8) -> Packet {
        let (from, to) = self.ends(side);
        Packet::tcp(from, to, flags)
    }

    /// The expected result of a packet of this side.
    pub(crate) fn outcome(&self, side: Side, packet: &Packet) -> Expect {
        let out = self.translated(side, packet);
        self.carried(side, &out.bytes())
    }

    /// The expected result of a packet of this side whose translation is `out`.
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

    /// The entry of a side when it is created.
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

    /// Expects that a packet with these TCP flags creates both entries.
    pub(crate) fn begins(&self, tables: &mut Tables, flags: u8) {
        tables.flows_used = FlowsUsed::YES;
        let client = Timed { value: self.entry(Side::Client, seen(0, flags)), time: Time::Now };
        tables.flows.insert(self.key(Side::Client), client);
        self.is_made(tables, Side::Backend);
    }

    /// Expects that one side's entry is created, without a packet of that side.
    pub(crate) fn is_made(&self, tables: &mut Tables, side: Side) {
        let entry = Timed { value: self.entry(side, 0), time: Time::Now };
        tables.flows.insert(self.key(side), entry);
    }

    /// Expects that the entries record a packet with these TCP flags.
    pub(crate) fn passes(&self, tables: &mut Tables, side: Side, flags: u8) {
        let Some(entry) = tables.flows.get_mut(&self.key(side)) else { return };
        entry.value.seen = seen(entry.value.seen, flags);
        if let Time::At(before) = entry.time {
            entry.time = Time::Touched(before);
        }
    }

    /// Expects that the entries are removed. UDP keeps the backend's, for replies that are still to come.
    pub(crate) fn ends_in(&self, tables: &mut Tables) {
        tables.flows.remove(&self.key(Side::Client));
        if self.protocol == Protocol::Tcp {
            tables.flows.remove(&self.key(Side::Backend));
        }
    }

    /// Expects that both entries are removed.
    pub(crate) fn is_gone(&self, tables: &mut Tables) {
        for side in Side::BOTH {
            tables.flows.remove(&self.key(side));
        }
    }

    /// Expects that the first fragment of a datagram is remembered.
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

/// The `seen` bits of an entry after a packet with these TCP flags, as the flow table defines them.
fn seen(before: u32, flags: u8) -> u32 {
    let bits = [
        (flag::FIN, Seen::FIN),
        (flag::SYN, Seen::SYN),
        (flag::RST, Seen::RST),
        (flag::ACK, Seen::ACK),
    ];
    let news: u32 = bits.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, seen)| seen).sum();
    let ended = match (news & Seen::SYN != 0, news & Seen::RST != 0) {
        // It begins another connection.
        (true, _) => Seen::FIN,
        // It has ignored a reset.
        (false, false) => Seen::RST,
        (false, true) => 0,
    };
    (before & !ended) | news | Seen::ANY
}

impl Fixture {
    /// A flow to the only backend of a service, in tables that hold nothing else.
    pub(crate) fn new_flow(&mut self, protocol: Protocol) -> Result<TestFlow> {
        self.reset(self.family, self.medium)?;
        let service = self.service(protocol, self.family.vip(1), &[self.family.pod(1)])?;
        Ok(TestFlow::new(self.family.client(1), &service))
    }

    /// The same, established.
    pub(crate) fn open_flow(&mut self, protocol: Protocol) -> Result<TestFlow> {
        let flow = self.new_flow(protocol)?;
        self.established(&flow)?;
        Ok(flow)
    }

    /// A packet that begins a flow.
    #[track_caller]
    pub(crate) fn opens(&mut self, flow: &TestFlow, packet: &Packet) -> Result {
        let (flow, flags) = (*flow, packet.flags());
        let expect = flow
            .outcome(Side::Client, packet)
            .counts(&[Counter::FlowCreated])
            .writes(move |tables| flow.begins(tables, flags));
        self.expect(Hook::FromPod, packet, expect)
    }

    /// Sends a first packet to a frontend. The program may choose any backend of the frontend, and any source port.
    /// Returns the new flow, and the packet.
    #[track_caller]
    pub(crate) fn opens_with_any_choice(
        &mut self,
        client: SocketAddr,
        service: &Service,
    ) -> Result<(TestFlow, Packet)> {
        let packet = Packet::first(service.protocol, client, service.vip);
        let flow = self.opens_with(service, &packet, |_, _| ())?;
        Ok((flow, packet))
    }

    /// As [`Fixture::opens_with_any_choice`], by this packet, with other changes of the tables.
    #[track_caller]
    pub(crate) fn opens_with(
        &mut self,
        service: &Service,
        packet: &Packet,
        others: impl FnOnce(&mut Tables, &TestFlow) + 'static,
    ) -> Result<TestFlow> {
        let sent = self.send(Hook::FromPod, packet)?;
        let flow = self.chosen(service, packet)?;
        let flags = packet.flags();
        let mut expect = flow.outcome(Side::Client, packet).counts(&[Counter::FlowCreated]).writes(
            move |tables| {
                others(tables, &flow);
                flow.begins(tables, flags);
            },
        );
        if flow.source.port() != flow.client.port() {
            ensure!(flow.source.port() >= FIRST_OTHER_PORT, "{} is another port", flow.source);
            expect = expect.counts(&[Counter::FlowPortChanged]);
        }
        self.compare(&sent, expect)?;
        Ok(flow)
    }

    /// The flow that the program chose for a packet to a frontend.
    fn chosen(&self, service: &Service, packet: &Packet) -> Result<TestFlow> {
        let (client, _) = packet.ends();
        let entry = self.read()?.flows.remove(&packet.tuple()).context("no flow was made")?;
        let chosen = entry.value.chosen;
        let pick = service.backends.iter().find(|pick| pick.chosen == chosen);
        let pick = pick.with_context(|| format!("{chosen:?} is no backend of the frontend"))?;
        let port = entry.value.to.src_port;
        Ok(TestFlow::with(client, service, *pick).source_port(port))
    }

    /// Sends a packet of an existing flow.
    #[track_caller]
    pub(crate) fn carries(&mut self, flow: &TestFlow, side: Side, packet: &Packet) -> Result {
        let (flow, flags) = (*flow, packet.flags());
        let expect =
            flow.outcome(side, packet).writes(move |tables| flow.passes(tables, side, flags));
        self.expect(flow.hook(side), packet, expect)
    }

    /// Sends `packet` of an existing flow as these bytes, which have to arrive as `out`.
    #[track_caller]
    pub(crate) fn carries_as(
        &mut self,
        flow: &TestFlow,
        side: Side,
        packet: &Packet,
        [sent, out]: [Vec<u8>; 2],
    ) -> Result {
        let (flow, flags) = (*flow, packet.flags());
        let expect =
            flow.carried(side, &out).writes(move |tables| flow.passes(tables, side, flags));
        self.expect(flow.hook(side), sent, expect)
    }

    /// The end of the connection by FIN, and no acknowledgement of it.
    #[track_caller]
    pub(crate) fn closes(&mut self, flow: &TestFlow) -> Result {
        Side::BOTH
            .into_iter()
            .try_for_each(|side| self.carries(flow, side, &flow.tcp(side, flag::FIN | flag::ACK)))
    }

    /// A later packet of each side.
    #[track_caller]
    pub(crate) fn goes_on(&mut self, flow: &TestFlow) -> Result {
        Side::BOTH.into_iter().try_for_each(|side| self.carries(flow, side, &flow.later(side)))
    }

    /// A flow of a pod to itself, established in tables that were empty.
    #[track_caller]
    pub(crate) fn hairpin(&mut self, protocol: Protocol) -> Result<TestFlow> {
        self.reset(self.family, self.medium)?;
        let client = self.family.client(1);
        let backend = SocketAddr::new(client.ip(), 8080);
        let service = self.service(protocol, self.family.vip(1), &[backend])?;
        let flow = TestFlow::new(client, &service);
        self.established(&flow)?;
        Ok(flow)
    }

    /// Sends the first packet of a flow, and the answer.
    #[track_caller]
    pub(crate) fn established(&mut self, flow: &TestFlow) -> Result {
        self.opens(flow, &flow.first())?;
        self.answers(flow)
    }

    /// Sends the backend's answer to the first packet of a flow.
    #[track_caller]
    pub(crate) fn answers(&mut self, flow: &TestFlow) -> Result {
        let (from, to) = flow.ends(Side::Backend);
        let answer = match flow.protocol {
            Protocol::Tcp => flow.tcp(Side::Backend, flag::SYN | flag::ACK),
            Protocol::Udp => Packet::udp(from, to),
        };
        self.carries(flow, Side::Backend, &answer)
    }
}
