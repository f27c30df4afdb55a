//! The maps in the kernel: written by the agent, read by the command line.

mod clock;
mod counters;
mod fallback;
mod flow_gate;
mod flow_sweep;
mod flow_table;
mod kernel;
mod run;
mod udp_connections;

pub use crate::bpf::{Access, ReadOnly, ReadWrite};
pub use clock::monotonic_ns;
pub use counters::{Counts, read as read_counters};
pub use fallback::StorageFallback;
pub use flow_gate::FlowGate;
pub use flow_sweep::FlowSweep;
pub use flow_table::{FlowTable, TakenOver};
pub use kernel::{KernelMaps, KernelMapsReader, PinnedMaps};
pub use run::{Run, read_run_record, write_run_record};
pub use udp_connections::{UdpConnection, UdpConnections};
