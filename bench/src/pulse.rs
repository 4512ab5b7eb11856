//! Requests at a fixed rate on one connection.
//!
//! The schedule does not wait for the server: a request is sent when its time has come, behind those without an answer.
//! So a server that stalls is charged for every request that came due meanwhile, up to [`Rhythm::depth`]; those beyond
//! are counted as skipped.

use std::time::Duration;

use milena_wire::kafka_protocol::protocol::Request;
use tokio::time::{Instant, sleep_until, timeout};

use crate::Result;
use crate::client::Connection;
use crate::latency::Latencies;

/// Longest wait for the answers that are missing at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// When requests are sent, and which of them count.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    /// The first request.
    pub start: Instant,
    /// Time between two requests; `None` keeps `depth` of them in flight instead.
    pub interval: Option<Duration>,
    /// Requests in flight at most.
    pub depth: usize,
    /// What is answered from here on counts.
    pub from: Instant,
    /// What is answered from here on does not count, and nothing more is sent.
    pub until: Instant,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Beats {
    /// From sending to the answer.
    pub latencies: Latencies,
    /// By how much requests were sent after their time: the client's own delay.
    pub late: Latencies,
    /// What the answers were worth, as the caller counts it.
    pub units: u64,
    /// Requests that came due while `depth` had no answer.
    pub skipped: u64,
}

impl Beats {
    /// Adds those of another connection.
    pub fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.late.merge(&other.late);
        self.units += other.units;
        self.skipped += other.skipped;
    }
}

/// Sends what `ask` makes, in that rhythm. `worth` says what an answer is worth, or why it is none.
///
/// # Errors
/// What ends the connection, and what `worth` refuses.
pub async fn pulse<Q: Request>(
    connection: &mut Connection,
    version: i16,
    rhythm: &Rhythm,
    mut ask: impl FnMut() -> Q,
    mut worth: impl FnMut(&Q::Response) -> Result<u64>,
) -> Result<Beats> {
    let mut beats = Beats::default();
    let mut due = rhythm.start;
    let mut note = |beats: &mut Beats, (answer, took): (Q::Response, Duration)| -> Result<()> {
        let units = worth(&answer)?;
        let now = Instant::now();
        if rhythm.from <= now && now < rhythm.until {
            beats.units += units;
            beats.latencies.add(took);
        }
        Ok(())
    };
    while due < rhythm.until {
        let is_room = connection.in_flight() < rhythm.depth;
        let may_send = is_room || rhythm.interval.is_some();
        tokio::select! {
            biased;
            () = sleep_until(due), if may_send => {
                let now = Instant::now();
                if !is_room {
                    beats.skipped += u64::from(now >= rhythm.from);
                } else {
                    if now >= rhythm.from && rhythm.interval.is_some() {
                        beats.late.add(now - due);
                    }
                    connection.send(version, &ask()).await?;
                }
                due = rhythm.interval.map_or(now, |interval| due + interval);
            }
            answer = connection.receive::<Q>(), if connection.in_flight() > 0 => note(&mut beats, answer?)?,
            () = sleep_until(rhythm.until) => break,
        }
    }
    let rest = async {
        while connection.in_flight() > 0 {
            let answer = connection.receive::<Q>().await?;
            note(&mut beats, answer)?;
        }
        Result::<()>::Ok(())
    };
    timeout(LAST_ANSWERS, rest).await.map_err(|_| "requests without an answer at the end")??;
    Ok(beats)
}
