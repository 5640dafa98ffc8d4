// SPDX-License-Identifier: Apache-2.0

//! A histogram of nanoseconds of fixed size, relative error below 1.6 %.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Value, json};

const FINE: u32 = 6; // bits below the leading one

pub struct Histogram(Vec<AtomicU64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(
            (0..(64 - FINE as usize + 1) << FINE)
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }
}

impl Histogram {
    pub fn add(&self, ns: u64) {
        self.0[bucket(ns)].fetch_add(1, Relaxed);
    }

    pub fn merge(&self, other: &Histogram) {
        for (mine, more) in self.0.iter().zip(&other.0) {
            mine.fetch_add(more.load(Relaxed), Relaxed);
        }
    }

    pub fn json(&self) -> Value {
        let counts: Vec<u64> = self.0.iter().map(|c| c.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        json!({"count": count, "p50": quantile(&counts, count, 0.5), "p99": quantile(&counts, count, 0.99), "p999": quantile(&counts, count, 0.999)})
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (64 - ns.leading_zeros()).saturating_sub(FINE + 1);
    ((shift as usize) << FINE) + (ns >> shift) as usize
}

/// The middle of the bucket that holds the quantile, in ns.
fn quantile(counts: &[u64], count: u64, q: f64) -> u64 {
    let mut left = (count as f64 * q).ceil() as u64;
    for (i, &n) in counts.iter().enumerate() {
        if left <= n && n > 0 {
            let shift = (i >> FINE).saturating_sub(1);
            let low = ((i - (shift << FINE)) as u64) << shift;
            return low + (1u64 << shift) / 2;
        }
        left -= n;
    }
    0
}
