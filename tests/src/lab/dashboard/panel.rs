//! One panel of the dashboard, drawn.

use std::fmt::Write as _;

use super::escape;

/// The colours of series, which people with colour blindness can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

/// Where a panel is, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// What is drawn of a panel. A line has a name, and points in seconds.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) place: Place,
    pub(super) lines: &'a [(String, Vec<(f64, f64)>)],
    /// From when to when.
    pub(super) time: (f64, f64),
}

/// Names that a legend has room for.
const NAMED: usize = 6;
/// Lines of the grid.
const TICKS: u32 = 3;

impl Panel<'_> {
    /// The latest value of each line.
    pub(super) fn stat(&self) -> String {
        let mut svg = self.frame();
        let shown: Vec<_> = self.lines.iter().filter(|(_, points)| !points.is_empty()).collect();
        let failing =
            shown.iter().filter(|(_, points)| points.last().is_some_and(|last| last.1 != 0.0));
        // Of many values, those that are not zero matter.
        let chosen: Vec<_> =
            if shown.len() > 4 { failing.copied().collect() } else { shown.clone() };
        if chosen.is_empty() {
            let what = format!("all {} are 0", shown.len());
            let _ = writeln!(
                svg,
                "{}",
                text(20, 80, "big", if shown.is_empty() { "none" } else { &what })
            );
        }
        let step = (self.place.width - 20) / u32::try_from(chosen.len().max(1)).unwrap_or(1);
        for (index, (name, points)) in chosen.iter().enumerate() {
            let value = points.last().map_or(0.0, |last| last.1);
            let x = 20 + u32::try_from(index).unwrap_or(0) * step;
            let _ = writeln!(svg, "{}", text(x, 84, "big", &number(value, self.unit)));
            let _ = writeln!(svg, "{}", text(x, 108, "", name));
        }
        svg + "</g>\n"
    }

    /// The lines over time.
    pub(super) fn chart(&self) -> String {
        let mut svg = self.frame();
        let (left, top) = (58.0, 34.0);
        let (right, bottom) =
            (f64::from(self.place.width) - 16.0, f64::from(self.place.height) - 46.0);
        let values = self.lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let most = nice(values.fold(0.0, f64::max));
        for tick in 0..=TICKS {
            let part = f64::from(tick) / f64::from(TICKS);
            let y = bottom - part * (bottom - top);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e3e4e8\"/>\
                 <text x=\"{}\" y=\"{:.1}\" class=\"tick\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 3.0,
                number(part * most, self.unit)
            );
        }
        let (begin, end) = self.time;
        let seconds = format!("{:.0} s", end - begin);
        for (x, anchor, text) in [(left, "start", "0 s"), (right, "end", seconds.as_str())] {
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\" class=\"tick\" text-anchor=\"{anchor}\">{text}</text>",
                bottom + 13.0
            );
        }
        // Those with the largest values, which a legend has room for, come first.
        let mut lines: Vec<_> =
            self.lines.iter().filter(|(_, points)| !points.is_empty()).collect();
        let peak = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
        lines.sort_by(|a, b| peak(&b.1).total_cmp(&peak(&a.1)));
        let mut x = 12.0;
        for (index, (name, points)) in lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let at = |(time, value): &(f64, f64)| {
                let across = left + (time - begin) / (end - begin).max(1.0) * (right - left);
                format!("{across:.1},{:.1}", bottom - value / most * (bottom - top))
            };
            let path: Vec<_> = points.iter().map(at).collect();
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
                path.join(" ")
            );
            let width = 22.0 + 6.2 * u32::try_from(name.chars().count()).map_or(0.0, f64::from);
            if index < NAMED && x + width < right {
                let y = f64::from(self.place.height) - 14.0;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"3\" fill=\"{colour}\"/>\
                     <text x=\"{}\" y=\"{y}\">{}</text>",
                    y - 5.0,
                    x + 14.0,
                    escape(name)
                );
                x += width;
            }
        }
        if lines.is_empty() {
            let _ = writeln!(svg, "{}", text(self.place.width / 2 - 20, 90, "tick", "nothing"));
        }
        svg + "</g>\n"
    }

    fn frame(&self) -> String {
        let Place { x, y, width, height } = self.place;
        format!(
            "<g transform=\"translate({x},{y})\"><rect x=\"4\" y=\"4\" width=\"{}\" height=\"{}\" fill=\"#fff\" \
             stroke=\"#dcdde1\" rx=\"3\"/>\n<text x=\"12\" y=\"22\" class=\"title\">{}</text>\n",
            width - 8,
            height - 8,
            escape(self.title)
        )
    }
}

fn text(x: u32, y: u32, class: &str, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escape(text))
}

/// A value as Grafana writes those of this unit.
fn number(value: f64, unit: &str) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (size, name) =
            steps.iter().copied().find(|(size, _)| value >= *size).unwrap_or((1.0, ""));
        format!("{}{name}", plain(value / size))
    };
    match unit {
        "s" if value == 0.0 => "0 s".to_owned(),
        "s" if value < 0.001 => format!("{} \u{b5}s", plain(value * 1e6)),
        "s" if value < 1.0 => format!("{} ms", plain(value * 1e3)),
        "s" => format!("{} s", plain(value)),
        "percentunit" => format!("{} %", plain(value * 100.0)),
        "bytes" => scaled(&[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB")]),
        "cps" | "pps" | "ops" => format!("{}/s", scaled(&[(1e6, "M"), (1e3, "k")])),
        _ => scaled(&[(1e6, "M"), (1e3, "k")]),
    }
}

fn plain(value: f64) -> String {
    let digits = if value == 0.0 || value >= 10.0 || value.fract() == 0.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

/// The end of an axis, a little above the largest value, so that thirds of it are short numbers.
fn nice(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(most.log10().floor());
    [1.2, 1.5, 3.0, 4.5, 6.0, 9.0, 12.0]
        .into_iter()
        .map(|factor| factor * unit)
        .find(|end| *end >= most)
        .unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_unit() {
        assert_eq!(number(0.0005, "s"), "500 \u{b5}s");
        assert_eq!(number(2_097_152.0, "bytes"), "2 MiB");
        assert_eq!(number(1500.0, "cps"), "1.50k/s");
        assert_eq!(number(3.0, "none"), "3");
    }

    #[test]
    fn an_axis_ends_above_the_largest_value() {
        for most in [0.0, 0.0007, 1.0, 1.3, 7.0, 95.0, 11_000.0] {
            assert!(
                nice(most) >= most && nice(most) <= most.max(1.0) * 2.1,
                "{most}: {}",
                nice(most)
            );
        }
    }
}
