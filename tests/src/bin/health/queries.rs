//! The queries of alerts and of the dashboard: each asks for metrics, labels and values that agents have.

use mcs_tests::api_server::documents;

use crate::{prelude::*, promtool::promtool};

/// Labels that Prometheus and the chart's `PodMonitor` add to every series.
const ADDED: [&str; 7] = ["job", "instance", "node", "pod", "namespace", "container", "endpoint"];
/// Series that come with something to tell: an example of each.
const RARE: &str = "mcs_rejections{reason=\"capacity\"} 1\nup 1\nmcs_audit_repairs_total{map=\"slots\"} 1\n\
     mcs_reach_ok{source_cluster=\"west\",family=\"IPv4\"} 1\n\
     mcs_import_connections_total{import=\"shop/web\",source_cluster=\"west\"} 1\n\
     mcs_import_failed_connects_total{import=\"shop/web\",source_cluster=\"west\"} 1\n\
     mcs_import_refusals_total{import=\"shop/web\",reason=\"no_backend\"} 1\n\
     mcs_propagation_duration_seconds_bucket{source_cluster=\"west\",le=\"1\"} 1\n";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("alerts and the dashboard ask for metrics and labels that there are", ask);
    suite.case("promtool can read the queries of the dashboards", readable);
}

fn ask(world: &mut World) -> Result {
    let series = Series::of(&(scrape(&world.network.node.netns)? + RARE));
    let queries = [alerts()?, dashboard("mcs-agent")?].concat();
    ensure!(queries.len() > 40, "only {} queries", queries.len());
    for (name, query) in queries {
        let selectors = selectors(&query);
        ensure!(!selectors.is_empty(), "{name} asks for nothing: {query}");
        for selector in &selectors {
            series.check(selector).with_context(|| format!("{name}: {query}"))?;
        }
        for label in groupings(&query) {
            let known =
                |selector: &Selector| series.labels(&selector.metric).contains(label.as_str());
            let known = ADDED.contains(&label.as_str()) || selectors.iter().any(known);
            ensure!(known, "{name}: no metric has the label {label}: {query}");
        }
    }
    Ok(())
}

fn readable(_: &mut World) -> Result {
    let queries = [dashboard("mcs-agent")?, dashboard("mcs-controller")?].concat();
    let rules = queries.into_iter().enumerate().map(|(index, (_, query))| {
        serde_json::json!({"record": format!("panel:{index}"), "expr": query})
    });
    let groups =
        serde_json::json!({"groups": [{"name": "panels", "rules": rules.collect::<Vec<_>>()}]});
    let mut file = tempfile::NamedTempFile::new()?;
    std::io::Write::write_all(&mut file, groups.to_string().as_bytes())?;
    promtool(&["check", "rules", &file.path().display().to_string()], "", false)
}

/// The alerts of a chart's alerts.yaml, with the queries of recorded series in place of their names.
fn rules(chart: &str) -> Result<Vec<Value>> {
    let file = format!("helm/{chart}/monitoring/alerts.yaml");
    let text = fs::read_to_string(deploy(&file))?;
    let groups = documents(&text)?.remove(0)["groups"].take();
    let rules =
        groups.as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array());
    let (records, mut alerts): (Vec<_>, Vec<_>) =
        rules.flatten().cloned().partition(|rule| rule["alert"].is_null());
    for alert in &mut alerts {
        let query = alert["expr"].as_str().context("an alert without a query")?;
        let whole = records.iter().try_fold(query.to_owned(), |query, record| {
            let (name, expression) = (record["record"].as_str()?, record["expr"].as_str()?);
            Some(query.replace(name, &format!("({expression})")))
        });
        alert["expr"] = whole.context("a rule without a name or a query")?.into();
    }
    Ok(alerts)
}

/// Names and queries of the agent's alerts. A unit test of the controller compares its own.
fn alerts() -> Result<Vec<(String, String)>> {
    let query = |rule: &Value| {
        Some((rule["alert"].as_str()?.to_owned(), rule["expr"].as_str()?.to_owned()))
    };
    rules("mcs-agent")?.iter().map(|rule| query(rule).with_context(|| rule.to_string())).collect()
}

/// Titles and queries of panels, without Grafana's variables.
fn dashboard(chart: &str) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(deploy(&format!("helm/{chart}/monitoring/dashboard.json")))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().context("a target without a query")?;
            let query = query.replace("$__rate_interval", "5m").replace("$job", ".*");
            queries.push((panel["title"].to_string(), query.replace("$instance", ".*")));
        }
    }
    Ok(queries)
}

/// What an agent serves: for each series name, its labels and their values.
struct Series(BTreeMap<String, Vec<BTreeMap<String, String>>>);

impl Series {
    fn of(text: &str) -> Self {
        let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, _)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = matchers(labels.trim_end_matches('}'));
            let labels = labels.into_iter().map(|matcher| (matcher.label, matcher.value));
            all.entry(name.to_owned()).or_default().push(labels.collect());
        }
        Self(all)
    }

    fn labels(&self, metric: &str) -> BTreeSet<&str> {
        self.0
            .get(metric)
            .into_iter()
            .flatten()
            .flat_map(|labels| labels.keys().map(String::as_str))
            .collect()
    }

    fn check(&self, selector: &Selector) -> Result {
        let series = self.0.get(&selector.metric);
        let series = series.with_context(|| format!("there is no {}", selector.metric))?;
        for matcher in
            selector.matchers.iter().filter(|matcher| !ADDED.contains(&matcher.label.as_str()))
        {
            let Matcher { label, operator, value } = matcher;
            let values: BTreeSet<_> =
                series.iter().filter_map(|labels| labels.get(label)).collect();
            ensure!(!values.is_empty(), "{} has no label {label}", selector.metric);
            let exact = matches!(operator.as_str(), "=" | "!=");
            ensure!(
                !exact || values.contains(value),
                "no {} has {label}={value}: {values:?}",
                selector.metric
            );
        }
        Ok(())
    }
}

/// A metric in a query, and what is asked of its labels.
#[derive(PartialEq, Eq, Debug)]
struct Selector {
    metric: String,
    matchers: Vec<Matcher>,
}

#[derive(PartialEq, Eq, Debug)]
struct Matcher {
    label: String,
    operator: String,
    value: String,
}

/// Every metric of a query. A name is a metric if it has labels, or a prefix that only metrics have.
fn selectors(query: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let end = end.map_or(rest.len(), |end| start + end);
        let (name, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        let matchers = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((inner, beyond)) => {
                rest = beyond;
                matchers(inner)
            }
            None if ["mcs_", "kubeproxy_", "process_"]
                .iter()
                .any(|prefix| name.starts_with(prefix)) =>
            {
                Vec::new()
            }
            None => continue,
        };
        found.push(Selector { metric: name.to_owned(), matchers });
    }
    found
}

/// `label="value", other=~"value"`.
fn matchers(text: &str) -> Vec<Matcher> {
    let mut parts = text.split('"');
    let mut found = Vec::new();
    while let (Some(left), Some(value)) = (parts.next(), parts.next()) {
        let left = left.trim_start_matches([',', ' ']);
        let (label, operator) = left.split_at(left.find(['=', '!']).unwrap_or(left.len()));
        found.push(Matcher {
            label: label.to_owned(),
            operator: operator.to_owned(),
            value: value.to_owned(),
        });
    }
    found
}

/// The labels of `by (...)`, `without (...)` and `ignoring (...)`, but `le` of histograms.
fn groupings(query: &str) -> Vec<String> {
    let clauses = ["by (", "without (", "ignoring ("];
    let lists = clauses.iter().flat_map(|clause| query.split(clause).skip(1));
    let lists = lists.filter_map(|rest| rest.split_once(')'));
    let labels = lists.flat_map(|(list, _)| list.split(',')).map(|label| label.trim().to_owned());
    labels.filter(|label| label != "le").collect()
}
