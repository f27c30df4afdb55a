//! The hooks of the socket path.

use std::{io, os::fd::BorrowedFd};

use aya_obj::generated::bpf_attach_type as Type;

use crate::bpf::effective_programs;

/// A hook of the socket path, named as its program and its pin are.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// `connect4` and so on.
    pub name: &'static str,
    pub(super) attach_type: Type,
}

impl Hook {
    /// The ids of the programs that run at this hook for the sockets of a cgroup, in their order.
    pub(crate) fn effective_programs(&self, cgroup: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
        effective_programs(cgroup, self.attach_type)
    }
}

/// Every hook, in the order in which programs are attached and switched: a hook that shows the VIP comes before
/// one that hides it, so that no application ever sees a backend. What frees slots of sockets comes before what takes them.
pub const HOOKS: [Hook; 9] = [
    Hook { name: "recvmsg4", attach_type: Type::BPF_CGROUP_UDP4_RECVMSG },
    Hook { name: "recvmsg6", attach_type: Type::BPF_CGROUP_UDP6_RECVMSG },
    Hook { name: "getpeername4", attach_type: Type::BPF_CGROUP_INET4_GETPEERNAME },
    Hook { name: "getpeername6", attach_type: Type::BPF_CGROUP_INET6_GETPEERNAME },
    Hook { name: "sock_release", attach_type: Type::BPF_CGROUP_INET_SOCK_RELEASE },
    Hook { name: "connect4", attach_type: Type::BPF_CGROUP_INET4_CONNECT },
    Hook { name: "connect6", attach_type: Type::BPF_CGROUP_INET6_CONNECT },
    Hook { name: "sendmsg4", attach_type: Type::BPF_CGROUP_UDP4_SENDMSG },
    Hook { name: "sendmsg6", attach_type: Type::BPF_CGROUP_UDP6_SENDMSG },
];
