//! A process of clients in one place: long conversations, and a stream of new connections.
//!
//! It reads orders from standard input and answers each by a line of JSON. Without an order it exchanges
//! tokens on every conversation, and makes new connections, over and over.

use std::{
    env,
    iter::Cycle,
    ops::Range,
    sync::mpsc::{self, Receiver, TryRecvError},
};

use mcs_tests::target;

use crate::{conversation::Conversation, prelude::*};

/// The variable with the two VIPs. A process that has it is a client.
pub(crate) const VARIABLE: &str = "MCS_HANDOVER_VIPS";
/// The ports of new UDP sockets, one after the other, below those of the kernel's choice. The packet path confuses a
/// socket that is connected to a backend with an earlier flow from the same port to a VIP (deploy/limits.md).
const PORTS: Range<u16> = 2_000..32_000;
/// Between two rounds: others are to have the CPU too.
const PAUSE: Duration = Duration::from_millis(10);

/// What a process of clients is asked for.
pub(crate) mod order {
    /// Begin a conversation of every kind and family.
    pub(crate) const BEGIN: &str = "begin";
    /// Tell the counts since the last time.
    pub(crate) const TALLY: &str = "tally";
    /// From now on backends may show their own addresses.
    pub(crate) const NAMELESS: &str = "nameless";
    /// End the conversations of TCP.
    pub(crate) const END_TCP: &str = "end TCP";
    /// End all conversations, and have names again.
    pub(crate) const END: &str = "end";
}

/// The VIPs of both families.
#[derive(Clone, Copy)]
pub(crate) struct Vips {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// The VIPs, if this process is to be a client.
pub(crate) fn vips() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// What a client does.
pub(crate) fn main(vips: &str) -> ExitCode {
    match parse(vips).and_then(|vips| Clients::new(vips).run(&orders())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(vips: &str) -> Result<Vips> {
    let (v4, v6) = vips.split_once(',').context("not two VIPs")?;
    Ok(Vips { v4: v4.parse()?, v6: v6.parse()? })
}

/// The lines of standard input.
fn orders() -> Receiver<String> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        // The other end goes with the process.
        let _ = lines.map(|line| sender.send(line)).take_while(Result::is_ok).count();
    });
    orders
}

struct Clients {
    vips: Vips,
    conversations: Vec<Conversation>,
    /// Whether the VIP has to be what clients see as their peer.
    named: bool,
    tally: Tally,
    ports: Cycle<Range<u16>>,
}

impl Clients {
    fn new(vips: Vips) -> Self {
        Self {
            vips,
            conversations: Vec::new(),
            named: true,
            tally: Tally::default(),
            ports: PORTS.cycle(),
        }
    }

    fn run(&mut self, orders: &Receiver<String>) -> Result {
        loop {
            match orders.try_recv() {
                Ok(order) => println!("{}", self.follow(&order)?),
                Err(TryRecvError::Empty) => {
                    self.round();
                    thread::sleep(PAUSE);
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn follow(&mut self, order: &str) -> Result<serde_json::Value> {
        match order {
            order::BEGIN => self.begin(),
            order::END_TCP => {
                let (ended, others) = std::mem::take(&mut self.conversations)
                    .into_iter()
                    .partition(|conversation| conversation.kind == Kind::Tcp);
                self.conversations = others;
                self.count(&ended);
            }
            order::NAMELESS => self.named = false,
            order::END => {
                self.conversations.clear();
                self.named = true;
            }
            order::TALLY => {
                let conversations = std::mem::take(&mut self.conversations);
                self.count(&conversations);
                self.conversations = conversations;
                return Ok(serde_json::to_value(std::mem::take(&mut self.tally))?);
            }
            _ => anyhow::bail!("{order:?} is no order"),
        }
        Ok(json!({}))
    }

    /// Counts conversations that went on.
    fn count(&mut self, conversations: &[Conversation]) {
        for conversation in conversations {
            self.tally.of(conversation.kind, conversation.family).conversations += 1;
        }
    }

    fn begin(&mut self) {
        for (kind, family) in pairs() {
            if let Some(conversation) = self.connect(kind, family, None) {
                self.conversations.push(conversation);
            }
        }
    }

    /// Every conversation goes on; one that breaks is not tried again. Then there are new ones, which end at once.
    fn round(&mut self) {
        let (tally, named) = (&mut self.tally, self.named);
        self.conversations.retain_mut(|conversation| {
            let (kind, family) = (conversation.kind, conversation.family);
            match conversation.exchange(named) {
                Ok(remarks) => {
                    let counts = tally.of(kind, family);
                    counts.exchanges += 1;
                    counts.moved += u32::from(remarks.moved);
                    counts.lost += remarks.lost;
                    true
                }
                Err(error) => {
                    let counts = tally.of(kind, family);
                    counts.conversations += 1;
                    tally.fail(kind, family, format!("broken: {conversation}: {error:#}"));
                    false
                }
            }
        });
        for (kind, family) in pairs() {
            let port = self.ports.next();
            drop(self.connect(kind, family, port));
        }
    }

    fn connect(&mut self, kind: Kind, family: Family, port: Option<u16>) -> Option<Conversation> {
        let vip_port = match kind.protocol() {
            Protocol::Tcp => target::TCP.0,
            Protocol::Udp => target::UDP.0,
        };
        let vip = family.address(self.vips.v4, self.vips.v6, vip_port);
        self.tally.of(kind, family).new += 1;
        match Conversation::begin(kind, family, vip, self.named, port) {
            Ok(conversation) => Some(conversation),
            Err(error) => {
                self.tally.fail(kind, family, format!("new: {kind}, {family}: {error:#}"));
                None
            }
        }
    }
}

/// Every kind of client with every family.
pub(crate) fn pairs() -> impl Iterator<Item = (Kind, Family)> {
    Kind::ALL.into_iter().flat_map(|kind| Family::ALL.map(|family| (kind, family)))
}
