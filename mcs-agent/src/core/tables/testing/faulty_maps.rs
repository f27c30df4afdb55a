//! Maps some of whose writes fail where the kernel can fail, as the seed decides.

use std::io;

use crate::core::tables::{MapError, Maps, Step};

/// Maps some of whose writes fail: system calls, see [`can_fail`]. A failed one has no effect.
#[derive(Clone, Debug)]
pub struct FaultyMaps<M> {
    /// The maps that this one writes to.
    pub maps: M,
    per_mille: u16,
    /// How many writes in a row fail, the first included.
    length: u32,
    /// How many of them are still to come.
    rest: u32,
    failed: u64,
    random: fastrand::Rng,
}

/// Errors that a write to a map can return.
const ANSWERS: [i32; 4] = [libc::E2BIG, libc::ENOMEM, libc::EAGAIN, libc::EBUSY];

impl<M> FaultyMaps<M> {
    /// Lets about `per_mille` of 1000 writes fail. The seed decides which.
    pub fn new(maps: M, per_mille: u16, seed: u64) -> Self {
        Self::in_bursts(maps, per_mille, 1, seed)
    }

    /// Each failure is the first of `length` in a row.
    pub fn in_bursts(maps: M, per_mille: u16, length: u32, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { maps, per_mille, length, rest: 0, failed: 0, random }
    }

    /// How many writes have failed.
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    pub(crate) fn fails(&mut self) -> bool {
        if self.rest == 0 && self.random.u16(0..1000) < self.per_mille {
            self.rest = self.length;
        }
        let fails = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        self.failed += u64::from(fails);
        fails
    }
}

/// Whether the step is a system call: a write to a hash map, or a wait. Arrays are mapped, and a store cannot fail.
pub const fn can_fail(step: &Step) -> bool {
    matches!(
        step,
        Step::DeleteVip(_)
            | Step::InsertVip(_)
            | Step::SetVipMode { .. }
            | Step::DeleteFrontend(_)
            | Step::InsertFrontend { .. }
            | Step::WaitForReaders
    )
}

impl<M: Maps> Maps for FaultyMaps<M> {
    type Reader = M::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if !can_fail(step) || !self.fails() {
            return self.maps.write(step);
        }
        let answer = ANSWERS[self.random.usize(0..ANSWERS.len())];
        Err(MapError::writing(step, io::Error::from_raw_os_error(answer)))
    }

    fn reader(&self) -> &M::Reader {
        self.maps.reader()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{model::Capacity, tables::testing::MemoryMaps};

    #[test]
    fn some_system_calls_fail_without_effect_and_no_store_does() {
        let maps = MemoryMaps::new(Capacity {
            vips: 1000,
            frontends: 1000,
            endpoints: 1,
            clusters: 1,
            imports: 1000,
        });
        let mut maps = FaultyMaps::new(maps, 100, 1);
        for n in 0..1000_u32 {
            let vip = mcs_common::Address::from_v4_word(n);
            let fails = maps.write(&Step::InsertVip(vip)).is_err();
            assert_eq!(maps.maps.contents().vips.contains_key(&vip), !fails);
            maps.write(&Step::RetireBackend { id: 1 }).expect("a store");
        }
        assert!((50..200).contains(&maps.failed()), "{}", maps.failed());
    }

    #[test]
    fn bursts_have_the_requested_length() {
        let maps = MemoryMaps::new(Capacity::default());
        let mut maps = FaultyMaps::in_bursts(maps, 20, 7, 1);
        let vip = mcs_common::Address::from_v4_word(1);
        let answers: Vec<bool> =
            (0..1000).map(|_| maps.write(&Step::InsertVip(vip)).is_ok()).collect();
        let bursts: Vec<usize> =
            answers.split(|ok| *ok).map(<[bool]>::len).filter(|length| *length > 0).collect();
        assert!(bursts.len() > 5, "{bursts:?}");
        assert!(bursts[..bursts.len() - 1].iter().all(|length| length.is_multiple_of(7)));
        assert_eq!(maps.failed(), bursts.iter().sum::<usize>() as u64);
    }

    #[test]
    fn the_seed_decides_which_writes_fail() {
        let outcomes = |seed| {
            let maps = MemoryMaps::new(Capacity::default());
            let mut maps = FaultyMaps::new(maps, 500, seed);
            let vip = mcs_common::Address::from_v4_word(1);
            [(); 64].map(|()| maps.write(&Step::InsertVip(vip)).is_ok())
        };
        assert_eq!(outcomes(7), outcomes(7));
        assert_ne!(outcomes(7), outcomes(8));
    }
}
