//! What a program is expected to do with a packet, to the last byte and table entry.

use std::{
    fmt::Write as _,
    panic::Location,
};

use anyhow::{Context as _, bail};
use mcs_common::Counter;

use crate::{
    lab::{Hook, Lab},
    medium::Way,
    packet::Packet,
    tables::Tables,
};

/// `TCX_NEXT`, which is also `TC_ACT_UNSPEC`.
const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
const SHOT: i32 = 2;
/// `TC_ACT_REDIRECT`.
const REDIRECT: i32 = 7;

/// Where a packet goes, as an IP packet without its link header.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// On, as this.
    Next(Vec<u8>),
    /// Back out of the device that it came from, to the station that sent it, as this.
    Back(Vec<u8>),
    /// Nowhere.
    Dropped,
}

type Effect = Box<dyn FnOnce(&mut Tables)>;

/// What comes of a packet. What is not declared is not to happen.
pub(crate) struct Expect {
    outcome: Outcome,
    counters: Vec<Counter>,
    effects: Vec<Effect>,
}

impl Expect {
    fn new(outcome: Outcome) -> Self {
        Self { outcome, counters: Vec::new(), effects: Vec::new() }
    }

    /// The packet goes on as this.
    pub(crate) fn next(packet: impl Wire) -> Self {
        Self::new(Outcome::Next(packet.wire()))
    }

    /// The packet goes back as this.
    pub(crate) fn back(packet: impl Wire) -> Self {
        Self::new(Outcome::Back(packet.wire()))
    }

    /// The packet is dropped for this reason.
    pub(crate) fn dropped(reason: Counter) -> Self {
        Self::new(Outcome::Dropped).counts(&[reason])
    }

    /// These counters are counted, each as often as it stands here.
    pub(crate) fn counts(mut self, counters: &[Counter]) -> Self {
        self.counters.extend(counters);
        self
    }

    /// The tables change like this.
    pub(crate) fn writes(mut self, effect: impl FnOnce(&mut Tables) + 'static) -> Self {
        self.effects.push(Box::new(effect));
        self
    }
}

/// What can be put on a wire.
pub(crate) trait Wire {
    fn wire(&self) -> Vec<u8>;
}

impl Wire for Packet {
    fn wire(&self) -> Vec<u8> {
        self.bytes()
    }
}

impl Wire for Vec<u8> {
    fn wire(&self) -> Vec<u8> {
        self.clone()
    }
}

impl<T: Wire + ?Sized> Wire for &T {
    fn wire(&self) -> Vec<u8> {
        T::wire(self)
    }
}

impl Lab {
    /// Runs a program on a packet that is none of its business.
    #[track_caller]
    pub(crate) fn ignores(&mut self, hook: Hook, packet: impl Wire) -> anyhow::Result<()> {
        let expect = Expect::next(packet.wire());
        self.expect(hook, packet, expect)
    }

    /// Runs a program on a packet, and compares everything with what is expected.
    #[track_caller]
    pub(crate) fn expect(
        &mut self,
        hook: Hook,
        packet: impl Wire,
        expect: Expect,
    ) -> anyhow::Result<()> {
        let frame = self.medium.frame(&packet.wire(), Way::On);
        self.expect_frame(hook, &frame, expect)
    }

    /// As [`Lab::expect`], on a frame that is there already.
    #[track_caller]
    pub(crate) fn expect_frame(
        &mut self,
        hook: Hook,
        frame: &[u8],
        expect: Expect,
    ) -> anyhow::Result<()> {
        let place = Location::caller();
        let (medium, family) = (self.medium, self.family);
        let describe = || format!("{hook:?}, {family}, {medium}, at {place}");
        let (ran, run) = self.run_frame(hook, frame).with_context(describe)?;
        for counter in &expect.counters {
            self.coverage.counted(*counter);
        }
        let mut expected = self.tables.clone();
        expect.counters.iter().for_each(|counter| expected.count(*counter));
        expect.effects.into_iter().for_each(|effect| effect(&mut expected));
        self.tables = self.read()?;

        let mut faults = String::new();
        let (verdict, out) = match &expect.outcome {
            Outcome::Next(ip) if hook_sees_frame(ip, frame) => (NEXT, Some(frame.to_vec())),
            Outcome::Next(ip) => (NEXT, Some(medium.frame(ip, Way::On))),
            Outcome::Back(ip) => (REDIRECT, Some(medium.frame(ip, Way::Back))),
            Outcome::Dropped => (SHOT, None),
        };
        if ran.verdict != verdict {
            let _ = writeln!(faults, "verdict: expected {verdict}, got {}", ran.verdict);
        }
        if let Some(out) = out
            && out != ran.frame
        {
            faults.push_str(&differing_bytes(&out, &ran.frame));
        }
        faults.push_str(&expected.differences(&self.tables, &run));
        if !faults.is_empty() {
            bail!("{}\n{}", describe(), faults.trim_end());
        }
        Ok(())
    }
}

/// An empty packet stands for the frame as it came.
fn hook_sees_frame(ip: &[u8], _frame: &[u8]) -> bool {
    ip.is_empty()
}

/// Both, with the bytes marked that differ.
fn differing_bytes(expected: &[u8], got: &[u8]) -> String {
    const ROW: usize = 16;
    let mut text = format!("bytes: expected {}, got {}\n", expected.len(), got.len());
    for at in (0..expected.len().max(got.len())).step_by(ROW) {
        let row = |bytes: &[u8]| {
            let end = bytes.len().min(at + ROW);
            bytes.get(at..end).unwrap_or_default().to_vec()
        };
        let (wanted, is) = (row(expected), row(got));
        if wanted == is {
            continue;
        }
        let hex = |bytes: &[u8]| {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        let _ = writeln!(text, "  {at:>4} expected {}", hex(&wanted));
        let _ = writeln!(text, "       got      {}", hex(&is));
    }
    text
}
