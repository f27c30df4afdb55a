//! What a terminal showed: as a cast of asciinema, and as a picture that moves.

use std::fmt::Write as _;

use mcs_tests::dashboard::escape;
use serde_json::json;

use crate::screen::Printed;

const COLUMNS: usize = 100;
const ROWS: usize = 30;
/// Pixels of ten characters, and of a line.
const TEN_CHARACTERS: usize = 78;
const LINE: usize = 17;
const MARGIN: usize = 14;
/// Seconds that the last screen stays, before the picture begins again.
const REST: f64 = 6.0;

/// The cast: <https://docs.asciinema.org/manual/asciicast/v2/>.
pub(super) fn cast(printed: &[Printed]) -> String {
    let header =
        json!({"version": 2, "width": COLUMNS, "height": ROWS, "title": "cargo xtask demo"});
    let mut cast = format!("{header}\n");
    for Printed { seconds, text } in printed {
        let event = json!([seconds, "o", text.replace('\n', "\r\n")]);
        let _ = writeln!(cast, "{event}");
    }
    cast
}

/// All lines in one column. It moves up as a terminal scrolls, and a cover hides the lines that come later. Without
/// animation the last lines are visible.
pub(super) fn picture(printed: &[Printed]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let end = printed.last().map_or(0.0, |last| last.seconds) + REST;
    let (mut scroll, mut cover) = (String::new(), String::new());
    let mut last = String::new();
    for Printed { seconds, text } in printed {
        let complete: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.extend(complete);
        let percent = 100.0 * seconds / end;
        let (up, down) = (lines.len().saturating_sub(ROWS) * LINE, lines.len() * LINE);
        let _ = write!(scroll, "{percent:.2}%{{transform:translateY(-{up}px)}}");
        let _ = write!(cover, "{percent:.2}%{{transform:translateY({down}px)}}");
        last = format!("#c{{transform:translateY(-{up}px)}}#h{{transform:translateY({down}px)}}");
    }
    let (width, height) = (COLUMNS * TEN_CHARACTERS / 10 + 2 * MARGIN, ROWS * LINE + 2 * MARGIN);
    let column = (lines.len() + ROWS) * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>cargo xtask demo</title>\n\
         <style>{last}#c{{animation:s {end:.1}s step-end infinite}}#h{{animation:h {end:.1}s step-end infinite}}\
         @keyframes s{{{scroll}}}@keyframes h{{0%{{transform:translateY(0)}}{cover}}}\
         text{{font:13px monospace;fill:#d8dee9;white-space:pre}}.t{{font-weight:bold;fill:#88c0d0}}.p{{fill:#a3be8c}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#1e222a\"/>\n\
         <svg x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{inner}\" height=\"{rows}\"><g id=\"c\">\n",
        inner = width - 2 * MARGIN,
        rows = ROWS * LINE,
    );
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let class = class(line);
        let (plain, y) =
            (line.replace("\x1b[1m", "").replace("\x1b[0m", ""), (index + 1) * LINE - 4);
        let length = plain.chars().count() * TEN_CHARACTERS / 10;
        let _ = writeln!(
            svg,
            "<text y=\"{y}\"{class} textLength=\"{length}\" xml:space=\"preserve\">{}</text>",
            escape(&plain)
        );
    }
    let _ = writeln!(
        svg,
        "<rect id=\"h\" width=\"{width}\" height=\"{column}\" fill=\"#1e222a\"/></g></svg></svg>"
    );
    svg
}

/// Titles and progress stand out.
fn class(line: &str) -> &'static str {
    let trimmed = line.trim_start();
    if !line.starts_with(' ') {
        " class=\"t\""
    } else if trimmed.split_once(" s  ").is_some_and(|(time, _)| time.parse::<f64>().is_ok()) {
        " class=\"p\""
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed() -> Vec<Printed> {
        let event = |seconds, text: &str| Printed { seconds, text: text.to_owned() };
        vec![event(0.5, "1. A title\n\n"), event(1.5, "   1.5 s  a < b\n")]
    }

    #[test]
    fn a_cast_has_an_event_for_each_print() {
        let cast = cast(&printed());
        let lines: Vec<_> = cast.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], r#"[0.5,"o","1. A title\r\n\r\n"]"#);
    }

    #[test]
    fn a_picture_has_every_line() {
        let svg = picture(&printed());
        assert!(
            svg.contains("class=\"t\" textLength=\"78\"") && svg.contains(">1. A title<"),
            "{svg}"
        );
        assert!(svg.contains("class=\"p\"") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("20.00%{transform:translateY(51px)}"), "{svg}");
    }
}
