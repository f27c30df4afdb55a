//! Tests of the interpreter.

use anyhow::bail;
use aya_obj::generated::{
    BPF_ADD, BPF_ALU, BPF_ALU64, BPF_AND, BPF_ARSH, BPF_ATOMIC, BPF_B, BPF_CALL, BPF_CMPXCHG,
    BPF_DIV, BPF_DW, BPF_END, BPF_EXIT, BPF_FETCH, BPF_H, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT,
    BPF_JLE, BPF_JLT, BPF_JMP, BPF_JMP32, BPF_JNE, BPF_JSET, BPF_JSGE, BPF_JSGT, BPF_JSLE,
    BPF_JSLT, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM, BPF_MOD, BPF_MOV, BPF_MUL, BPF_NEG, BPF_OR,
    BPF_PSEUDO_CALL, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB,
    BPF_TO_BE, BPF_TO_LE, BPF_W, BPF_X, BPF_XCHG, BPF_XOR, bpf_insn,
};

use super::{Kernel, Memory, Outcome, map_of, run};

/// A helper that adds its arguments up.
const SUM: i32 = 1000;
/// A helper that returns the number of the map in r1.
const NUMBER: i32 = 1001;

/// One map with an address.
#[derive(Default)]
struct World {
    value: Option<u64>,
}

impl Kernel for World {
    fn call(&mut self, _: &mut Memory, helper: u32, arguments: [u64; 5]) -> anyhow::Result<u64> {
        match helper.cast_signed() {
            SUM => Ok(arguments.iter().sum()),
            NUMBER => Ok(map_of(arguments[0])?.into()),
            other => bail!("no helper {other}"),
        }
    }

    fn map_value(&self, _: u32) -> Option<u64> {
        self.value
    }
}

fn insn(code: u32, to: u8, from: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code: u8::try_from(code).unwrap(),
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(to, from),
        off,
        imm,
    }
}

fn set(to: u8, value: i32) -> bpf_insn {
    insn(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value)
}

fn copy(to: u8, from: u8) -> bpf_insn {
    insn(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
}

fn wide(to: u8, kind: u32, value: u64) -> [bpf_insn; 2] {
    let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap().cast_signed();
    [
        insn(BPF_LD | BPF_DW, to, u8::try_from(kind).unwrap(), 0, half(value)),
        insn(0, 0, 0, 0, half(value >> 32)),
    ]
}

fn call(helper: i32) -> bpf_insn {
    insn(BPF_JMP | BPF_CALL, 0, 0, 0, helper)
}

fn call_function(distance: i32) -> bpf_insn {
    insn(BPF_JMP | BPF_CALL, 0, u8::try_from(BPF_PSEUDO_CALL).unwrap(), 0, distance)
}

fn exit() -> bpf_insn {
    insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
}

fn run_alone(code: &[bpf_insn]) -> anyhow::Result<Outcome> {
    run(code, &mut Memory::default(), &mut World::default(), 0)
}

fn result(code: &[bpf_insn]) -> u64 {
    run_alone(code).unwrap().result
}

/// Why it cannot be run.
fn fault(code: &[bpf_insn]) -> String {
    format!("{:#}", run_alone(code).unwrap_err())
}

/// r0 = a `operation` b, with b in a register.
fn operate(class: u32, operation: u32, a: u64, b: u64) -> u64 {
    let operation = insn(class | operation | BPF_X, 0, 1, 0, 0);
    result(&[wide(0, 0, a), wide(1, 0, b), [operation, exit()]].concat())
}

#[test]
fn arithmetic_on_64_and_on_32_bits() {
    const MIN: u64 = 1 << 63;
    const MINUS: u64 = u64::MAX - 6; // -7
    let cases = [
        ("add", BPF_ADD, u64::MAX, 2, 1, 1),
        ("sub", BPF_SUB, 1, 2, u64::MAX, 0xffff_ffff),
        ("mul", BPF_MUL, 0x1_0000_0003, 5, 0x5_0000_000f, 15),
        ("div", BPF_DIV, 0x1_0000_0007, 2, 0x8000_0003, 3),
        ("div by zero", BPF_DIV, 7, 0, 0, 0),
        ("mod", BPF_MOD, 0x1_0000_0007, 4, 3, 3),
        ("mod by zero", BPF_MOD, 0x1_0000_0007, 0, 0x1_0000_0007, 7),
        ("or", BPF_OR, 0x1_0000_0001, 2, 0x1_0000_0003, 3),
        ("and", BPF_AND, 0x3_0000_0003, 0x2_0000_0002, 0x2_0000_0002, 2),
        ("xor", BPF_XOR, 0x3_0000_0003, 0x1_0000_0001, 0x2_0000_0002, 2),
        ("lsh", BPF_LSH, 0x8000_0001, 1, 0x1_0000_0002, 2),
        ("lsh by 33", BPF_LSH, 1, 33, 0x2_0000_0000, 2),
        ("rsh", BPF_RSH, MIN | 2, 1, MIN >> 1 | 1, 1),
        ("arsh", BPF_ARSH, MINUS, 1, u64::MAX - 3, 0xffff_fffc),
        ("mov", BPF_MOV, 0, u64::MAX, u64::MAX, 0xffff_ffff),
    ];
    for (name, operation, a, b, on_64, on_32) in cases {
        assert_eq!(operate(BPF_ALU64, operation, a, b), on_64, "{name}, 64 bits");
        assert_eq!(operate(BPF_ALU, operation, a, b), on_32, "{name}, 32 bits");
    }
    let negate = |class| result(&[set(0, 5), insn(class | BPF_NEG, 0, 0, 0, 0), exit()]);
    assert_eq!(negate(BPF_ALU64), u64::MAX - 4);
    assert_eq!(negate(BPF_ALU), 0xffff_fffb);
}

#[test]
fn constants_have_a_sign() {
    assert_eq!(result(&[set(0, -1), exit()]), u64::MAX);
    let add = insn(BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 0, -3);
    assert_eq!(result(&[set(0, 5), add, exit()]), 2);
    let move_32 = insn(BPF_ALU | BPF_MOV | BPF_K, 0, 0, 0, -1);
    assert_eq!(result(&[move_32, exit()]), 0xffff_ffff);
}

#[test]
fn bytes_change_their_order() {
    const VALUE: u64 = 0x0102_0304_0506_0708;
    let cases = [
        (BPF_TO_BE, 16, 0x0807),
        (BPF_TO_BE, 32, 0x0807_0605),
        (BPF_TO_BE, 64, 0x0807_0605_0403_0201),
        (BPF_TO_LE, 16, 0x0708),
        (BPF_TO_LE, 32, 0x0506_0708),
        (BPF_TO_LE, 64, VALUE),
    ];
    for (order, bits, expected) in cases {
        let swap = insn(BPF_ALU | BPF_END | order, 0, 0, 0, bits);
        assert_eq!(result(&[wide(0, 0, VALUE), [swap, exit()]].concat()), expected, "{bits}");
    }
}

#[test]
fn jumps_compare_64_or_32_bits_with_or_without_sign() {
    const MINUS: u64 = u64::MAX;
    const HIGH: u64 = 1 << 32;
    let cases = [
        ("eq", BPF_JEQ, HIGH | 1, 1, false, true),
        ("ne", BPF_JNE, HIGH | 1, 1, true, false),
        ("gt", BPF_JGT, MINUS, 1, true, true),
        ("gt, high", BPF_JGT, HIGH, 1, true, false),
        ("ge", BPF_JGE, 1, 1, true, true),
        ("lt", BPF_JLT, HIGH, 1, false, true),
        ("le", BPF_JLE, 2, 1, false, false),
        ("set", BPF_JSET, HIGH, HIGH | 1, true, false),
        ("signed gt", BPF_JSGT, MINUS, 1, false, false),
        ("signed ge", BPF_JSGE, 1, MINUS, true, true),
        ("signed lt", BPF_JSLT, MINUS, 1, true, true),
        ("signed lt, lower half", BPF_JSLT, 0xffff_ffff, 1, false, true),
        ("signed le", BPF_JSLE, MINUS, MINUS, true, true),
    ];
    for (name, condition, a, b, on_64, on_32) in cases {
        for (class, expected) in [(BPF_JMP, on_64), (BPF_JMP32, on_32)] {
            let jump = insn(class | condition | BPF_X, 1, 2, 1, 0);
            let code = [wide(1, 0, a), wide(2, 0, b), [set(0, 1), jump], [set(0, 0), exit()]];
            assert_eq!(result(&code.concat()) != 0, expected, "{name}, class {class}");
        }
    }
}

#[test]
fn a_loop_is_counted_by_what_it_executes() {
    // r0 = 3 + 2 + 1
    let code = [
        set(0, 0),
        set(1, 3),
        insn(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0),
        insn(BPF_ALU64 | BPF_SUB | BPF_K, 1, 0, 0, 1),
        insn(BPF_JMP | BPF_JNE | BPF_K, 1, 0, -3, 0),
        insn(BPF_JMP | BPF_JA, 0, 0, 1, 0),
        set(0, 100),
        exit(),
    ];
    let outcome = run_alone(&code).unwrap();
    assert_eq!(outcome, Outcome { result: 6, instructions: 2 + 3 * 3 + 2, helpers: vec![] });
}

#[test]
fn loads_and_stores_of_every_size() {
    const VALUE: u64 = 0x1122_3344_5566_7788;
    let sizes = [(BPF_B, 0x88), (BPF_H, 0x7788), (BPF_W, 0x5566_7788), (BPF_DW, VALUE)];
    for (size, expected) in sizes {
        let zero = insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0);
        let store = |size| insn(BPF_STX | BPF_MEM | size, 10, 1, -8, 0);
        let load = |size| insn(BPF_LDX | BPF_MEM | size, 0, 10, -8, 0);
        let part_stored = [wide(1, 0, VALUE), [zero, store(size)], [load(BPF_DW), exit()]];
        assert_eq!(result(&part_stored.concat()), expected, "store {size}");
        let part_loaded = [wide(1, 0, VALUE), [zero, store(BPF_DW)], [load(size), exit()]];
        assert_eq!(result(&part_loaded.concat()), expected, "load {size}");
    }
    let constant = [
        insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, -2),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -16, 0),
        exit(),
    ];
    assert_eq!(result(&constant), u64::MAX - 1);
}

#[test]
fn atomic_instructions_change_memory_and_tell_what_was_there() {
    const OLD: i32 = 0b1100;
    let flag = |bits: u32| bits.cast_signed();
    // What is in memory afterwards, in r0, and in r1, which held 0b1010.
    let cases = [
        ("add", flag(BPF_ADD), 0b1_0110, 0, 0b1010),
        ("add, fetch", flag(BPF_ADD | BPF_FETCH), 0b1_0110, 0, 0b1100),
        ("or", flag(BPF_OR | BPF_FETCH), 0b1110, 0, 0b1100),
        ("and", flag(BPF_AND | BPF_FETCH), 0b1000, 0, 0b1100),
        ("xor", flag(BPF_XOR | BPF_FETCH), 0b0110, 0, 0b1100),
        ("xchg", flag(BPF_XCHG), 0b1010, 0, 0b1100),
        ("cmpxchg, other", flag(BPF_CMPXCHG), 0b1100, 0b1100, 0b1010),
    ];
    for (name, operation, memory, r0, r1) in cases {
        for size in [BPF_W, BPF_DW] {
            let code = |register| {
                [
                    insn(BPF_ST | BPF_MEM | size, 10, 0, -8, OLD),
                    set(0, 0),
                    set(1, 0b1010),
                    insn(BPF_STX | BPF_ATOMIC | size, 10, 1, -8, operation),
                    insn(BPF_LDX | BPF_MEM | size, 2, 10, -8, 0),
                    copy(0, register),
                    exit(),
                ]
            };
            let found = [2, 0, 1].map(|register| result(&code(register)));
            assert_eq!(found, [memory, r0, r1], "{name}, size {size}");
        }
    }
    let equal = [
        insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, OLD),
        set(0, OLD),
        set(1, 7),
        insn(BPF_STX | BPF_ATOMIC | BPF_DW, 10, 1, -8, flag(BPF_CMPXCHG)),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -8, 0),
        exit(),
    ];
    assert_eq!(result(&equal), 7);
}

#[test]
fn functions_have_their_own_stack_and_keep_what_is_the_callers() {
    let code = [
        set(6, 40),
        insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 1),
        set(1, 2),
        call_function(3),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -8, 0),
        insn(BPF_JMP | BPF_JA, 0, 0, 5, 0),
        exit(),
        // The function: r0 = r1, and all else is spoilt.
        insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 100),
        set(6, 100),
        copy(0, 1),
        exit(),
        // After it: r0 = 2 + 1 + 40.
        insn(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0),
        insn(BPF_ALU64 | BPF_ADD | BPF_X, 0, 6, 0, 0),
        exit(),
    ];
    let outcome = run_alone(&code).unwrap();
    assert_eq!((outcome.result, outcome.instructions), (43, 13));
}

#[test]
fn helpers_are_given_five_registers_and_noted() {
    let code = [set(1, 1), set(2, 2), set(3, 3), set(4, 4), set(5, 5), call(SUM), exit()];
    let outcome = run_alone(&code).unwrap();
    assert_eq!(outcome, Outcome { result: 15, instructions: 7, helpers: vec![1000] });
}

#[test]
fn constants_name_numbers_maps_and_places_in_maps() {
    let number = [wide(1, 0, u64::MAX - 1), [copy(0, 1), exit()]].concat();
    assert_eq!(result(&number), u64::MAX - 1);
    let map = [wide(1, BPF_PSEUDO_MAP_FD, 7), [call(NUMBER), exit()]].concat();
    assert_eq!(
        run_alone(&map).unwrap(),
        Outcome { result: 7, instructions: 3, helpers: vec![1001] }
    );

    let mut memory = Memory::default();
    let value = memory.add_constant(vec![1, 2, 3, 4]);
    let place = |then| [wide(1, BPF_PSEUDO_MAP_VALUE, (2 << 32) | 7), [then, exit()]].concat();
    let load = place(insn(BPF_LDX | BPF_MEM | BPF_H, 0, 1, 0, 0));
    let mut world = World { value: Some(value) };
    assert_eq!(run(&load, &mut memory, &mut world, 0).unwrap().result, 0x0403);
    let store = place(insn(BPF_ST | BPF_MEM | BPF_B, 1, 0, 0, 0));
    let error = run(&store, &mut memory, &mut world, 0).unwrap_err();
    assert!(format!("{error:#}").contains("is read only"), "{error:#}");
    assert!(fault(&load).contains("the map has no address"));
}

#[test]
fn the_context_is_in_r1() {
    let mut memory = Memory::default();
    let context = memory.add(vec![0, 0, 0, 0, 9, 0, 0, 0]);
    let code = [insn(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 4, 0), exit()];
    assert_eq!(run(&code, &mut memory, &mut World::default(), context).unwrap().result, 9);
}

#[test]
fn what_the_verifier_refuses_is_a_fault() {
    let load = |off| insn(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, off, 0);
    let cases = [
        (vec![load(0), exit()], "out of bounds"),
        (vec![load(-516), exit()], "out of bounds"),
        (vec![insn(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0), exit()], "out of bounds"),
        (vec![set(0, 0)], "instruction 1: there is none"),
        (vec![insn(BPF_JMP | BPF_JA, 0, 0, -2, 0)], "before the beginning"),
        (vec![insn(BPF_JMP | BPF_JA, 0, 0, -1, 0)], "does not end"),
        (vec![call_function(-1)], "nested too deep"),
        (vec![call(5)], "no helper 5"),
        (vec![set(1, 7), call(NUMBER)], "0x7 is no map"),
        (vec![insn(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 8, 0)], "later instruction set"),
    ];
    for (code, expected) in cases {
        let fault = fault(&code);
        assert!(fault.contains(expected), "{fault} instead of {expected}");
    }
}
