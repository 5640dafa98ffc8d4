// SPDX-License-Identifier: Apache-2.0

//! One process with one node: streams that never leave it, and anchors at rest.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use prometheus::Registry;
use serde_json::{Value, json};
use velo::Velo;
use velo::streaming::{StreamAnchor, StreamFrame};

use crate::histogram::Histogram;
use crate::record::{check, fill, now};
use crate::{Spec, node, rest, usage};

pub struct Local {
    spec: Spec,
    node: Velo,
    registry: Registry,
    kept: Vec<StreamAnchor<Bytes>>,
}

impl Local {
    pub async fn new(spec: Spec) -> Result<Self> {
        let (node, registry) = node().await?;
        Ok(Self {
            kept: Vec::with_capacity(spec.streams),
            spec,
            node,
            registry,
        })
    }

    pub fn usage(&self) -> Result<Value> {
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        let usage = usage::usage(std::slice::from_ref(&self.registry))?;
        Ok(json!({"usage": usage, "tasks": tasks}))
    }

    /// Makes anchors and keeps them.
    pub fn anchors(&mut self, prebound: bool) -> Result<Value> {
        for _ in 0..self.spec.streams {
            let anchor = self.node.create_anchor::<Bytes>();
            if prebound {
                self.node
                    .prebind_anchor(anchor.handle())
                    .context("velo minted no ticket")?;
            }
            self.kept.push(anchor);
        }
        rest();
        self.usage()
    }

    /// Lets streams live and end, one at a time in each task.
    pub async fn cycles(&self) -> Result<Value> {
        let begun = now();
        let each = self.spec.streams / self.spec.tasks;
        let tasks: Vec<_> = (0..self.spec.tasks)
            .map(|_| tokio::spawn(run(self.node.clone(), each, self.spec.size)))
            .collect();
        let all = Histogram::default();
        for task in tasks {
            all.merge(&task.await??);
        }
        let ended = now();
        Ok(
            json!({"usage": self.usage()?["usage"], "begun_ns": begun, "ended_ns": ended, "latency": all.json()}),
        )
    }
}

async fn run(node: Velo, cycles: usize, size: usize) -> Result<Histogram> {
    let took = Histogram::default();
    let mut record = vec![0; size];
    for n in 0..cycles as u64 {
        let begun = now();
        let mut anchor = node.create_anchor::<Bytes>();
        let sender = node.attach_anchor::<Bytes>(anchor.handle()).await?;
        fill(&mut record, n, 0, false);
        sender.send_bytes(&record).await?;
        sender.finalize()?;
        match anchor.next_bytes().await {
            Some(Ok(StreamFrame::Item(r))) => {
                check(&r, size, n, 0, false).map_err(anyhow::Error::msg)?
            }
            other => bail!("cycle {n}: {other:?}"),
        };
        match anchor.next_bytes().await {
            Some(Ok(StreamFrame::Finalized)) => {}
            other => bail!("the end of cycle {n}: {other:?}"),
        }
        took.add(now() - begun);
    }
    Ok(took)
}
