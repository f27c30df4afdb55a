//! Limits the writes of conditions on imports of other controllers. A controller that replaces the whole status removes the
//! condition, so each condition is written once per pause. If the definition of ServiceImports lacks conditions, none is
//! written.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::core::{
    apply::ApplyError,
    clusterset::{Condition, ServiceName},
    feature::{Core, Entry, Feature},
    plan::Write,
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Acceptances::default()))), ..Entry::NONE };

/// The pause between writes of the same condition.
const PAUSE: Duration = Duration::from_mins(10);

/// The recently written conditions.
#[derive(Debug, Default)]
struct Acceptances {
    written: HashMap<ServiceName, (Condition, Instant)>,
    /// Whether the definition of ServiceImports lacks conditions.
    lacks_conditions: bool,
}

impl Acceptances {
    /// Removes a recently written condition.
    fn leave_out(&self, writes: &mut Vec<Write>, now: Instant) {
        writes.retain(|write| {
            let Write::SetAccepted(name, condition) = write else { return true };
            let is_said = self.written.get(name).is_some_and(|(said, at)| {
                said == condition && now.saturating_duration_since(*at) < PAUSE
            });
            !self.lacks_conditions && !is_said
        });
    }

    /// Records a successful write.
    fn note(&mut self, write: &Write, now: Instant) {
        if let Write::SetAccepted(name, condition) = write {
            self.written.insert(name.clone(), (condition.clone(), now));
        }
    }

    /// Records that the definition lacks conditions. Returns whether that is new.
    fn note_no_conditions(&mut self) -> bool {
        !std::mem::replace(&mut self.lacks_conditions, true)
    }

    /// Forgets conditions whose pause is over.
    fn forget(&mut self, now: Instant) {
        self.written.retain(|_, (_, at)| now.saturating_duration_since(*at) < PAUSE);
    }
}

impl Feature for Acceptances {
    fn act(&mut self, _: &mut Core, now: Instant) {
        self.forget(now);
    }

    fn hold(&mut self, _: &ServiceName, writes: &mut Vec<Write>, _: &Core, now: Instant) {
        self.leave_out(writes, now);
    }

    fn note_written(&mut self, write: &Write, now: Instant) {
        self.note(write, now);
    }

    fn does_without(&mut self, error: &ApplyError) -> bool {
        // A type can have conditions without `observedGeneration`; their path is in that message too.
        let lacks = error.is_unknown_field(".status.conditions")
            && !error.is_unknown_field("observedGeneration");
        if lacks && self.note_no_conditions() {
            tracing::warn!(
                "the type ServiceImport has no conditions: imports of other controllers do not say whether \
                 they are accepted"
            );
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::{ConditionStatus, ConditionType, fixture::name};

    #[test]
    fn a_condition_that_others_take_away_is_written_once_in_a_while() {
        let condition = |status| Condition {
            condition_type: ConditionType::Accepted,
            status,
            reason: "R".to_owned(),
            message: String::new(),
            generation: None,
        };
        let (begin, mut acceptances) = (Instant::now(), Acceptances::default());
        let mut is_written = |status, seconds, is_sent: bool| {
            let now = begin + Duration::from_secs(seconds);
            let mut writes = vec![Write::SetAccepted(name("shop/web"), condition(status))];
            acceptances.leave_out(&mut writes, now);
            if is_sent {
                for write in &writes {
                    acceptances.note(write, now);
                }
            }
            !writes.is_empty()
        };
        assert!(is_written(ConditionStatus::False, 0, false), "it waits for its turn");
        assert!(is_written(ConditionStatus::False, 0, true));
        assert!(!is_written(ConditionStatus::False, 1, true), "somebody took it away");
        assert!(is_written(ConditionStatus::True, 2, true), "it has turned");
        assert!(is_written(ConditionStatus::True, 700, true));
        acceptances.forget(begin + Duration::from_hours(1));
        assert!(acceptances.written.is_empty());
        assert!(acceptances.note_no_conditions() && !acceptances.note_no_conditions());
        let mut writes =
            vec![Write::SetAccepted(name("shop/web"), condition(ConditionStatus::True))];
        acceptances.leave_out(&mut writes, begin);
        assert!(writes.is_empty());
    }
}
