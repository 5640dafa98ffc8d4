// SPDX-License-Identifier: Apache-2.0

//! The command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub struct Options {
    pub listen: Option<SocketAddr>,
    pub uds: Option<PathBuf>,
    pub mux: bool,
    pub mux_only: bool,
    pub credit: Option<u32>,
    pub slot_bytes: Option<u32>,
    pub heartbeat: Option<Duration>,
    pub discovery: Option<PathBuf>,
    pub async_open: bool,
    pub linger: Option<Duration>,
    pub workers: usize,
}

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut o = Options {
            listen: None,
            uds: None,
            mux: true,
            mux_only: false,
            credit: None,
            slot_bytes: None,
            heartbeat: None,
            discovery: None,
            async_open: false,
            linger: None,
            workers: 2,
        };
        while let Some(flag) = args.next() {
            match flag.as_str() {
                "--mux-only" => o.mux_only = true,
                "--async-open" => o.async_open = true,
                _ => {
                    let value = args
                        .next()
                        .with_context(|| format!("{flag} needs a value"))?;
                    o.set(&flag, &value)
                        .with_context(|| format!("reading {flag} {value}"))?;
                }
            }
        }
        if o.listen.is_none() && o.uds.is_none() {
            bail!("give --listen 127.0.0.1:0, --uds PATH, or both");
        }
        Ok(o)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<()> {
        match flag {
            "--listen" => self.listen = Some(value.parse()?),
            "--uds" => self.uds = Some(value.into()),
            "--mux" => {
                self.mux = match value {
                    "on" => true,
                    "off" => false,
                    _ => bail!("on or off"),
                }
            }
            "--credit" => self.credit = Some(value.parse()?),
            "--slot-bytes" => self.slot_bytes = Some(value.parse()?),
            "--heartbeat-ms" => self.heartbeat = Some(Duration::from_millis(value.parse()?)),
            "--discovery" => self.discovery = Some(value.into()),
            "--flush" => {
                self.linger = match value.strip_prefix("linger:") {
                    Some(ms) => Some(Duration::from_millis(ms.parse()?)),
                    None if value == "auto" => None,
                    None => bail!("auto or linger:MS"),
                }
            }
            "--workers" => self.workers = value.parse()?,
            _ => bail!("no such flag"),
        }
        Ok(())
    }

    /// Where the per-stream TCP listener binds.
    pub fn stream_address(&self) -> IpAddr {
        self.listen.map_or(Ipv4Addr::LOCALHOST.into(), |a| a.ip())
    }
}
