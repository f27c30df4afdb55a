//! Where objects come from: an API server or a directory of manifests. A source sends [`EventBatch`](crate::model::EventBatch)es of events on domain
//! types; no Kubernetes type and no file leaves this module. An agent runs exactly one source.

mod adopt;
mod decode;
mod kubernetes;
mod manifests;
mod objects;

pub use adopt::{Controller, controller, offer};
pub use decode::ReadScope;
#[cfg(feature = "testing")]
pub use kubernetes::testing;
pub use kubernetes::{AccessError, KubeconfigFile, KubernetesOptions, KubernetesSource};
pub use manifests::ManifestSource;
