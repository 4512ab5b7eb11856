//! Strangers and logins, the server itself, tokens.

use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::personal_access_tokens::{
    CreatePersonalAccessTokenRequest, DeletePersonalAccessTokenRequest,
};
use iggy_binary_protocol::requests::streams::CreateStreamRequest;
use iggy_binary_protocol::version::{IGGY_PROTOCOL_VERSION, pack_protocol_version};
use iggy_binary_protocol::{ClientVersionInfo, WireEncode, WireIdentifier, WireOptions};

use super::{Body, Script, Step, What, bytes, ids, named, wire_name};

pub(crate) const USER: &str = "iggy";
pub(crate) const PASSWORD: &str = "iggyiggy";

fn version(protocol_version: u32) -> Vec<u8> {
    let info = ClientVersionInfo { protocol_version, sdk_name: wire_name("script"), sdk_version: wire_name("1.0.0") };
    info.to_bytes().to_vec()
}

fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn by_password(protocol_version: u32, user: &str, password: &str) -> Vec<u8> {
    [version(protocol_version), text(user), text(password), vec![0; 4]].concat()
}

/// A login that is right.
pub(crate) fn good() -> Vec<u8> {
    by_password(IGGY_PROTOCOL_VERSION, USER, PASSWORD)
}

pub(crate) fn by_token(token: &[u8]) -> Vec<u8> {
    [&version(IGGY_PROTOCOL_VERSION), &[u8::try_from(token.len()).unwrap()][..], token, &[0; 4]].concat()
}

/// The login of a connection that logs in by itself.
pub(crate) fn step(on: char) -> Step {
    let (what, body) = (What::Operation(Operation::Register), Body::Bytes(Vec::new()));
    Step { name: "login".to_owned(), on, what, body, is_again: false, settle_ms: 0, wait_ms: 0 }
}

pub(super) fn strangers(script: &mut Script) {
    let stream = CreateStreamRequest { name: wire_name("early"), options: WireOptions::empty() };
    script.on('A');
    script.asks("ping before the login", code::PING_CODE, Vec::new());
    script.asks("list streams before the login", code::GET_STREAMS_CODE, Vec::new());
    script.asks("poll before the login", code::POLL_MESSAGES_CODE, Vec::new());
    script.asks("cluster metadata before the login", code::GET_CLUSTER_METADATA_CODE, Vec::new());
    script.asks("options before the login", code::DESCRIBE_OPTIONS_CODE, vec![1]);
    script.on('B');
    script.does("create a stream before the login", Operation::CreateStream, bytes(&stream));
    script.on('C');
    script.does("send before the login", Operation::SendMessages, ids(&["s", "t"]));
    script.on('D');
    script.does("log out before the login", Operation::Logout, Vec::new());
    let logins = [
        ("a wrong password", by_password(IGGY_PROTOCOL_VERSION, USER, "wrong")),
        ("a wrong user", by_password(IGGY_PROTOCOL_VERSION, "nobody", PASSWORD)),
        ("an empty password", by_password(IGGY_PROTOCOL_VERSION, USER, "")),
        ("an empty user", by_password(IGGY_PROTOCOL_VERSION, "", PASSWORD)),
        ("protocol 0.12.2", by_password(pack_protocol_version(0, 12, 2), USER, PASSWORD)),
        ("protocol 0.11.7", by_password(pack_protocol_version(0, 11, 7), USER, PASSWORD)),
        ("protocol 0.10.0 and a wrong password", by_password(pack_protocol_version(0, 10, 0), USER, "wrong")),
        ("no version", Vec::new()),
        ("one byte", b"x".to_vec()),
        ("a version and nothing else", version(IGGY_PROTOCOL_VERSION)),
        ("a token that is none", by_token(b"made-up-token")),
        ("an empty token", by_token(b"")),
        ("the right password", good()),
    ];
    for (on, (name, body)) in ('E'..).zip(logins) {
        script.on(on);
        script.does(&format!("log in with {name}"), Operation::Register, body);
    }
    script.does("log in twice on one connection", Operation::Register, good());
    script.asks("list no streams", code::GET_STREAMS_CODE, Vec::new());
    script.on('R');
    script.asks("log in as clients of old", code::LOGIN_USER_CODE, [text(USER), text(PASSWORD)].concat());
    script.on('S');
    script.asks("log in by token as clients of old", code::LOGIN_WITH_PERSONAL_ACCESS_TOKEN_CODE, text("token"));
}

pub(super) fn system(script: &mut Script) {
    script.on('a');
    script.asks("ping", code::PING_CODE, Vec::new());
    script.asks("cluster metadata", code::GET_CLUSTER_METADATA_CODE, Vec::new());
    for (name, scope) in [("nothing", 0), ("topics", 1), ("streams", 2), ("users", 3), ("a large number", 200)] {
        script.asks(&format!("options of {name}"), code::DESCRIBE_OPTIONS_CODE, vec![scope]);
    }
    script.asks("stats of an empty server", code::GET_STATS_CODE, Vec::new());
    script.asks("me", code::GET_ME_CODE, Vec::new());
    script.asks("a client that is none", code::GET_CLIENT_CODE, 4_000_000_000u32.to_le_bytes().to_vec());
    script.asks("the root user by number", code::GET_USER_CODE, bytes(&WireIdentifier::numeric(0)));
    script.asks("the root user by name", code::GET_USER_CODE, bytes(&named(USER)));
    script.asks("a user that is none", code::GET_USER_CODE, bytes(&named("nobody")));
    script.asks("users", code::GET_USERS_CODE, Vec::new());
}

pub(super) fn tokens(script: &mut Script) {
    let create = |name: &str, expiry| {
        let request = CreatePersonalAccessTokenRequest { name: wire_name(name), expiry };
        (Operation::CreatePersonalAccessToken, bytes(&request))
    };
    let delete = |name: &str| {
        let request = DeletePersonalAccessTokenRequest { name: wire_name(name) };
        (Operation::DeletePersonalAccessToken, bytes(&request))
    };
    script.on('a');
    script.asks("list no tokens", code::GET_PERSONAL_ACCESS_TOKENS_CODE, Vec::new());
    let steps = [
        ("create a token", create("token", 0)),
        ("create a token of that name", create("token", 0)),
        ("create a token that never expires", create("never", u64::MAX)),
        ("create a token of an hour", create("hour", 3_600_000_000)),
        ("create a token with a name of 2 characters", create("ab", 0)),
        ("create a token with a name of 31 characters", create(&"x".repeat(31), 0)),
        ("create a token with a space in its name", create("a b c", 0)),
        ("create a token that expires after the end of time", create("late", u64::MAX - 1)),
    ];
    for (name, (operation, body)) in steps {
        script.does(name, operation, body);
    }
    script.asks("list tokens", code::GET_PERSONAL_ACCESS_TOKENS_CODE, Vec::new());
    script.on('T');
    script.step("log in with a token", What::Operation(Operation::Register), Body::TokenOf("create a token"));
    script.asks("list streams after a login with a token", code::GET_STREAMS_CODE, Vec::new());
    script.on('a');
    let steps = [
        ("delete a token", delete("token")),
        ("delete a token that is none", delete("token")),
        ("delete the token that never expires", delete("never")),
        ("delete the token of an hour", delete("hour")),
        ("delete the token that expires late", delete("late")),
        ("delete the token with a space", delete("a b c")),
    ];
    for (name, (operation, body)) in steps {
        script.does(name, operation, body);
    }
    script.on('U');
    script.step("log in with a deleted token", What::Operation(Operation::Register), Body::TokenOf("create a token"));
}

pub(super) fn end(script: &mut Script) {
    script.on('a');
    script.asks("stats at the end", code::GET_STATS_CODE, Vec::new());
    script.does("log out", Operation::Logout, Vec::new());
    script.asks("ping after the logout", code::PING_CODE, Vec::new());
    script.asks("list streams after the logout", code::GET_STREAMS_CODE, Vec::new());
    script.does("log in after the logout", Operation::Register, good());
    script.asks("ping after the second login", code::PING_CODE, Vec::new());
}
