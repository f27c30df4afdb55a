//! The socket path: programs on cgroup hooks that replace a VIP by a backend once per connection.

mod affinity;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod getpeername;
mod lookup;
pub(crate) mod recvmsg;
mod refuse;
pub(crate) mod release;
pub(crate) mod sendmsg;
mod state;
pub(crate) mod table;
