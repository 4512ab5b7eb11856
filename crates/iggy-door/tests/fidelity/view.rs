//! What an answer says, field by field, without what differs from run to run.

use std::collections::BTreeMap;

use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::batch::decode_batch_slice;
use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::{Operation, result_code, result_section_len};
use iggy_binary_protocol::responses::clients::{ClientDetailsResponse, GetClientsResponse};
use iggy_binary_protocol::responses::consumer_groups::{
    ConsumerGroupDetailsResponse, GetConsumerGroupsResponse, SyncConsumerGroupResponse,
};
use iggy_binary_protocol::responses::consumer_offsets::ConsumerOffsetResponse;
use iggy_binary_protocol::responses::messages::PollMessagesResponse;
use iggy_binary_protocol::responses::messages::send_messages::SendMessagesResponse;
use iggy_binary_protocol::responses::personal_access_tokens::{
    GetPersonalAccessTokensResponse, RawPersonalAccessTokenResponse,
};
use iggy_binary_protocol::responses::streams::{GetStreamResponse, GetStreamsResponse};
use iggy_binary_protocol::responses::system::describe_options::DescribeOptionsResponse;
use iggy_binary_protocol::responses::system::get_cluster_metadata::ClusterMetadataResponse;
use iggy_binary_protocol::responses::system::get_stats::StatsResponse;
use iggy_binary_protocol::responses::topics::{GetTopicResponse, GetTopicsResponse};
use iggy_binary_protocol::responses::users::{GetUsersResponse, LoginRegisterResponse, UserDetailsResponse};

use crate::script::What;
use crate::wire::Answer;

/// Values by the names of their fields.
pub(crate) type View = BTreeMap<String, String>;

/// Fields whose values are times, addresses, secrets or numbers of a run: only whether there is one counts.
const VOLATILE: [&str; 15] = [
    "created_at",
    "expiry_at",
    "start_time",
    "run_time",
    "process_id",
    "client_id",
    "session",
    "generation",
    "address",
    "tcp_port",
    "token",
    "server_version",
    "iggy_server_version",
    "timestamp",
    "os_name",
];

pub(crate) fn view(what: What, answer: &Answer) -> View {
    let mut view = View::new();
    let mut put = |name: &str, value: String| drop(view.insert(name.to_owned(), value));
    match answer {
        Answer::Evicted(reason) => put("answer", format!("evicted {reason}")),
        Answer::Closed => put("answer", "closed".to_owned()),
        Answer::Silence => put("answer", "silence".to_owned()),
        Answer::Reply(status, body) => {
            put("answer", format!("status {status}"));
            match what {
                What::Command(code) => answered(&mut view, code, body),
                What::Operation(operation) => done(&mut view, operation, body),
                What::AtOnce => put("order", format!("{body:?}")),
                What::Host(_) => {}
            }
        }
    }
    view
}

/// An operation: the section that says how it went, then what it made.
fn done(view: &mut View, operation: Operation, body: &[u8]) {
    let is_framed = operation.is_result_framed() || operation == Operation::Register;
    let rest = match result_code(body).filter(|_| is_framed) {
        Some(code) => {
            view.insert("result".to_owned(), code.to_string());
            &body[result_section_len(body).unwrap()..]
        }
        None => body,
    };
    match operation {
        Operation::Register => fields::<LoginRegisterResponse>(view, rest),
        Operation::CreateStream => fields::<GetStreamResponse>(view, rest),
        Operation::CreateTopic => fields::<GetTopicResponse>(view, rest),
        Operation::CreateConsumerGroup => fields::<ConsumerGroupDetailsResponse>(view, rest),
        Operation::CreatePersonalAccessToken => fields::<RawPersonalAccessTokenResponse>(view, rest),
        Operation::SendMessages => fields::<SendMessagesResponse>(view, rest),
        _ => drop(view.insert("body".to_owned(), format!("{} bytes", rest.len()))),
    }
}

fn answered(view: &mut View, code: u32, body: &[u8]) {
    match code {
        code::GET_STATS_CODE => fields::<StatsResponse>(view, body),
        code::GET_CLUSTER_METADATA_CODE => fields::<ClusterMetadataResponse>(view, body),
        code::DESCRIBE_OPTIONS_CODE => options(view, body),
        code::GET_ME_CODE | code::GET_CLIENT_CODE => fields::<ClientDetailsResponse>(view, body),
        code::GET_CLIENTS_CODE => fields::<GetClientsResponse>(view, body),
        code::GET_USER_CODE => fields::<UserDetailsResponse>(view, body),
        code::GET_USERS_CODE => fields::<GetUsersResponse>(view, body),
        code::GET_PERSONAL_ACCESS_TOKENS_CODE => tokens(view, body),
        code::POLL_MESSAGES_CODE => polled(view, body),
        code::GET_CONSUMER_OFFSET_CODE => fields::<ConsumerOffsetResponse>(view, body),
        code::GET_STREAM_CODE => fields::<GetStreamResponse>(view, body),
        code::GET_STREAMS_CODE => fields::<GetStreamsResponse>(view, body),
        code::GET_TOPIC_CODE => fields::<GetTopicResponse>(view, body),
        code::GET_TOPICS_CODE => fields::<GetTopicsResponse>(view, body),
        code::GET_CONSUMER_GROUP_CODE => fields::<ConsumerGroupDetailsResponse>(view, body),
        code::GET_CONSUMER_GROUPS_CODE => groups(view, body),
        code::SYNC_CONSUMER_GROUP_CODE => fields::<SyncConsumerGroupResponse>(view, body),
        _ => drop(view.insert("body".to_owned(), format!("{} bytes", body.len()))),
    }
}

/// The fields of a message of the protocol, which must fill the body.
fn fields<T: WireDecode + std::fmt::Debug>(view: &mut View, body: &[u8]) {
    if body.is_empty() {
        view.insert("body".to_owned(), "0 bytes".to_owned());
        return;
    }
    match T::decode(body) {
        Ok((message, read)) if read == body.len() => flatten(view, &format!("{message:#?}")),
        Ok((_, read)) => drop(view.insert("body".to_owned(), format!("{read} of {} bytes", body.len()))),
        Err(error) => drop(view.insert("body".to_owned(), format!("{error}"))),
    }
}

/// The lines in which a value is printed, each under the names of what it stands in.
fn flatten(view: &mut View, printed: &str) {
    let mut path: Vec<(String, usize)> = Vec::new();
    for line in printed.lines().skip(1).map(str::trim) {
        if matches!(line, "}" | "}," | "]" | "]," | ")" | "),") {
            path.pop();
            continue;
        }
        let (field, value) = match line.split_once(": ") {
            Some((field, value)) if field.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) => {
                (field.to_owned(), value)
            }
            _ => {
                let index = path.last_mut().map_or(0, |(_, next)| {
                    *next += 1;
                    *next - 1
                });
                (index.to_string(), line)
            }
        };
        if value.ends_with(['{', '[', '(']) {
            path.push((field, 0));
            continue;
        }
        let names: Vec<_> = path.iter().map(|(name, _)| name.as_str()).chain([field.as_str()]).collect();
        view.insert(names.join("."), settled(&field, value.trim_end_matches(',')));
    }
}

fn settled(field: &str, value: &str) -> String {
    let is_zero = matches!(value, "0" | "\"\"");
    if VOLATILE.contains(&field) && !is_zero { "some".to_owned() } else { shown(value) }
}

/// Options by their keys, whatever their order and their descriptions.
fn options(view: &mut View, body: &[u8]) {
    let Ok((options, _)) = DescribeOptionsResponse::decode(body) else {
        return fields::<DescribeOptionsResponse>(view, body);
    };
    for entry in options.entries {
        view.insert(format!("{}.kind", entry.key), entry.kind.to_string());
        view.insert(format!("{}.default", entry.key), format!("{:?}", entry.default_value));
        view.insert(format!("{}.described", entry.key), (!entry.description.is_empty()).to_string());
    }
}

/// Tokens by their names: the server lists them in any order.
fn tokens(view: &mut View, body: &[u8]) {
    for token in GetPersonalAccessTokensResponse::decode(body).unwrap().0.tokens {
        view.insert(token.name.to_string(), settled("expiry_at", &token.expiry_at.to_string()));
    }
}

/// Groups by their names, for the same reason.
fn groups(view: &mut View, body: &[u8]) {
    if body.is_empty() {
        view.insert("body".to_owned(), "0 bytes".to_owned());
        return;
    }
    for group in GetConsumerGroupsResponse::decode(body).unwrap().0.groups {
        let shown = format!("id {} partitions {} members {}", group.id, group.partitions_count, group.members_count);
        view.insert(group.name.to_string(), shown);
    }
}

/// Messages, and whether all checksums are right.
fn polled(view: &mut View, body: &[u8]) {
    let mut put = |name: String, value: String| drop(view.insert(name, value));
    if body.is_empty() {
        return put("body".to_owned(), "0 bytes".to_owned());
    }
    let polled = PollMessagesResponse::decode(body).unwrap();
    put("partition".to_owned(), polled.header.partition_id.to_string());
    put("current_offset".to_owned(), polled.header.current_offset.to_string());
    put("count".to_owned(), polled.header.messages_count.to_string());
    for (index, message) in polled.messages.enumerate() {
        let message = message.unwrap();
        put(format!("{index}.offset"), message.offset.to_string());
        put(format!("{index}.id"), shown_id(message.id));
        put(format!("{index}.origin"), message.origin_timestamp.to_string());
        put(format!("{index}.timestamp"), settled("timestamp", &message.timestamp.to_string()));
        put(format!("{index}.payload"), shown(&String::from_utf8_lossy(message.payload)));
        put(format!("{index}.headers"), shown(&format!("{:?}", bytes::Bytes::copy_from_slice(message.user_headers))));
    }
    let mut rest = &body[16..];
    let mut intact = true;
    while !rest.is_empty() {
        let Ok(batch) = decode_batch_slice(rest) else {
            intact = false;
            break;
        };
        rest = &rest[batch.header.total_size()..];
    }
    put("checksums_are_right".to_owned(), intact.to_string());
}

/// An id that the server made up is any.
fn shown_id(id: u128) -> String {
    if id > 9 && id != u128::MAX { "some".to_owned() } else { id.to_string() }
}

/// A value, and how long it is when it is long.
fn shown(value: &str) -> String {
    if value.len() <= 300 { value.to_owned() } else { format!("{} bytes like {}", value.len(), &value[..10]) }
}

/// Figures of the machine on which a server ran are not for a transcript.
pub(crate) fn without_machine(what: What, answer: Answer) -> Answer {
    use iggy_binary_protocol::WireEncode;
    let (What::Command(code::GET_STATS_CODE), Answer::Reply(0, body)) = (what, &answer) else { return answer };
    let Ok((stats, _)) = StatsResponse::decode(body) else { return answer };
    let text = || "some".to_owned();
    let stats = StatsResponse {
        process_id: 1,
        cpu_usage: 1.0,
        total_cpu_usage: 1.0,
        memory_usage: 1,
        total_memory: 1,
        available_memory: 1,
        read_bytes: 1,
        written_bytes: 1,
        hostname: text(),
        os_name: text(),
        os_version: text(),
        kernel_version: text(),
        threads_count: 1,
        free_disk_space: 1,
        total_disk_space: 1,
        ..stats
    };
    Answer::Reply(0, stats.to_bytes().to_vec())
}
