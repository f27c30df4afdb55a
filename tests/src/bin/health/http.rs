//! HTTP requests to an agent, and the samples of `/metrics`.

use crate::prelude::*;

/// Where health is served by default.
pub(crate) const HEALTH: &str = "127.0.0.1:16450";
/// Where metrics are.
pub(crate) const METRICS: &str = "127.0.0.1:16451";

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// Asks with curl. `flags` are more of its arguments.
pub(crate) fn ask(netns: &Namespace, url: &str, flags: &[&str]) -> Result<Answer> {
    let curl = ["--silent", "--show-error", "--include", "--max-time", "5"];
    let output = netns.output("curl", &[&curl, flags, &[&format!("http://{url}")]].concat())?;
    let (head, body) = output.split_once("\r\n\r\n").context("an answer without a head")?;
    let status = head.split(' ').nth(1).context("an answer without a status")?.parse()?;
    Ok(Answer { status, headers: head.to_lowercase(), body: body.to_owned() })
}

/// `/livez` and the like, in the agent's namespace.
pub(crate) fn health(netns: &Namespace, path: &str) -> Result<Answer> {
    ask(netns, &format!("{HEALTH}{path}"), &[])
}

/// Fails unless the answer has this status, and contains all of these words.
pub(crate) fn expect(answer: &Answer, status: u16, says: &[&str]) -> Result {
    ensure!(answer.status == status, "{} instead of {status}: {}", answer.status, answer.body);
    for words in says {
        ensure!(answer.body.contains(words), "no {words:?} in {}", answer.body);
    }
    Ok(())
}

/// What `/metrics` says, as text.
pub(crate) fn scrape(netns: &Namespace) -> Result<String> {
    scrape_at(netns, METRICS)
}

fn scrape_at(netns: &Namespace, address: &str) -> Result<String> {
    let answer = ask(netns, &format!("{address}/metrics"), &[])?;
    expect(&answer, 200, &[])?;
    Ok(answer.body)
}

/// Every sample, by name and labels as they are written.
pub(crate) fn samples(netns: &Namespace) -> Result<BTreeMap<String, f64>> {
    samples_at(netns, METRICS)
}

/// Those of an agent with another address.
pub(crate) fn samples_at(netns: &Namespace, address: &str) -> Result<BTreeMap<String, f64>> {
    let text = scrape_at(netns, address)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').context("a line without a value")?;
            Ok((name.to_owned(), value.parse()?))
        })
        .collect()
}
