//! The memory of a program: regions with bounds.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

/// How many bits of an address tell the place in its region. All addresses have 32 bits, as those of a packet's data in
/// `struct __sk_buff`.
const OFFSET_BITS: u32 = 20;

/// Regions of memory, each with its own addresses: an access beyond one never hits another.
#[derive(Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u32, Region>,
    added: u32,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    is_constant: bool,
}

impl Memory {
    /// Adds a region. Returns its address.
    pub fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.insert(Region { bytes, is_constant: false })
    }

    /// Adds a region that nobody may write.
    pub fn add_constant(&mut self, bytes: Vec<u8>) -> u64 {
        self.insert(Region { bytes, is_constant: true })
    }

    fn insert(&mut self, region: Region) -> u64 {
        assert!(region.bytes.len() < 1 << OFFSET_BITS, "a region is too large for its addresses");
        // Region 0 would have null in it.
        self.added += 1;
        assert!(self.added < 1 << (u32::BITS - OFFSET_BITS), "there are no addresses left");
        self.regions.insert(self.added, region);
        u64::from(self.added << OFFSET_BITS)
    }

    /// Removes the region that begins there.
    pub fn remove(&mut self, address: u64) {
        self.regions.remove(&place(address).0);
    }

    /// Reads 1, 2, 4 or 8 bytes, little-endian.
    pub fn load(&self, address: u64, size: usize) -> anyhow::Result<u64> {
        let mut value = [0; 8];
        value[..size].copy_from_slice(self.bytes(address, size)?);
        Ok(u64::from_le_bytes(value))
    }

    /// Writes the lower 1, 2, 4 or 8 bytes of `value`, little-endian.
    pub fn store(&mut self, address: u64, size: usize, value: u64) -> anyhow::Result<()> {
        self.write(address, &value.to_le_bytes()[..size])
    }

    /// The bytes at an address.
    pub fn bytes(&self, address: u64, size: usize) -> anyhow::Result<&[u8]> {
        let (region, offset) = place(address);
        self.regions
            .get(&region)
            .and_then(|region| region.bytes.get(offset..offset.checked_add(size)?))
            .with_context(|| format!("{size} bytes at {address:#x} are out of bounds"))
    }

    /// Writes bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let (region, offset) = place(address);
        let out_of_bounds = || format!("{} bytes at {address:#x} are out of bounds", bytes.len());
        let region = self.regions.get_mut(&region).with_context(out_of_bounds)?;
        ensure!(!region.is_constant, "{address:#x} is read only");
        let end = offset.checked_add(bytes.len()).with_context(out_of_bounds)?;
        region.bytes.get_mut(offset..end).with_context(out_of_bounds)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// A region and an offset in it.
fn place(address: u64) -> (u32, usize) {
    let region = u32::try_from(address >> OFFSET_BITS).unwrap_or(u32::MAX);
    let offset = usize::try_from(address & ((1 << OFFSET_BITS) - 1)).unwrap_or(usize::MAX);
    (region, offset)
}
