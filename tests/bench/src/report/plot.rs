//! Cost against the number of services, as SVG.

use std::ops::Range;

use plotters::{
    coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    prelude::{
        ChartBuilder, Circle, Color as _, DrawingArea, EmptyElement, IntoDrawingArea as _,
        IntoFont as _, IntoLogRange as _, LineSeries, PathElement, RGBColor, SVGBackend, Text,
        WHITE,
    },
    style::{BLACK, TextStyle},
};

use crate::prelude::*;

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (400, 280);
const TITLE: u32 = 36;
const LEGEND: u32 = 40;
const FONT: &str = "sans-serif";
/// Values that are farther apart than this are shown on a logarithmic axis.
const SPREAD: f64 = 8.0;

/// One quantity, with a line for each contender.
#[derive(PartialEq, Debug)]
struct Panel {
    title: String,
    lines: Vec<(Contender, Vec<(f64, Summary)>)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Writes a file with the quantities of a case, each against the number of services. Returns false,
/// and writes none, if nothing was measured with two numbers of them.
pub(crate) fn write(figures: &Figures, case: &str, title: &str, file: &Path) -> Result<bool> {
    let panels = panels(figures, case);
    if panels.is_empty() {
        // One of an earlier run would be taken for this one's.
        return match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(false),
        };
    }
    let rows = panels.len().div_ceil(COLUMNS);
    let height = TITLE + LEGEND + PANEL.1 * u32::try_from(rows)?;
    let size = (PANEL.0 * u32::try_from(COLUMNS)?, height);
    let root = SVGBackend::new(file, size).into_drawing_area();
    draw(&root, title, &panels, rows).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    Ok(true)
}

fn panels(figures: &Figures, case: &str) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for figure in figures.all().iter().filter(|figure| figure.key.case == case) {
        let (Some(services), Some(summary)) = (figure.key.services, figure.summary()) else {
            continue;
        };
        let title = format!("{} ({})", figure.key.quantity, figure.unit.name());
        let panel = find_or_add(
            &mut panels,
            |panel| panel.title == title,
            || Panel { title: title.clone(), lines: Vec::new() },
        );
        let (_, points) = find_or_add(
            &mut panel.lines,
            |(contender, _)| *contender == figure.contender,
            || (figure.contender, Vec::new()),
        );
        points.push((f64::from(services), summary));
    }
    for panel in &mut panels {
        panel.lines.retain(|(_, points)| points.len() > 1);
    }
    panels.retain(|panel| !panel.lines.is_empty());
    panels
}

/// The first that is meant, or a new last one.
fn find_or_add<T>(all: &mut Vec<T>, is_meant: impl Fn(&T) -> bool, new: impl Fn() -> T) -> &mut T {
    let place = all.iter().position(is_meant).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[place]
}

const fn color(contender: Contender) -> RGBColor {
    match contender {
        Contender::Direct => RGBColor(90, 90, 90),
        Contender::Empty => RGBColor(170, 170, 170),
        Contender::Sockets => RGBColor(0, 114, 178),
        Contender::Packets => RGBColor(0, 158, 115),
        Contender::SocketsBefore => RGBColor(120, 180, 220),
        Contender::PacketsBefore => RGBColor(120, 210, 180),
        Contender::Nftables => RGBColor(213, 94, 0),
        Contender::NftablesNewest => RGBColor(240, 160, 110),
        Contender::Iptables => RGBColor(204, 121, 167),
        Contender::Cilium => RGBColor(230, 159, 0),
    }
}

fn draw(
    root: &Area<'_>,
    title: &str,
    panels: &[Panel],
    rows: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let (head, below) = root.split_vertically(TITLE);
    head.draw(&Text::new(title, (20, 12), TextStyle::from((FONT, 20).into_font())))?;
    let (legend, below) = below.split_vertically(LEGEND);
    let mut at = 20;
    for contender in Contender::ALL {
        if panels.iter().any(|panel| panel.lines.iter().any(|(one, _)| *one == contender)) {
            let color = color(contender);
            let style = TextStyle::from((FONT, 16).into_font()).color(&color);
            legend.draw(&Text::new(contender.name(), (at, 12), style))?;
            at += 110;
        }
    }
    let areas = below.split_evenly((rows, COLUMNS));
    for (area, panel) in areas.iter().zip(panels) {
        let (services, values) = panel.ranges();
        if values.end > values.start * SPREAD && values.start > 0.0 {
            let values = values.start / 1.5..values.end * 1.5;
            panel.draw(area, services, values.log_scale())?;
        } else {
            panel.draw(area, services, values.start.min(0.0)..values.end * 1.15)?;
        }
    }
    root.present()?;
    Ok(())
}

/// A round number, as it is written.
fn tick(value: f64) -> String {
    const PARTS: f64 = 1000.0;
    format!("{}", (value * PARTS).round() / PARTS)
}

impl Panel {
    /// Of services, and of values with their quartiles.
    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let range = |values: &mut dyn Iterator<Item = f64>| {
            let none = f64::INFINITY..f64::NEG_INFINITY;
            values.fold(none, |range, value| range.start.min(value)..range.end.max(value))
        };
        let services = range(&mut points().map(|(services, _)| *services));
        (services, range(&mut points().flat_map(|(_, summary)| summary.quartiles)))
    }

    fn draw<Y>(
        &self,
        area: &Area<'_>,
        services: Range<f64>,
        values: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let services = (services.start / 1.3..services.end * 1.3).log_scale();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 14))
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(55)
            .build_cartesian_2d(services, values)?;
        chart
            .configure_mesh()
            .light_line_style(BLACK.mix(0.05))
            .x_desc("services")
            .y_labels(6)
            .x_label_formatter(&|services| tick(*services))
            .y_label_formatter(&|value| tick(*value))
            .draw()?;
        for (contender, points) in &self.lines {
            let color = color(*contender);
            let medians = points.iter().map(|(services, summary)| (*services, summary.median));
            chart.draw_series(LineSeries::new(medians.clone(), color.stroke_width(2)))?;
            chart.draw_series(
                medians.map(|at| EmptyElement::at(at) + Circle::new((0, 0), 3, color.filled())),
            )?;
            chart.draw_series(points.iter().map(|(services, summary)| {
                let ends = summary.quartiles.map(|value| (*services, value));
                PathElement::new(ends, color.stroke_width(1))
            }))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Outcome;

    fn figures(sizes: &[u32]) -> Figures {
        let mut figures = Figures::default();
        for services in sizes.iter().copied() {
            for (contender, value) in [(Contender::Direct, 1.0), (Contender::Iptables, 100.0)] {
                let outcome = Outcome::Rounds(vec![value, value * 2.0]);
                figures.add_connect(services, contender, outcome);
            }
        }
        figures
    }

    #[test]
    fn a_line_takes_two_points() {
        const TITLE: &str = "New connections";
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("connect.svg");
        assert!(!write(&figures(&[10]), "connect", TITLE, &file).unwrap());
        assert!(!write(&figures(&[10, 1000]), "exchange", TITLE, &file).unwrap());
        assert!(!file.exists());
        assert!(write(&figures(&[10, 1000]), "connect", TITLE, &file).unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        for word in [TITLE, "TCP connect and close (us)", "direct", "iptables", "services"] {
            assert!(text.contains(word), "no {word}");
        }
        assert!(!text.contains("nftables"));
    }

    #[test]
    fn a_panel_has_room_for_all_quartiles() {
        let panels = panels(&figures(&[10, 1000]), "connect");
        assert_eq!(panels.len(), 1);
        assert_eq!(panels[0].ranges(), (10.0..1000.0, 1.25..175.0));
    }
}
