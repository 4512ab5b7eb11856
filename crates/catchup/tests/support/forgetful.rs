//! A proxy in front of Milena that makes of it a broker which does not give the metadata of committed offsets back.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milena_testkit::TestServer;
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetFetchRequest, OffsetFetchResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;
use milena_wire::{encode_response, parse_request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer frames are no test's.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Versions of the questions for committed offsets that are not answered yet, by their numbers.
type Asked = Arc<Mutex<HashMap<i32, i16>>>;

/// A server that clients reach through the proxy only.
pub(crate) async fn server() -> (TestServer, String) {
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
    tokio::spawn(accept(listener, target.unwrap()));
    (server, address.to_string())
}

async fn accept(listener: TcpListener, target: SocketAddr) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else { return };
            let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let asked = Asked::default();
            let requests = async {
                while let Some(frame) = frame(&mut from_client).await {
                    let request = parse_request(frame[4..].to_vec().into()).unwrap();
                    if request.api_key == ApiKey::OffsetFetch as i16 {
                        asked.lock().unwrap().insert(request.correlation_id, request.api_version);
                    }
                    if to_server.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            };
            let replies = async {
                while let Some(mut frame) = frame(&mut from_server).await {
                    let number = i32::from_be_bytes(*frame[4..].first_chunk().unwrap());
                    let version = asked.lock().unwrap().remove(&number);
                    if let Some(version) = version {
                        frame = without_metadata(&frame, version);
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

fn without_metadata(frame: &[u8], version: i16) -> Vec<u8> {
    let bytes = frame[4..].to_vec().into();
    let (number, mut answer): (i32, OffsetFetchResponse) =
        milena_wire::decode::decode_response_to::<OffsetFetchRequest>(version, bytes).unwrap();
    let nothing = Some(StrBytes::from_static_str(""));
    for topic in &mut answer.topics {
        for partition in &mut topic.partitions {
            partition.metadata = nothing.clone();
        }
    }
    for topic in answer.groups.iter_mut().flat_map(|group| &mut group.topics) {
        for partition in &mut topic.partitions {
            partition.metadata = nothing.clone();
        }
    }
    encode_response(ApiKey::OffsetFetch, version, number, &answer).unwrap().to_vec()
}
