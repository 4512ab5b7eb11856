//! Requests in which nothing is set.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use milena_server::dispatch::APIS;
use milena_testkit::TestServer;
use milena_wire::decode::decode_response_to;
use milena_wire::fuzzing::{Visit, visit_all};
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::Request;
use milena_wire::{WireError, encode_request};

/// A request, and what reads its answer.
struct Exchange {
    key: ApiKey,
    version: i16,
    frame: Bytes,
    read: fn(i16, Bytes) -> Result<i32, WireError>,
}

struct Exchanges(Vec<Exchange>);

impl Visit for Exchanges {
    fn visit<Q>(&mut self, key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + Debug,
        Q::Response: Default + Clone + PartialEq + Debug,
    {
        let served = APIS.iter().find(|api| api.key == key).map(|api| api.served);
        for version in served.into_iter().flat_map(|(first, last)| first..=last) {
            let frame = encode_request(key, version, i32::from(version), "test", &Q::default()).unwrap();
            let read = |version, frame| decode_response_to::<Q>(version, frame).map(|(id, _)| id);
            self.0.push(Exchange { key, version, frame, read });
        }
    }
}

/// Asks for every key that the codec knows and the server has, in every version of its range.
pub(crate) async fn ask(server: &TestServer) {
    let mut client = server.client().await;
    let mut exchanges = Exchanges(Vec::new());
    visit_all(&mut exchanges);
    let keys: BTreeSet<i16> = exchanges.0.iter().map(|exchange| exchange.key as i16).collect();
    assert_eq!(keys, APIS.iter().map(|api| api.key as i16).collect(), "a key is not tried");
    for Exchange { key, version, frame, read } in exchanges.0 {
        // Such a Produce has acks 0, which nothing answers.
        if key == ApiKey::Produce {
            continue;
        }
        client.send_bytes(&frame).await;
        let answer = client.read_frame().await.unwrap_or_else(|| panic!("{key:?} version {version} closes"));
        // Bytes that are left over are an error too.
        assert_eq!(read(version, answer), Ok(i32::from(version)), "{key:?} version {version}");
    }
}
