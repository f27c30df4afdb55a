//! The hooks of the socket path.

use std::{io, os::fd::BorrowedFd};

use aya_obj::generated::bpf_attach_type as Type;

use crate::core::kernel::bpf::effective_programs;

/// A hook of the socket path, named as its program and its pin are.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// `connect4` and so on.
    pub name: &'static str,
    pub(super) attach_type: Type,
}

/// Whether a program runs for the sockets of a cgroup.
pub(crate) struct HookState {
    pub(crate) runs: bool,
    /// The ids of the programs that run before it.
    pub(crate) before: Vec<u32>,
}

impl Hook {
    /// Whether its program replaces a VIP by a backend. It is attached before programs of others, which may have to translate
    /// the backend: the address of a Service. At the other hooks ours comes last, so that it sees the backend again.
    pub(crate) const fn translates(&self) -> bool {
        matches!(
            self.attach_type,
            Type::BPF_CGROUP_INET4_CONNECT
                | Type::BPF_CGROUP_INET6_CONNECT
                | Type::BPF_CGROUP_UDP4_SENDMSG
                | Type::BPF_CGROUP_UDP6_SENDMSG
        )
    }

    /// Asks the kernel whether a program runs at this hook for the sockets of a cgroup.
    pub(crate) fn running(
        &self,
        cgroup: BorrowedFd<'_>,
        program: Option<u32>,
    ) -> io::Result<HookState> {
        let mut ids = effective_programs(cgroup, self.attach_type)?;
        let place = ids.iter().position(|id| Some(*id) == program);
        ids.truncate(place.unwrap_or(0));
        Ok(HookState { runs: place.is_some(), before: ids })
    }
}

/// Every hook, in the order in which programs are attached and switched: a hook that shows the VIP comes before
/// one that hides it, so that no application ever sees a backend. The hook that frees slots of sockets comes before
/// those that take them.
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
