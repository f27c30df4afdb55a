//! Samples of counters over the last minutes, and their plots.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::html::Html;

/// How often counters are read.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a sample is kept.
const SPAN: Duration = Duration::from_mins(10);
/// The size of the plot, in its own units.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

/// The values of `N` counters over the last ten minutes.
#[derive(Debug)]
pub struct Samples<const N: usize>(Mutex<VecDeque<Sample<N>>>);

type Sample<const N: usize> = (Instant, [u64; N]);

impl<const N: usize> Default for Samples<N> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

/// A figure per second over the last ten minutes.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    title: &'static str,
    /// Seconds ago, and the figure.
    points: Vec<(f64, f64)>,
}

impl<const N: usize> Samples<N> {
    /// Reads the counters periodically, without end. `None`: unreadable now.
    pub async fn follow(&self, read: impl Fn() -> Option<[u64; N]>) {
        loop {
            if let Some(values) = read() {
                self.add(Instant::now(), values);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn add(&self, now: Instant, values: [u64; N]) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.retain(|(at, _)| now.saturating_duration_since(*at) <= SPAN);
        samples.push_back((now, values));
    }

    /// How fast each counter grew.
    pub fn plots(&self, titles: [&'static str; N]) -> Vec<Plot> {
        self.plots_at(Instant::now(), titles)
    }

    fn plots_at(&self, now: Instant, titles: [&'static str; N]) -> Vec<Plot> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let points = |nth: usize| {
            let pairs = samples.iter().zip(samples.iter().skip(1));
            let point = |(before, after): (&Sample<N>, &Sample<N>)| {
                let seconds = after.0.saturating_duration_since(before.0).as_secs_f64().max(0.001);
                // A counter that restarts begins at 0.
                let grown = after.1[nth].checked_sub(before.1[nth]).unwrap_or(after.1[nth]);
                let age = now.saturating_duration_since(after.0).as_secs_f64();
                (age, figure(grown) / seconds)
            };
            pairs.map(point).collect()
        };
        let plot = |(nth, title)| Plot { title, points: points(nth) };
        titles.into_iter().enumerate().map(plot).collect()
    }
}

impl Plot {
    pub(super) fn write(&self, html: &mut Html) {
        html.raw("<figure><figcaption>").text(self.title).raw(" <b>");
        let Some((_, latest)) = self.points.last() else {
            html.raw("not known yet</b></figcaption></figure>");
            return;
        };
        let most = self.points.iter().fold(0.0, |most: f64, (_, figure)| most.max(*figure));
        html.number(*latest).raw("</b>, at most ").number(most).raw(" in ten minutes</figcaption>");
        html.raw("<svg viewBox=\"0 -2 300 64\" role=\"img\" aria-label=\"").text(self.title);
        html.raw("\"><path class=\"axis\" d=\"M0 60H300M0 0H300\"/><path class=\"line\" d=\"");
        for (nth, (age, figure)) in self.points.iter().enumerate() {
            html.raw(if nth == 0 { "M" } else { "L" });
            html.number(WIDTH * (1.0 - age / SPAN.as_secs_f64()).max(0.0));
            html.raw(" ").number(HEIGHT * (1.0 - figure / most.max(1.0)));
        }
        html.raw("\"/></svg></figure>");
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure in a plot")]
const fn figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minutes() {
        let (samples, begin) = (Samples::default(), Instant::now());
        for nth in 0..1000 {
            samples.add(begin + PERIOD * nth, [10 * u64::from(nth), 7]);
        }
        let end = begin + PERIOD * 999;
        let plots = samples.plots_at(end, ["grows", "stays"]);
        assert_eq!(plots[0].points.len(), 120);
        assert!(
            plots[0].points.iter().all(|(age, rate)| *age < 600.0 && (*rate - 2.0).abs() < 1e-9)
        );
        assert!(plots[1].points.iter().all(|(_, rate)| *rate == 0.0));
        samples.add(end + PERIOD, [5, 8]);
        assert_eq!(
            samples.plots_at(end + PERIOD, ["", ""])[0].points[119],
            (0.0, 1.0),
            "it began anew"
        );
    }
}
