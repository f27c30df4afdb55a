//! The agent's sign of life. Without it programs notice that no agent writes their maps any more.

use bytemuck::{Pod, Zeroable};

use crate::VipMode;

/// Value of the array `alive`. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Liveness {
    /// The programs leave every VIP alone after this time, unless the agent has written a later one; or
    /// [`Liveness::NEVER`].
    pub deadline_ns: u64,
    /// When the agent wrote this.
    pub reported_ns: u64,
}

const _: () = assert!(size_of::<Liveness>() == 16);
crate::pod!(Liveness);

impl Liveness {
    /// The deadline of an agent whose programs serve without it. No clock reaches it in 292 years.
    pub const NEVER: u64 = i64::MAX as u64;

    /// The mode of a VIP at the given time: after the deadline it counts as handed back.
    ///
    /// There is no branch: before Linux 6.3 the verifier would check all that follows twice.
    #[inline(always)]
    #[must_use]
    pub const fn mode_at(mode: u32, deadline_ns: u64, now_ns: u64) -> u32 {
        mode | (Self::is_over(deadline_ns, now_ns) as u32 * VipMode::HANDED_BACK)
    }

    /// Whether the deadline has passed at that time.
    #[inline(always)]
    #[must_use]
    pub const fn is_over(deadline_ns: u64, now_ns: u64) -> bool {
        deadline_ns.wrapping_sub(now_ns) >> 63 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vip_counts_as_handed_back_after_the_deadline() {
        for mode in [VipMode::SERVED, VipMode::HANDED_BACK, VipMode::GONE] {
            for now in [0, 5, 10] {
                assert_eq!(Liveness::mode_at(mode, 10, now), mode);
            }
            assert_eq!(Liveness::mode_at(mode, Liveness::NEVER, u64::MAX >> 2), mode);
            assert!(VipMode::passes(Liveness::mode_at(mode, 10, 11)));
            assert_eq!(Liveness::is_over(10, 11), !Liveness::is_over(10, 10));
        }
    }
}
