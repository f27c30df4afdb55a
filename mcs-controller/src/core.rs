//! What it takes to import every service, and to say truly what is imported, written and refused.

pub mod apply;
pub mod cli;
pub mod clock;
pub mod clusterset;
pub mod control;
pub mod feature;
pub mod feed;
pub mod leases;
pub mod mailbox;
pub mod objects;
pub mod own_cluster;
pub mod peers;
pub mod plan;
pub mod server;
pub mod status;
pub(crate) mod told;
