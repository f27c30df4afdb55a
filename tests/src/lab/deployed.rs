//! The agent as its chart installs it on clusters, with clients and servers in pods.

pub mod agents;
mod clients;
mod member;
mod release;
mod target;
mod traces;

pub use self::{
    clients::{Answer, Client, Load, Place},
    member::{Member, NAMESPACE, PATIENCE, SERVER, ports},
    release::Release,
    target::{TCP, Target, UDP},
    traces::{is_clean, is_clean_of, traces},
};
