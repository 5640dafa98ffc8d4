// SPDX-License-Identifier: Apache-2.0

//! The consuming process: one node, a task a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use velo::streaming::{StreamAnchor, StreamFrame};
use velo::{PeerInfo, Velo};

use crate::histogram::Histogram;
use crate::record::{check, now};
use crate::{Spec, node, usage};

enum Event {
    /// Every stream has its first record.
    Ready,
    /// One stream has ended, if they are asked for as others end.
    End,
    /// Every stream has ended, at that time.
    Ended(u64),
    Fault(String),
}

/// What the tasks share.
struct Shared {
    spec: Spec,
    requested: Vec<AtomicU64>,
    started: AtomicUsize,
    ended: AtomicUsize,
    setup: Histogram,
    latency: Histogram,
    cycle: Histogram,
    events: mpsc::UnboundedSender<Event>,
}

pub struct Consumer {
    node: Velo,
    registry: Registry,
    /// A connection to each peer, and what flush sends on it.
    requests: Vec<(TcpStream, Vec<u8>)>,
    shared: Arc<Shared>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Consumer {
    pub async fn new(spec: Spec) -> Result<Self> {
        let (node, registry) = node().await?;
        let (sender, events) = mpsc::unbounded_channel();
        let shared = Shared {
            requested: (0..spec.streams).map(|_| AtomicU64::new(0)).collect(),
            spec,
            started: Default::default(),
            ended: Default::default(),
            setup: Default::default(),
            latency: Default::default(),
            cycle: Default::default(),
            events: sender,
        };
        Ok(Self {
            node,
            registry,
            requests: Vec::new(),
            shared: Arc::new(shared),
            events,
        })
    }

    pub fn address(&self) -> Value {
        json!(self.node.peer_info())
    }

    pub async fn connect(&mut self, address: Value) -> Result<Value> {
        let peers: Vec<(String, PeerInfo)> = serde_json::from_value(address)?;
        for (requests, peer) in peers {
            let instance = peer.instance_id();
            self.node.register_peer(peer)?;
            self.node
                .wait_for_handler(instance, "_stream_batch")
                .await?;
            let conn = TcpStream::connect(&requests).await?;
            conn.set_nodelay(true)?;
            self.requests.push((conn, Vec::new()));
        }
        self.usage()
    }

    pub fn usage(&self) -> Result<Value> {
        Ok(json!({"usage": usage::usage(std::slice::from_ref(&self.registry))?}))
    }

    /// Asks for the streams at an even pace, and waits until all have their first record.
    pub async fn setup(&mut self) -> Result<Value> {
        let begun = tokio::time::Instant::now();
        let mut tick = interval(Duration::from_millis(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (streams, rate) = (self.shared.spec.streams, self.shared.spec.setup_rate);
        let mut asked = 0;
        while asked < streams {
            tick.tick().await;
            let due = streams.min((begun.elapsed().as_secs_f64() * rate) as usize);
            self.ask(asked, due).await?;
            asked = asked.max(due);
        }
        match self.events.recv().await {
            Some(Event::Ready) => {}
            Some(Event::Fault(text)) => bail!(text),
            _ => bail!("the streams ended before they were told to"),
        }
        let usage = usage::usage(std::slice::from_ref(&self.registry))?;
        Ok(json!({"usage": usage, "setup": self.shared.setup.json()}))
    }

    async fn ask(&mut self, from: usize, to: usize) -> Result<()> {
        for stream in from..to {
            self.shared.requested[stream].store(now(), Relaxed);
            let anchor = self.node.create_anchor::<Bytes>();
            let handle = anchor.handle();
            let ticket = self
                .node
                .prebind_anchor(handle)
                .context("velo minted no ticket")?;
            tokio::spawn(read(self.shared.clone(), anchor, stream));
            let body = rmp_serde::to_vec(&(handle, ticket))?;
            let peers = self.requests.len();
            let (_, out) = &mut self.requests[stream % peers];
            out.extend_from_slice(&(body.len() as u32).to_be_bytes());
            out.extend_from_slice(&(stream as u32).to_be_bytes());
            out.extend_from_slice(&body);
        }
        for (conn, out) in &mut self.requests {
            if !out.is_empty() {
                conn.write_all(out).await.context("asking for streams")?;
                out.clear();
            }
        }
        Ok(())
    }

    /// Asks for streams as others end.
    pub async fn cycles(&mut self) -> Result<Value> {
        let begun = now();
        let (streams, at_once) = (self.shared.spec.streams, self.shared.spec.in_flight);
        let mut asked = at_once.min(streams);
        self.ask(0, asked).await?;
        let mut events = Vec::new();
        loop {
            self.events.recv_many(&mut events, at_once).await;
            let mut ends = 0;
            for event in events.drain(..) {
                match event {
                    Event::End => ends += 1,
                    Event::Ready => {}
                    Event::Fault(text) => bail!(text),
                    Event::Ended(at) => {
                        let usage = usage::usage(std::slice::from_ref(&self.registry))?;
                        return Ok(
                            json!({"usage": usage, "begun_ns": begun, "ended_ns": at, "latency": self.shared.cycle.json()}),
                        );
                    }
                }
            }
            let to = streams.min(asked + ends);
            self.ask(asked, to).await?;
            asked = to;
        }
    }

    pub async fn wait(&mut self) -> Result<Value> {
        let ended = match self.events.recv().await {
            Some(Event::Ended(at)) => at,
            Some(Event::Fault(text)) => bail!(text),
            _ => bail!("the streams began twice"),
        };
        let usage = usage::usage(std::slice::from_ref(&self.registry))?;
        let latency = self.shared.spec.paced.then(|| self.shared.latency.json());
        Ok(json!({"usage": usage, "ended_ns": ended, "latency": latency}))
    }
}

/// Reads one stream to its end.
async fn read(shared: Arc<Shared>, mut anchor: StreamAnchor<Bytes>, stream: usize) {
    let spec = &shared.spec;
    let fault = |text: String| drop(shared.events.send(Event::Fault(text)));
    let mut sequence = 0;
    loop {
        let record = match anchor.next_bytes().await {
            Some(Ok(StreamFrame::Item(record))) => record,
            Some(Ok(StreamFrame::Finalized)) => break,
            other => {
                return fault(format!(
                    "stream {stream} after {sequence} records: {other:?}"
                ));
            }
        };
        match check(&record, spec.size, stream as u64, sequence, spec.paced) {
            Err(text) => return fault(text),
            Ok(_) if sequence == 0 => {
                shared
                    .setup
                    .add(now() - shared.requested[stream].load(Relaxed));
                if shared.started.fetch_add(1, Relaxed) + 1 == spec.streams {
                    let _ = shared.events.send(Event::Ready);
                }
            }
            Ok(handed) if spec.paced => shared.latency.add(now() - handed),
            Ok(_) => {}
        }
        sequence += 1;
    }
    if sequence != spec.records {
        return fault(format!(
            "stream {stream} ended after {sequence} of {} records",
            spec.records
        ));
    }
    let now = now();
    shared
        .cycle
        .add(now - shared.requested[stream].load(Relaxed));
    // Nobody listens any more when another stream has failed.
    let _ = match shared.ended.fetch_add(1, Relaxed) + 1 {
        n if n == spec.streams => shared.events.send(Event::Ended(now)),
        _ if spec.in_flight > 0 => shared.events.send(Event::End),
        _ => return,
    };
}
