//! A simulated kernel for programs that have nothing to do: hash maps are empty, arrays contain zeros, and no socket
//! has storage.

use aya_obj::generated::bpf_map_type::{
    BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY,
};
use mcs_common::{FlowsUsed, maps};
use mcs_tests::interpreter::{Kernel, Memory, map_of};

use crate::prelude::*;

const ARRAY: u32 = BPF_MAP_TYPE_ARRAY as u32;
const PER_CPU_ARRAY: u32 = BPF_MAP_TYPE_PERCPU_ARRAY as u32;
const HASH: u32 = BPF_MAP_TYPE_HASH as u32;
const LRU_HASH: u32 = BPF_MAP_TYPE_LRU_HASH as u32;

// `enum bpf_func_id` of `include/uapi/linux/bpf.h`.
const MAP_LOOKUP_ELEM: u32 = 1;
const SKB_LOAD_BYTES: u32 = 26;
const GET_SOCKET_COOKIE: u32 = 46;
const SK_STORAGE_GET: u32 = 107;

/// What a program sees of its node.
pub(crate) struct Node<'a> {
    /// r1 of the program.
    pub(crate) context: u64,
    /// The calls of helpers so far, in words.
    pub(crate) calls: Vec<String>,
    object: &'a Object,
    packet: Vec<u8>,
    /// The values of arrays: at index 0, which is what is read without a choice.
    values: BTreeMap<u32, u64>,
}

impl<'a> Node<'a> {
    pub(crate) fn new(object: &'a Object, memory: &mut Memory, input: Input) -> Result<Self> {
        let mut values = BTreeMap::new();
        for (number, map) in &object.maps {
            if !map.data.is_empty() {
                values.insert(*number, memory.add_constant(map.data.clone()));
            } else if map.kind == ARRAY || map.kind == PER_CPU_ARRAY {
                let value = memory.add(vec![0; map.value_size as usize]);
                if map.name == maps::HINTS {
                    memory.store(value, 8, input.hint().everywhere())?;
                }
                if map.name == maps::FLOWS_USED && input.has_flows() {
                    memory.store(value, 4, FlowsUsed::YES.into())?;
                }
                values.insert(*number, value);
            }
        }
        // `struct bpf_sock`: without a peer.
        let socket = memory.add(vec![0; 80]);
        let packet = input.packet();
        let data = memory.add_constant(packet.clone());
        let context = memory.add(input.context(socket, data));
        Ok(Self { context, calls: Vec::new(), object, packet, values })
    }

    fn look_up(&mut self, memory: &Memory, map: u64, key: u64) -> Result<u64> {
        let number = map_of(map)?;
        let map = self.object.maps.get(&number).context("no such map")?;
        self.calls.push(format!("look-up in {}", map.name));
        let key = memory.bytes(key, map.key_size as usize).context("the key")?;
        match map.kind {
            HASH | LRU_HASH => Ok(0),
            ARRAY | PER_CPU_ARRAY => {
                ensure!(key == [0; 4], "an entry of {} that nothing led to", map.name);
                self.values.get(&number).copied().context("no value")
            }
            kind => bail!("a look-up in {}, of kind {kind}", map.name),
        }
    }

    fn load_bytes(&self, memory: &mut Memory, at: u64, to: u64, size: u64) -> Result<u64> {
        let (at, size) = (usize::try_from(at)?, usize::try_from(size)?);
        let bytes = at.checked_add(size).and_then(|end| self.packet.get(at..end));
        let bytes = bytes.context("the packet ends before that")?;
        memory.write(to, bytes)?;
        Ok(0)
    }
}

impl Kernel for Node<'_> {
    fn call(&mut self, memory: &mut Memory, helper: u32, [a, b, c, d, _]: [u64; 5]) -> Result<u64> {
        match helper {
            MAP_LOOKUP_ELEM => self.look_up(memory, a, b),
            SKB_LOAD_BYTES => {
                self.calls.push("load".to_owned());
                self.load_bytes(memory, b & 0xffff_ffff, c, d & 0xffff_ffff)
            }
            SK_STORAGE_GET => {
                self.calls.push("storage".to_owned());
                ensure!(d == 0, "a socket is given storage");
                Ok(0)
            }
            // That of the socket with the first slot.
            GET_SOCKET_COOKIE => {
                self.calls.push("cookie".to_owned());
                Ok(0)
            }
            other => bail!("helper {other} is called, for nothing"),
        }
    }

    fn map_value(&self, map: u32) -> Option<u64> {
        self.values.get(&map).copied()
    }
}
