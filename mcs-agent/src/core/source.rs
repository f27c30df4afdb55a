//! Where objects come from: an API server, or what a feature reads in its place. A source sends [`EventBatch`]es of events
//! on domain types; no Kubernetes type and no file leaves it. An agent runs exactly one source.

pub(crate) mod decode;
mod filter;
pub(crate) mod kubernetes;
pub(crate) mod objects;
mod read_from;

use std::pin::Pin;

use tokio::sync::mpsc;

pub use filter::Filter;
pub(crate) use filter::{ObjectFilter, ReadEvent, ReadObject, StartWatch};
#[cfg(feature = "testing")]
pub use kubernetes::testing;
pub use kubernetes::{AccessError, KubernetesSource};
pub use read_from::{ReadFrom, SourceOptions};

use super::model::EventBatch;

/// A source that has read nothing yet.
pub trait ObjectSource {
    /// Begins to read. What it returns sends a batch for each change, until the receiver is dropped. Errors are part of the
    /// batches' status.
    fn start(self: Box<Self>, filter: Filter, batches: mpsc::Sender<EventBatch>) -> Starting;

    /// Whether its first batch has all that can be read now, of every name.
    fn reads_at_once(&self) -> bool {
        false
    }
}

/// A source at work, once it is polled.
pub type Running = Pin<Box<dyn Future<Output = ()>>>;
/// A source that begins. It fails if it will never read anything.
pub type Starting = Pin<Box<dyn Future<Output = anyhow::Result<Running>>>>;
