// SPDX-License-Identifier: Apache-2.0

//! The peer that a test drives: commands in, events out, one JSON object a line.
//! What differs between the two versions of velo lies in each program's `api`.

mod anchor;
mod options;
mod produce;
mod record;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use prometheus::{Encoder, Registry, TextEncoder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;
use velo::discovery::{FilesystemPeerDiscovery, PeerRegistrationGuard};
use velo::transports::tcp::TcpTransportBuilder;
use velo::transports::uds::UdsTransportBuilder;
use velo::{Handler, InstanceId, PeerInfo, StreamConfig, TcpConfig, Velo, VeloMetrics};

use crate::api::{self, Node};
pub use options::Options;

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
enum Command {
    Register {
        peer: PeerInfo,
    },
    Discover {
        peer: InstanceId,
    },
    Anchor(anchor::Spec),
    Produce(produce::Spec),
    Unary {
        peer: InstanceId,
        handler: String,
        text: String,
    },
    Fire {
        peer: InstanceId,
        handler: String,
    },
    Counted,
    Metrics,
    Gate,
    Drain {
        timeout_ms: u64,
    },
    Quit,
}

/// One running peer; commands share it.
pub struct Peer {
    pub node: Node,
    pub options: Options,
    registry: Registry,
    counted: Arc<AtomicU64>,
}

/// Writes one event line.
pub fn emit(event: &str, id: &str, mut fields: Value) {
    fields["event"] = event.into();
    fields["id"] = id.into();
    let mut out = std::io::stdout().lock();
    // Whoever drives this peer has gone when this fails; stdin ends then too.
    let _ = writeln!(out, "{fields}").and_then(|()| out.flush());
}

/// Runs the program: starts the peer, serves commands until stdin ends.
pub fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.workers)
        .enable_all()
        .build()?
        .block_on(serve(options))?;
    // Streams that hang on purpose must not hold the process.
    std::process::exit(0)
}

async fn serve(options: Options) -> Result<()> {
    let registry = Registry::new();
    let discovery = options
        .discovery
        .as_ref()
        .map(FilesystemPeerDiscovery::new)
        .transpose()?;
    let node = build(&options, &registry, discovery.clone())
        .await
        .context("starting the peer")?;
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    node.register_handler(
        Handler::typed_unary("echo", |c| Ok::<String, anyhow::Error>(c.input)).build(),
    )?;
    node.register_handler(
        Handler::am_handler("count", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .build(),
    )?;
    let mut published = match &discovery {
        Some(file) => Some(file.register_peer_info(&node.peer_info()).await?),
        None => None,
    };
    let ready = json!({"event": "ready", "version": api::VERSION, "peer": node.peer_info()});
    println!("{ready}");

    let peer = Arc::new(Peer {
        node,
        options,
        registry,
        counted,
    });
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        let id = value["id"].as_str().unwrap_or_default().to_owned();
        match serde_json::from_value(value) {
            Ok(Command::Quit) => break,
            Ok(command) => {
                let peer = peer.clone();
                tokio::spawn(async move {
                    if let Err(error) = peer.run(&id, command).await {
                        emit("error", &id, json!({"text": format!("{error:#}")}));
                    }
                });
            }
            Err(error) => emit(
                "error",
                &id,
                json!({"text": format!("reading the command: {error}")}),
            ),
        }
    }
    if let Some(guard) = &mut published {
        guard.unregister().await?;
    }
    Ok(())
}

async fn build(
    options: &Options,
    registry: &Registry,
    discovery: Option<FilesystemPeerDiscovery>,
) -> Result<Node> {
    let mut builder = Velo::builder().metrics(Arc::new(VeloMetrics::register(registry)?));
    // The first transport that both peers have is the one that is used.
    if let Some(path) = &options.uds {
        builder = builder.add_transport(Arc::new(
            UdsTransportBuilder::new().socket_path(path).build()?,
        ));
    }
    if let Some(address) = options.listen {
        let listener = std::net::TcpListener::bind(address)
            .with_context(|| format!("listening on {address}"))?;
        builder = builder.add_transport(Arc::new(
            TcpTransportBuilder::new()
                .from_listener(listener)?
                .build()?,
        ));
    }
    if !options.mux_only {
        builder = builder.stream_config(StreamConfig::Tcp(Some(TcpConfig::new(
            options.stream_address(),
        ))))?;
    }
    if let Some(discovery) = discovery {
        builder = builder.discovery(Arc::new(discovery));
    }
    api::with_mux(builder, options)?.build().await
}

impl Peer {
    async fn run(&self, id: &str, command: Command) -> Result<()> {
        match command {
            Command::Register { peer } => {
                self.node.register_peer(peer)?;
                emit("registered", id, json!({}));
            }
            Command::Discover { peer } => {
                self.node.discover_and_register_peer(peer).await?;
                emit("registered", id, json!({}));
            }
            Command::Anchor(spec) => anchor::run(self, id, spec).await?,
            Command::Produce(spec) => produce::run(self, id, spec).await?,
            Command::Unary {
                peer,
                handler,
                text,
            } => {
                let reply = self
                    .node
                    .typed_unary::<String>(&handler)?
                    .payload(text)?
                    .instance(peer)
                    .send();
                emit("reply", id, json!({"text": reply.await?}));
            }
            Command::Fire { peer, handler } => {
                self.node
                    .am_send(&handler)?
                    .raw_payload(Bytes::new())
                    .instance(peer)
                    .send()
                    .await?;
                emit("fired", id, json!({}));
            }
            Command::Counted => emit(
                "counted",
                id,
                json!({"count": self.counted.load(Ordering::Relaxed)}),
            ),
            Command::Metrics => {
                let mut page = Vec::new();
                TextEncoder::new().encode(&self.registry.gather(), &mut page)?;
                emit("metrics", id, json!({"text": String::from_utf8(page)?}));
            }
            Command::Gate => {
                self.node.begin_drain();
                emit("gated", id, json!({}));
            }
            Command::Drain { timeout_ms } => {
                let policy = velo::ShutdownPolicy::Timeout(Duration::from_millis(timeout_ms));
                self.node.graceful_shutdown(policy).await;
                emit("drained", id, json!({}));
            }
            Command::Quit => unreachable!("ends the loop that reads commands"),
        }
        Ok(())
    }
}
