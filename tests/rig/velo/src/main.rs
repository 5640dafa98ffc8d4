// SPDX-License-Identifier: Apache-2.0

//! The Rust velo node as a carrier of the rig: `velo-rig consumer`, `producer` and `local`
//! answer the same lines as the rig's own processes (side/serve.go).

mod consumer;
mod histogram;
mod local;
mod producer;
mod record;
mod usage;

use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use prometheus::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use velo::streaming::MuxConfig;
use velo::transports::tcp::TcpTransportBuilder;
use velo::{Velo, VeloMetrics};

/// What both sides of a repetition know (carrier.Spec).
#[derive(Deserialize, Clone)]
pub struct Spec {
    pub streams: usize,
    pub records: u64,
    pub size: usize,
    pub paced: bool,
    pub per_stream: bool,
    /// Records a second in all, when paced.
    pub rate: f64,
    /// Streams a second in all, while they are set up.
    pub setup_rate: f64,
    pub peers: usize,
    /// If not 0: streams are asked for as others end, so many at a time.
    pub in_flight: usize,
    /// Of local cycles.
    pub tasks: usize,
}

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
enum Command {
    Prepare { spec: Spec },
    Connect { address: Value },
    Setup,
    Mark,
    Wait,
    Go,
    Done,
    Rest,
    Cycles,
    Unattached,
    Prebound,
}

enum Side {
    Consumer(consumer::Consumer),
    Producer(producer::Producer),
    Local(local::Local),
}

fn main() -> Result<()> {
    // A task that panics must not leave the others waiting for it.
    std::panic::set_hook(Box::new(|p| {
        eprintln!("{p}");
        std::process::exit(101)
    }));
    let role = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers()?)
        .enable_all()
        .build()?;
    let mut side = None;
    for line in std::io::stdin().lock().lines() {
        let command = serde_json::from_str(&line?).context("reading a command")?;
        // As a task, because what this thread spawns itself wakes a worker each time.
        let (role, mut moved) = (role.clone(), side.take());
        let answer;
        (side, answer) = runtime.block_on(runtime.spawn(async move {
            let answer = run(&role, &mut moved, command).await;
            (moved, answer)
        }))?;
        let answer = answer.unwrap_or_else(|e| json!({"error": format!("{e:#}")}));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush())?;
    }
    std::process::exit(0) // whatever is still open ends with the process
}

async fn run(role: &str, side: &mut Option<Side>, command: Command) -> Result<Value> {
    if let Command::Prepare { spec } = command {
        let (new, address) = match role {
            "consumer" => {
                let c = consumer::Consumer::new(spec).await?;
                let address = c.address();
                (Side::Consumer(c), address)
            }
            "producer" => {
                let p = producer::Producer::new(spec).await?;
                let address = p.address();
                (Side::Producer(p), address)
            }
            "local" => (Side::Local(local::Local::new(spec).await?), Value::Null),
            _ => bail!("usage: velo-rig consumer|producer|local"),
        };
        *side = Some(new);
        return Ok(json!({"address": address}));
    }
    match (side.as_mut().context("prepare comes first")?, command) {
        (Side::Consumer(c), Command::Connect { address }) => c.connect(address).await,
        (Side::Consumer(c), Command::Setup) => c.setup().await,
        (Side::Consumer(c), Command::Mark) => c.usage(),
        (Side::Consumer(c), Command::Wait) => c.wait().await,
        (Side::Producer(p), Command::Connect { address }) => p.connect(address).await,
        (Side::Producer(p), Command::Mark) => p.mark().await,
        (Side::Producer(p), Command::Go) => p.go().await,
        (Side::Producer(p), Command::Done) => p.usage(),
        (Side::Consumer(c), Command::Rest) => {
            rest();
            c.usage()
        }
        (Side::Consumer(c), Command::Cycles) => c.cycles().await,
        (Side::Producer(p), Command::Rest) => {
            rest();
            p.usage()
        }
        (Side::Local(l), Command::Rest) => {
            rest();
            l.usage()
        }
        (Side::Local(l), Command::Mark) => l.usage(),
        (Side::Local(l), Command::Cycles) => l.cycles().await,
        (Side::Local(l), Command::Unattached) => l.anchors(false),
        (Side::Local(l), Command::Prebound) => l.anchors(true),
        _ => bail!("no command of a {role}"),
    }
}

/// How many threads run tasks: RIG_THREADS, or 2.
fn workers() -> Result<usize> {
    match std::env::var("RIG_THREADS") {
        Ok(n) => n.parse().context("reading RIG_THREADS"),
        Err(_) => Ok(2),
    }
}

/// Gives memory that is free back to the kernel.
fn rest() {
    unsafe { libc::malloc_trim(0) };
}

/// Starts a node with everything at velo's defaults; metrics are on, as in production.
pub async fn node() -> Result<(Velo, Registry)> {
    let registry = Registry::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listening")?;
    let node = Velo::builder()
        .metrics(Arc::new(VeloMetrics::register(&registry)?))
        .add_transport(Arc::new(
            TcpTransportBuilder::new()
                .from_listener(listener)?
                .build()?,
        ))
        .messenger_mux(MuxConfig::default())?
        .mux_only()
        .build()
        .await
        .context("starting a node")?;
    Ok((node, registry))
}
