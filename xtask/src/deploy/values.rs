//! The table of the chart's values, from the comments in values.yaml.

use anyhow::{Result, ensure};

/// A value, and what its comment says.
#[derive(PartialEq, Eq, Debug)]
struct Described {
    /// Such as `tc.mode`.
    name: String,
    /// As YAML on one line.
    default: String,
    comment: String,
}

/// A line of values.yaml that has a key.
struct Entry<'a> {
    indent: usize,
    key: &'a str,
    /// What follows the colon.
    value: &'a str,
    comment: String,
}

/// The rows of a Markdown table: name, default, comment. Every value has a comment, or lies in one that has.
pub(super) fn table(values: &str) -> Result<String> {
    let header = "| value | default | meaning |\n|---|---|---|\n".to_owned();
    let rows = described(values)?.into_iter().map(|Described { name, default, comment }| {
        let comment = comment.replace('|', "\\|").replace('*', "\\*");
        format!("| `{name}` | `{default}` | {comment} |\n")
    });
    Ok([header].into_iter().chain(rows).collect())
}

fn described(values: &str) -> Result<Vec<Described>> {
    let entries = entries(values);
    let mut path: Vec<&Entry<'_>> = Vec::new();
    let mut found = Vec::new();
    let mut skip_below = None;
    for (index, entry) in entries.iter().enumerate() {
        if skip_below.is_some_and(|indent| entry.indent > indent) {
            continue;
        }
        skip_below = None;
        path.retain(|parent| parent.indent < entry.indent);
        path.push(entry);
        let name = path.iter().map(|entry| entry.key).collect::<Vec<_>>().join(".");
        let inside: Vec<_> =
            entries[index + 1..].iter().take_while(|inner| inner.indent > entry.indent).collect();
        if inside.iter().any(|inner| !inner.comment.is_empty()) {
            continue;
        }
        ensure!(!entry.comment.is_empty(), "values.yaml does not say what {name} means");
        skip_below = Some(entry.indent);
        let default = if inside.is_empty() { entry.value.to_owned() } else { flow(&inside) };
        found.push(Described { name, default, comment: entry.comment.clone() });
    }
    Ok(found)
}

/// Mappings, and a list of one mapping, in YAML's flow style.
fn flow(entries: &[&Entry<'_>]) -> String {
    let Some(indent) = entries.first().map(|entry| entry.indent) else { return "{}".to_owned() };
    let mut parts = Vec::new();
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.indent == indent) {
        let rest = &entries[index + 1..];
        let end = rest.iter().position(|inner| inner.indent <= indent).unwrap_or(rest.len());
        let value =
            if entry.value.is_empty() { flow(&rest[..end]) } else { entry.value.to_owned() };
        parts.push(format!("{}: {value}", entry.key));
    }
    let text = parts.join(", ");
    match text.strip_prefix("- ") {
        Some(first) => format!("[{{{first}}}]"),
        None => format!("{{{text}}}"),
    }
}

fn entries(values: &str) -> Vec<Entry<'_>> {
    let mut comment = Vec::new();
    let mut found = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(more) = text.strip_prefix('#') {
            comment.push(more.trim());
        } else if let Some((key, value)) = text.split_once(':') {
            let indent = line.len() - text.len();
            let told = comment.join(" ");
            found.push(Entry { indent, key, value: value.trim(), comment: told });
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_row_each() {
        let values = "\
# Where it is.
image: a:1
tc:
  # Which mode,
  # or none.
  mode: auto
# Many.
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxSurge: 0
# Taints.
tolerations:
  - operator: Exists
";
        let table = table(values).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `image` | `a:1` | Where it is. |",
                "| `tc.mode` | `auto` | Which mode, or none. |",
                "| `strategy` | `{type: RollingUpdate, rollingUpdate: {maxSurge: 0}}` | Many. |",
                "| `tolerations` | `[{operator: Exists}]` | Taints. |",
            ]
        );
    }

    #[test]
    fn a_value_without_a_comment_is_an_error() {
        let error = table("tc:\n  # Mode.\n  mode: auto\n  attach: tcx\n").unwrap_err();
        assert_eq!(error.to_string(), "values.yaml does not say what tc.attach means");
    }
}
