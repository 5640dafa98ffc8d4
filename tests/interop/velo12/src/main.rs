// SPDX-License-Identifier: Apache-2.0

//! A peer on velo 0.12: mux key v1, attach only.

#[path = "../../common/mod.rs"]
mod common;

mod api {
    use std::sync::Arc;

    use anyhow::{Result, bail};
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use serde_json::Value;
    use velo::streaming::{
        AutoFlush, FlushPolicy, MuxConfig, StreamAnchorHandle, StreamController,
    };
    use velo::{StreamSender, Velo, VeloBuilder};

    use crate::common::Options;

    pub const VERSION: &str = "0.12.0";
    pub type Node = Arc<Velo>;

    pub fn with_mux(builder: VeloBuilder, options: &Options) -> Result<VeloBuilder> {
        if options.mux_only || options.async_open {
            bail!("--mux-only and --async-open need velo 0.21");
        }
        let mut config = MuxConfig {
            enabled: options.mux,
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
        builder.messenger_mux(config)
    }

    pub fn prebind(_: &Node, _: StreamAnchorHandle) -> Result<Value> {
        bail!("velo 0.12 has no tickets")
    }

    pub async fn open(_: &Node, _: StreamAnchorHandle, _: Value) -> Result<StreamSender<Bytes>> {
        bail!("velo 0.12 has no tickets")
    }

    pub fn request_stop(_: &StreamController) -> Result<()> {
        bail!("velo 0.12 has no stop")
    }

    pub fn stopped(_: &StreamSender<Bytes>) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }

    pub fn retired(_: &StreamSender<Bytes>) -> Option<BoxFuture<'static, &'static str>> {
        None
    }
}

fn main() -> anyhow::Result<()> {
    common::main()
}
