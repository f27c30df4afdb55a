//! Access to an API server, for every program of this project: connections and credentials, lists and watches that survive
//! errors, and decoding of objects as they arrive.
//!
//! ```text
//!  kubeconfig, service account, exec plugin
//!       |  ApiConnection                       access
//!       v
//!  list and watch, with back-off               watch, discovery
//!       |  WatchedObject, decoded              objects, decoder
//!       v
//!  ResourceEvent
//! ```
//!
//! [`program`] has the shared parts of the command lines.
//!
//! A missing answer is never an empty list: a watch reports the objects that it has read, or why it cannot read now.

pub mod access;
pub mod decoder;
pub mod discovery;
mod duration;
mod envelope;
mod exec_plugin;
pub mod names;
pub mod objects;
pub mod program;
pub mod reach;
pub mod reasons;
mod record;
pub mod report;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
mod tiers;
mod traffic;
mod vip_ranges;
pub mod watch;
pub mod wish;

pub use access::{
    AccessError, ApiAccess, ApiConnection, KubeconfigContent, KubeconfigFile, is_unverified,
};
pub use decoder::{Decoder, PropertyDecoder, RangeDecoder, WatchedObject};
pub use duration::duration;
pub use exec_plugin::PluginError;
pub use names::ObjectKey;
pub use objects::{EndpointConditions, NamespaceRules, ReadMessage, ServiceType};
pub use record::{SERVICE_NAME_LABEL, record_of};
pub use text::{hanging, one_line, one_line_of, shorten, told};
pub use tiers::{SELECTOR_RESULTS, Tier, Tiers};
pub use traffic::{ClusterTraffic, Drain, TRAFFIC_PROPERTY, Traffic, Unreachable};
pub use vip_ranges::{VIP_RANGES_PROPERTY, VipRangeList};
pub use watch::{ResourceEvent, ResourceWatch, Room, WatchTarget};
