//! A Prometheus that scrapes the agent of a node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{netns::Namespace, process};

/// Where it listens, in the node's network namespace.
const ADDRESS: &str = "127.0.0.1:19090";
/// How often it scrapes, in seconds.
pub(super) const INTERVAL: u64 = 1;

/// One series of an answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub(super) labels: Vec<(String, String)>,
    /// Seconds since the Unix epoch, and the value.
    pub(super) points: Vec<(f64, f64)>,
}

/// The running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus<'a> {
    netns: &'a Namespace,
    child: Child,
    directory: PathBuf,
    began: f64,
}

impl<'a> Prometheus<'a> {
    /// Starts it, with its data in a new directory.
    pub fn start(netns: &'a Namespace, directory: &Path) -> anyhow::Result<Self> {
        let directory = directory.join("prometheus");
        fs::create_dir_all(&directory)?;
        let config = directory.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: {INTERVAL}s}}\n\
             scrape_configs: [{{job_name: mcs-agent, static_configs: [{{targets: ['127.0.0.1:16451']}}]}}]\n"
        );
        fs::write(&config, text)?;
        let log = fs::File::create(directory.join("log"))?;
        let mut command = netns.command("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
        command.arg(format!("--web.listen-address={ADDRESS}"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("cannot start prometheus")?;
        Ok(Self { netns, child, directory, began: now()? })
    }

    /// When it was started, in seconds since the Unix epoch.
    pub(super) const fn began(&self) -> f64 {
        self.began
    }

    /// The series of a query, from its start until now.
    pub(super) fn ask(&self, query: &str, end: f64) -> anyhow::Result<Vec<Series>> {
        let parameters = [
            format!("query={query}"),
            format!("start={}", self.began),
            format!("end={end}"),
            format!("step={INTERVAL}"),
        ];
        let mut curl = self.netns.command("curl");
        curl.args(["--silent", "--get", "--max-time", "10"]);
        curl.arg(format!("http://{ADDRESS}/api/v1/query_range"));
        curl.args(parameters.iter().flat_map(|parameter| ["--data-urlencode", parameter]));
        let said = process::run(&mut curl, "")?;
        let answer: Value =
            serde_json::from_str(&said).with_context(|| format!("Prometheus says {said:?}"))?;
        ensure!(answer["status"] == "success", "{query}: {said}");
        let result = answer["data"]["result"].as_array().context("no result")?;
        result.iter().map(series).collect()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Seconds since the Unix epoch.
pub(super) fn now() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64().round())
}

fn series(value: &Value) -> anyhow::Result<Series> {
    let labels = value["metric"].as_object().into_iter().flatten();
    let labels =
        labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let points = value["values"].as_array().context("no values")?.iter().map(|point| {
        let text = point[1].as_str().context("no value")?;
        Ok((point[0].as_f64().context("no time")?, text.parse::<f64>()?))
    });
    let points = points.collect::<anyhow::Result<Vec<_>>>()?;
    // A quantile of nothing is no number.
    let points = points.into_iter().filter(|(_, value)| value.is_finite()).collect();
    Ok(Series { labels: labels.collect(), points })
}
