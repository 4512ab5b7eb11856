//! DescribeCluster (60), versions 0-2: who the cluster is.
//!
//! - v0: cluster id, controller, brokers, authorized operations. v1: endpoint type (KIP-919). v2: fenced brokers.
//! - There is one broker per gateway. The one that coordinates groups is the controller, else this one: admin clients send
//!   what must go to the controller there, and time out when it is not in the list.
//! - Endpoint type 2 (controllers) is answered with `MISMATCHED_ENDPOINT_TYPE` as a broker of Apache Kafka does; any
//!   other with `UNSUPPORTED_ENDPOINT_TYPE`.
//! - Operations are `i32::MIN` unless asked for. Without an authorizer everything is allowed, which is every operation
//!   that exists for a cluster; some clients fail on bits they do not know, so there are no others.
//! - Left out: racks. A gateway is never fenced.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeClusterRequest, DescribeClusterResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::brokers::{self, Known};
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeCluster,
    name: "DescribeCluster",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(answer(ApiKey::DescribeCluster, request, describe_cluster)),
};

/// Operations that exist for a cluster, as bits: create, alter, describe, cluster action, describe configs, alter
/// configs, idempotent write.
pub const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

async fn describe_cluster(context: Context, request: DescribeClusterRequest) -> Option<DescribeClusterResponse> {
    let refusal = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((ResponseError::MismatchedEndpointType, "this is a broker endpoint")),
        _ => Some((ResponseError::UnsupportedEndpointType, "unknown endpoint type")),
    };
    if let Some((error, message)) = refusal {
        let response = DescribeClusterResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(StrBytes::from_static_str(message)))
            .with_endpoint_type(request.endpoint_type);
        return Some(response);
    }
    let known = brokers::known(&context);
    let controller = brokers::controller(&context, &known);
    let listed = known.into_iter().map(|Known { id, host, port }| {
        DescribeClusterBroker::default().with_broker_id(id.into()).with_host(host).with_port(port)
    });
    let response = DescribeClusterResponse::default()
        .with_endpoint_type(BROKERS)
        .with_cluster_id(StrBytes::from_string(context.broker.cluster_id.clone()))
        .with_controller_id(controller.into())
        .with_brokers(listed.collect());
    Some(if request.include_cluster_authorized_operations {
        response.with_cluster_authorized_operations(CLUSTER_OPERATIONS)
    } else {
        response
    })
}
