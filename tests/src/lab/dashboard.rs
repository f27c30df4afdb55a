//! The dashboard of the chart as a picture: each panel's queries, asked of a Prometheus.

mod panel;
mod prometheus;

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

pub use self::prometheus::Prometheus;
use self::{
    panel::{Panel, Place},
    prometheus::{INTERVAL, Series, now},
};

/// Pixels of a column and of a row of Grafana's grid.
const COLUMN: u32 = 50;
const ROW: u32 = 30;
const HEAD: u32 = 44;

/// Text in an SVG file.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Draws the panels of this dashboard, below a title, with all that was scraped.
pub fn draw(file: &Path, title: &str, prometheus: &Prometheus<'_>) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("a dashboard without panels")?;
    let (begin, end) = (prometheus.began(), now()?);
    let mut body = String::new();
    let mut bottom = HEAD;
    for panel in panels {
        let place = place(&panel["gridPos"])?;
        bottom = bottom.max(place.y + place.height);
        let name = panel["title"].as_str().unwrap_or_default();
        if panel["type"] == "row" {
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{}\" class=\"row\">{}</text>",
                place.x + 8,
                place.y + ROW - 9,
                escape(name)
            );
            continue;
        }
        let mut lines = Vec::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().context("a target without a query")?;
            let format = target["legendFormat"].as_str().unwrap_or_default();
            for series in prometheus.ask(&without_variables(query), end)? {
                lines.push((legend(format, &series), series.points));
            }
        }
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or("none");
        let is_stat = panel["type"] == "stat";
        let drawn = Panel { title: name, unit, place, lines: &lines, time: (begin, end) };
        body.push_str(&if is_stat { drawn.stat() } else { drawn.chart() });
    }
    let width = 24 * COLUMN;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{bottom}\" viewBox=\"0 0 {width} {bottom}\">\n\
         <style>text{{font:11px sans-serif;fill:#333}}.title{{font-weight:bold;font-size:12px}}\
         .row{{font-weight:bold;font-size:14px}}.head{{font-weight:bold;font-size:18px}}\
         .big{{font-size:26px;fill:#0072B2}}.tick{{fill:#777;font-size:10px}}</style>\n\
         <rect width=\"{width}\" height=\"{bottom}\" fill=\"#f4f5f7\"/>\n\
         <text x=\"12\" y=\"29\" class=\"head\">{}: {:.0} seconds</text>\n\
         {body}</svg>\n",
        escape(title),
        end - begin,
    ))
}

fn place(grid: &Value) -> anyhow::Result<Place> {
    let number = |name: &str| {
        let number = grid[name].as_u64().and_then(|number| u32::try_from(number).ok());
        number.with_context(|| format!("a panel without {name}"))
    };
    Ok(Place {
        x: number("x")? * COLUMN,
        y: number("y")? * ROW + HEAD,
        width: number("w")? * COLUMN,
        height: number("h")? * ROW,
    })
}

/// What Grafana asks: all jobs and instances, and rates over four scrapes.
fn without_variables(query: &str) -> String {
    query
        .replace("$__rate_interval", &format!("{}s", 4 * INTERVAL))
        .replace("$job", ".*")
        .replace("$instance", ".*")
}

/// `{{label}}` stands for the label's value.
fn legend(format: &str, series: &Series) -> String {
    if format.is_empty() {
        return series.labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
    }
    let text = series.labels.iter().fold(format.to_owned(), |text, (label, value)| {
        text.replace(&format!("{{{{{label}}}}}"), value)
    });
    // A label that the series does not have.
    text.split("{{").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_has_the_values_of_labels() {
        let labels = vec![("state".to_owned(), "ready".to_owned())];
        let series = Series { labels, points: Vec::new() };
        assert_eq!(legend("frontends {{state}}", &series), "frontends ready");
        assert_eq!(legend("", &series), "ready");
        assert_eq!(legend("{{reason}}", &series), "");
    }

    #[test]
    fn no_variable_of_grafana_is_left() {
        let query =
            without_variables("rate(a{job=~\"$job\", instance=~\"$instance\"}[$__rate_interval])");
        assert_eq!(query, "rate(a{job=~\".*\", instance=~\".*\"}[4s])");
    }
}
