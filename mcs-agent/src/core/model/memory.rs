//! An amount of memory, written as Kubernetes writes it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An amount of memory in bytes. Displays as a number with the largest of Ki, Mi and Gi that divides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(pub u64);

/// The text is no amount of memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("write it as a number of bytes, or with Ki, Mi or Gi: 256Mi")]
pub struct MemoryError;

const UNITS: [(&str, u32); 3] = [("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl FromStr for Memory {
    type Err = MemoryError;

    fn from_str(text: &str) -> Result<Self, MemoryError> {
        let unit = UNITS.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
        let (number, bits) = unit.unwrap_or((text, 0));
        let number: u64 = number.parse().map_err(|_| MemoryError)?;
        number.checked_mul(1 << bits).map(Self).ok_or(MemoryError)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, bits)| self.0 > 0 && self.0.trailing_zeros() >= *bits);
        match unit {
            Some((unit, bits)) => write!(f, "{}{unit}", self.0 >> bits),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_kubernetes_does() {
        for (text, bytes) in [("0", 0), ("100", 100), ("1Ki", 1024), ("256Mi", 256 << 20)] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!((memory.0, memory.to_string()), (bytes, text.to_owned()));
        }
        assert_eq!("2048Mi".parse::<Memory>().unwrap().to_string(), "2Gi");
        for wrong in ["", "Mi", "1.5Gi", "-1", "256M", "99999999999Gi"] {
            assert_eq!(wrong.parse::<Memory>(), Err(MemoryError), "{wrong}");
        }
    }
}
