//! Tables for a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};

use crate::{figures::Outcome, prelude::*};

/// What one case measured: a row for each quantity, and a column for each contender with the median,
/// the quartiles, and both of the ratio to direct.
pub(crate) fn of_case(figures: &Figures, case: &str) -> String {
    let keys: Vec<_> = figures.keys().into_iter().filter(|key| key.case == case).collect();
    let took_part =
        |contender: &Contender| keys.iter().any(|key| figures.find(key, *contender).is_some());
    let contenders: Vec<_> = Contender::ALL.into_iter().filter(took_part).collect();
    let mut table = empty();
    let head = ["services", case, "unit"].map(str::to_owned).into_iter();
    table.set_header(head.chain(contenders.iter().map(ToString::to_string)));
    let mut reasons = Vec::new();
    for key in keys {
        let unit = figures.all().iter().find(|figure| figure.key == *key).map(|one| one.unit);
        let head = [
            key.services.map(|services| services.to_string()).unwrap_or_default(),
            key.quantity.clone(),
            unit.map(|unit| unit.name().to_owned()).unwrap_or_default(),
        ];
        let cells = contenders.iter().map(|one| cell(figures, key, *one, &mut reasons));
        table.add_row(head.into_iter().chain(cells.collect::<Vec<_>>()));
    }
    if let Some(column) = table.column_mut(0) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{table}\n");
    for (number, reason) in reasons.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  -{}: {reason}", number + 1);
    }
    text
}

/// The agent beside the one before: a row for each quantity that both have, with the ratio of their rounds.
pub(crate) fn to_before(figures: &Figures) -> Option<String> {
    const PAIRS: [(Contender, Contender); 2] = [
        (Contender::Sockets, Contender::SocketsBefore),
        (Contender::Packets, Contender::PacketsBefore),
    ];
    let mut table = empty();
    table.set_header(["services", "case", "quantity", "sockets", "packets"]);
    for key in figures.keys() {
        let ratios = PAIRS.map(|(now, before)| figures.ratio(key, now, before));
        if ratios.iter().all(Option::is_none) {
            continue;
        }
        let ratio = |ratio: Option<Summary>| {
            ratio.map_or_else(String::new, |ratio| spread(ratio, |value| format!("{value:.3}")))
        };
        let services = key.services.map(|services| services.to_string()).unwrap_or_default();
        let [sockets, packets] = ratios.map(ratio);
        table.add_row([services, key.case.to_owned(), key.quantity.clone(), sockets, packets]);
    }
    (table.row_count() > 0).then(|| table.to_string())
}

/// A table without rows, as wide as what it will hold.
pub(super) fn empty() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn cell(figures: &Figures, key: &Key, contender: Contender, reasons: &mut Vec<String>) -> String {
    let Some(figure) = figures.find(key, contender) else { return String::new() };
    let Some(summary) = figure.summary() else { return absent(figure, reasons) };
    let is_one = figure.rounds().len() == 1;
    let value = if is_one { number(summary.median) } else { spread(summary, number) };
    match figures.ratio(key, contender, Contender::Direct) {
        Some(ratio) if contender != Contender::Direct => {
            format!("{value}\nx{}", spread(ratio, |ratio| format!("{ratio:.3}")))
        }
        _ => value,
    }
}

/// A dash and the number of the reason.
fn absent(figure: &Figure, reasons: &mut Vec<String>) -> String {
    let reason = match &figure.outcome {
        Outcome::NotMeasured(reason) => reason.clone(),
        Outcome::Rounds(_) => "no round".to_owned(),
    };
    let known = reasons.iter().position(|known| *known == reason);
    let place = known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("-{}", place + 1)
}

fn spread(summary: Summary, write: impl Fn(f64) -> String) -> String {
    let [first, third] = summary.quartiles.map(&write);
    format!("{} ({first}-{third})", write(summary.median))
}

/// With three or four digits that count.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0..1.0 => format!("{value:.3}"),
        1.0..100.0 => format!("{value:.2}"),
        100.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_has_a_reason_and_no_figure() {
        let mut figures = Figures::default();
        let mut add = |contender, outcome| figures.add_connect(10, contender, outcome);
        add(Contender::Direct, Outcome::Rounds(vec![10.0, 10.0, 10.0]));
        add(Contender::Sockets, Outcome::Rounds(vec![11.0, 12.0, 13.0]));
        let reason = "kube-proxy is missing".to_owned();
        add(Contender::Nftables, Outcome::NotMeasured(reason));
        let text = of_case(&figures, "connect");
        assert!(text.contains("10.00 (10.00-10.00)"), "{text}");
        assert!(text.contains("x1.200 (1.150-1.250)"), "{text}");
        assert!(text.contains("-1: kube-proxy is missing"), "{text}");
        assert!(!text.contains("iptables"), "{text}");

        let mut figures = Figures::default();
        figures.add_connect(10, Contender::Direct, Outcome::Rounds(vec![10.0]));
        assert!(!of_case(&figures, "connect").contains('('), "one value has no spread");
    }

    #[test]
    fn two_agents_are_compared_round_by_round() {
        let mut figures = Figures::default();
        figures.add_connect(10, Contender::Sockets, Outcome::Rounds(vec![11.0, 24.0, 36.0]));
        assert_eq!(to_before(&figures), None);
        figures.add_connect(10, Contender::SocketsBefore, Outcome::Rounds(vec![10.0, 20.0, 30.0]));
        let text = to_before(&figures).unwrap();
        assert!(text.contains("1.200 (1.150-1.200)"), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let cases = [(0.12345, "0.123"), (12.345, "12.35"), (123.45, "123.5"), (98_765.4, "98765")];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }
}
