//! Leases: which replica leads, and the sign of life of a mailbox's publisher.

mod election;
mod publisher;

pub use self::{
    election::Election,
    publisher::{PublisherIdentity, PublisherTerm, Statement, StatementChange},
};
