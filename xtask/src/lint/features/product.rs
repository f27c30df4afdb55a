//! The lines of a file that are product code, and the words and paths in them.

use std::collections::BTreeSet;

/// The lines of code outside of items for tests, each with its number, without comments and what strings say.
pub(in crate::lint) fn lines(text: &str) -> Vec<(usize, String)> {
    let code = code(text);
    let mut all = (1..).zip(text.split('\n').map(str::trim).zip(code.split('\n'))).peekable();
    let mut product = Vec::new();
    while let Some((number, (line, code))) = all.next() {
        if !is_for_tests(line) {
            let is_code = !line.is_empty() && !line.starts_with("//");
            product.extend(is_code.then(|| (number, code.to_owned())));
            continue;
        }
        while all
            .next_if(|(_, (line, _))| line.starts_with("#[") || line.starts_with("//"))
            .is_some()
        {}
        let mut depth = 0;
        for (_, (_, code)) in all.by_ref() {
            let count = |brackets| code.matches(brackets).count().cast_signed();
            depth += count(['{', '(', '[']) - count(['}', ')', ']']);
            if depth <= 0 && code.trim_end().ends_with([';', '}', ',']) {
                break;
            }
        }
    }
    product
}

/// Whether the item after a line is for tests.
fn is_for_tests(line: &str) -> bool {
    line.trim_start().strip_prefix("#[cfg(").is_some_and(|condition| {
        ["test", "any(test", "all(test"].iter().any(|test| condition.starts_with(test))
            || condition.contains("feature = \"test")
    })
}

/// The modules that a file declares for tests, as paths without extension.
pub(in crate::lint) fn test_modules(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = ["/mod", "/lib", "/main"].iter().find_map(|root| stem.strip_suffix(root));
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let after = |number: usize| lines[number + 1..].iter().find(|line| !line.starts_with("#["));
    let declared = (0..lines.len()).filter(|number| is_for_tests(lines[*number])).filter_map(after);
    let names = declared.filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod "));
    names.map(|(_, name)| format!("{}/{name}", folder.unwrap_or(stem))).collect()
}

/// Whether a file is for tests, by its name or because a file above declares it so.
pub(in crate::lint) fn is_test(path: &str, declared: &BTreeSet<String>) -> bool {
    let stem = path.trim_end_matches(".rs");
    let above = stem.match_indices('/').map(|(end, _)| &stem[..end]);
    stem.split('/').any(|part| matches!(part, "test" | "tests" | "testing"))
        || above.chain([stem]).any(|module| declared.contains(module))
}

/// A text without comments and literals, in as many lines. A string that is a name stays: it leads to what it names.
pub(in crate::lint) fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let Some(length) = skipped(rest) else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        let (literal, after) = rest.split_at(length);
        let name = literal.trim_matches('"').replace('-', "_");
        if literal.starts_with('"') && name.chars().all(is_part) {
            code.extend(["\"", &name, "\""]);
        }
        code.extend(literal.matches('\n'));
        rest = after;
    }
    code
}

/// The length of the comment or literal that a text begins with.
fn skipped(text: &str) -> Option<usize> {
    let end = |from: usize, mark: &str| {
        text.get(from..)
            .and_then(|rest| rest.find(mark))
            .map_or(text.len(), |at| from + at + mark.len())
    };
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.find(|c| c != '#')?;
        let mark = format!("\"{}", &raw[..hashes]);
        return raw[hashes..].starts_with('"').then(|| end(hashes + 2, &mark));
    }
    let mut chars = text.char_indices();
    match chars.next()?.1 {
        '"' => {
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => return Some(at + 1),
                    '\\' => drop(chars.next()),
                    _ => {}
                }
            }
            Some(text.len())
        }
        '\'' => match chars.next()?.1 {
            '\\' => chars.nth(1).map(|(at, _)| end(at, "'")),
            // Else it is a lifetime.
            _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
        },
        _ => None,
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifiers, `::`, and each other character of a line.
pub(super) fn tokens(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let length = match first {
            _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

/// Every path with the line of its last word, those in groups as if they were written out; of `a::b` first `a`, then `a::b`.
pub(super) fn paths(lines: &[(usize, String)]) -> Vec<(usize, Vec<&str>)> {
    let mut found = Vec::new();
    let (mut groups, mut path, mut is_joined) = (Vec::new(), Vec::new(), false);
    for (number, token) in
        lines.iter().flat_map(|(number, line)| tokens(line).map(move |token| (*number, token)))
    {
        match token {
            "::" => is_joined = true,
            "{" => {
                groups.push(if is_joined { std::mem::take(&mut path) } else { Vec::new() });
                is_joined = false;
            }
            word if word.starts_with(is_part) || is_joined && word == "*" => {
                if !is_joined {
                    path = groups.last().cloned().unwrap_or_default();
                }
                path.push(word);
                found.push((number, path.clone()));
                is_joined = false;
            }
            _ => {
                if token == "}" {
                    groups.pop();
                }
                path.clear();
                is_joined = false;
            }
        }
    }
    found
}

/// Whether an identifier has the parts of a feature's name: `PeerReachArgs` and `PEER_REACH` those of `peer_reach`.
pub(super) fn names(word: &str, feature: &str) -> bool {
    let (word, feature) = (parts(word), parts(feature));
    // A tracepoint of the kernel is no trace.
    let is_other = |rest: &[String]| rest.first().is_some_and(|next| next.starts_with("point"));
    let mut places = word.windows(feature.len()).enumerate();
    places.any(|(at, parts)| parts == feature && !is_other(&word[at + feature.len()..]))
}

fn parts(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_capitals = before.is_uppercase() && chars.peek().is_some_and(|c| c.is_lowercase());
        if c == '_' || c.is_uppercase() && (!before.is_uppercase() || ends_capitals) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_literals_and_tests_are_no_product() {
        let text = "//! Says.\n\nfn a() {\n    b(\"c // d\", 'e', '\"', '\\'', \"peer-reach\"); // f\n}\n\
            #[cfg(test)]\n#[expect(g)]\nimpl H {\n    fn i() {}\n}\n#[cfg(test)]\nmod j;\n\
            const K: &str = r#\"l \"m\"\n  n\"#;\nfn o<'p>() {\n    \"q \\\n r\";\n}\n";
        let lines = lines(text);
        let numbers: Vec<_> = lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 4, 5, 13, 14, 15, 16, 17, 18]);
        let code: Vec<_> = lines.iter().flat_map(|(_, line)| tokens(line)).collect();
        let code = code.concat();
        assert_eq!(code, "fna(){b(,,,,\"peer_reach\");}constK:&str=;fno<'p>(){;}");
        assert_eq!(test_modules("mcs-kube/src/a/mod.rs", text), ["mcs-kube/src/a/j"]);
        let declared = ["mcs-kube/src/a/j".to_owned()].into();
        assert!(is_test("mcs-kube/src/a/j/k.rs", &declared));
        assert!(!is_test("mcs-kube/src/a/jk.rs", &declared));
    }

    #[test]
    fn identifiers_have_parts() {
        let cases = [
            ("peer_reach", true),
            ("PeerReachArgs", true),
            ("MCS_PEER_REACH", true),
            ("HTTPPeerReach", true),
            ("peer", false),
            ("peer_reaches", false),
            ("reach_peer", false),
            ("PeersReach", false),
        ];
        for (word, expected) in cases {
            assert_eq!(names(word, "peer_reach"), expected, "{word}");
        }
        assert!(names("open_trace", "trace") && names("TracePin", "trace"));
        assert!(!names("RawTracePoint", "trace"), "a tracepoint of the kernel");
    }
}
