//! What `mcs-agent` prints with `-o json` and `mcs` reads: each type is declared once, for both. Fields are added, never renamed.

mod clients;
mod imports;
mod node;
mod reach;
mod status;
mod trace;

pub use self::{
    clients::{FlowView, FrontendId, Protocol, SocketCount},
    imports::{
        Backend, Frontend, ImportList, ImportReport, ImportState, Kind, ObjectRef, Rejection,
        ServiceTables,
    },
    node::{KindStatus, NodeFacts, SourceProblem, SourceStatus},
    reach::ReachReport,
    status::{AgentInfo, CommonReport, NodeReport, Sections, Start, Status},
    trace::{TraceTotals, TraceView},
};
