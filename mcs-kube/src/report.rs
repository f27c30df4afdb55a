//! What `mcs-agent` prints with `-o json` and `mcs` reads: each type is declared once, for both. Fields are added, never renamed.

mod clients;
mod imports;
mod node;
mod reach;
mod rejection;
mod sections;
mod source;
mod status;
mod tables;
mod trace;

pub use self::{
    clients::{FlowView, FrontendId, Protocol, SocketCount},
    imports::{ImportList, ImportReport, ImportState},
    node::NodeFacts,
    reach::ReachReport,
    rejection::{Kind, ObjectRef, Rejection},
    sections::Sections,
    source::{KindStatus, SourceProblem, SourceStatus},
    status::{AgentInfo, CommonReport, NodeReport, Start, Status},
    tables::{Backend, Frontend, ServiceTables},
    trace::{TraceTotals, TraceView},
};
