use aya::programs::CgroupSockAddrAttachType as Type;

/// A hook of the socket path, named as its program and its pin are.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// `connect4` and so on.
    pub name: &'static str,
    pub(super) attach_type: Type,
}

/// Every hook, in the order in which programs are attached and switched: what shows the VIP comes
/// before what hides it, so that no application ever sees a backend.
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
