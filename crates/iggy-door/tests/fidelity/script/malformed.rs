//! Commands that are not served, and bodies that are none.

use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::messages::FlushUnsavedBufferRequest;

use super::{Script, bytes, ids, named};

pub(super) fn unsupported(script: &mut Script) {
    let flush = FlushUnsavedBufferRequest { stream_id: named("s"), topic_id: named("m"), partition_id: 0, fsync: true };
    let user = [b"\x04user\x08password\x01\x00".as_slice(), &[0; 4]].concat();
    script.asks("flush", code::FLUSH_UNSAVED_BUFFER_CODE, bytes(&flush));
    let commands = [("a command that is none", 9_999, Vec::new()), ("command 0", 0, Vec::new())];
    let routing = [
        ("attach a session", code::ATTACH_CONSUMER_SESSION_CODE, vec![0; 32]),
        ("poll routing", code::GET_POLL_ROUTING_CODE, ids(&["s", "m"])),
        ("poll on the primary", code::POLL_MESSAGES_ON_PRIMARY_CODE, Vec::new()),
        ("offset routing", code::GET_CONSUMER_OFFSET_ROUTING_CODE, Vec::new()),
    ];
    // Each on a connection of its own: the server may have nothing to say, or hang up.
    for (on, (name, code, body)) in ('m'..).zip(commands.into_iter().chain(routing)) {
        script.on(on);
        script.asks(name, code, body);
    }
    script.on('a');
    script.does("create a user", Operation::CreateUser, user);
    script.does("delete a user that is none", Operation::DeleteUser, ids(&["user-none"]));
    script.does("delete the root user", Operation::DeleteUser, ids(&["iggy"]));
}

/// In place of a body: nothing, bytes that say nothing, half of what should be there.
const BODIES: [(&str, &[u8]); 3] =
    [("an empty body", b""), ("a body of noise", b"\xff\xff\xff"), ("an empty identifier", b"\x02\x00")];

pub(super) fn commands(script: &mut Script) {
    let commands = [
        code::DESCRIBE_OPTIONS_CODE,
        code::GET_CLIENT_CODE,
        code::GET_USER_CODE,
        code::GET_STREAM_CODE,
        code::GET_TOPIC_CODE,
        code::GET_TOPICS_CODE,
        code::POLL_MESSAGES_CODE,
        code::GET_CONSUMER_OFFSET_CODE,
        code::GET_CONSUMER_GROUP_CODE,
        code::GET_CONSUMER_GROUPS_CODE,
        code::SYNC_CONSUMER_GROUP_CODE,
    ];
    script.on('x');
    for (kind, body) in BODIES {
        for code in commands {
            script.asks(&format!("command {code} with {kind}"), code, body.to_vec());
        }
    }
}

pub(super) fn operations(script: &mut Script) {
    let operations = [
        Operation::StoreConsumerOffset,
        Operation::DeleteConsumerOffset,
        Operation::DeleteSegments,
        Operation::SendMessages,
        Operation::CreateStream,
        Operation::UpdateStream,
        Operation::DeleteStream,
        Operation::PurgeStream,
        Operation::CreateTopic,
        Operation::UpdateTopic,
        Operation::DeleteTopic,
        Operation::PurgeTopic,
        Operation::CreatePartitions,
        Operation::DeletePartitions,
        Operation::CreatePersonalAccessToken,
        Operation::DeletePersonalAccessToken,
        Operation::LeaveConsumerGroup,
        Operation::JoinConsumerGroup,
        Operation::DeleteConsumerGroup,
        Operation::CreateConsumerGroup,
    ];
    script.on('x');
    for operation in operations {
        for (kind, body) in BODIES {
            script.does(&format!("{operation:?} with {kind}"), operation, body.to_vec());
        }
    }
    script.on('y');
    let nameless = [ids(&["s", "m"]), vec![0]].concat();
    script.does("create a group without a name", Operation::CreateConsumerGroup, nameless);
}
