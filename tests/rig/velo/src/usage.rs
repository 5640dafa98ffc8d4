// SPDX-License-Identifier: Apache-2.0

//! What this process has used so far. Reading it costs something itself (side/usage.go).

use anyhow::{Context, Result};
use prometheus::Registry;
use serde_json::{Value, json};

/// Writes are those that velo counts: its sockets are written by send(2), which
/// /proc/self/io leaves out.
pub fn usage(registries: &[Registry]) -> Result<Value> {
    let begin = rusage()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = |key: &str| -> u64 {
        let line = status
            .lines()
            .find(|l| l.starts_with(key))
            .unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or_default()
    };
    let writes: u64 = registries
        .iter()
        .flat_map(Registry::gather)
        .filter(|f| f.name() == "velo_transport_write_duration_seconds")
        .flat_map(|f| {
            f.get_metric()
                .iter()
                .map(|m| m.get_histogram().get_sample_count())
                .collect::<Vec<_>>()
        })
        .sum();
    Ok(json!({
        "begin": {"cpu_ns": cpu_ns(&begin)},
        "end": {"cpu_ns": cpu_ns(&rusage()?)},
        "switches": begin.ru_nvcsw + begin.ru_nivcsw,
        "rss": kib("VmRSS:") * 1024,
        "peak": kib("VmHWM:") * 1024,
        "writes": writes,
    }))
}

fn rusage() -> Result<libc::rusage> {
    // All zeroes are a valid rusage, and the pointer is valid.
    let mut r: libc::rusage = unsafe { std::mem::zeroed() };
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut r) } != 0 {
        return Err(std::io::Error::last_os_error()).context("reading the CPU time");
    }
    Ok(r)
}

fn cpu_ns(r: &libc::rusage) -> u64 {
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    ns(r.ru_utime) + ns(r.ru_stime)
}
