//! The brokers that clients are told of: this gateway, and the others in front of the same store.

use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::dispatch::Context;
use crate::groups::Coordinator;

/// A broker as one client can reach it.
pub(super) struct Known {
    pub(super) id: i32,
    pub(super) host: StrBytes,
    pub(super) port: i32,
}

/// This gateway first, then the others that are alive, under the addresses of the listener on which the client came in.
pub(super) fn known(context: &Context) -> Vec<Known> {
    let listener = &context.connection.listener;
    let known =
        |id, host: &str, port: u16| Known { id, host: StrBytes::from_string(host.to_owned()), port: i32::from(port) };
    let mut brokers = vec![known(context.broker.node_id(), &listener.advertised_host, listener.advertised_port)];
    for node in context.broker.config.coordinators.others() {
        // One that is a leftover of our own number would send clients to two addresses for one broker.
        let other = node.id != context.broker.node_id();
        if let Some(endpoint) = node.endpoint(&listener.name).filter(|_| other) {
            brokers.push(known(node.id, &endpoint.host, endpoint.port));
        }
    }
    brokers
}

/// The broker that admin clients send changes of topics to: the coordinator, so that one gateway writes most of them, as
/// long as it is among the brokers that the client is told of.
pub(super) fn controller(context: &Context, brokers: &[Known]) -> i32 {
    match context.broker.groups.coordinator_of("") {
        Coordinator::At(node) if brokers.iter().any(|broker| broker.id == node.id) => node.id,
        _ => context.broker.node_id(),
    }
}
