//! Foreign tc programs, which count packets by source and destination.

use bytemuck::{Pod, Zeroable};

use super::{
    AttachType, Instruction, Link, Map, MapKind, Order, Program, ProgramType, code, helper,
    instruction,
};
use crate::prelude::*;

/// Offset of `protocol` in `struct __sk_buff` of include/uapi/linux/bpf.h.
const PROTOCOL: i16 = 16;
/// Both ways to say that the next program decides: `TC_ACT_UNSPEC` and `TCX_NEXT`.
const NEXT: i32 = -1;
/// `TC_ACT_OK`: no later program decides.
const ACCEPT: i32 = 0;
/// The number of address pairs that have a counter.
const PAIRS: u32 = 256;

/// Source and destination as in the header: 32 bytes of IPv6, or 8 of IPv4 and zeros.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Pair([u8; 32]);

impl Pair {
    fn new(src: IpAddr, dst: IpAddr) -> Self {
        let mut pair = [0; 32];
        let mut put = |at: usize, bytes: &[u8]| pair[at..at + bytes.len()].copy_from_slice(bytes);
        for (nth, address) in [src, dst].into_iter().enumerate() {
            match address {
                IpAddr::V4(v4) => put(nth * 4, &v4.octets()),
                IpAddr::V6(v6) => put(nth * 16, &v6.octets()),
            }
        }
        Self(pair)
    }
}

/// The way of packets at an interface of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the pod.
    Ingress,
    /// To the pod.
    Egress,
}

impl Way {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    const fn tcx(self) -> AttachType {
        match self {
            Self::Ingress => AttachType::BPF_TCX_INGRESS,
            Self::Egress => AttachType::BPF_TCX_EGRESS,
        }
    }

    /// As tc(8) writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// A program at an interface.
#[derive(Debug)]
pub struct Counter {
    map: Map<Pair, u64>,
    _link: Option<Link>,
}

impl Counter {
    /// Attaches one by tcx. It is removed when this is dropped.
    pub fn by_tcx(netns: &Namespace, device: &str, way: Way, order: Order) -> Result<Self> {
        Self::tcx(netns, device, way, order, NEXT)
    }

    /// Attaches one by tcx behind all others. It accepts every packet (`TC_ACT_OK`).
    pub fn by_accepting(netns: &Namespace, device: &str, way: Way) -> Result<Self> {
        Self::tcx(netns, device, way, Order::Last, ACCEPT)
    }

    fn tcx(netns: &Namespace, device: &str, way: Way, order: Order, verdict: i32) -> Result<Self> {
        let (map, program) = load(verdict)?;
        let index = netns.index(device)?;
        let link = netns.run(|| program.attach_to_interface(index, way.tcx(), order))??;
        Ok(Self { map, _link: Some(link) })
    }

    /// Attaches one as a filter of the qdisc clsact, which must be there, pinned in `directory` for
    /// tc(8) to find. It goes with the qdisc.
    pub fn by_filter(netns: &Namespace, device: &str, way: Way, directory: &Path) -> Result<Self> {
        Self::filter(netns, device, way, directory, ("add", &["prio", "9"], NEXT))
    }

    /// Attaches one that takes every packet from later ones, at priority 1 and handle 1, in the place of the filter that
    /// has them.
    pub fn by_first_filter(
        netns: &Namespace,
        device: &str,
        way: Way,
        directory: &Path,
    ) -> Result<Self> {
        let place = ["prio", "1", "handle", "1"];
        Self::filter(netns, device, way, directory, ("replace", &place, ACCEPT))
    }

    fn filter(
        netns: &Namespace,
        device: &str,
        way: Way,
        directory: &Path,
        (verb, place, verdict): (&str, &[&str], i32),
    ) -> Result<Self> {
        let (map, program) = load(verdict)?;
        let pin: PathBuf = directory.join(format!("{device}_{}", way.name()));
        program.pin(&pin)?;
        let pin = pin.display().to_string();
        let side = ["filter", verb, "dev", device, way.name()];
        let program = ["bpf", "direct-action", "object-pinned", &pin];
        netns.output("tc", &[&side, place, &program].concat())?;
        Ok(Self { map, _link: None })
    }

    /// How many packets it has seen from one address to another.
    pub fn count(&self, src: IpAddr, dst: IpAddr) -> io::Result<u64> {
        Ok(self.map.get(&Pair::new(src, dst))?.unwrap_or(0))
    }
}

fn load(verdict: i32) -> io::Result<(Map<Pair, u64>, Program)> {
    let map = Map::create(MapKind::Hash, PAIRS)?;
    let program =
        Program::load(ProgramType::BPF_PROG_TYPE_SCHED_CLS, None, &program(&map, verdict))?;
    Ok((map, program))
}

fn program(map: &Map<Pair, u64>, verdict: i32) -> Vec<Instruction> {
    const ETHERNET: i32 = 14;
    const IPV4: i32 = 0x0800_u16.to_be() as i32;
    const IPV6: i32 = 0x86dd_u16.to_be() as i32;
    /// Where a pair and a first count lie on the stack.
    const PAIR: i16 = -32;
    const ONE: i16 = -40;

    let [load_map, load_map_rest] = map.load_into(1);
    vec![
        instruction(code::MOVE, 6, 1, 0, 0),
        instruction(code::LOAD_WORD, 7, 6, PROTOCOL, 0),
        instruction(code::STORE_DOUBLE_CONSTANT, 10, 0, PAIR, 0),
        instruction(code::STORE_DOUBLE_CONSTANT, 10, 0, PAIR + 8, 0),
        instruction(code::STORE_DOUBLE_CONSTANT, 10, 0, PAIR + 16, 0),
        instruction(code::STORE_DOUBLE_CONSTANT, 10, 0, PAIR + 24, 0),
        instruction(code::STORE_DOUBLE_CONSTANT, 10, 0, ONE, 1),
        // Where the addresses are, and how long.
        instruction(code::MOVE_CONSTANT, 2, 0, 0, ETHERNET + 12),
        instruction(code::MOVE_CONSTANT, 4, 0, 0, 8),
        instruction(code::JUMP_IF_EQUAL, 7, 0, 3, IPV4),
        instruction(code::MOVE_CONSTANT, 2, 0, 0, ETHERNET + 8),
        instruction(code::MOVE_CONSTANT, 4, 0, 0, 32),
        instruction(code::JUMP_IF_OTHER, 7, 0, 21, IPV6),
        instruction(code::MOVE, 1, 6, 0, 0),
        instruction(code::MOVE, 3, 10, 0, 0),
        instruction(code::ADD_CONSTANT, 3, 0, 0, PAIR.into()),
        instruction(code::CALL, 0, 0, 0, helper::SKB_LOAD_BYTES),
        load_map,
        load_map_rest,
        instruction(code::MOVE, 2, 10, 0, 0),
        instruction(code::ADD_CONSTANT, 2, 0, 0, PAIR.into()),
        instruction(code::CALL, 0, 0, 0, helper::MAP_LOOKUP_ELEM),
        instruction(code::JUMP_IF_EQUAL, 0, 0, 3, 0),
        instruction(code::MOVE_CONSTANT, 1, 0, 0, 1),
        instruction(code::ADD_DOUBLE_IN_MEMORY, 0, 1, 0, 0),
        instruction(code::JUMP, 0, 0, 8, 0),
        load_map,
        load_map_rest,
        instruction(code::MOVE, 2, 10, 0, 0),
        instruction(code::ADD_CONSTANT, 2, 0, 0, PAIR.into()),
        instruction(code::MOVE, 3, 10, 0, 0),
        instruction(code::ADD_CONSTANT, 3, 0, 0, ONE.into()),
        instruction(code::MOVE_CONSTANT, 4, 0, 0, 0),
        instruction(code::CALL, 0, 0, 0, helper::MAP_UPDATE_ELEM),
        instruction(code::MOVE_CONSTANT, 0, 0, 0, verdict),
        instruction(code::EXIT, 0, 0, 0, 0),
    ]
}
