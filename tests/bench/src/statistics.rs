//! Medians and spread.

use crate::prelude::*;

/// What several rounds gave.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// The first and the third quartile.
    pub(crate) quartiles: [f64; 2],
}

impl Summary {
    /// None if there is nothing to sum up.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let quartiles = [quantile(samples, 0.25)?, quantile(samples, 0.75)?];
        Some(Self { median: quantile(samples, 0.5)?, quartiles })
    }
}

/// The value that a share of all is not above, between the two nearest if it falls between. None of
/// nothing.
pub(crate) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 samples")]
    let place = share.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the last index"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
}

/// Each sample divided by the other contender's sample of the same round. Rounds with one sample are left out.
pub(crate) fn ratios(samples: &[f64], base: &[f64]) -> Vec<f64> {
    let pairs = samples.iter().zip(base).filter(|(_, base)| **base > 0.0);
    pairs.map(|(sample, base)| sample / base).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let cases: [(&[f64], f64, Option<f64>); 8] = [
            (&[], 0.5, None),
            (&[7.0], 0.0, Some(7.0)),
            (&[7.0], 0.99, Some(7.0)),
            (&[3.0, 1.0, 2.0], 0.5, Some(2.0)),
            (&[4.0, 1.0, 2.0, 3.0], 0.5, Some(2.5)),
            (&[4.0, 1.0, 2.0, 3.0, 5.0], 0.25, Some(2.0)),
            (&[1.0, 2.0], 0.99, Some(1.99)),
            (&[1.0, 2.0], 1.0, Some(2.0)),
        ];
        for (samples, share, expected) in cases {
            let found = quantile(samples, share);
            let close = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
                (found, expected) => found == expected,
            };
            assert!(close, "{share} of {samples:?}: {found:?}");
        }
    }

    #[test]
    fn a_summary_is_of_all_rounds() {
        let summary = Summary::of(&[5.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(summary, Some(Summary { median: 3.0, quartiles: [2.0, 4.0] }));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        assert_eq!(ratios(&[2.0, 9.0, 4.0], &[1.0, 3.0]), [2.0, 3.0]);
        assert_eq!(ratios(&[2.0, 9.0], &[0.0, 3.0]), [3.0]);
        assert!(ratios(&[], &[1.0]).is_empty());
    }
}
