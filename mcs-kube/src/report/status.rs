//! The health of an agent, its latest report, and the parts of a report that features write.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{NodeFacts, ReachReport, Rejection, SourceStatus};
use crate::reasons::RejectionReason;

/// Part of `mcs-agent status -o json`. `R`: the report, or what its reader knows of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status<R = CommonReport> {
    /// Why the agent is degraded; empty if it is not.
    pub degraded: Vec<String>,
    /// The counters of the eBPF programs.
    pub counters: BTreeMap<String, u64>,
    /// The latest status file; absent if it cannot be read. It is of an agent before if the agent has not reported yet:
    /// `degraded` says so.
    pub report: Option<R>,
    /// The latest start of an agent; absent if it cannot be read.
    pub start: Option<Start>,
}

impl<R: AsRef<CommonReport>> Status<R> {
    /// The report of the agent that runs.
    pub fn own_report(&self) -> Option<&R> {
        let is_former =
            |agent: &AgentInfo| self.start.as_ref().is_some_and(|start| start.is_after(agent));
        self.report.as_ref().filter(|report| !is_former(&report.as_ref().agent))
    }
}

impl AsRef<Self> for CommonReport {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The part of a report that `mcs check` reads.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct NodeReport {
    /// What others read too.
    #[serde(flatten)]
    pub common: CommonReport,
    /// The ways to the pods of other clusters; absent if the agent connects to none.
    #[serde(default)]
    pub reach: Option<Vec<ReachReport>>,
}

impl AsRef<CommonReport> for NodeReport {
    fn as_ref(&self) -> &CommonReport {
        &self.common
    }
}

/// The part of a report that `mcs` reads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommonReport {
    /// Who wrote this.
    pub agent: AgentInfo,
    /// The state of the source: what is synced, and what cannot be read.
    pub source: Arc<SourceStatus>,
    /// What flags and source say of the node.
    pub node: NodeFacts,
    /// A limited number of rejections. The message `and N more` counts further ones of its object for
    /// its reason.
    pub rejections: Arc<Vec<Rejection>>,
    /// All rejections, by reason.
    #[serde(default)]
    pub rejection_counts: Arc<BTreeMap<RejectionReason, usize>>,
    /// What is wanted but not in the maps yet, and why; retried.
    pub pending: Vec<String>,
}

/// Who wrote a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Its version.
    pub version: String,
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// The host name it saw.
    pub host: String,
    /// Seconds since the Unix epoch.
    pub started: u64,
    /// Seconds since the Unix epoch, of this report.
    pub updated: u64,
}

/// The latest start of an agent: a file beside the status file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Who started.
    pub agent: AgentInfo,
    /// Why it has ended. Absent while it runs, and after a signal.
    pub failure: Option<String>,
}

impl Start {
    /// Whether this agent, which wrote a report, was before. In containers all agents have the same process id.
    pub fn is_after(&self, reporter: &AgentInfo) -> bool {
        let key = |agent: &AgentInfo| (agent.started, agent.pid, agent.host.clone());
        self.agent.started >= reporter.started && key(&self.agent) != key(reporter)
    }
}

/// The parts of a report that features write, by their names in JSON. A feature knows what its own mean.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sections(BTreeMap<String, Value>);

impl Sections {
    /// Whether no feature has said anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a part.
    pub fn set(&mut self, name: &str, part: &impl Serialize) {
        self.0.insert(name.to_owned(), value(part));
    }

    /// Adds an entry to a part that is a list.
    pub fn add(&mut self, name: &str, entry: &impl Serialize) {
        let list = self.0.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(value(entry));
        }
    }

    /// A part, if the report has it in this form.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.0.get(name)?).ok()
    }

    /// Fails if the report has a part, and not in this form: another version has written it.
    pub fn expect<T: DeserializeOwned>(&self, name: &str) -> Result<(), serde_json::Error> {
        self.0.get(name).map_or(Ok(()), |part| T::deserialize(part).map(drop))
    }
}

/// A part has text as keys and no numbers that JSON lacks, so it can be written.
fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}
