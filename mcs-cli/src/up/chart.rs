//! The chart of `mcs up`: where it is, and its version.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;
use tokio::process::Command;

use crate::tool::{output, run};

/// The chart of a release of `mcs` has the version of `mcs`.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The chart and its values.
#[derive(Debug, Args)]
pub(crate) struct ChartArgs {
    /// The chart `mcs`: a directory, an archive or an address
    #[arg(
        long,
        env = "MCS_CHART",
        value_name = "CHART",
        default_value = "oci://ghcr.io/mcs-agent/charts/mcs"
    )]
    chart: String,

    /// The version of a chart at an address [default: that of this program]
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,

    /// A value of the chart, as helm takes it; repeatable. What an earlier release has set stays
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,

    /// A file or URL with types of the Multi-Cluster Services API, where a cluster lacks one; repeatable [default: those of
    /// sigs.k8s.io/mcs-api v0.5.2, and of a certain commit of about-api]
    #[arg(long, value_name = "FILE")]
    pub(super) types: Vec<String>,
}

impl ChartArgs {
    /// The version of a chart at an address.
    fn wanted(&self) -> &str {
        self.chart_version.as_deref().unwrap_or(OWN_VERSION)
    }
}

/// The chart that every cluster gets.
pub(super) struct Chart {
    reference: String,
    /// The version at an address. A directory or archive has one.
    pinned: Option<String>,
    name: String,
    pub(super) version: String,
    /// The definitions of its own types.
    pub(super) types: Vec<Value>,
}

impl Chart {
    /// Looks at the chart. A directory gets its subcharts, which archives have.
    pub(super) async fn of(args: &ChartArgs) -> anyhow::Result<Self> {
        for (tool, arguments) in
            [("helm", ["version", "--short"]), ("kubectl", ["version", "--client"])]
        {
            let mut command = Command::new(tool);
            command.args(arguments);
            run(command).await.with_context(|| format!("{tool} is needed in the PATH"))?;
        }
        let path = Path::new(&args.chart);
        if path.join("Chart.yaml").exists() {
            let mut update = Command::new("helm");
            update.args(["dependency", "update", &args.chart]);
            run(update).await?;
        }
        let mut chart = Self {
            reference: args.chart.clone(),
            pinned: (!path.exists()).then(|| args.wanted().to_owned()),
            name: String::new(),
            version: String::new(),
            types: vec![],
        };
        let about = output(chart.helm(&["show", "chart"]), &[]).await?;
        let about: Value = serde_saphyr::from_str(&String::from_utf8_lossy(&about))?;
        let text = |field: &str| {
            let text = about[field].as_str().map(str::to_owned);
            text.with_context(|| format!("the chart {} has no {field}", args.chart))
        };
        (chart.name, chart.version) = (text("name")?, text("version")?);
        ensure!(
            args.chart_version.as_ref().is_none_or(|wanted| *wanted == chart.version),
            "the chart {} has version {}, and --chart-version says {}",
            args.chart,
            chart.version,
            args.wanted()
        );
        let types = output(chart.helm(&["show", "crds"]), &[]).await?;
        chart.types = serde_saphyr::from_multiple(&String::from_utf8_lossy(&types))?;
        chart.types.retain(Value::is_object);
        Ok(chart)
    }

    /// helm with a verb about the chart alone.
    fn helm(&self, verb: &[&str]) -> Command {
        let mut helm = Command::new("helm");
        helm.args(verb);
        self.add_to(&mut helm);
        helm
    }

    /// Names it to helm.
    pub(super) fn add_to(&self, helm: &mut Command) {
        helm.arg(&self.reference);
        if let Some(version) = &self.pinned {
            helm.args(["--version", version]);
        }
    }

    /// The version of a release of this chart, which helm calls `NAME-VERSION`.
    pub(super) fn version_of(&self, release: &str) -> String {
        let version = release.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
        version.unwrap_or(release).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Chart {
        pub(in crate::up) fn with_types(types: Vec<Value>) -> Self {
            Self {
                reference: "mcs".to_owned(),
                pinned: None,
                name: "mcs".to_owned(),
                version: "0.2.0".to_owned(),
                types,
            }
        }
    }

    #[test]
    fn without_a_flag_the_chart_has_the_version_of_the_program() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            chart: ChartArgs,
        }
        let of = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["mcs"], words].concat()).unwrap();
            line.chart.wanted().to_owned()
        };
        assert_eq!(of(&[]), env!("CARGO_PKG_VERSION"));
        assert_eq!(of(&["--chart-version", "0.9.0"]), "0.9.0");
    }

    #[test]
    fn a_chart_at_an_address_has_a_fixed_version() {
        let chart = |pinned: Option<&str>| Chart {
            reference: "oci://example/mcs".to_owned(),
            pinned: pinned.map(str::to_owned),
            ..Chart::with_types(vec![])
        };
        let words = |chart: &Chart| {
            let command = chart.helm(&["show", "chart"]);
            let words = command.as_std().get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&chart(Some("0.2.0"))), "show chart oci://example/mcs --version 0.2.0");
        assert_eq!(words(&chart(None)), "show chart oci://example/mcs");
        assert_eq!(chart(None).version_of("mcs-0.2.0-rc.1"), "0.2.0-rc.1");
        assert_eq!(chart(None).version_of("other-1.0.0"), "other-1.0.0");
    }
}
