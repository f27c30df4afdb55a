//! What all features have in common: documented metrics, which a leader alone reports.

use std::{collections::BTreeSet, time::Instant};

use clap::{Args as _, Command};

use super::*;
use crate::core::{
    control::{Settings, state::tests::state},
    feature::{Features, Wiring},
    server::{Metrics, Published},
};

/// The metrics of the core and of all features, with a value each.
fn full() -> (Metrics, Features) {
    let command = Settings::augment_args(Command::new("run").no_binary_name(true));
    let command = ALL.iter().fold(command, |command, entry| (entry.flags)(command));
    let matches = command.get_matches_from([""; 0]);
    let mut published = Published::new().unwrap();
    published.metrics = Metrics::full();
    let mut wiring = Wiring {
        settings: &mut Settings::by(&[]),
        health: None,
        published: &mut published,
        beside: &mut vec![],
    };
    let features = Features::start(ALL, &matches, &mut wiring).unwrap();
    for feature in features.all() {
        feature.fill_metrics();
    }
    (published.metrics, features)
}

fn served(metrics: &Metrics) -> BTreeSet<String> {
    let text = metrics.text().unwrap();
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    typed.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The words of a text that are names of the controller's metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = words.filter(|word| word.starts_with("mcs_controller_"));
    let plain = |word: &str| word.strip_suffix("_bucket").unwrap_or(word).to_owned();
    named.map(plain).collect()
}

#[test]
fn every_metric_is_documented() {
    let document = include_str!("../../README.md");
    assert_eq!(named(document), served(&full().0));
}

#[test]
fn alerts_ask_for_metrics_that_there_are() {
    let alerts = include_str!("../../../deploy/helm/mcs-controller/monitoring/alerts.yaml");
    let asked = named(alerts);
    assert!(asked.len() > 5);
    assert!(asked.is_subset(&served(&full().0)), "{asked:?}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard = include_str!("../../../deploy/helm/mcs-controller/monitoring/dashboard.json");
    let asked = named(dashboard);
    assert!(asked.len() > 10);
    assert!(asked.is_subset(&served(&full().0)), "{asked:?}");
    assert!(served(&full().0).contains("mcs_controller_peer_condition_since_timestamp_seconds"));
}

#[test]
fn a_standby_tells_of_itself_alone() {
    let (metrics, mut features) = full();
    metrics.stand_by();
    features.each().for_each(|one| one.lead(false, &mut state(), Instant::now()));
    let text = metrics.text().unwrap();
    let gauges = text.lines().filter(|line| line.ends_with(" gauge"));
    let gauges: Vec<_> = gauges.filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(gauges, ["mcs_controller_leader"]);
}
