//! The transcript of a server: requests and answers as text, to be read and compared line by line.
//!
//! ```text
//! == a name of a step
//! > a 200 0201 73
//! < 0 00 000000
//! ```
//!
//! A request names its connection and its operation or command, then its body in hexadecimal digits, in which `(ff*20)` is a
//! byte that comes so many times. Where several requests go at once, the body of the answer is their numbers in the order in which
//! they were answered. An answer is a status and a body, `evicted` with a reason, `closed`, or `silence`.

use std::fmt::Write as _;

use crate::script::{Body, Step, What};
use crate::wire::Answer;

/// Bytes in a row from which on they are written as a count.
const RUN: usize = 8;

pub(crate) fn request(step: &Step) -> String {
    let body = match &step.body {
        Body::Bytes(bytes) => hex(bytes),
        Body::TokenOf(name) => format!("token of {name}"),
        Body::Requests(requests) => {
            let each = requests.iter().map(|(what, bytes)| format!("{} {}", name(*what), hex(bytes)));
            each.collect::<Vec<_>>().join(" + ")
        }
    };
    format!("> {} {} {body}", step.on, name(step.what))
}

fn name(what: What) -> String {
    match what {
        What::Operation(operation) => format!("{operation:?}"),
        What::Command(code) => code.to_string(),
        What::AtOnce => "at once".to_owned(),
        What::Host(host) => format!("{host:?}"),
    }
}

pub(crate) fn write(steps: &[Step], answers: &[Answer]) -> String {
    let mut text = String::new();
    for (step, answer) in steps.iter().zip(answers) {
        let answer = match answer {
            Answer::Reply(status, body) => format!("{status} {}", hex(body)),
            Answer::Evicted(reason) => format!("evicted {reason}"),
            Answer::Closed => "closed".to_owned(),
            Answer::Silence => "silence".to_owned(),
        };
        let _ = writeln!(text, "== {}\n{}\n< {answer}", step.name, request(step));
    }
    text
}

/// Name, request and answer of each step.
pub(crate) fn read(text: &str) -> Vec<(&str, &str, Answer)> {
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.chunks(3).map(|step| (step[0].strip_prefix("== ").unwrap(), step[1], answer(&step[2][2..]))).collect()
}

fn answer(text: &str) -> Answer {
    match text.split_once(' ') {
        None if text == "closed" => Answer::Closed,
        None => Answer::Silence,
        Some(("evicted", reason)) => Answer::Evicted(reason.parse().unwrap()),
        Some((status, body)) => Answer::Reply(status.parse().unwrap(), unhex(body)),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let Some(byte) = rest.first() {
        let run = rest.iter().take_while(|other| *other == byte).count();
        if run >= RUN {
            let _ = write!(text, "({byte:02x}*{run})");
            rest = &rest[run..];
        } else {
            let _ = write!(text, "{byte:02x}");
            rest = &rest[1..];
        }
    }
    text
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(run) = rest.strip_prefix('(') {
            let (run, after) = run.split_once(')').unwrap();
            let (byte, count) = run.split_once('*').unwrap();
            let byte = u8::from_str_radix(byte, 16).unwrap();
            bytes.extend(std::iter::repeat_n(byte, count.parse().unwrap()));
            rest = after;
        } else {
            bytes.push(u8::from_str_radix(&rest[..2], 16).unwrap());
            rest = &rest[2..];
        }
    }
    bytes
}
