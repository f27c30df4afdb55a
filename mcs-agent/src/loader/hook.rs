//! The hooks of the socket path.

use std::{io, os::fd::BorrowedFd};

use aya::programs::CgroupSockAddrAttachType as Type;
use aya_obj::generated::bpf_attach_type;

use crate::bpf::effective_programs;

/// A hook of the socket path, named as its program and its pin are.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// `connect4` and so on.
    pub name: &'static str,
    attach_type: Type,
}

impl Hook {
    pub(super) fn attach_type(&self) -> bpf_attach_type {
        self.attach_type.into()
    }

    /// The ids of the programs that run at this hook for the sockets of a cgroup, in their order.
    pub(crate) fn effective_programs(&self, cgroup: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
        effective_programs(cgroup, self.attach_type())
    }
}

/// Every hook, in the order in which programs are attached and switched: a hook that shows the VIP comes before
/// one that hides it, so that no application ever sees a backend.
pub const HOOKS: [Hook; 8] = [
    Hook { name: "recvmsg4", attach_type: Type::UDPRecvMsg4 },
    Hook { name: "recvmsg6", attach_type: Type::UDPRecvMsg6 },
    Hook { name: "getpeername4", attach_type: Type::GetPeerName4 },
    Hook { name: "getpeername6", attach_type: Type::GetPeerName6 },
    Hook { name: "connect4", attach_type: Type::Connect4 },
    Hook { name: "connect6", attach_type: Type::Connect6 },
    Hook { name: "sendmsg4", attach_type: Type::UDPSendMsg4 },
    Hook { name: "sendmsg6", attach_type: Type::UDPSendMsg6 },
];
