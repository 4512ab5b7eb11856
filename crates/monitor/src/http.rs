//! The paths.
//!
//! | Path | Answer |
//! | --- | --- |
//! | `/metrics` | 200, the text format of Prometheus, version 0.0.4 |
//! | `/livez` | 200 as long as the process runs its tasks |
//! | `/readyz` | 200 when clients should come here, else 503 with the reason |
//!
//! GET and HEAD; every connection carries one request.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::health;
use crate::limits::{CONNECTION_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX};
use crate::monitor::Watched;
use crate::scrape;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers one request.
pub(crate) async fn serve(stream: TcpStream, watched: Arc<Watched>) {
    let answer = service_fn(|request| answer(request, &watched));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ended"),
        Err(_) => tracing::debug!("a connection for metrics was closed: its client was too slow"),
    }
}

async fn answer(request: Request<Incoming>, watched: &Arc<Watched>) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match request.uri().path() {
        "/metrics" => match scrape::page(watched).await {
            Ok(page) => response(StatusCode::OK, prometheus_text::CONTENT_TYPE, page),
            Err(error) => {
                tracing::error!(%error, "the page of metrics could not be written");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written\n")
            }
        },
        "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" => match health::readiness(watched).await {
            Ok(()) => text(StatusCode::OK, "ok\n"),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        },
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n"),
    })
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    response(status, PLAIN, text.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
