//! The order in which a cluster's publishers wrote what is in its mailbox.

use std::{fmt, str::FromStr};

/// When an object was written to a mailbox. The object with the greater stamp was written later, across publishers and
/// restored backups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The mailbox, if known: stamps of two mailboxes are not comparable. A cluster can move to another mailbox and back.
    pub mailbox: u32,
    /// The epoch of the publisher. A cluster that takes over the mailbox begins a greater epoch.
    pub epoch: u64,
    /// Grows with every write: milliseconds of the publisher's clock, or the last number plus one.
    pub sequence: u64,
}

impl Stamp {
    /// The stamp of originals.
    pub const NONE: Self = Self { mailbox: 0, epoch: 0, sequence: 0 };

    /// Whether the time of the write is unknown.
    pub const fn is_none(self) -> bool {
        self.epoch == 0
    }

    /// The same stamp in this mailbox.
    #[must_use]
    pub const fn of(self, mailbox: u32) -> Self {
        if self.is_none() { self } else { Self { mailbox, ..self } }
    }

    /// Whether an object with this stamp must not replace one with the stamp `former`.
    pub fn is_before(self, former: Self) -> bool {
        !self.is_none() && self.mailbox == former.mailbox && self < former
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)?;
        if self.mailbox == 0 { Ok(()) } else { write!(f, ".{}", self.mailbox) }
    }
}

impl FromStr for Stamp {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.split('.').map(str::parse);
        let mut next = || numbers.next().transpose().map_err(|_| ());
        let (epoch, sequence) = (next()?.ok_or(())?, next()?.ok_or(())?);
        let mailbox = u32::try_from(next()?.unwrap_or(0_u64)).map_err(|_| ())?;
        if next()?.is_some() { Err(()) } else { Ok(Self { mailbox, epoch, sequence }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_ordered_and_read_as_written() {
        let stamp = |epoch, sequence| Stamp { mailbox: 0, epoch, sequence };
        assert!(stamp(1, 9) < stamp(2, 0) && stamp(2, 0) < stamp(2, 1));
        assert_eq!(stamp(2, 1).to_string().parse(), Ok(stamp(2, 1)));
        assert_eq!(stamp(2, 1).of(7).to_string().parse(), Ok(stamp(2, 1).of(7)));
        for text in ["", "1", "1.", "a.1", "1.2.x", "1.2.3.4", "-1.0"] {
            assert_eq!(text.parse::<Stamp>(), Err(()), "{text}");
        }
        assert!(!Stamp::NONE.is_before(stamp(1, 1)), "an original has none");
        assert!(!stamp(1, 1).of(7).is_before(stamp(2, 2).of(8)), "it has moved");
        assert!(stamp(1, 1).is_before(stamp(1, 2)) && !stamp(1, 2).is_before(stamp(1, 2)));
    }
}
