//! What the owner of a service asks of agents by exported annotations: spill, passive health and borders. Agents obey, and the
//! controller tells the owner what they ignore, by the same functions.

use std::time::Duration;

use crate::duration;

/// When a tier is short of ready endpoints: `min-ready=3` or `70%`.
pub const SPILL: &str = "traffic.clusterset.mcs-agent.io/spill";
/// How long a tier has to be well above its threshold before it gets its clients back: `5m`.
pub const FAILBACK_DELAY: &str = "traffic.clusterset.mcs-agent.io/failback-delay";
/// Whether backends that do not answer are ejected: `on` or `off`.
pub const PASSIVE_HEALTH: &str = "traffic.clusterset.mcs-agent.io/passive-health";

/// Who serves where no cluster that the selectors match can: `all`, `none` or `drain`.
pub const SELECTORS_FALLBACK: &str = "traffic.clusterset.mcs-agent.io/cluster-selectors-fallback";

/// All of these.
pub const ALL: [&str; 4] = [SPILL, FAILBACK_DELAY, PASSIVE_HEALTH, SELECTORS_FALLBACK];

/// The largest `min-ready`.
const MOST_READY: u64 = 1000;
const SHORTEST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_hours(24);

/// When a tier is short of ready endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// It has fewer than these.
    Ready(u64),
    /// Fewer of its endpoints are ready, in percent.
    Percent(u64),
}

impl Threshold {
    /// Reads annotation [`SPILL`].
    pub fn parse(text: &str) -> Result<Self, String> {
        // `parse` takes a sign.
        let number = |digits: &str| digits.parse().ok().filter(|_| !digits.starts_with('+'));
        let within = |number: &u64, most: u64| (1..=most).contains(number);
        let read = match text.strip_prefix("min-ready=") {
            Some(ready) => number(ready).filter(|one| within(one, MOST_READY)).map(Self::Ready),
            None => text
                .strip_suffix('%')
                .and_then(number)
                .filter(|one| within(one, 100))
                .map(Self::Percent),
        };
        read.ok_or_else(|| {
            format!("annotation {SPILL} {text:?} is ignored; use min-ready=3, up to {MOST_READY}, or 70%")
        })
    }
}

/// The clusters that no selector matches serve nobody. The stricter border is the greater one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Border {
    /// Clients that they have stay: `drain`.
    Drains,
    /// Clients that they have end at once: `none`.
    Ends,
}

impl Border {
    /// Reads annotation [`SELECTORS_FALLBACK`]. With a value that is unknown, nobody serves outside of the border: whoever
    /// writes the annotation wants one.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        Self::read(text).map_err(|problem| format!("annotation {SELECTORS_FALLBACK} {problem}"))
    }

    /// Reads the same of whoever writes it.
    pub fn read(text: &str) -> Result<Option<Self>, String> {
        match text {
            "all" => Ok(None),
            "none" => Ok(Some(Self::Ends)),
            "drain" => Ok(Some(Self::Drains)),
            other => {
                Err(format!("{other:?} is unknown and counts as none; use all, none or drain"))
            }
        }
    }

    /// As [`Self::read`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ends => "none",
            Self::Drains => "drain",
        }
    }
}

/// Reads annotation [`FAILBACK_DELAY`].
pub fn failback_delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text).filter(|delay| (SHORTEST_DELAY..=LONGEST_DELAY).contains(delay));
    delay.ok_or_else(|| {
        format!("annotation {FAILBACK_DELAY} {text:?} is ignored, and 5m counts; use a duration from 10s to 24h")
    })
}

/// Reads annotation [`PASSIVE_HEALTH`].
pub fn passive_health(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!(
            "annotation {PASSIVE_HEALTH} {other:?} is unknown and ignored; use on or off"
        )),
    }
}

/// What agents ignore of these annotations, and why. Without [`SPILL`] nobody reads [`FAILBACK_DELAY`].
pub fn problems<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
    let spill = annotation(SPILL);
    let spill_problem = spill.and_then(|text| Threshold::parse(text).err());
    let delay = annotation(FAILBACK_DELAY).filter(|_| spill.is_some() && spill_problem.is_none());
    let delay_problem = delay.and_then(|text| failback_delay(text).err());
    let health = annotation(PASSIVE_HEALTH).and_then(|text| passive_health(text).err());
    let border = annotation(SELECTORS_FALLBACK).and_then(|text| Border::parse(text).err());
    spill_problem.into_iter().chain(delay_problem).chain(health).chain(border).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_ignore_is_said_and_what_they_use_is_not() {
        let told = |pairs: &[(&str, &'static str)]| {
            let found = problems(|key| pairs.iter().find(|(one, _)| *one == key).map(|one| one.1));
            found.join("; ")
        };
        for fine in [
            &[][..],
            &[(SPILL, "70%"), (FAILBACK_DELAY, "5m"), (PASSIVE_HEALTH, "on")],
            &[(SPILL, "min-ready=1000")],
            &[(FAILBACK_DELAY, "soon")],
        ] {
            assert_eq!(told(fine), "", "{fine:?}");
        }
        for bad in ["", "70", "0%", "101%", "+5%", "min-ready=0", "min-ready=1001", "-1%", "%"] {
            assert!(told(&[(SPILL, bad)]).contains("is ignored; use min-ready=3"), "{bad}");
        }
        for bad in ["9s", "25h", "5", ""] {
            assert!(told(&[(SPILL, "70%"), (FAILBACK_DELAY, bad)]).contains("and 5m counts"));
        }
        assert!(told(&[(PASSIVE_HEALTH, "On"), (SPILL, "x")]).contains("; annotation"));
    }
}
