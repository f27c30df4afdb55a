//! The dashboard of the chart as a picture: each panel's queries, asked of a Prometheus.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    panel::{Panel, Place},
    prometheus::{INTERVAL, Prometheus, Series, now},
    svg::escape,
};
use crate::workspace::Workspace;

/// Pixels of a column and of a row of Grafana's grid.
const COLUMN: u32 = 50;
const ROW: u32 = 30;
const HEAD: u32 = 44;

/// Draws the panels with all that was scraped.
pub(in crate::demo) fn draw(workspace: &Workspace, prometheus: &Prometheus<'_>) -> Result<String> {
    let file = workspace.root.join("deploy/helm/mcs-agent/monitoring/dashboard.json");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("a dashboard without panels")?;
    let (begin, end) = (prometheus.began(), now()?);
    let mut body = String::new();
    let mut bottom = HEAD;
    for panel in panels {
        let place = place(&panel["gridPos"])?;
        bottom = bottom.max(place.y + place.height);
        let title = panel["title"].as_str().unwrap_or_default();
        if panel["type"] == "row" {
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{}\" class=\"row\">{}</text>",
                place.x + 8,
                place.y + ROW - 9,
                escape(title)
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
        let drawn = Panel { title, unit, place, lines: &lines, time: (begin, end) };
        body.push_str(&if is_stat { drawn.stat() } else { drawn.chart() });
    }
    let width = 24 * COLUMN;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{bottom}\" viewBox=\"0 0 {width} {bottom}\">\n\
         <style>text{{font:11px sans-serif;fill:#333}}.title{{font-weight:bold;font-size:12px}}\
         .row{{font-weight:bold;font-size:14px}}.head{{font-weight:bold;font-size:18px}}\
         .big{{font-size:26px;fill:#0072B2}}.tick{{fill:#777;font-size:10px}}</style>\n\
         <rect width=\"{width}\" height=\"{bottom}\" fill=\"#f4f5f7\"/>\n\
         <text x=\"12\" y=\"29\" class=\"head\">mcs-agent: {:.0} seconds of cargo xtask demo, drawn from the chart's dashboard</text>\n\
         {body}</svg>\n",
        end - begin,
    ))
}

fn place(grid: &Value) -> Result<Place> {
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
