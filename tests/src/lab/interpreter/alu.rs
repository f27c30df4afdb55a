//! Arithmetic and comparison.

use aya_obj::generated::{
    BPF_ADD, BPF_AND, BPF_ARSH, BPF_DIV, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE, BPF_JLT, BPF_JNE,
    BPF_JSET, BPF_JSGE, BPF_JSGT, BPF_JSLE, BPF_JSLT, BPF_LSH, BPF_MOD, BPF_MOV, BPF_MUL, BPF_OR,
    BPF_RSH, BPF_SUB, BPF_XOR,
};

use super::low;

/// What the operation makes of `a` and `b`, on 64 bits or on the lower 32. Division by zero is 0,
/// and the remainder of one is `a`.
pub(super) fn binary(operation: u32, is_wide: bool, a: u64, b: u64) -> Option<u64> {
    if is_wide { binary64(operation, a, b) } else { binary32(operation, low(a), low(b)) }
}

fn binary64(operation: u32, a: u64, b: u64) -> Option<u64> {
    // Of a distance the lower six bits count.
    let distance = low(b);
    Some(match operation {
        BPF_ADD => a.wrapping_add(b),
        BPF_SUB => a.wrapping_sub(b),
        BPF_MUL => a.wrapping_mul(b),
        BPF_DIV => a.checked_div(b).unwrap_or(0),
        BPF_MOD => a.checked_rem(b).unwrap_or(a),
        BPF_OR => a | b,
        BPF_AND => a & b,
        BPF_XOR => a ^ b,
        BPF_LSH => a.wrapping_shl(distance),
        BPF_RSH => a.wrapping_shr(distance),
        BPF_ARSH => a.cast_signed().wrapping_shr(distance).cast_unsigned(),
        BPF_MOV => b,
        _ => return None,
    })
}

/// The upper half of the result is zero.
fn binary32(operation: u32, a: u32, b: u32) -> Option<u64> {
    Some(u64::from(match operation {
        BPF_ADD => a.wrapping_add(b),
        BPF_SUB => a.wrapping_sub(b),
        BPF_MUL => a.wrapping_mul(b),
        BPF_DIV => a.checked_div(b).unwrap_or(0),
        BPF_MOD => a.checked_rem(b).unwrap_or(a),
        BPF_OR => a | b,
        BPF_AND => a & b,
        BPF_XOR => a ^ b,
        BPF_LSH => a.wrapping_shl(b),
        BPF_RSH => a.wrapping_shr(b),
        BPF_ARSH => a.cast_signed().wrapping_shr(b).cast_unsigned(),
        BPF_MOV => b,
        _ => return None,
    }))
}

/// The lower `bits` of `a`, converted to or from little-endian or big-endian.
pub(super) fn in_order(a: u64, bits: i32, to_big: bool) -> Option<u64> {
    let shift = match bits {
        16 | 32 | 64 => 64 - bits,
        _ => return None,
    };
    let kept = a << shift;
    Some(if to_big { kept.swap_bytes() } else { kept >> shift })
}

/// Whether the condition of a jump holds, on 64 bits or on the lower 32.
pub(super) fn holds(condition: u32, is_wide: bool, a: u64, b: u64) -> Option<bool> {
    let (a, b) = if is_wide { (a, b) } else { (low(a).into(), low(b).into()) };
    let signed = |value: u64| {
        if is_wide { value.cast_signed() } else { i64::from(low(value).cast_signed()) }
    };
    let (c, d) = (signed(a), signed(b));
    Some(match condition {
        BPF_JEQ => a == b,
        BPF_JNE => a != b,
        BPF_JGT => a > b,
        BPF_JGE => a >= b,
        BPF_JLT => a < b,
        BPF_JLE => a <= b,
        BPF_JSET => a & b != 0,
        BPF_JSGT => c > d,
        BPF_JSGE => c >= d,
        BPF_JSLT => c < d,
        BPF_JSLE => c <= d,
        _ => return None,
    })
}
