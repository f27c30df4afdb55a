//! Measured values, and the reasons of missing ones.

use crate::{prelude::*, statistics};

/// What a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "per second")]
    PerSecond,
    #[serde(rename = "Gbit/s")]
    GigabitsPerSecond,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "% of a core")]
    PercentOfCore,
}

impl Unit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::PerSecond => "/s",
            Self::GigabitsPerSecond => "Gbit/s",
            Self::Mebibytes => "MiB",
            Self::PercentOfCore => "% of a core",
        }
    }
}

/// Which quantity a figure is about. Figures with the same key are compared with each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Key {
    pub(crate) case: &'static str,
    /// How many services there were; none if that does not matter.
    pub(crate) services: Option<u32>,
    pub(crate) quantity: String,
}

/// One quantity of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) contender: Contender,
    pub(crate) unit: Unit,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// The result of a measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A value for each round, in order.
    Rounds(Vec<f64>),
    /// Why there is none.
    NotMeasured(String),
}

impl From<Result<Vec<f64>>> for Outcome {
    fn from(rounds: Result<Vec<f64>>) -> Self {
        match rounds {
            Ok(rounds) => Self::Rounds(rounds),
            Err(error) => Self::NotMeasured(format!("{error:#}")),
        }
    }
}

impl Figure {
    /// What the rounds gave, if it was measured.
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(self.rounds())
    }

    pub(crate) fn rounds(&self) -> &[f64] {
        match &self.outcome {
            Outcome::Rounds(rounds) => rounds,
            Outcome::NotMeasured(_) => &[],
        }
    }
}

/// All figures of a run, in the order of their measurement.
#[derive(Default, Debug)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn add(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    pub(crate) fn all(&self) -> &[Figure] {
        &self.0
    }

    /// Every key once, in order.
    pub(crate) fn keys(&self) -> Vec<&Key> {
        let mut keys: Vec<&Key> = Vec::new();
        for figure in &self.0 {
            if !keys.contains(&&figure.key) {
                keys.push(&figure.key);
            }
        }
        keys
    }

    pub(crate) fn find(&self, key: &Key, contender: Contender) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.key == *key && figure.contender == contender)
    }

    /// The quotient of a contender's and `base`'s values, round by round.
    pub(crate) fn ratio(
        &self,
        key: &Key,
        contender: Contender,
        base: Contender,
    ) -> Option<Summary> {
        let figure = self.find(key, contender)?;
        Summary::of(&statistics::ratios(figure.rounds(), self.find(key, base)?.rounds()))
    }
}

#[cfg(test)]
impl Figures {
    /// Adds the time that a contender took to connect, with this number of services.
    pub(crate) fn add_connect(&mut self, services: u32, contender: Contender, outcome: Outcome) {
        let (case, quantity) = (connect::CASE.name, connect::TCP.to_owned());
        let key = Key { case, services: Some(services), quantity };
        self.add(Figure { key, contender, unit: Unit::Microseconds, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_both() {
        let mut figures = Figures::default();
        let mut add = |contender, outcome| figures.add_connect(10, contender, outcome);
        add(Contender::Direct, Outcome::Rounds(vec![10.0, 20.0, 10.0]));
        add(Contender::Sockets, Outcome::Rounds(vec![11.0, 22.0, 15.0]));
        add(Contender::Packets, Outcome::NotMeasured("broken".to_owned()));
        let keys = figures.keys();
        assert_eq!(keys.len(), 1);
        let ratio = figures.ratio(keys[0], Contender::Sockets, Contender::Direct);
        assert!(ratio.is_some_and(|ratio| (ratio.median - 1.1).abs() < 1e-9));
        assert_eq!(figures.ratio(keys[0], Contender::Packets, Contender::Direct), None);
        assert_eq!(figures.ratio(keys[0], Contender::Nftables, Contender::Direct), None);
    }
}
