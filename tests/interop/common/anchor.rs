// SPDX-License-Identifier: Apache-2.0

//! The consumer: makes an anchor, reads it as told, says how it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use velo::streaming::{AnchorConfig, MpscAnchorConfig, MpscFrame, StreamError, StreamFrame};

use super::record::Checker;
use super::{Peer, emit};
use crate::api;

#[derive(Deserialize)]
pub struct Spec {
    kind: Kind,
    #[serde(default)]
    prebind: bool,
    max_senders: Option<usize>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    read: Read,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Spsc,
    Mpsc,
}

/// How the anchor is read; counts are of records.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Read {
    delay_us: u64,
    /// Stop reading then, keep the anchor.
    limit: Option<u64>,
    cancel_after: Option<u64>,
    stop_after: Option<u64>,
    never: bool,
    /// Go on after a sender detached.
    reattach: bool,
    /// MPSC: end once so many senders have ended.
    senders: Option<usize>,
}

/// What to do next with the anchor.
enum Next {
    Read,
    Pause,
    Cancel,
    Stop,
}

struct Reader<'a> {
    id: &'a str,
    read: Read,
    check: Checker,
    due: Instant,
    stopped: bool,
}

pub async fn run(peer: &Peer, id: &str, spec: Spec) -> Result<()> {
    let timeout = spec.timeout_ms.map(Duration::from_millis);
    let reader = Reader {
        id,
        read: spec.read,
        check: Checker::default(),
        due: Instant::now(),
        stopped: false,
    };
    let manager = peer.node.anchor_manager();
    if spec.kind == Kind::Spsc {
        let config = AnchorConfig {
            unattached_timeout: timeout,
            heartbeat_interval: peer.options.heartbeat,
        };
        let anchor = manager.create_anchor_with_config::<Bytes>(config);
        let ticket = if spec.prebind {
            api::prebind(&peer.node, anchor.handle())?
        } else {
            Value::Null
        };
        emit(
            "anchor",
            id,
            json!({"handle": anchor.handle(), "ticket": ticket}),
        );
        return reader.spsc(anchor).await;
    }
    if spec.prebind {
        bail!("velo binds no slot ahead for an mpsc anchor");
    }
    let config = MpscAnchorConfig {
        unattached_timeout: timeout,
        heartbeat_interval: peer.options.heartbeat,
        max_senders: spec.max_senders,
        ..Default::default()
    };
    let anchor = manager.create_mpsc_anchor_with_config::<Bytes>(config);
    emit(
        "anchor",
        id,
        json!({"handle": anchor.handle(), "ticket": null}),
    );
    reader.mpsc(anchor).await
}

impl Reader<'_> {
    async fn spsc(mut self, mut anchor: velo::StreamAnchor<Bytes>) -> Result<()> {
        let (how, text) = loop {
            match self.next() {
                Next::Read => {}
                Next::Pause => return self.pause().await,
                Next::Stop => api::request_stop(&anchor.controller())?,
                Next::Cancel => {
                    anchor.cancel();
                    break ("cancelled", String::new());
                }
            }
            match anchor.next().await {
                Some(Ok(StreamFrame::Item(record))) => self.take(&record).await,
                Some(Ok(StreamFrame::Finalized)) => break ("finalized", String::new()),
                Some(Ok(StreamFrame::Detached)) if self.read.reattach => {
                    emit("detached", self.id, json!({"records": self.check.records}));
                }
                Some(Ok(StreamFrame::Detached)) => break ("detached", String::new()),
                // velo shows the other frames as errors, or not at all.
                Some(Ok(frame)) => break ("error", format!("{frame:?}")),
                Some(Err(StreamError::SenderDropped)) => break ("dropped", String::new()),
                Some(Err(StreamError::TransportError(text))) => break ("transport_error", text),
                Some(Err(StreamError::SenderError(text))) => {
                    emit("sender_error", self.id, json!({"text": text}))
                }
                Some(Err(error)) => break ("error", error.to_string()),
                None => break ("closed", String::new()),
            }
        };
        self.end(how, text, json!({}));
        Ok(())
    }

    async fn mpsc(mut self, mut anchor: velo::streaming::MpscStreamAnchor<Bytes>) -> Result<()> {
        let mut records: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ends: BTreeMap<u64, Value> = BTreeMap::new();
        let (how, text) = loop {
            match self.next() {
                Next::Read => {}
                Next::Pause => return self.pause().await,
                Next::Stop => bail!("velo has no stop for an mpsc anchor"),
                Next::Cancel => {
                    anchor.cancel();
                    break ("cancelled", String::new());
                }
            }
            let (sender, how, text) = match anchor.next().await {
                Some(Ok((sender, MpscFrame::Item(record)))) => {
                    *records.entry(sender.0).or_default() += 1;
                    self.take(&record).await;
                    continue;
                }
                Some(Ok((sender, MpscFrame::SenderError(text)))) => {
                    emit(
                        "sender_error",
                        self.id,
                        json!({"sender": sender.0, "text": text}),
                    );
                    continue;
                }
                Some(Ok((sender, MpscFrame::Detached))) => (sender.0, "detached", None),
                Some(Ok((sender, MpscFrame::Dropped(text)))) => (sender.0, "dropped", text),
                Some(Err(error)) => break ("error", error.to_string()),
                None => break ("closed", String::new()),
            };
            let end = json!({"sender": sender, "records": records.get(&sender), "how": how, "text": text});
            emit("sender", self.id, end.clone());
            ends.entry(sender).or_insert(end);
            if self.read.senders.is_some_and(|n| ends.len() >= n) {
                break ("closed", String::new());
            }
        };
        for (sender, n) in records {
            ends.entry(sender)
                .or_insert(json!({"sender": sender, "records": n, "how": "open", "text": null}));
        }
        self.end(how, text, json!(ends));
        Ok(())
    }

    fn next(&mut self) -> Next {
        let reached = |count: Option<u64>| count.is_some_and(|n| self.check.records >= n);
        if self.read.never || reached(self.read.limit) {
            return Next::Pause;
        }
        if reached(self.read.cancel_after) {
            return Next::Cancel;
        }
        if !self.stopped && reached(self.read.stop_after) {
            self.stopped = true;
            return Next::Stop;
        }
        Next::Read
    }

    async fn take(&mut self, record: &[u8]) {
        if self.check.records == 0 {
            emit("first", self.id, json!({}));
        }
        if let Some(text) = self.check.take(record) {
            emit("bad", self.id, json!({"text": text}));
        }
        if self.read.delay_us > 0 {
            // The runtime's timer ticks in milliseconds: shorter delays add up before they sleep.
            let now = Instant::now();
            let floor = now.checked_sub(Duration::from_millis(2)).unwrap_or(now);
            self.due = self.due.max(floor) + Duration::from_micros(self.read.delay_us);
            tokio::time::sleep_until(self.due).await;
        }
    }

    /// Keeps the anchor, which the caller owns, and reads no more.
    async fn pause(self) -> Result<()> {
        emit(
            "paused",
            self.id,
            json!({"records": self.check.records, "bad": self.check.bad}),
        );
        std::future::pending().await
    }

    fn end(self, how: &str, text: String, senders: Value) {
        let (records, bad) = (self.check.records, self.check.bad);
        emit(
            "end",
            self.id,
            json!({"records": records, "bad": bad, "how": how, "text": text, "senders": senders}),
        );
    }
}
