// SPDX-License-Identifier: Apache-2.0

//! The producer: attaches or opens by ticket, sends records, ends as told.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use velo::StreamSender;
use velo::streaming::{MpscStreamSender, SendError, StreamAnchorHandle};

use super::{Peer, emit, record};
use crate::api;

#[derive(Deserialize)]
pub struct Spec {
    handle: StreamAnchorHandle,
    #[serde(default)]
    ticket: Value,
    #[serde(default)]
    mpsc: bool,
    stream: u64,
    records: u64,
    #[serde(default = "default_size")]
    size: usize,
    #[serde(default)]
    interval_us: u64,
    /// Records sent together in each interval.
    rate_batch: Option<u64>,
    end: End,
}

fn default_size() -> usize {
    160
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum End {
    Finalize,
    Detach,
    Drop,
    Hang,
}

enum Sender {
    Spsc(StreamSender<Bytes>),
    Mpsc(MpscStreamSender<Bytes>),
}

pub async fn run(peer: &Peer, id: &str, spec: Spec) -> Result<()> {
    let sender = if spec.mpsc {
        Sender::Mpsc(peer.node.attach_mpsc_anchor(spec.handle).await?)
    } else if spec.ticket.is_null() {
        Sender::Spsc(peer.node.attach_anchor(spec.handle).await?)
    } else {
        Sender::Spsc(api::open(&peer.node, spec.handle, spec.ticket.clone()).await?)
    };
    emit("attached", id, json!({"transport": sender.transport()}));
    let retired = OptionFuture::from(sender.retired());
    let (sent, how, text) = send(id, sender, &spec).await;
    emit("done", id, json!({"sent": sent, "how": how, "text": text}));
    if let Some(how) = retired.await {
        emit("retired", id, json!({"how": how}));
    }
    Ok(())
}

async fn send(id: &str, sender: Sender, spec: &Spec) -> (u64, &'static str, String) {
    let mut cancelled = pin!(sender.cancelled());
    let mut stopped = pin!(sender.stopped());
    let start = Instant::now();
    let batch = spec.rate_batch.unwrap_or(1).max(1);
    for n in 0..spec.records {
        if spec.interval_us > 0 && n % batch == 0 {
            let due = start + Duration::from_micros(spec.interval_us) * (n / batch) as u32;
            tokio::select! {
                biased;
                () = &mut cancelled => return (n, "cancelled", String::new()),
                () = &mut stopped => return sender.end(n, End::Finalize, "stopped").await,
                () = tokio::time::sleep_until(due) => {}
            }
        } else if stopped.as_mut().now_or_never().is_some() {
            // A stop token also fires when the stream is cancelled.
            if cancelled.as_mut().now_or_never().is_some() {
                return (n, "cancelled", String::new());
            }
            return sender.end(n, End::Finalize, "stopped").await;
        }
        if let Err(error) = sender.send(record::make(spec.stream, n, spec.size)).await {
            // The channel closes a moment before the token tells.
            return match tokio::time::timeout(Duration::from_millis(200), cancelled).await {
                Ok(()) => (n, "cancelled", String::new()),
                Err(_) => (n, "failed", error.to_string()),
            };
        }
    }
    if let End::Hang = spec.end {
        emit("sent", id, json!({"sent": spec.records}));
        tokio::select! {
            biased;
            () = cancelled => return (spec.records, "cancelled", String::new()),
            () = stopped => return sender.end(spec.records, End::Finalize, "stopped").await,
        }
    }
    sender.end(spec.records, spec.end, "").await
}

impl Sender {
    fn transport(&self) -> Option<&str> {
        match self {
            Sender::Spsc(s) => s.negotiated_transport().map(|key| key.as_str()),
            // velo does not say for MPSC.
            Sender::Mpsc(_) => None,
        }
    }

    async fn send(&self, record: Bytes) -> Result<(), SendError> {
        match self {
            Sender::Spsc(s) => s.send(record).await,
            Sender::Mpsc(s) => s.send(record).await,
        }
    }

    fn cancelled(&self) -> impl Future<Output = ()> + use<> {
        let token = match self {
            Sender::Spsc(s) => s.cancellation_token(),
            Sender::Mpsc(s) => s.cancellation_token(),
        };
        token.cancelled_owned()
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        match self {
            Sender::Spsc(s) => api::stopped(s),
            Sender::Mpsc(_) => std::future::pending().boxed(),
        }
    }

    fn retired(&self) -> Option<BoxFuture<'static, &'static str>> {
        match self {
            Sender::Spsc(s) => api::retired(s),
            Sender::Mpsc(_) => None,
        }
    }

    /// Ends the stream; `how` overrides the name of the end when it is not empty.
    async fn end(self, sent: u64, end: End, how: &'static str) -> (u64, &'static str, String) {
        let (result, name) = match (self, end) {
            (Sender::Spsc(s), End::Finalize) => (s.finalize().map_err(|e| anyhow!(e)), "finalized"),
            (Sender::Spsc(s), End::Detach) => {
                (s.detach().map(drop).map_err(|e| anyhow!(e)), "detached")
            }
            // An MPSC sender cannot finalize the anchor that others use.
            (Sender::Mpsc(s), End::Finalize | End::Detach) => (
                s.detach().await.map(drop).map_err(|e| anyhow!(e)),
                "detached",
            ),
            (_, End::Drop | End::Hang) => (Ok(()), "dropped"),
        };
        match result {
            Ok(()) if how.is_empty() => (sent, name, String::new()),
            Ok(()) => (sent, how, String::new()),
            Err(error) => (sent, "failed", error.to_string()),
        }
    }
}
