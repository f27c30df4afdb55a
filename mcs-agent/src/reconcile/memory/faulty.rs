use std::io;

use crate::reconcile::{Dump, MapError, Maps, Step};

/// Maps some of whose writes fail, before they take effect or after.
#[derive(Clone, Debug)]
pub struct Faulty<M> {
    /// The maps behind.
    pub maps: M,
    per_mille: u16,
    random: fastrand::Rng,
}

/// What a write to a map may answer, besides success.
const ANSWERS: [i32; 4] = [libc::E2BIG, libc::ENOMEM, libc::EAGAIN, libc::EBUSY];

impl<M> Faulty<M> {
    /// Lets `per_mille` of 1000 writes fail; which ones follows from the seed.
    pub fn new(maps: M, per_mille: u16, seed: u64) -> Self {
        Self { maps, per_mille, random: fastrand::Rng::with_seed(seed) }
    }
}

impl<M: Maps> Maps for Faulty<M> {
    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if self.random.u16(0..1000) >= self.per_mille {
            return self.maps.write(step);
        }
        if self.random.bool() {
            self.maps.write(step)?;
        }
        let answer = ANSWERS[self.random.usize(0..ANSWERS.len())];
        Err(MapError::writing(step, io::Error::from_raw_os_error(answer)))
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.maps.dump()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Capacity, reconcile::MemoryMaps};

    #[test]
    fn some_writes_fail_with_effect_and_some_without() {
        let maps = MemoryMaps::new(Capacity { frontends: 1000, endpoints: 1, clusters: 1 });
        let mut maps = Faulty::new(maps, 100, 1);
        let mut failed = [0, 0];
        for n in 0..1000_u32 {
            let vip = mcs_common::Address::from_v4_word(n);
            if maps.write(&Step::InsertVip(vip)).is_err() {
                failed[usize::from(maps.maps.contents().vips.contains(&vip))] += 1;
            }
        }
        assert!(failed.iter().all(|count| (25..100).contains(count)), "{failed:?}");
    }

    #[test]
    fn a_seed_tells_which_fail() {
        let outcomes = |seed| {
            let maps = MemoryMaps::new(Capacity::default());
            let mut maps = Faulty::new(maps, 500, seed);
            let vip = mcs_common::Address::from_v4_word(1);
            [(); 64].map(|()| maps.write(&Step::InsertVip(vip)).is_ok())
        };
        assert_eq!(outcomes(7), outcomes(7));
        assert_ne!(outcomes(7), outcomes(8));
    }
}
