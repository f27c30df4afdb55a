//! The notes of a release: its section of the changelog, and how to install and verify it.

use anyhow::{Result, ensure};

/// The text below a heading `## NAME` or `## NAME - DATE` of the changelog.
pub(super) fn section<'a>(changes: &'a str, name: &str) -> Result<&'a str> {
    let is_heading = |line: &str| {
        line.strip_prefix("## ").is_some_and(|title| title.split([' ', ']']).next() == Some(name))
    };
    let heading = changes.lines().find(|line| is_heading(line));
    ensure!(heading.is_some(), "CHANGELOG.md has no section {name}");
    let heading = heading.unwrap_or_default();
    let start = changes.find(heading).map_or(0, |start| start + heading.len());
    let rest = &changes[start..];
    let text = rest.split("\n## ").next().unwrap_or(rest).trim();
    ensure!(!text.is_empty(), "the section {name} of CHANGELOG.md is empty");
    Ok(text)
}

/// The notes as Markdown.
pub(super) fn notes(section: &str, repository: &str, version: &str) -> String {
    let owner = repository.split('/').next().unwrap_or(repository);
    format!(
        "{section}\n\n## Install\n\n```\nhelm install mcs-agent oci://ghcr.io/{owner}/charts/mcs-agent --version {version} \\\n  \
         --namespace mcs-system\n```\n\nThe chart `mcs` installs the controller too.\n\n## Verify\n\n```\ncosign verify ghcr.io/{repository}:{version} \\\n  \
         --certificate-identity-regexp '^https://github.com/{repository}/.github/workflows/release.yml@refs/tags/v' \\\n  \
         --certificate-oidc-issuer https://token.actions.githubusercontent.com\nsha256sum --check SHA256SUMS\ngh attestation \
         verify mcs-agent-{version}-linux-amd64 --repo {repository}\n```\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_section() {
        let changes = "# Changes\n\n## Unreleased\n\nnew\n\n## 0.2.0 - 2026-12-01\n\n### Added\n\n- b\n\n## 0.1.0\n\na\n";
        assert_eq!(section(changes, "0.2.0").unwrap(), "### Added\n\n- b");
        assert_eq!(section(changes, "Unreleased").unwrap(), "new");
        assert_eq!(section(changes, "0.1.0").unwrap(), "a");
        assert!(section(changes, "0.2").is_err());
    }
}
