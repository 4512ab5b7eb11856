//! Many members, random kills, a restart of the server in the middle: every record is acknowledged at least once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::time::Duration;

use milena_testkit::{ChildServer, TestServer};
use support::churn::{Churn, PARTITIONS};
use support::milena::{GROUP, TOPIC, create};
use tokio::runtime::Runtime;

/// In this process, and "killed" is to end without a word; or the binary that `TEST_BINARY` names, and then it is kill -9.
enum Server {
    Here(Option<Box<TestServer>>),
    Child(Box<ChildServer>),
}

impl Server {
    fn start(runtime: &Runtime) -> (Self, String) {
        if let Ok(binary) = std::env::var("TEST_BINARY") {
            let child = ChildServer::builder(binary).alone().start();
            let bootstrap = child.bootstrap().to_owned();
            return (Self::Child(Box::new(child)), bootstrap);
        }
        let builder = TestServer::builder().config(|config| config.groups.initial_rebalance_delay = Duration::ZERO);
        let server = runtime.block_on(builder.start());
        let bootstrap = server.bootstrap();
        (Self::Here(Some(Box::new(server))), bootstrap)
    }

    fn kill_and_start(&mut self, runtime: &Runtime) {
        match self {
            Self::Here(server) => {
                let running = server.take().unwrap();
                *server = Some(Box::new(runtime.block_on(Box::pin(running.kill_and_start()))));
            }
            Self::Child(child) => child.restart(),
        }
    }
}

#[test]
fn b52_members_come_and_go_and_the_server_restarts_and_nothing_is_lost() {
    let runtime = Runtime::new().unwrap();
    let (mut server, bootstrap) = Server::start(&runtime);
    runtime.block_on(create(&bootstrap, TOPIC, PARTITIONS));
    let churn = Churn { bootstrap: &bootstrap, topic: TOPIC, group: GROUP, session_ms: 6_000, seconds: 30 };
    churn.run(&runtime, || server.kill_and_start(&runtime));
    runtime.block_on(async { drop(server) });
}
