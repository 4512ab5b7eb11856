//! A proxy in front of Milena that changes answers, so that clients see another broker.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::Request;
use milena_wire::{RequestFrame, encode_response, parse_request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer frames are no test's.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Gets a request and its answer, a frame with its length before it, and answers what the client gets in its place; `None` for as it is.
pub(crate) type Rewrite = Arc<dyn Fn(&RequestFrame, &[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// A server that clients reach through the proxy only.
pub(crate) async fn server(rewrite: Rewrite) -> (TestServer, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut target = None;
    let builder = TestServer::builder().config(|config| {
        config.groups.initial_rebalance_delay = Duration::ZERO;
        config.listeners[0].advertised_host = Some(address.ip().to_string());
        config.listeners[0].advertised_port = Some(address.port());
        target = Some(config.listeners[0].bind);
    });
    let server = builder.start().await;
    tokio::spawn(accept(listener, target.unwrap(), rewrite));
    (server, address.to_string())
}

/// The answer to a `Q` with something changed.
pub(crate) fn changed<Q>(request: &RequestFrame, frame: &[u8], change: impl FnOnce(&mut Q::Response)) -> Vec<u8>
where
    Q: Request,
{
    let (key, version) = (ApiKey::try_from(Q::KEY).unwrap(), request.api_version);
    let bytes = frame[4..].to_vec().into();
    let (number, mut answer) = milena_wire::decode::decode_response_to::<Q>(version, bytes).unwrap();
    change(&mut answer);
    encode_response(key, version, number, &answer).unwrap().to_vec()
}

async fn accept(listener: TcpListener, target: SocketAddr, rewrite: Rewrite) {
    while let Ok((client, _)) = listener.accept().await {
        let rewrite = Arc::clone(&rewrite);
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else { return };
            let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            // Requests that are not answered yet, by their numbers.
            let asked = Mutex::new(HashMap::new());
            let requests = async {
                while let Some(frame) = frame(&mut from_client).await {
                    let request = parse_request(frame[4..].to_vec().into()).unwrap();
                    asked.lock().unwrap().insert(request.correlation_id, request);
                    if to_server.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            };
            let replies = async {
                while let Some(mut frame) = frame(&mut from_server).await {
                    let number = i32::from_be_bytes(*frame[4..].first_chunk().unwrap());
                    let request = asked.lock().unwrap().remove(&number);
                    if let Some(changed) = request.and_then(|request| rewrite(&request, &frame)) {
                        frame = changed;
                    }
                    if to_client.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = requests => {}
                () = replies => {}
            }
        });
    }
}

/// The next frame, with its length before it.
async fn frame(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).await.ok()?;
    let length = usize::try_from(i32::from_be_bytes(*frame.first_chunk()?)).ok()?;
    assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..]).await.ok()?;
    Some(frame)
}
