//! The expected result of a program for a packet, compared byte by byte and entry by entry.

use std::{fmt::Write as _, panic::Location};

use crate::prelude::*;

/// `TCX_NEXT`, which is also `TC_ACT_UNSPEC`.
pub(crate) const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
pub(crate) const SHOT: i32 = 2;
/// `TC_ACT_REDIRECT`.
pub(crate) const REDIRECT: i32 = 7;

/// Where a packet goes. Packets are without a link header.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// It passes, as this.
    Next(Vec<u8>),
    /// It is sent back, out of the device and to the station that it came from, as this.
    Back(Vec<u8>),
    /// It passes unchanged.
    Frame,
    /// It is dropped.
    Dropped,
}

type Effect = Box<dyn FnOnce(&mut Tables)>;

/// The expected result for a packet. Anything that is not declared here must not happen.
pub(crate) struct Expect {
    outcome: Outcome,
    counters: Vec<Counter>,
    effects: Vec<Effect>,
}

impl Expect {
    fn new(outcome: Outcome) -> Self {
        Self { outcome, counters: Vec::new(), effects: Vec::new() }
    }

    /// The packet passes, as this.
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

    /// The packet is dropped for this reason, and no answer is due.
    pub(crate) fn limited(reason: Counter) -> Self {
        Self::dropped(reason).counts(&[Counter::RefusalLimited])
    }

    /// These counters increase, each by the number of times that it is listed.
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

/// A packet or a frame.
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

/// The result of a program for a packet.
pub(crate) struct Sent {
    hook: Hook,
    place: &'static Location<'static>,
    frame: Vec<u8>,
    ran: RunResult,
    /// The time of the run, in nanoseconds of `CLOCK_MONOTONIC`.
    run: RangeInclusive<u64>,
}

impl Sent {
    /// What the program returned.
    pub(crate) const fn verdict(&self) -> i32 {
        self.ran.verdict
    }

    /// The frame as the program left it.
    pub(crate) fn frame_out(&self) -> &[u8] {
        &self.ran.frame
    }

    /// The first word of the packet's control block, as the program left it.
    pub(crate) const fn control_out(&self) -> u32 {
        self.ran.control
    }

    /// For error messages.
    pub(crate) fn describe(&self) -> String {
        let Self { hook, place, frame, .. } = self;
        format!("{hook:?} at {place}, on {}", hex(frame))
    }
}

impl Fixture {
    /// Runs a program on a packet that it must ignore.
    #[track_caller]
    pub(crate) fn ignores(&mut self, hook: Hook, packet: impl Wire) -> Result {
        let expect = Expect::next(packet.wire());
        self.expect(hook, packet, expect)
    }

    /// Runs a program on a packet that it drops for this reason.
    #[track_caller]
    pub(crate) fn drops(&mut self, hook: Hook, packet: impl Wire, reason: Counter) -> Result {
        self.expect(hook, packet, Expect::dropped(reason))
    }

    /// A packet that is not translated: the client's is dropped for this reason, and the backend's is ignored.
    #[track_caller]
    pub(crate) fn rejects(&mut self, side: Side, packet: impl Wire, reason: Counter) -> Result {
        match side {
            Side::Client => self.drops(Hook::FromPod, packet, reason),
            Side::Backend => self.ignores(Hook::ToPod, packet),
        }
    }

    /// Runs a program on a packet that it refuses for this reason, without an answer because there are too many.
    #[track_caller]
    pub(crate) fn refuses_limited(
        &mut self,
        hook: Hook,
        packet: impl Wire,
        reason: Counter,
    ) -> Result {
        self.allow_refusals(0)?;
        self.expect(hook, packet, Expect::limited(reason))
    }

    /// Runs a program on a packet, and compares everything with what is expected.
    #[track_caller]
    pub(crate) fn expect(&mut self, hook: Hook, packet: impl Wire, expect: Expect) -> Result {
        let sent = self.send(hook, packet)?;
        self.compare(&sent, expect)
    }

    /// As [`Fixture::ignores`], on a frame that is there already.
    #[track_caller]
    pub(crate) fn ignores_frame(&mut self, hook: Hook, frame: Vec<u8>) -> Result {
        let sent = self.send_frame(hook, frame)?;
        self.compare(&sent, Expect::new(Outcome::Frame))
    }

    /// Runs a program on a packet. The caller has to call [`Fixture::compare`] afterwards.
    #[track_caller]
    pub(crate) fn send(&self, hook: Hook, packet: impl Wire) -> Result<Sent> {
        self.send_frame(hook, self.medium.frame(&packet.wire(), Way::On))
    }

    #[track_caller]
    pub(crate) fn send_frame(&self, hook: Hook, frame: Vec<u8>) -> Result<Sent> {
        let place = Location::caller();
        let describe = || format!("{hook:?} at {place}, on {}", hex(&frame));
        let (ran, run) = self.run_frame(hook, &frame).with_context(describe)?;
        Ok(Sent { hook, place, frame, ran, run })
    }

    /// Compares everything with what was expected of a packet.
    pub(crate) fn compare(&mut self, sent: &Sent, expect: Expect) -> Result {
        for counter in &expect.counters {
            self.coverage.counted(*counter);
        }
        let mut expected = {
            let tables = self.read()?;
            std::mem::replace(&mut self.tables, tables)
        };
        expect.counters.iter().for_each(|counter| expected.count(*counter));
        expect.effects.into_iter().for_each(|effect| effect(&mut expected));

        let mut faults = String::new();
        let (verdict, out) = match &expect.outcome {
            Outcome::Next(ip) => (NEXT, Some(self.medium.frame(ip, Way::On))),
            Outcome::Back(ip) => (REDIRECT, Some(self.medium.frame(ip, Way::Back))),
            Outcome::Frame => (NEXT, Some(sent.frame.clone())),
            Outcome::Dropped => (SHOT, None),
        };
        if sent.ran.verdict != verdict {
            let _ = writeln!(faults, "verdict: expected {verdict}, got {}", sent.ran.verdict);
        }
        if let Some(out) = out
            && out != sent.ran.frame
        {
            faults.push_str(&differing_bytes(&out, &sent.ran.frame));
        }
        faults.push_str(&expected.differences(&self.tables, &sent.run));
        if !faults.is_empty() {
            bail!("{}\n{}", sent.describe(), faults.trim_end());
        }
        Ok(())
    }
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
        let _ = writeln!(text, "  {at:>4} expected {}", hex(&wanted));
        let _ = writeln!(text, "       got      {}", hex(&is));
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
