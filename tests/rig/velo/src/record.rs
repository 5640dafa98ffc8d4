// SPDX-License-Identifier: Apache-2.0

//! What a record holds (tests/interop/README.md), made and checked by a copy and a
//! comparison with a ramp of bytes: the filling of every record is a piece of it.

use std::sync::LazyLock;

/// The stream's number and the record's sequence number.
pub const HEADER: usize = 16;
/// Where the time of the hand-in is, and what follows it.
const STAMP: usize = 24;

const LONGEST: usize = 64 << 10;
static RAMP: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LONGEST + 256).map(|i| i as u8).collect());

fn filling(stream: u64, sequence: u64, from: usize, to: usize) -> &'static [u8] {
    let shift = (stream as u8)
        .wrapping_mul(31)
        .wrapping_add((sequence as u8).wrapping_mul(7));
    &RAMP[shift as usize + from..shift as usize + to]
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The clock exists and the pointer is valid, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Makes a record of the size of `out`; with a stamp it says when.
pub fn fill(out: &mut [u8], stream: u64, sequence: u64, stamped: bool) {
    let mut from = HEADER;
    out[..8].copy_from_slice(&stream.to_be_bytes());
    out[8..HEADER].copy_from_slice(&sequence.to_be_bytes());
    if stamped {
        out[HEADER..STAMP].copy_from_slice(&now().to_be_bytes());
        from = STAMP;
    }
    let to = out.len();
    out[from..].copy_from_slice(filling(stream, sequence, from, to));
}

fn number(record: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(record[at..at + 8].try_into().expect("8 bytes"))
}

/// Checks a record; returns the time of its hand-in, 0 without a stamp.
pub fn check(
    record: &[u8],
    size: usize,
    stream: u64,
    sequence: u64,
    stamped: bool,
) -> Result<u64, String> {
    if record.len() != size {
        return Err(format!(
            "stream {stream}: a record of {} bytes, not {size}",
            record.len()
        ));
    }
    let (s, n) = (number(record, 0), number(record, 8));
    if (s, n) != (stream, sequence) {
        return Err(format!(
            "stream {stream}: record {n} of stream {s} where its record {sequence} was due"
        ));
    }
    let from = if stamped { STAMP } else { HEADER };
    if record[from..] != *filling(stream, sequence, from, size) {
        return Err(format!(
            "stream {stream}, record {sequence}: its content is wrong"
        ));
    }
    Ok(if stamped { number(record, HEADER) } else { 0 })
}
