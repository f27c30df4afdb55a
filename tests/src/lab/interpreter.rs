//! Runs eBPF programs in user space and counts their instructions and helper calls: the kernel reports
//! how many instructions its verifier checked, but not how many a run takes.
//!
//! The instructions counted are those of the object (`-mcpu=v3`, little-endian). The kernel replaces one
//! that reads the context by several, and some helper calls by inlined look-ups. Neither is counted here.
//!
//! rbpf 0.4.1 does not serve: it counts no instructions and has no atomic operations. Its helpers are
//! plain functions without state, and a reference to a map is a plain constant to it. Programs work on
//! host addresses, and an access is allowed if it begins in a registered region, wherever it ends.

mod alu;
mod memory;
mod object;
#[cfg(test)]
mod tests;

use anyhow::{Context as _, bail, ensure};
use aya_obj::generated::{
    BPF_ALU, BPF_ALU64, BPF_AND, BPF_ATOMIC, BPF_CALL, BPF_CMPXCHG, BPF_DW, BPF_END, BPF_EXIT,
    BPF_FETCH, BPF_JA, BPF_JMP, BPF_JMP32, BPF_LD, BPF_LDX, BPF_MEM, BPF_NEG, BPF_OR,
    BPF_PSEUDO_CALL, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_ST, BPF_STX, BPF_W, BPF_X,
    BPF_XCHG, BPF_XOR, bpf_insn,
};

pub use self::{
    memory::Memory,
    object::{Map, Object, Program, renumber_maps},
};

/// The limit of a run. The agent's programs take far fewer.
const MOST_INSTRUCTIONS: u64 = 1_000_000;
/// `MAX_CALL_FRAMES` of `include/linux/bpf_verifier.h`.
const MOST_FRAMES: usize = 8;
/// `MAX_BPF_STACK` of `include/linux/filter.h`.
const STACK: usize = 512;
/// The number that represents a map in a register.
const MAP_HANDLE: u64 = 0xffff_ffff_0000_0000;

/// What a program finds outside of itself.
pub trait Kernel {
    /// A call of a helper: its number in `enum bpf_func_id`, and r1 to r5. Returns r0.
    fn call(
        &mut self,
        memory: &mut Memory,
        helper: u32,
        arguments: [u64; 5],
    ) -> anyhow::Result<u64>;

    /// The address of the only value of a map that the program refers to by address.
    fn map_value(&self, map: u32) -> Option<u64>;
}

/// The map that a helper was given.
pub fn map_of(argument: u64) -> anyhow::Result<u32> {
    ensure!(argument & MAP_HANDLE == MAP_HANDLE, "{argument:#x} is no map");
    Ok(low(argument))
}

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// r0.
    pub result: u64,
    /// Instructions executed, of the program itself.
    pub instructions: u64,
    /// The helpers it called, in this order.
    pub helpers: Vec<u32>,
}

/// Runs the program with r1 = `context`. Fails where the verifier should have refused it.
pub fn run(
    code: &[bpf_insn],
    memory: &mut Memory,
    kernel: &mut impl Kernel,
    context: u64,
) -> anyhow::Result<Outcome> {
    let stack = memory.add(vec![0; STACK]);
    let mut machine = Machine {
        code,
        memory,
        kernel,
        registers: [0; 11],
        at: 0,
        callers: Vec::new(),
        helpers: Vec::new(),
    };
    machine.registers[1] = context;
    machine.registers[10] = stack + STACK as u64;
    let mut instructions = 0;
    loop {
        instructions += 1;
        ensure!(instructions <= MOST_INSTRUCTIONS, "it does not end");
        let at = machine.at;
        let step = machine.step().with_context(|| format!("instruction {at}"))?;
        if step == Step::End {
            return Ok(Outcome {
                result: machine.registers[0],
                instructions,
                helpers: machine.helpers,
            });
        }
    }
}

#[derive(PartialEq, Eq)]
enum Step {
    Next,
    End,
}

/// What a function leaves behind when it calls another one.
struct Caller {
    returns_to: usize,
    /// r6 to r10.
    saved: [u64; 5],
}

struct Machine<'a, K> {
    code: &'a [bpf_insn],
    memory: &'a mut Memory,
    kernel: &'a mut K,
    registers: [u64; 11],
    at: usize,
    callers: Vec<Caller>,
    helpers: Vec<u32>,
}

impl<K: Kernel> Machine<'_, K> {
    fn step(&mut self) -> anyhow::Result<Step> {
        let instruction = *self.code.get(self.at).context("there is none")?;
        self.at += 1;
        let code = u32::from(instruction.code);
        match code & 0x07 {
            BPF_LD => self.load_immediate(instruction)?,
            BPF_LDX => self.load(instruction)?,
            BPF_ST | BPF_STX => self.store(instruction)?,
            BPF_ALU | BPF_ALU64 => self.compute(instruction)?,
            BPF_JMP | BPF_JMP32 => return self.jump(instruction),
            _ => bail!("{code:#x} is no instruction"),
        }
        Ok(Step::Next)
    }

    fn destination(&mut self, instruction: bpf_insn) -> &mut u64 {
        &mut self.registers[usize::from(instruction.dst_reg())]
    }

    fn source(&self, instruction: bpf_insn) -> u64 {
        self.registers[usize::from(instruction.src_reg())]
    }

    /// The second operand: a register, or the constant.
    fn operand(&self, instruction: bpf_insn) -> u64 {
        if u32::from(instruction.code) & BPF_X == BPF_X {
            self.source(instruction)
        } else {
            extended(instruction.imm)
        }
    }

    /// A 64-bit constant, in two slots: a number, a map, or an address in a map's value.
    fn load_immediate(&mut self, instruction: bpf_insn) -> anyhow::Result<()> {
        ensure!(u32::from(instruction.code) == BPF_LD | BPF_DW, "a load of the old kind");
        let second = self.code.get(self.at).context("half a constant")?.imm.cast_unsigned();
        self.at += 1;
        let first = instruction.imm.cast_unsigned();
        let value = match u32::from(instruction.src_reg()) {
            0 => u64::from(second) << 32 | u64::from(first),
            BPF_PSEUDO_MAP_FD => MAP_HANDLE | u64::from(first),
            BPF_PSEUDO_MAP_VALUE => {
                let value = self.kernel.map_value(first).context("the map has no address")?;
                value + u64::from(second)
            }
            kind => bail!("a constant of kind {kind}"),
        };
        *self.destination(instruction) = value;
        Ok(())
    }

    fn load(&mut self, instruction: bpf_insn) -> anyhow::Result<()> {
        let mode = u32::from(instruction.code) & 0xe0;
        ensure!(mode == BPF_MEM, "a load of mode {mode:#x}");
        let address = offset(self.source(instruction), instruction);
        *self.destination(instruction) = self.memory.load(address, size(instruction))?;
        Ok(())
    }

    fn store(&mut self, instruction: bpf_insn) -> anyhow::Result<()> {
        let code = u32::from(instruction.code);
        let address = offset(*self.destination(instruction), instruction);
        let is_constant = code & 0x07 == BPF_ST;
        let value = if is_constant { extended(instruction.imm) } else { self.source(instruction) };
        match code & 0xe0 {
            BPF_MEM => self.memory.store(address, size(instruction), value),
            BPF_ATOMIC if !is_constant => self.exchange(instruction, address, value),
            mode => bail!("a store of mode {mode:#x}"),
        }
    }

    /// An atomic instruction.
    fn exchange(&mut self, instruction: bpf_insn, address: u64, value: u64) -> anyhow::Result<()> {
        let size = size(instruction);
        ensure!(size >= 4, "an atomic instruction on {size} bytes");
        let old = self.memory.load(address, size)?;
        let value = if size == 4 { u64::from(low(value)) } else { value };
        let operation = instruction.imm.cast_unsigned();
        let new = match operation & !BPF_FETCH {
            // BPF_ADD is 0.
            0 => old.wrapping_add(value),
            BPF_OR => old | value,
            BPF_AND => old & value,
            BPF_XOR => old ^ value,
            _ if operation == BPF_XCHG => value,
            _ if operation == BPF_CMPXCHG => {
                let expected = self.registers[0];
                let expected = if size == 4 { u64::from(low(expected)) } else { expected };
                if old == expected { value } else { old }
            }
            _ => bail!("an atomic instruction {operation:#x}"),
        };
        self.memory.store(address, size, new)?;
        if operation == BPF_CMPXCHG {
            self.registers[0] = old;
        } else if operation & BPF_FETCH != 0 {
            self.registers[usize::from(instruction.src_reg())] = old;
        }
        Ok(())
    }

    fn compute(&mut self, instruction: bpf_insn) -> anyhow::Result<()> {
        let code = u32::from(instruction.code);
        ensure!(instruction.off == 0, "an operation of a later instruction set");
        let is_wide = code & 0x07 == BPF_ALU64;
        let a = *self.destination(instruction);
        let b = self.operand(instruction);
        let result = match code & 0xf0 {
            BPF_END if !is_wide => alu::in_order(a, instruction.imm, code & BPF_X == BPF_X),
            BPF_NEG => alu::binary(aya_obj::generated::BPF_SUB, is_wide, 0, a),
            operation => alu::binary(operation, is_wide, a, b),
        };
        *self.destination(instruction) =
            result.with_context(|| format!("{code:#x} is no operation"))?;
        Ok(())
    }

    fn jump(&mut self, instruction: bpf_insn) -> anyhow::Result<Step> {
        let code = u32::from(instruction.code);
        let is_wide = code & 0x07 == BPF_JMP;
        match code & 0xf0 {
            BPF_CALL if is_wide => self.call(instruction)?,
            BPF_EXIT if is_wide => return Ok(self.exit()),
            BPF_JA if is_wide => self.go(i32::from(instruction.off))?,
            condition => {
                let (a, b) = (*self.destination(instruction), self.operand(instruction));
                let holds = alu::holds(condition, is_wide, a, b)
                    .with_context(|| format!("{code:#x} is no jump"))?;
                if holds {
                    self.go(i32::from(instruction.off))?;
                }
            }
        }
        Ok(Step::Next)
    }

    fn go(&mut self, distance: i32) -> anyhow::Result<()> {
        let to = isize::try_from(distance).ok().and_then(|by| self.at.checked_add_signed(by));
        self.at = to.context("a jump to before the beginning")?;
        Ok(())
    }

    /// Calls a helper, or a function of the program.
    fn call(&mut self, instruction: bpf_insn) -> anyhow::Result<()> {
        match u32::from(instruction.src_reg()) {
            0 => {
                let helper = instruction.imm.cast_unsigned();
                let mut arguments = [0; 5];
                arguments.copy_from_slice(&self.registers[1..6]);
                self.helpers.push(helper);
                self.registers[0] = self.kernel.call(self.memory, helper, arguments)?;
                Ok(())
            }
            BPF_PSEUDO_CALL => {
                ensure!(self.callers.len() + 1 < MOST_FRAMES, "calls are nested too deep");
                let mut saved = [0; 5];
                saved.copy_from_slice(&self.registers[6..]);
                self.callers.push(Caller { returns_to: self.at, saved });
                self.registers[10] = self.memory.add(vec![0; STACK]) + STACK as u64;
                self.go(instruction.imm)
            }
            kind => bail!("a call of kind {kind}"),
        }
    }

    fn exit(&mut self) -> Step {
        let Some(caller) = self.callers.pop() else { return Step::End };
        self.memory.remove(self.registers[10] - STACK as u64);
        self.registers[6..].copy_from_slice(&caller.saved);
        self.at = caller.returns_to;
        Step::Next
    }
}

/// Bytes that a load or store is about.
fn size(instruction: bpf_insn) -> usize {
    use aya_obj::generated::{BPF_B, BPF_H};

    match u32::from(instruction.code) & 0x18 {
        BPF_W => 4,
        BPF_H => 2,
        BPF_B => 1,
        _ => 8,
    }
}

fn offset(address: u64, instruction: bpf_insn) -> u64 {
    address.wrapping_add_signed(i64::from(instruction.off))
}

/// A constant as a 64-bit operand: its sign goes all the way up.
const fn extended(constant: i32) -> u64 {
    (constant as i64).cast_unsigned()
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn low(value: u64) -> u32 {
    value as u32
}
