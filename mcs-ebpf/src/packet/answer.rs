//! What the global functions of `from_pod` find out about a packet. The verifier takes only scalars from them.

use mcs_common::Counter;

/// What becomes of a packet with ports that goes to a VIP. Where it is refused, a [`Counter`] has that place: the index of
/// one is less than all of these.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Answer {
    /// `Scratch::flow` has its flow.
    Found = u32::MAX - 3,
    /// `Scratch::flow` has its flow, which has just begun.
    Begun,
    /// It has no flow, and another attempt may begin one.
    Again,
    /// It passes unchanged.
    Pass,
}

const _: () = assert!(Counter::ALL.len() < Answer::Found as usize);

impl Answer {
    /// The answer, or the counter of the refusal, as a global function returns it.
    #[inline(always)]
    pub(crate) const fn to_scalar(answer: Result<Self, Counter>) -> u32 {
        match answer {
            Ok(answer) => answer as u32,
            Err(reason) => reason as u32,
        }
    }
}

impl TryFrom<u32> for Answer {
    /// The index of the [`Counter`] of the refusal.
    type Error = u32;

    #[inline(always)]
    fn try_from(scalar: u32) -> Result<Self, u32> {
        [Self::Found, Self::Begun, Self::Again, Self::Pass]
            .into_iter()
            .find(|answer| *answer as u32 == scalar)
            .ok_or(scalar)
    }
}
