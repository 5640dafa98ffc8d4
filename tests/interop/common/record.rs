// SPDX-License-Identifier: Apache-2.0

//! What a record holds, and the check of it: the stream's number and the record's
//! sequence number, both 8 bytes big-endian, then bytes that follow from the two.

use std::collections::HashMap;

use bytes::Bytes;

/// Bytes before the filling; no record is shorter.
pub const HEADER: usize = 16;

fn filling(stream: u64, sequence: u64, i: usize) -> u8 {
    (stream as u8)
        .wrapping_mul(31)
        .wrapping_add((sequence as u8).wrapping_mul(7))
        .wrapping_add(i as u8)
}

/// Makes one record of `size` bytes (at least [`HEADER`]).
pub fn make(stream: u64, sequence: u64, size: usize) -> Bytes {
    let mut out = Vec::with_capacity(size.max(HEADER));
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend((HEADER..size).map(|i| filling(stream, sequence, i)));
    out.into()
}

/// The reader's side: counts records and finds what is wrong with them.
#[derive(Default)]
pub struct Checker {
    next: HashMap<u64, u64>,
    pub records: u64,
    pub bad: u64,
}

impl Checker {
    /// Counts one record; returns what is wrong with it if it is the first bad one.
    pub fn take(&mut self, record: &[u8]) -> Option<String> {
        self.records += 1;
        let fault = self.fault(record)?;
        self.bad += 1;
        (self.bad == 1).then_some(fault)
    }

    fn fault(&mut self, record: &[u8]) -> Option<String> {
        if record.len() < HEADER {
            return Some(format!("a record of {} bytes", record.len()));
        }
        let number =
            |at: usize| u64::from_be_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        let (stream, sequence) = (number(0), number(8));
        let next = self.next.entry(stream).or_default();
        let expected = std::mem::replace(next, sequence + 1);
        if sequence != expected {
            return Some(format!(
                "stream {stream}: record {sequence} where {expected} was due"
            ));
        }
        let wrong = (HEADER..record.len()).find(|&i| record[i] != filling(stream, sequence, i))?;
        Some(format!(
            "stream {stream}, record {sequence}: byte {wrong} is wrong"
        ))
    }
}
