// SPDX-License-Identifier: Apache-2.0

//! A peer on velo 0.21: mux key v2, tickets, stop.

#[path = "../../common/mod.rs"]
mod common;

mod api {
    use anyhow::{Context, Result};
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use serde_json::Value;
    use velo::streaming::{
        AutoFlush, FlushPolicy, MuxConfig, Retirement, StreamAnchorHandle, StreamController,
    };
    use velo::{StreamSender, Velo, VeloBuilder};

    use crate::common::Options;

    pub const VERSION: &str = "0.21.0";
    pub type Node = Velo;

    pub fn with_mux(builder: VeloBuilder, options: &Options) -> Result<VeloBuilder> {
        let mut config = MuxConfig {
            enabled: options.mux,
            async_open_ack: options.async_open,
            ..Default::default()
        };
        config.initial_credit = options.credit.unwrap_or(config.initial_credit);
        config.slot_byte_budget = options.slot_bytes.unwrap_or(config.slot_byte_budget);
        if options.linger.is_some() {
            config.flush_policy = FlushPolicy::Auto(AutoFlush {
                on_admission: false,
                max_linger: options.linger,
            });
        }
        let builder = builder.messenger_mux(config)?;
        Ok(if options.mux_only {
            builder.mux_only()
        } else {
            builder
        })
    }

    pub fn prebind(node: &Node, handle: StreamAnchorHandle) -> Result<Value> {
        let ticket = node
            .prebind_anchor(handle)
            .context("velo minted no ticket (is the mux off?)")?;
        Ok(serde_json::to_value(ticket)?)
    }

    pub async fn open(
        node: &Node,
        handle: StreamAnchorHandle,
        ticket: Value,
    ) -> Result<StreamSender<Bytes>> {
        Ok(node
            .open_anchor_stream(handle, serde_json::from_value(ticket)?)
            .await?)
    }

    pub fn request_stop(controller: &StreamController) -> Result<()> {
        controller.request_stop();
        Ok(())
    }

    pub fn stopped(sender: &StreamSender<Bytes>) -> BoxFuture<'static, ()> {
        sender.stop_token().cancelled_owned().boxed()
    }

    /// Resolves when velo has handed on, or thrown away, all of the stream's output.
    pub fn retired(sender: &StreamSender<Bytes>) -> Option<BoxFuture<'static, &'static str>> {
        let retired = sender.retired().map(|how| match how {
            Retirement::Sent => "sent",
            Retirement::Discarded => "discarded",
            _ => "unknown",
        });
        Some(retired.boxed())
    }
}

fn main() -> anyhow::Result<()> {
    common::main()
}
