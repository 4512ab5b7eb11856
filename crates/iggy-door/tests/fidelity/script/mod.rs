//! What a client asks, valid and not, in one order: the same at a server and at the door.

mod admin;
mod crash;
mod data;
mod groups;
pub(crate) mod login;
mod malformed;

use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::{WireEncode, WireIdentifier, WireName, WireOptions};

/// What a request is: an operation of its own, or a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Operation(Operation),
    Command(u32),
    /// Several requests that are sent before the first answer comes.
    AtOnce,
    /// No request: something happens to the other side.
    Host(Host),
}

/// What happens to the process of the other side, or to its disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host {
    /// The next [`Host::Kill`] leaves no more of the first partition of this topic than the disk has now. At the door, that
    /// is: a server forgets by itself what it did not write.
    Remember(&'static str),
    /// The process is killed (`kill -9`) and started again on its data.
    Kill,
    /// One bit of this text is changed, wherever a file has it.
    Damage(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Bytes(Vec<u8>),
    /// A login with the token that the step of this name made.
    TokenOf(&'static str),
    Requests(Vec<(What, Vec<u8>)>),
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Its connection. One in upper case does not log in by itself.
    pub(crate) on: char,
    pub(crate) what: What,
    pub(crate) body: Body,
    /// True for a request under the number of the one before.
    pub(crate) is_again: bool,
    /// Time that a server is given before it: for what it does on its own.
    pub(crate) settle_ms: u64,
    /// Time that both sides are given before it.
    pub(crate) wait_ms: u64,
}

/// How long a partition waits for a commit, on both sides: longer than the steps of a handover take at a server.
pub(crate) const REBALANCING_TIMEOUT_MS: u64 = 5_000;

pub(crate) struct Script {
    steps: Vec<Step>,
    on: char,
    settle_ms: u64,
    wait_ms: u64,
}

/// The whole script.
pub(crate) fn script() -> Vec<Step> {
    let mut script = Script { steps: Vec::new(), on: 'a', settle_ms: 0, wait_ms: 0 };
    let sections: [fn(&mut Script); 28] = [
        login::strangers,
        login::system,
        login::tokens,
        admin::streams,
        admin::topics,
        admin::options,
        admin::partitions,
        admin::partitions_again,
        data::sends,
        data::refused_sends,
        data::polls,
        data::large_polls,
        data::at_once,
        data::segments,
        data::purges,
        data::retention,
        groups::offsets,
        groups::groups,
        groups::members,
        groups::handover,
        groups::handovers,
        groups::partings,
        groups::purged_at_work,
        malformed::unsupported,
        malformed::commands,
        login::end,
        crash::crash,
        // Last: the server does nothing on metadata any more after some of these.
        malformed::operations,
    ];
    for section in sections {
        section(&mut script);
        script.on('a');
    }
    script.steps
}

impl Script {
    fn on(&mut self, on: char) {
        self.on = on;
    }

    /// Time before the next step.
    fn settle(&mut self, ms: u64) {
        self.settle_ms = ms;
    }

    /// Time before the next step, at the door too.
    fn wait(&mut self, ms: u64) {
        self.wait_ms = ms;
    }

    fn does(&mut self, name: &str, operation: Operation, body: Vec<u8>) {
        self.step(name, What::Operation(operation), Body::Bytes(body));
    }

    fn asks(&mut self, name: &str, code: u32, body: Vec<u8>) {
        self.step(name, What::Command(code), Body::Bytes(body));
    }

    fn happens(&mut self, name: &str, what: Host) {
        self.step(name, What::Host(what), Body::Bytes(Vec::new()));
    }

    fn at_once(&mut self, name: &str, requests: Vec<(What, Vec<u8>)>) {
        self.step(name, What::AtOnce, Body::Requests(requests));
    }

    fn step(&mut self, name: &str, what: What, body: Body) {
        assert!(self.steps.iter().all(|step| step.name != name), "two steps are named {name}");
        let settle_ms = std::mem::take(&mut self.settle_ms);
        let wait_ms = std::mem::take(&mut self.wait_ms);
        self.steps.push(Step { name: name.to_owned(), on: self.on, what, body, is_again: false, settle_ms, wait_ms });
    }

    /// The last step once more, under its own number.
    fn again(&mut self, name: &str) {
        let last = self.steps.last().unwrap();
        self.steps.push(Step { name: name.to_owned(), is_again: true, ..last.clone() });
    }
}

fn bytes(request: &impl WireEncode) -> Vec<u8> {
    request.to_bytes().to_vec()
}

fn named(name: &str) -> WireIdentifier {
    WireIdentifier::named(name).unwrap()
}

fn wire_name(name: &str) -> WireName {
    WireName::new(name).unwrap()
}

/// Identifiers one after the other: what most requests are.
fn ids(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| bytes(&named(name))).collect()
}

/// Text values of options.
fn text_options(options: &[(&str, &str)]) -> WireOptions {
    let fields = options.iter().map(|(key, value)| (*key, 2, value.as_bytes()));
    raw_options(&fields.collect::<Vec<_>>())
}

/// Options with the kinds of their values.
fn raw_options(options: &[(&str, u8, &[u8])]) -> WireOptions {
    let mut block = Vec::new();
    for (key, kind, value) in options {
        for (kind, field) in [(2, key.as_bytes()), (*kind, *value)] {
            block.push(kind);
            block.extend(u32::try_from(field.len()).unwrap().to_le_bytes());
            block.extend(field);
        }
    }
    // Not checked: what is wrong with them is for the other side to say.
    WireOptions::from_validated(block.into())
}
