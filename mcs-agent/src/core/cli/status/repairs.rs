//! In `status`: what the agent has repaired.

use crate::core::{
    control::{Repairs, Report, age},
    kernel::loader::Tampering,
};

/// `Repairs: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    repairs(&report.repairs, report.tc.repairs)
}

fn repairs(repairs: &Repairs, devices: u64) -> Vec<String> {
    let counts = repairs.counts.iter().map(|(tampering, count)| (*tampering, *count));
    let counts = counts.chain([(Tampering::Device, devices)]).filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(tampering, count)| format!("{tampering} {count}")).collect();
    if counts.is_empty() {
        return Vec::new();
    }
    let latest = repairs.latest.iter().map(|one| format!("  {} ago: {}", age(one.at), one.what));
    [format!("Repairs: {}", counts.join(", "))].into_iter().chain(latest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::Repaired;

    #[test]
    fn repairs_are_counted_and_the_latest_are_listed() {
        assert!(repairs(&Repairs::default(), 0).is_empty());
        let lines = repairs(
            &Repairs {
                counts: [(Tampering::Pin, 2)].into(),
                latest: [Repaired {
                    at: 0,
                    what: "the pin x was removed; pinned again".to_owned(),
                }]
                .into(),
                problems: vec![],
            },
            3,
        );
        assert_eq!(lines[0], "Repairs: pin 2, device 3");
        assert!(lines[1].ends_with("the pin x was removed; pinned again"), "{lines:?}");
    }
}
