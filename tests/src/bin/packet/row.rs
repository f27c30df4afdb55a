//! Cases as rows of a table: what a client and its backend send, in words, each checked with all that programs write.
//!
//! | word | what happens |
//! |---|---|
//! | `open` `open:3` | the first packet of the flow, and its answer; so many pods are there to choose from |
//! | `>ack` `<fin+ack` `=data` | the flow carries a packet of the client, of the backend, of one and then the other |
//! | `first` `data` | instead of TCP flags: the flow's first packet, or a later one |
//! | `:1400` `:nosum` | behind them: bytes of payload, or no checksum |
//! | `!` | behind them: the packet begins the flow |
//! | `*` | it begins the flow, with another source port |
//! | `^` | it begins another flow, which is answered; `old<data` is then a packet of the flow before |
//! | `&` | it makes the other side's entry again |
//! | `%` | it passes unchanged, and ends the flow |
//! | `~` | it passes unchanged |
//! | `?NoBackend` | it is refused for this reason; its flow ends |
//! | `pods:2,own` | the backends from now on; `own` is that of the flow |
//! | `withdraw` `mode:7` | the frontend goes; the VIP gets another mode |
//! | `client:2` `vip:2` | another client, of a VIP and a pod with the same number; the same client and pod by another VIP |
//! | `talk` `talk:both` | an answer, a packet of the client and one of the backend; the same of the flow before too |
//! | `direct>data~` | the client writes to the backend's own address |
//! | `evict` `evict>` `evict<` `plant<` | entries of the flow go, or one comes that nobody has announced |
//! | `age<31` `age>touch` | an entry becomes so many seconds older, or so old that its time is written again |
//! | `used:no` `evicted` `segment` | the mark that says whether there are flows; flows may have been evicted; packets are to be cut |
//! | `same` | the flow has the backend of the one before |

use std::sync::Arc;

use mcs_common::VipMode;

use crate::{collision::exchange_on_all, prelude::*};

/// The name of a case, and what is sent by which protocols. Each text begins with empty tables.
struct Row(&'static str, Vec<(&'static [Protocol], &'static str)>);

/// The rows `name | protocols | text` of a table. A line without columns is one more text of the row before.
fn read(table: &'static str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in table.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (&line.split(" | ").map(str::trim).collect::<Vec<_>>()[..], rows.last_mut()) {
            (&[name, protocols, text], _) => {
                let protocols = match protocols {
                    "TCP" => &Protocol::ALL[..1],
                    "UDP" => &Protocol::ALL[1..],
                    "both" => &Protocol::ALL,
                    _ => panic!("`{line}` has no such protocol"),
                };
                rows.push(Row(name, vec![(protocols, text)]));
            }
            (&[text], Some(Row(_, texts))) => texts.push((texts[0].0, text)),
            _ => panic!("`{line}` has not three columns"),
        }
    }
    rows
}

impl Row {
    fn play(&self, fixture: &mut Fixture) -> Result {
        self.1.iter().try_for_each(|(protocols, text)| {
            protocols.iter().try_for_each(|protocol| play(fixture, *protocol, text))
        })
    }
}

/// Adds each row of a table as a case for both families.
pub(crate) fn rows(suite: &mut Suite<Fixture>, table: &'static str) {
    for row in read(table).into_iter().map(Arc::new) {
        each(suite, row.0, move |fixture| row.play(fixture));
    }
}

/// Plays the row of that name.
pub(crate) fn play_row(fixture: &mut Fixture, table: &'static str, name: &str) -> Result {
    read(table).iter().find(|row| row.0 == name).context("no such row")?.play(fixture)
}

/// Plays a text of a row.
fn play(fixture: &mut Fixture, protocol: Protocol, text: &str) -> Result {
    let flow = fixture.new_flow(protocol)?;
    let service =
        Service { vip: flow.vip, protocol, frontend: flow.frontend(), backends: vec![flow.pick] };
    let mut play = Play { fixture, service, flow, old: flow };
    text.split_whitespace().try_for_each(|word| {
        play.step(word).with_context(|| format!("`{word}` of `{text}`, {protocol:?}"))
    })
}

struct Play<'a> {
    fixture: &'a mut Fixture,
    service: Service,
    flow: TestFlow,
    old: TestFlow,
}

impl Play<'_> {
    fn step(&mut self, word: &str) -> Result {
        let (name, argument) = word.split_once(':').unwrap_or((word, ""));
        match (name, argument) {
            ("open", "") => self.open(),
            ("open", count) => {
                let pods: Vec<_> =
                    (1..=count.parse()?).map(|pod| self.fixture.family.pod(pod)).collect();
                self.fixture.change(&mut self.service, &pods)?;
                self.open()
            }
            ("pods", pods) => self.pods(pods),
            ("withdraw", _) => self.fixture.withdraw(&self.service),
            ("mode", mode) => self.fixture.set_mode(self.service.vip, mode_of(mode)?),
            ("client", number) => {
                let number = number.parse()?;
                let client = self.fixture.family.client(number);
                self.begins(client, number, number)
            }
            ("vip", number) => self.begins(self.flow.client, number.parse()?, 1),
            ("talk", "") => exchange_on_all(self.fixture, &[self.flow]),
            ("talk", _) => exchange_on_all(self.fixture, &[self.old, self.flow]),
            ("evict", _) => self.fixture.evict_flows(),
            ("used", used) => self.fixture.set_flows_used(used_of(used)?),
            ("evicted", _) => self.fixture.set_evicted(),
            ("segment", _) => {
                self.fixture.segment = SEGMENT;
                Ok(())
            }
            ("same", _) => {
                ensure!(self.flow.pick == self.old.pick, "{:?}, not {:?}", self.flow, self.old);
                Ok(())
            }
            _ => self.of_side(word),
        }
    }

    fn open(&mut self) -> Result {
        if self.service.backends.len() == 1 {
            return self.fixture.established(&self.flow);
        }
        (self.flow, _) = self.fixture.opens_with_any_choice(self.flow.client, &self.service)?;
        self.fixture.answers(&self.flow)
    }

    fn pods(&mut self, pods: &str) -> Result {
        let own = self.flow.pick.address;
        let family = self.fixture.family;
        let address = |pod: &str| if pod == "own" { Ok(own) } else { Ok(family.pod(pod.parse()?)) };
        let pods = pods.split_terminator(',').map(address).collect::<Result<Vec<_>>>()?;
        self.fixture.change(&mut self.service, &pods)
    }

    /// Goes on with a flow to another VIP.
    fn begins(&mut self, client: SocketAddr, vip: u8, pod: u8) -> Result {
        self.service = self.fixture.service_of(self.flow.protocol, vip, &[pod])?;
        (self.old, self.flow) = (self.flow, TestFlow::new(client, &self.service));
        Ok(())
    }

    fn of_side(&mut self, word: &str) -> Result {
        let at = word.find(['>', '<', '=']).context("no such word")?;
        let (name, rest) = word.split_at(at);
        let sides: &[Side] = match &rest[..1] {
            ">" => &[Side::Client],
            "<" => &[Side::Backend],
            _ => &Side::BOTH,
        };
        sides.iter().try_for_each(|side| self.of_one_side(name, *side, &rest[1..]))
    }

    fn of_one_side(&mut self, name: &str, side: Side, rest: &str) -> Result {
        let flow = if name == "old" { self.old } else { self.flow };
        match name {
            "" | "old" => self.sends(flow, side, rest),
            "direct" => {
                let direct = Packet::later(flow.protocol, flow.client, flow.pick.address);
                self.fixture.ignores(Hook::FromPod, direct)
            }
            "evict" => self.fixture.evict(&flow.key(side)),
            "plant" => self.fixture.plant([(flow.key(side), flow.entry(side, 0))]),
            "age" if rest == "touch" => {
                self.fixture.age_flow(&flow.key(side), Duration::from_nanos(Flow::TOUCH_NS))
            }
            "age" => self.fixture.age_flow(&flow.key(side), Duration::from_secs(rest.parse()?)),
            _ => bail!("no such word"),
        }
    }

    fn sends(&mut self, flow: TestFlow, side: Side, text: &str) -> Result {
        let end = text.find(['!', '^', '&', '%', '~', '?', '*']).unwrap_or(text.len());
        let (packet, mark) = text.split_at(end);
        let packet = packet_of(&flow, side, packet)?;
        let (hook, flags) = (flow.hook(side), packet.flags());
        match mark {
            "" => self.fixture.carries(&flow, side, &packet),
            "!" => self.fixture.opens(&flow, &packet),
            "^" => {
                let ends = move |tables: &mut Tables, _: &TestFlow| flow.ends_in(tables);
                let new = self.fixture.opens_with(&self.service, &packet, ends)?;
                (self.old, self.flow) = (flow, new);
                self.fixture.answers(&new)
            }
            "*" => {
                self.flow = self.fixture.opens_with(&self.service, &packet, |_, _| ())?;
                ensure!(self.flow.source != flow.client, "it has kept its port");
                Ok(())
            }
            "&" => {
                let expect = flow.outcome(side, &packet).writes(move |tables| {
                    flow.passes(tables, side, flags);
                    flow.is_made(tables, side.other());
                });
                self.fixture.expect(hook, packet, expect)
            }
            "%" => {
                let expect = Expect::next(&packet).writes(move |tables| flow.ends_in(tables));
                self.fixture.expect(hook, packet, expect)
            }
            "~" => self.fixture.ignores(hook, packet),
            _ => {
                let mut reasons = Counter::ALL.into_iter();
                let reason = reasons
                    .find(|one| format!("{one:?}") == format!("PacketRefused{}", &mark[1..]));
                let expect = Expect::limited(reason.context("no such reason")?);
                self.fixture.allow_refusals(0)?;
                self.fixture.expect(hook, packet, expect.writes(move |tables| flow.ends_in(tables)))
            }
        }
    }
}

fn packet_of(flow: &TestFlow, side: Side, text: &str) -> Result<Packet> {
    let (name, shape) = text.split_once(':').unwrap_or((text, ""));
    let packet = match name {
        "first" => flow.first(),
        "data" => flow.later(side),
        flags => flow.tcp(side, flags.split('+').map(flag::of).sum::<Result<u8>>()?),
    };
    Ok(match shape {
        "" => packet,
        "nosum" => packet.without_checksum(),
        length => packet.payload(&vec![0x5a; length.parse()?]),
    })
}

fn mode_of(text: &str) -> Result<u32> {
    Ok(match text {
        "handed-back" => VipMode::HANDED_BACK,
        "gone" => VipMode::GONE,
        number => number.parse()?,
    })
}

fn used_of(text: &str) -> Result<u32> {
    match text {
        "no" => Ok(FlowsUsed::NO),
        "ending" => Ok(FlowsUsed::ENDING),
        _ => bail!("no such mark"),
    }
}
