//! A foreign cgroup program, which records the addresses that it sees.

use std::{io, os::fd::BorrowedFd};

use super::{
    AttachType, Instruction, Link, Map, MapKind, Program, ProgramType, code, helper, instruction,
};
use bytemuck::{Pod, Zeroable};

// Offsets in `struct bpf_sock_addr` of include/uapi/linux/bpf.h.
const USER_IP4: i16 = 4;
const USER_IP6_LAST_WORD: i16 = 20;
const USER_PORT: i16 = 24;

/// What a program has seen last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Sight {
    /// How often it ran.
    pub runs: u64,
    /// The IPv4 address, or the last word of the IPv6 address, in network order.
    pub word: [u8; 4],
    /// In host order.
    pub port: u32,
}

/// A hook that a program can be for.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// `BPF_CGROUP_INET4_CONNECT`
    Connect4,
    /// `BPF_CGROUP_INET6_CONNECT`
    Connect6,
    /// `BPF_CGROUP_UDP4_SENDMSG`
    Sendmsg4,
    /// `BPF_CGROUP_UDP4_RECVMSG`
    Recvmsg4,
}

impl Hook {
    const fn attach_type(self) -> AttachType {
        match self {
            Self::Connect4 => AttachType::BPF_CGROUP_INET4_CONNECT,
            Self::Connect6 => AttachType::BPF_CGROUP_INET6_CONNECT,
            Self::Sendmsg4 => AttachType::BPF_CGROUP_UDP4_SENDMSG,
            Self::Recvmsg4 => AttachType::BPF_CGROUP_UDP4_RECVMSG,
        }
    }

    const fn address(self) -> i16 {
        match self {
            Self::Connect6 => USER_IP6_LAST_WORD,
            Self::Connect4 | Self::Sendmsg4 | Self::Recvmsg4 => USER_IP4,
        }
    }
}

/// A program that notes each address it sees. It is attached as long as this lives.
#[derive(Debug)]
pub struct Observer {
    map: Map<u32, Sight>,
    _link: Link,
}

impl Observer {
    /// Attaches an observer after the programs that are there. It lets everything pass, or refuses everything.
    pub fn attach(cgroup: BorrowedFd<'_>, hook: Hook, lets_pass: bool) -> io::Result<Self> {
        let map = Map::create(MapKind::Array, 1)?;
        let kind = ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR;
        let instructions = program(&map, hook, lets_pass);
        let program = Program::load(kind, Some(hook.attach_type()), &instructions)?;
        let link = program.attach_to_cgroup(cgroup, hook.attach_type())?;
        Ok(Self { map, _link: link })
    }

    /// What it has seen.
    pub fn sight(&self) -> io::Result<Sight> {
        let mut sight = self.map.get(&0)?.unwrap_or_default();
        sight.port = u16::from_be(u16::try_from(sight.port).map_err(io::Error::other)?).into();
        Ok(sight)
    }
}

fn program(map: &Map<u32, Sight>, hook: Hook, lets_pass: bool) -> Vec<Instruction> {
    let [load_map, load_map_rest] = map.load_into(1);
    vec![
        instruction(code::LOAD_WORD, 7, 1, hook.address(), 0),
        instruction(code::LOAD_WORD, 8, 1, USER_PORT, 0),
        instruction(code::STORE_WORD_CONSTANT, 10, 0, -4, 0),
        load_map,
        load_map_rest,
        instruction(code::MOVE, 2, 10, 0, 0),
        instruction(code::ADD_CONSTANT, 2, 0, 0, -4),
        instruction(code::CALL, 0, 0, 0, helper::MAP_LOOKUP_ELEM),
        instruction(code::JUMP_IF_EQUAL, 0, 0, 5, 0),
        instruction(code::LOAD_DOUBLE, 1, 0, 0, 0),
        instruction(code::ADD_CONSTANT, 1, 0, 0, 1),
        instruction(code::STORE_DOUBLE, 0, 1, 0, 0),
        instruction(code::STORE_WORD, 0, 7, 8, 0),
        instruction(code::STORE_WORD, 0, 8, 12, 0),
        instruction(code::MOVE_CONSTANT, 0, 0, 0, i32::from(lets_pass)),
        instruction(code::EXIT, 0, 0, 0, 0),
    ]
}
