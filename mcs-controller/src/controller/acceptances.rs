//! Conditions of imports that other controllers write. One that replaces the whole status takes the condition away, and a
//! definition without conditions never has it: each condition is written once in a while, and not for ever.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{
    clusterset::{Condition, ServiceName},
    plan::Write,
};

/// How long the same condition is not written again.
const PAUSE: Duration = Duration::from_mins(10);

/// The conditions that were written lately.
#[derive(Debug, Default)]
pub(super) struct Acceptances(HashMap<ServiceName, (Condition, Instant)>);

impl Acceptances {
    /// Leaves out the condition that was written lately.
    pub(super) fn take(&mut self, writes: &mut Vec<Write>, now: Instant) {
        writes.retain(|write| {
            let Write::SetAccepted(name, condition) = write else { return true };
            let is_said = self.0.get(name).is_some_and(|(said, at)| {
                said == condition && now.saturating_duration_since(*at) < PAUSE
            });
            if !is_said {
                self.0.insert(name.clone(), (condition.clone(), now));
            }
            !is_said
        });
    }

    /// Forgets what was written a while ago.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, at)| now.saturating_duration_since(*at) < PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::{ConditionStatus, ConditionType, fixture::name};

    #[test]
    fn a_condition_that_others_take_away_is_written_once_in_a_while() {
        let condition = |status| Condition {
            condition_type: ConditionType::Accepted,
            status,
            reason: "R".to_owned(),
            message: String::new(),
        };
        let (begin, mut acceptances) = (Instant::now(), Acceptances::default());
        let mut is_written = |status, seconds| {
            let mut writes = vec![Write::SetAccepted(name("shop/web"), condition(status))];
            acceptances.take(&mut writes, begin + Duration::from_secs(seconds));
            !writes.is_empty()
        };
        assert!(is_written(ConditionStatus::False, 0));
        assert!(!is_written(ConditionStatus::False, 1), "somebody took it away");
        assert!(is_written(ConditionStatus::True, 2), "it has turned");
        assert!(is_written(ConditionStatus::True, 700));
        acceptances.forget(begin + Duration::from_hours(1));
        assert!(acceptances.0.is_empty());
    }
}
