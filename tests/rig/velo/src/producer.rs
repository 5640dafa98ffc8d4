// SPDX-License-Identifier: Apache-2.0

//! The producing process: a node for each peer, and either one task that feeds all streams
//! of a node in turn or a task a stream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use velo::streaming::StreamAnchorHandle;
use velo::{PeerInfo, StreamOpenTicket, StreamSender, Velo};

use crate::record::{fill, now};
use crate::{Spec, node, usage};

struct Stream {
    number: u64,
    next: u64,
    sender: StreamSender<Bytes>,
}

/// What the tasks share.
struct Shared {
    spec: Spec,
    /// By peer.
    streams: Vec<Mutex<Vec<Stream>>>,
    go: watch::Receiver<Option<Instant>>,
    /// That a stream was begun, and later that a task has handed in all.
    told: mpsc::UnboundedSender<Result<()>>,
}

pub struct Producer {
    nodes: Vec<(Velo, String)>,
    registries: Vec<Registry>,
    shared: Arc<Shared>,
    start: watch::Sender<Option<Instant>>,
    told: mpsc::UnboundedReceiver<Result<()>>,
}

impl Producer {
    pub async fn new(spec: Spec) -> Result<Self> {
        let (start, go) = watch::channel(None);
        let (sender, told) = mpsc::unbounded_channel();
        let streams = (0..spec.peers).map(|_| Default::default()).collect();
        let shared = Arc::new(Shared {
            spec,
            streams,
            go,
            told: sender,
        });
        let (mut nodes, mut registries) = (Vec::new(), Vec::new());
        for peer in 0..shared.spec.peers {
            let (node, registry) = node().await?;
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .context("listening for requests")?;
            nodes.push((node.clone(), listener.local_addr()?.to_string()));
            registries.push(registry);
            tokio::spawn(serve(shared.clone(), node, peer, listener));
        }
        Ok(Self {
            nodes,
            registries,
            shared,
            start,
            told,
        })
    }

    pub fn address(&self) -> Value {
        json!(
            self.nodes
                .iter()
                .map(|(node, requests)| (requests, node.peer_info()))
                .collect::<Vec<_>>()
        )
    }

    pub async fn connect(&mut self, address: Value) -> Result<Value> {
        let peer: PeerInfo = serde_json::from_value(address)?;
        for (node, _) in &self.nodes {
            node.register_peer(peer.clone())?;
            node.wait_for_handler(peer.instance_id(), "_stream_batch")
                .await?;
        }
        self.usage()
    }

    pub fn usage(&self) -> Result<Value> {
        Ok(json!({"usage": usage::usage(&self.registries)?}))
    }

    /// Waits for what remains of the set-up.
    pub async fn mark(&mut self) -> Result<Value> {
        self.all(self.shared.spec.streams).await?;
        self.usage()
    }

    async fn all(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.told.recv().await.context("the tasks have gone")??;
        }
        Ok(())
    }

    pub async fn go(&mut self) -> Result<Value> {
        let (begun, start) = (now(), Instant::now());
        let mut tasks = self.shared.spec.streams;
        if !self.shared.spec.per_stream {
            tasks = self.shared.spec.peers;
            for peer in 0..tasks {
                tokio::spawn(walk(self.shared.clone(), peer, start));
            }
        }
        self.start.send(Some(start))?;
        self.all(tasks).await?;
        Ok(json!({"begun_ns": begun}))
    }
}

/// Serves the requests that come to a peer.
async fn serve(shared: Arc<Shared>, node: Velo, peer: usize, listener: TcpListener) -> Result<()> {
    let (conn, _) = listener.accept().await?;
    let mut conn = BufReader::new(conn);
    loop {
        let length = conn.read_u32().await?;
        let stream = conn.read_u32().await?;
        let mut body = vec![0; length as usize];
        conn.read_exact(&mut body).await?;
        tokio::spawn(begin(
            shared.clone(),
            node.clone(),
            peer,
            stream.into(),
            body,
        ));
    }
}

/// Opens a stream and sends its first record, or all where streams come and go.
async fn begin(shared: Arc<Shared>, node: Velo, peer: usize, number: u64, body: Vec<u8>) {
    let spec = &shared.spec;
    let mut record = vec![0; spec.size];
    let open = async {
        let (handle, ticket): (StreamAnchorHandle, StreamOpenTicket) =
            rmp_serde::from_slice(&body)?;
        let sender = node.open_anchor_stream::<Bytes>(handle, ticket).await?;
        let mut stream = Stream {
            number,
            next: 0,
            sender,
        };
        stream.send(spec, &mut record).await?;
        while spec.in_flight > 0 && stream.next < spec.records {
            stream.send(spec, &mut record).await?;
        }
        Ok::<_, anyhow::Error>(stream)
    };
    let open = open.await;
    if spec.in_flight > 0 {
        if let Err(e) = open.and_then(Stream::end) {
            eprintln!("stream {number}: {e:#}"); // the consumer sees that we went
            std::process::exit(1);
        }
        return;
    }
    let mut stream = match open {
        Ok(stream) => stream,
        Err(e) => return tell(&shared, Err(e.context("opening a stream"))),
    };
    if !shared.spec.per_stream {
        shared.streams[peer]
            .lock()
            .expect("no task panics")
            .push(stream);
        return tell(&shared, Ok(()));
    }
    tell(&shared, Ok(()));
    let mut go = shared.go.clone();
    let Ok(start) = go
        .wait_for(Option::is_some)
        .await
        .map(|s| s.expect("it was waited for"))
    else {
        return;
    };
    let period = shared.spec.period();
    let mut due = start + period.mul_f64(stream.number as f64 / shared.spec.streams as f64);
    let mut sent = Ok(());
    while sent.is_ok() && stream.next < shared.spec.records {
        if shared.spec.paced {
            sleep_until(due).await;
            due += period;
        }
        sent = stream.send(&shared.spec, &mut record).await;
    }
    tell(&shared, sent.and_then(|()| stream.end()));
}

fn tell(shared: &Shared, how: Result<()>) {
    // Nobody listens any more when another task has failed.
    let _ = shared.told.send(how);
}

/// Feeds the streams of a peer, one record each in turn.
async fn walk(shared: Arc<Shared>, peer: usize, start: Instant) {
    let mut streams = std::mem::take(&mut *shared.streams[peer].lock().expect("no task panics"));
    streams.sort_by_key(|s| s.number);
    tell(&shared, feed(&shared.spec, streams, start).await);
}

async fn feed(spec: &Spec, mut streams: Vec<Stream>, start: Instant) -> Result<()> {
    let turns = (spec.records - 1) as usize * streams.len();
    let rate = streams.len() as f64 / spec.period().as_secs_f64();
    let mut tick = interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut record = vec![0; spec.size];
    let (mut turn, mut at) = (0, 0);
    while turn < turns {
        let mut due = turns;
        if spec.paced {
            tick.tick().await;
            due = due.min((start.elapsed().as_secs_f64() * rate) as usize);
        }
        while turn < due {
            streams[at].send(spec, &mut record).await?;
            at = if at + 1 == streams.len() { 0 } else { at + 1 };
            turn += 1;
        }
    }
    streams.into_iter().try_for_each(Stream::end)
}

impl Spec {
    /// Between two records of a paced stream.
    fn period(&self) -> Duration {
        Duration::from_secs_f64(self.streams as f64 / self.rate)
    }
}

impl Stream {
    /// Sends the next record, made in `record`.
    async fn send(&mut self, spec: &Spec, record: &mut [u8]) -> Result<()> {
        fill(record, self.number, self.next, spec.paced);
        self.next += 1;
        Ok(self.sender.send_bytes(record).await?)
    }

    fn end(self) -> Result<()> {
        Ok(self.sender.finalize()?)
    }
}
