//! Writes deploy/reasons.md from the table of reasons in mcs-kube and from the alerts. Checks that it is current, that each code is raised,
//! that a test sees it, and that a page explains it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use syn::{
    Attribute, Expr, ExprLit, Ident, Item, Lit, LitStr, Meta, Token, braced,
    parse::{Parse, ParseStream},
};

use super::features::product;
use crate::workspace;

const DOCUMENT: &str = "deploy/reasons.md";
const TABLE: &str = "mcs-kube/src/reasons/";
/// The alerts with the program that they are about.
const ALERTS: [(&str, &str); 2] = [
    ("deploy/helm/mcs-agent/monitoring/alerts.yaml", "agents"),
    ("deploy/helm/mcs-controller/monitoring/alerts.yaml", "controllers"),
];
const RUNBOOK: &str = "deploy/runbook.md";

const BEGIN: &str = "\
# Reasons

<!-- `cargo xtask lint reasons --write` writes this file from mcs-kube/src/reasons and from the alerts of the charts. -->

Each code that a program says has its heading here: what it means, who can do something about it, and what. Programs print the link. `wrong` is
what is not as it should be, `unknown` what could not be found out, and a `note` what is as it should be or worth knowing.
";

/// A part of the table.
struct Kind {
    name: Ident,
    about: String,
    heading: String,
    /// What is before a name in its heading.
    before: String,
    /// The page about them, below deploy.
    page: String,
    codes: Vec<Code>,
}

struct Code {
    variant: Ident,
    meaning: String,
    name: String,
    severity: Ident,
    who: Ident,
    advice: Expr,
}

impl Parse for Kind {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let about = words(&input.call(Attribute::parse_outer)?);
        let name = input.parse()?;
        let text = || input.parse::<LitStr>().map(|text| text.value());
        let (heading, before, page) = (text()?, text()?, text()?);
        let within;
        braced!(within in input);
        let mut codes = Vec::new();
        while !within.is_empty() {
            codes.push(within.parse()?);
        }
        Ok(Self { name, about, heading, before, page, codes })
    }
}

impl Parse for Code {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let meaning = words(&input.call(Attribute::parse_outer)?);
        let variant: Ident = input.parse()?;
        let name = input.parse::<Option<LitStr>>()?;
        let name = name.map_or_else(|| variant.to_string(), |name| name.value());
        let (severity, who, advice) = (input.parse()?, input.parse()?, input.parse()?);
        input.parse::<Token![;]>()?;
        Ok(Self { variant, meaning, name, severity, who, advice })
    }
}

/// What doc comments say.
fn words(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|one| match &one.meta {
        Meta::NameValue(one) => text(&one.value),
        _ => None,
    });
    lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
}

fn text(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Fails if the document is not what the table makes, unless it is to be written, or if a code lacks something.
pub(super) fn check(root: &Path, writes: bool) -> Result<()> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let mut files = BTreeMap::new();
    for path in workspace::files(root)? {
        let ends = Path::new(&path).extension().and_then(OsStr::to_str);
        if ends == Some("rs") || path.starts_with("tests/") && ends == Some("txt") {
            let text = read(&path)?;
            files.insert(path, text);
        }
    }
    let mut document = String::new();
    let mut kinds = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with(TABLE)) {
        kinds.extend(kinds_of(text, &mut document).with_context(|| format!("cannot read {path}"))?);
    }
    let mut found = lacking(&kinds, &Uses::of(&files));
    let mut alerts = BTreeSet::new();
    for (path, whose) in ALERTS {
        alerts.extend(alerts_of(&serde_saphyr::from_str(&read(path)?)?, whose, &mut document)?);
    }
    let runbook = read(RUNBOOK)?;
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let sections: BTreeSet<_> = sections.map(str::to_owned).collect();
    let differing = sections.symmetric_difference(&alerts);
    found.extend(
        differing
            .map(|name| format!("{name} is an alert, or a section of {RUNBOOK}, and not both")),
    );
    found.extend(twice(&document));
    for kind in &kinds {
        let (page, anchor) = kind.page.split_once('#').unwrap_or((&kind.page, ""));
        if !headings(&read(&format!("deploy/{page}"))?).contains(anchor) {
            found.push(format!("{}: {} is no page with that heading", kind.name, kind.page));
        }
    }
    ensure!(found.is_empty(), "reasons:\n  {}", found.join("\n  "));
    let sections = document.lines().filter_map(|line| line.strip_prefix("## "));
    let index = sections.map(|section| format!("- [{section}](#{})\n", anchor(section)));
    let document = format!("{BEGIN}\n{}{document}", index.collect::<String>());
    if writes {
        fs::write(root.join(DOCUMENT), document)?;
    } else {
        let is_current = read(DOCUMENT).is_ok_and(|present| present == document);
        ensure!(is_current, "{DOCUMENT} is not current: run `cargo xtask lint reasons --write`");
    }
    Ok(())
}

/// The parts of the table in a file. Adds their sections to the document.
fn kinds_of(file: &str, document: &mut String) -> Result<Vec<Kind>> {
    let items = syn::parse_file(file)?.items;
    let constants = items.iter().filter_map(|item| match item {
        Item::Const(one) => Some((one.ident.to_string(), text(&one.expr)?)),
        _ => None,
    });
    let constants: BTreeMap<_, _> = constants.collect();
    let mut kinds = Vec::new();
    for item in &items {
        let Item::Macro(one) = item else { continue };
        let kind: Kind = one.mac.parse_body()?;
        let Kind { about, heading, page, .. } = &kind;
        write!(document, "\n## {heading}\n\n{about} [More]({page}).\n")?;
        for code in &kind.codes {
            let Code { meaning, name, severity, .. } = code;
            let severity = severity.to_string().to_lowercase();
            write!(document, "\n### {}{name}\n\n`{severity}` {meaning}\n", kind.before)?;
            let advice = match &code.advice {
                Expr::Path(path) => {
                    path.path.get_ident().and_then(|name| constants.get(&name.to_string())).cloned()
                }
                advice => text(advice),
            };
            let advice = advice.with_context(|| format!("the advice of {name} is no text"))?;
            let is_idle = code.who == "Nobody";
            ensure!(is_idle == advice.is_empty(), "{name}: who is to do what?");
            ensure!(!is_idle || code.severity != "Wrong", "{name} is wrong: what is to be done?");
            // Terminals show it.
            ensure!(
                !advice.contains("]("),
                "the advice of {name} has a link, which is for its meaning"
            );
            if !is_idle {
                write!(document, "\nTo do, by {}: {advice}.\n", who(&code.who)?)?;
            }
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

fn who(who: &Ident) -> Result<&'static str> {
    Ok(match &*who.to_string() {
        "Owner" => "the owner of the service",
        "Operator" => "the operator of the cluster",
        "PeerOperator" => "the operator of the other cluster",
        other => anyhow::bail!("who is {other}?"),
    })
}

/// Adds the section of alerts to the document, and returns their names.
fn alerts_of(alerts: &Value, whose: &str, document: &mut String) -> Result<Vec<String>> {
    let mut names = Vec::new();
    write!(document, "\n## Alerts about {whose}\n")?;
    let groups = alerts["groups"].as_array().into_iter().flatten();
    for rule in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
        let Some(name) = rule["alert"].as_str() else { continue };
        let of = |part: &str, key: &str| {
            rule[part][key].as_str().with_context(|| format!("{name} has no {key}"))
        };
        let page = format!("{RUNBOOK}#{}", name.to_lowercase());
        let url = of("annotations", "runbook_url")?;
        ensure!(url.ends_with(&page), "{name}: runbook_url is {url}, not .../{page}");
        let severity = of("labels", "severity")?;
        let (summary, description) =
            (of("annotations", "summary")?, of("annotations", "description")?);
        write!(
            document,
            "\n### {name}\n\n`{severity}` {summary}. {}\n\nTo do: [runbook](runbook.md#{}).\n",
            description.trim(),
            name.to_lowercase()
        )?;
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Where codes can be: in product code, and in tests.
#[derive(Default)]
struct Uses {
    product: String,
    tests: String,
}

impl Uses {
    fn of(files: &BTreeMap<String, String>) -> Self {
        let declared: BTreeSet<_> =
            files.iter().flat_map(|(path, text)| product::test_modules(path, text)).collect();
        let mut uses = Self::default();
        for (path, text) in files.iter().filter(|(path, _)| !path.starts_with(TABLE)) {
            let is_test = !path.starts_with("mcs-") || product::is_test(path, &declared);
            let product = if is_test { Vec::new() } else { product::lines(text) };
            let numbers: BTreeSet<_> = product.iter().map(|(number, _)| *number).collect();
            let lines = product.iter().flat_map(|(_, line)| [line.trim(), "\n"]);
            uses.product.extend(lines);
            let lines = (1..).zip(text.lines()).filter(|(number, _)| !numbers.contains(number));
            let is_word = |line: &&str| !line.trim_start().starts_with("//");
            uses.tests
                .extend(lines.map(|(_, line)| line).filter(is_word).flat_map(|line| [line, "\n"]));
        }
        uses
    }
}

/// Whether a text has a word that is not a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// The codes that nothing raises, and those that no test sees.
fn lacking(kinds: &[Kind], uses: &Uses) -> Vec<String> {
    let mut found = Vec::new();
    for (kind, code) in
        kinds.iter().flat_map(|kind| kind.codes.iter().map(move |code| (kind, code)))
    {
        let Code { variant, name, .. } = code;
        let path = format!("{}::{variant}", kind.name);
        if !has_word(&uses.product, &path) {
            found.push(format!("nothing raises {path}: take it from {TABLE}"));
        }
        // A name such as `types` is a word of other sentences too.
        let is_common = name.chars().all(|c| c.is_ascii_lowercase() || c == ' ');
        let is_seen = if is_common {
            let quoted = [format!("\"{name}"), format!("{name}\"")];
            quoted.iter().chain([&path]).any(|name| has_word(&uses.tests, name))
        } else {
            let names = [variant.to_string(), name.clone(), name.replace('_', "-")];
            names.iter().any(|name| has_word(&uses.tests, name))
        };
        if !is_seen {
            found.push(format!("no test sees {name} ({path})"));
        }
    }
    found
}

/// The anchors of a document.
fn headings(document: &str) -> BTreeSet<String> {
    let lines = document.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Headings that lead to one anchor.
fn twice(document: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let lines = document.lines().filter(|line| line.starts_with('#'));
    let twice = lines.filter(|line| !seen.insert(anchor(line.trim_start_matches('#'))));
    twice.map(|line| format!("{DOCUMENT} has the heading {line} twice")).collect()
}

/// The anchor that GitHub gives a heading.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        const MEND: &str = "mend it";
        reasons! {
            /// Of an object.
            Fault "Faults" "fault: " "page.md#faults" {
                /// It is [broken](page.md).
                /// Still.
                Broken "broken" Wrong Owner MEND;
                Fine Note Nobody "";
            }
        }
    "#;

    #[test]
    fn a_section_has_a_heading_for_each_code() {
        let mut document = String::new();
        let kinds = kinds_of(FILE, &mut document).unwrap();
        assert_eq!(kinds[0].codes.len(), 2);
        let expected = "\n## Faults\n\nOf an object. [More](page.md#faults).\n\n### fault: broken\n\n`wrong` It is [broken](page.md). \
                        Still.\n\nTo do, by the owner of the service: mend it.\n\n### fault: Fine\n\n`note` \n";
        assert_eq!(document, expected);
        assert!(twice(&document).is_empty());
        assert_eq!(twice("# A b\n## a-b\n").len(), 1);
        let idle = FILE.replace("MEND;", "\"\";");
        assert!(kinds_of(&idle, &mut document).is_err(), "what is wrong has advice");
    }

    #[test]
    fn a_code_is_raised_and_a_test_sees_it() {
        let kinds = kinds_of(FILE, &mut String::new()).unwrap();
        let found = |product: &str, test: &str| {
            let files = [
                ("mcs-agent/src/a.rs", product.to_owned()),
                ("tests/src/b.rs", test.to_owned()),
                ("mcs-kube/src/reasons/c.rs", FILE.to_owned()),
            ];
            let files = files.map(|(path, text)| (path.to_owned(), text));
            lacking(&kinds, &Uses::of(&files.into()))
        };
        let raised = "fn f() { g(Fault::Broken, Fault::Fine) }";
        assert!(found(raised, "(\"broken\", Fault::Fine)").is_empty());
        // Of a comment or a longer word nothing follows.
        let lacking = found(
            "// Fault::Broken\nf(Fault::Brokenness, Fault::Fine)",
            "// broken\n\"un-broken Fine\"",
        );
        assert_eq!(lacking.len(), 2, "{lacking:?}");
        assert!(lacking[0].starts_with("nothing raises Fault::Broken"));
        let within =
            format!("{raised}\n#[cfg(test)]\nmod tests {{\n    f(\"broken\", \"Fine\");\n}}\n");
        assert!(found(&within, "").is_empty(), "a unit test sees it");
    }

    #[test]
    fn an_alert_leads_to_its_section() {
        let url = "https://x/deploy/runbook.md#mcsdown";
        let mut alerts = serde_json::json!({"groups": [{"rules": [{"record": "r"}, {
            "alert": "McsDown", "labels": {"severity": "critical"},
            "annotations": {"runbook_url": url, "summary": "It is down", "description": "All of it.\n"},
        }]}]});
        let mut document = String::new();
        assert_eq!(alerts_of(&alerts, "agents", &mut document).unwrap(), ["McsDown"]);
        assert!(document.contains("### McsDown\n\n`critical` It is down. All of it.\n\nTo do: [runbook](runbook.md#mcsdown)."));
        alerts["groups"][0]["rules"][1]["annotations"]["runbook_url"] = "https://x#mcsup".into();
        assert!(alerts_of(&alerts, "agents", &mut document).is_err());
    }
}
