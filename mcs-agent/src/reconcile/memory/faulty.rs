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
