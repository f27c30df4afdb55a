//! A page for people about a running program: HTML and SVG without scripts, from the program's published state.

mod html;
mod samples;

use form_urlencoded::{byte_serialize, parse};
use hyper::{StatusCode, Uri};

use self::html::Html;
pub use self::samples::{Plot, Samples};
use super::http::{Answer, Serves};

/// The path of the page.
pub const PATH: &str = "/page";
const STYLE_PATH: &str = "/page.css";
const STYLE: &str = include_str!("page/style.css");
/// The most rows of a table.
const ROWS: usize = 100;

/// The query, such as `?import=shop/cart&reload=off`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// A part of `NAMESPACE/NAME`. Empty: every import.
    pub import: String,
    /// The page does not load itself again.
    pub is_still: bool,
}

/// The health of something, shown by a word, a shape and a colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// Somebody has to do something.
    Bad,
    /// Somebody should know it.
    Note,
    /// It is not known.
    Unknown,
    /// All is well.
    Good,
}

impl Mark {
    const fn shape(self) -> &'static str {
        match self {
            Self::Bad => "<span class=\"mark bad\">✕&nbsp;",
            Self::Note => "<span class=\"mark note\">▲&nbsp;",
            Self::Unknown => "<span class=\"mark\">○&nbsp;",
            Self::Good => "<span class=\"mark good\">●&nbsp;",
        }
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Any text.
    Text(String),
    /// The `NAMESPACE/NAME` of an import, with a link to a page about it alone.
    Import(String),
    /// Health, with a word.
    Mark(Mark, String),
    /// Parts of a whole: names, and numbers from 0 to 1.
    Shares(Vec<(String, f64)>),
}

/// A table of at most 100 rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    /// The text in place of rows.
    none: &'static str,
    rows: Vec<Vec<Cell>>,
    left_out: usize,
}

impl Table {
    /// A table of the first of these rows. Only these are computed.
    pub fn new<T>(
        title: &'static str,
        columns: &'static [&'static str],
        none: &'static str,
        all: &[T],
        row: impl FnMut(&T) -> Vec<Cell>,
    ) -> Self {
        let rows = shown(all).iter().map(row).collect();
        Self { title, columns, none, rows, left_out: all.len() - shown(all).len() }
    }

    /// Adds to the number of rows that are left out.
    #[must_use]
    pub fn without(mut self, others: usize) -> Self {
        self.left_out += others;
        self
    }
}

/// The objects in the rows of a table.
pub fn shown<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(ROWS)]
}

/// The content of the page.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    /// Which program it is.
    pub title: String,
    /// Its health, with a word.
    pub state: (Mark, String),
    /// The problems.
    pub problems: Vec<String>,
    /// Names and values.
    pub facts: Vec<(&'static str, String)>,
    /// The plots of the last minutes.
    pub plots: Vec<Plot>,
    /// In this order.
    pub tables: Vec<Table>,
}

impl Query {
    fn read(uri: &Uri) -> Self {
        let mut query = Self::default();
        for (name, value) in parse(uri.query().unwrap_or_default().as_bytes()) {
            match &*name {
                "import" => value.trim().clone_into(&mut query.import),
                "reload" => query.is_still = value == "off",
                _ => {}
            }
        }
        query
    }

    /// Whether the query includes this import.
    pub fn has(&self, import: &str) -> bool {
        import.contains(&self.import)
    }
}

/// Answers a request for the page or its style. `None`: another path. It refuses clients on other machines, and requests by
/// other sites in a local browser.
pub fn answer(serves: Serves, uri: &Uri, page: impl FnOnce(&Query) -> Page) -> Option<Answer> {
    let is_page = match uri.path() {
        PATH => true,
        STYLE_PATH => false,
        _ => return None,
    };
    if !serves.local {
        let why = "the page is for clients on this machine, by 127.0.0.1, [::1] or localhost: use `mcs ui`\n";
        return Some(Answer::text(StatusCode::FORBIDDEN, why));
    }
    let (content, body) = if is_page {
        let query = Query::read(uri);
        ("text/html; charset=utf-8", page(&query).to_html(&query))
    } else {
        ("text/css; charset=utf-8", STYLE.to_owned())
    };
    Some(Answer { status: StatusCode::OK, content, body })
}

impl Page {
    fn to_html(&self, query: &Query) -> String {
        let mut html = Html::default();
        html.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        html.raw("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        if !query.is_still {
            html.raw("<meta http-equiv=\"refresh\" content=\"10\">");
        }
        html.raw("<link rel=\"stylesheet\" href=\"/page.css\"><title>").text(&self.title);
        html.raw("</title></head><body><h1>").text(&self.title).raw("</h1><p>");
        let (mark, state) = &self.state;
        html.raw(mark.shape()).text(state).raw("</span></p>");
        if !self.problems.is_empty() {
            html.raw("<ul>");
            for problem in shown(&self.problems) {
                html.raw("<li>✕ ").text(problem).raw("</li>");
            }
            html.raw("</ul>");
        }
        html.raw("<dl class=\"facts\">");
        for (name, value) in &self.facts {
            html.raw("<div><dt>").text(name).raw("</dt><dd>").text(value).raw("</dd></div>");
        }
        html.raw("</dl>");
        filter(&mut html, query);
        html.raw("<div class=\"plots\">");
        self.plots.iter().for_each(|plot| plot.write(&mut html));
        html.raw("</div>");
        self.tables.iter().for_each(|table| table.write(&mut html));
        html.raw("</body></html>\n");
        html.finish()
    }
}

/// The field for an import, and the links for reloading.
fn filter(html: &mut Html, query: &Query) {
    let import: String = byte_serialize(query.import.as_bytes()).collect();
    html.raw("<h2>Filter</h2><form action=\"/page\"><label for=\"import\">Import</label>");
    html.raw("<input id=\"import\" name=\"import\" placeholder=\"NAMESPACE/NAME\" value=\"");
    html.text(&query.import).raw("\"><button>Show</button>");
    if !query.import.is_empty() {
        html.raw("<a href=\"/page\">all imports</a>");
    }
    html.raw("<a href=\"/page?import=").text(&import);
    html.raw(if query.is_still {
        "\">reload every 10 seconds</a>"
    } else {
        "&amp;reload=off\">stop reloading</a>"
    });
    html.raw("</form>");
}

impl Table {
    fn write(&self, html: &mut Html) {
        html.raw("<h2>").text(self.title).raw("</h2>");
        if self.rows.is_empty() {
            html.raw("<p>").text(self.none).raw("</p>");
        } else {
            html.raw("<table><thead><tr>");
            for column in self.columns {
                html.raw("<th scope=\"col\">").text(column).raw("</th>");
            }
            html.raw("</tr></thead><tbody>");
            for row in &self.rows {
                html.raw("<tr>");
                for (column, cell) in self.columns.iter().zip(row) {
                    html.raw("<td data-label=\"").text(column).raw("\"><div>");
                    cell.write(html);
                    html.raw("</div></td>");
                }
                html.raw("</tr>\n");
            }
            html.raw("</tbody></table>");
        }
        if self.left_out > 0 {
            html.raw("<p>").text(&format!("{} more are left out: filter by import", self.left_out));
            html.raw("</p>");
        }
    }
}

impl Cell {
    fn write(&self, html: &mut Html) {
        match self {
            Self::Text(text) => _ = html.text(text),
            Self::Import(import) => {
                let query: String = byte_serialize(import.as_bytes()).collect();
                html.raw("<a href=\"/page?import=").text(&query).raw("\">");
                html.text(import).raw("</a>");
            }
            Self::Mark(mark, word) => _ = html.raw(mark.shape()).text(word).raw("</span>"),
            Self::Shares(shares) if shares.is_empty() => _ = html.raw("none"),
            Self::Shares(shares) => {
                html.raw("<ul class=\"shares\">");
                for (name, share) in shown(shares) {
                    html.raw("<li class=\"share\"><svg viewBox=\"0 0 100 10\" ");
                    html.raw("preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"");
                    html.number(share * 100.0).raw("\" height=\"10\"/></svg><span>");
                    html.number(share * 100.0).raw("&nbsp;% ").text(name).raw("</span></li>");
                }
                html.raw("</ul>");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(imports: &[String]) -> Page {
        let row = |import: &String| {
            vec![Cell::Import(import.clone()), Cell::Shares(vec![("east".to_owned(), 0.25)])]
        };
        Page {
            title: "mcs-agent on n1".to_owned(),
            state: (Mark::Bad, "degraded".to_owned()),
            problems: vec!["a <b>problem</b>".to_owned()],
            facts: vec![("Node", "n1".to_owned())],
            plots: Samples::default().plots(["Connections a second", "Refusals a second"]),
            tables: vec![Table::new("Imports", &["Import", "Backends"], "none", imports, row)],
        }
    }

    fn body(query: &str, imports: &[String]) -> String {
        let serves = Serves { health: true, metrics: false, local: true, client: None };
        answer(serves, &query.parse().unwrap(), |_| page(imports)).unwrap().body
    }

    #[test]
    fn a_page_is_bounded_and_says_what_is_left_out() {
        let imports: Vec<_> = (0..10_000).map(|nth| format!("shop/{nth}")).collect();
        let body = body("/page", &imports);
        assert_eq!(body.matches("<tr>").count(), ROWS + 1);
        assert!(body.contains("9900 more are left out") && body.len() < 100_000);
        assert!(body.contains("25.0&nbsp;% east") && body.contains("✕&nbsp;degraded"));
    }

    #[test]
    fn nothing_of_others_is_markup() {
        let hostile = "shop/\"><script>alert(1)</script>\u{7}&amp;".to_owned();
        let body = body("/page?import=%22%3E%3Cscript%3E&reload=off", &[hostile]);
        for markup in ["<script", "\u{7}", "<b>problem"] {
            assert!(!body.contains(markup), "{body}");
        }
        assert!(body.contains("&lt;b&gt;problem") && !body.contains("http-equiv"));
        assert!(body.contains("href=\"/page?import=shop%2F%22%3E%3Cscript%3E"), "{body}");
    }

    #[test]
    fn clients_elsewhere_are_refused() {
        let serves = Serves { health: true, metrics: true, local: false, client: None };
        for path in ["/page", "/page.css"] {
            let refused =
                answer(serves, &path.parse().unwrap(), |_| panic!("it was made")).unwrap();
            assert_eq!(refused.status, StatusCode::FORBIDDEN);
        }
        assert!(answer(serves, &"/livez".parse().unwrap(), |_| page(&[])).is_none());
    }
}
