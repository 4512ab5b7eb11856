//! SCRAM and tokens over the wire, sessions that end, and changes of who may log in.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod sasl_kit;

use std::time::Duration;

use milena_auth::scram::ScramClient;
use milena_auth::{Hash, Mechanism, plain};
use milena_server::authentication::TokenSettings;
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use milena_wire::kafka_protocol::messages::*;
use sasl_kit::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Logs in by SCRAM in the given version of SaslAuthenticate; the answer to the last token.
async fn scram(
    client: &mut RawClient,
    hash: Hash,
    version: i16,
    name: &str,
    password: &str,
) -> SaslAuthenticateResponse {
    assert_eq!(client.request(1, &handshake(hash.mechanism())).await.error_code, 0);
    let (mut scram, first) = ScramClient::new(hash, name, "client-nonce");
    let challenge = client.request(version, &token(&first)).await;
    assert_eq!(challenge.error_code, 0, "who does not exist gets a challenge too");
    let proof = scram.prove(&challenge.auth_bytes, password).unwrap();
    let answer = client.request(version, &token(&proof)).await;
    if answer.error_code == 0 {
        scram.verify(&answer.auth_bytes).unwrap();
    }
    answer
}

#[tokio::test]
async fn scram_lets_in_whoever_knows_the_password_and_tells_nobody_what_is_wrong() {
    let server = server(&[Mechanism::ScramSha256, Mechanism::ScramSha512]).await;
    for (hash, version) in [(Hash::Sha256, 0), (Hash::Sha512, 1), (Hash::Sha512, 2)] {
        let mut client = server.client().await;
        assert_eq!(scram(&mut client, hash, version, USER, PASSWORD).await.error_code, 0);
        client.request(1, &MetadataRequest::default()).await;
        let mut words = Vec::new();
        for (name, password) in [(USER, "wrong"), ("nobody", PASSWORD)] {
            let mut client = server.client().await;
            let refused = scram(&mut client, hash, version, name, password).await;
            assert_eq!(refused.error_code, 58);
            words.push(refused.error_message.unwrap().to_string());
            client.expect_close().await;
        }
        let expected = format!(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism {}",
            hash.mechanism()
        );
        assert_eq!(words, [expected.clone(), expected]);
    }
    assert_eq!((counted(&server, Mechanism::ScramSha256), counted(&server, Mechanism::ScramSha512)), ((1, 2), (2, 4)));
}

#[tokio::test]
async fn scram_behind_version_0_of_the_handshake() {
    let server = server(&[Mechanism::ScramSha256]).await;
    let mut client = server.client().await;
    client.request(0, &handshake("SCRAM-SHA-256")).await;
    let (mut scram, first) = ScramClient::new(Hash::Sha256, USER, "client-nonce");
    client.send_bytes(&bare(&first)).await;
    let challenge = client.read_frame().await.unwrap();
    client.send_bytes(&bare(&scram.prove(&challenge, PASSWORD).unwrap())).await;
    scram.verify(&client.read_frame().await.unwrap()).unwrap();
    client.request(1, &MetadataRequest::default()).await;
}

#[tokio::test]
async fn a_client_hears_how_long_its_session_lasts_and_goes_on_when_it_authenticates_again() {
    let server = server_with(&[Mechanism::Plain], |config| config.sasl.max_reauth = HOUR).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        client.request(1, &handshake("PLAIN")).await;
        let let_in = client.request(1, &token(&plain::token(USER, PASSWORD))).await;
        assert_eq!((let_in.error_code, let_in.session_lifetime_ms), (0, 3_600_000));
        client.request(1, &MetadataRequest::default()).await;
    }
    // What was asked before is answered before.
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.send(1, &MetadataRequest::default()).await;
    client.send(1, &handshake("PLAIN")).await;
    client.send(1, &token(&plain::token(USER, PASSWORD))).await;
    client.send(1, &MetadataRequest::default()).await;
    client.receive::<MetadataRequest>().await;
    assert_eq!(client.receive::<SaslHandshakeRequest>().await.error_code, 0);
    assert_eq!(client.receive::<SaslAuthenticateRequest>().await.error_code, 0);
    client.receive::<MetadataRequest>().await;
    assert_eq!(counted(&server, Mechanism::Plain), (3, 0));
}

#[tokio::test]
async fn nobody_becomes_somebody_else_by_authenticating_again() {
    let mechanisms = [Mechanism::Plain, Mechanism::ScramSha256];
    let server = server_with(&mechanisms, |config| config.sasl.max_reauth = HOUR).await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    client.request(1, &handshake("PLAIN")).await;
    let refused = client.request(1, &token(&plain::token("bob", "bobs"))).await;
    let words = "Cannot change principals during re-authentication from User.alice: User.bob";
    assert_eq!((refused.error_code, refused.error_message.as_deref()), (58, Some(words)));
    client.expect_close().await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    client.request(1, &handshake("SCRAM-SHA-256")).await;
    let refused = client.request(1, &token(b"n,,n=alice,r=x")).await;
    let words = "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'";
    assert_eq!((refused.error_code, refused.error_message.as_deref()), (58, Some(words)));
    client.expect_close().await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    client.request(1, &handshake("PLAIN")).await;
    let refused = client.request(1, &token(b"alice")).await;
    let words = "Authentication failed during re-authentication due to invalid credentials with SASL mechanism PLAIN";
    assert_eq!((refused.error_code, refused.error_message.as_deref()), (58, Some(words)));
}

#[tokio::test]
async fn a_session_that_is_over_ends_with_the_next_request_unless_the_client_authenticates_again() {
    let session = Duration::from_secs(2);
    let server = server_with(&[Mechanism::Plain], |config| config.sasl.max_reauth = session).await;
    let (mut late, mut again) = (let_in(&server, Mechanism::Plain).await, let_in(&server, Mechanism::Plain).await);
    tokio::time::sleep(session + Duration::from_secs(1)).await;
    late.send_frame(3, 1, 1, &[0xff; 4]).await;
    late.expect_close().await;
    assert_eq!(server.server().broker().metrics.connections.closed_expired.get(), 1);
    assert_eq!(again.request(1, &handshake("PLAIN")).await.error_code, 0);
    assert_eq!(again.request(1, &token(&plain::token(USER, PASSWORD))).await.error_code, 0);
}

#[tokio::test]
async fn without_sessions_that_end_a_client_that_is_let_in_does_not_authenticate_again() {
    let server = server(&[Mechanism::Plain]).await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    assert_eq!(client.request(1, &handshake("PLAIN")).await.error_code, 34);
    assert_eq!(client.request(1, &token(&plain::token(USER, PASSWORD))).await.error_code, 34);
    // Also by a mechanism that the listener does not have, or that nobody has.
    for name in ["SCRAM-SHA-256", "GSSAPI"] {
        assert_eq!(client.request(1, &handshake(name)).await.error_code, 34);
    }
    client.request(1, &MetadataRequest::default()).await;
}

#[tokio::test]
async fn a_session_ends_with_a_mechanism_that_the_listener_does_not_have() {
    let server = server_with(&[Mechanism::Plain], |config| config.sasl.max_reauth = HOUR).await;
    let mut client = let_in(&server, Mechanism::Plain).await;
    assert_eq!(client.request(1, &handshake("GSSAPI")).await.error_code, 33);
    client.expect_close().await;
}

#[tokio::test]
async fn a_first_message_that_nobody_needs_is_not_kept() {
    let server = server(&[Mechanism::ScramSha256]).await;
    let mut client = server.client().await;
    client.request(1, &handshake("SCRAM-SHA-256")).await;
    let long = format!("n,,n={},r=x", "a".repeat(60 << 10));
    assert_eq!(client.request(1, &token(long.as_bytes())).await.error_code, 58);
    client.expect_close().await;
}

/// A server that takes tokens of `signer`.
async fn with_tokens(signer: &Signer, folder: &tempfile::TempDir) -> TestServer {
    let jwks_file = folder.path().join("jwks");
    std::fs::write(&jwks_file, signer.key_set()).unwrap();
    server_with(&[Mechanism::OauthBearer], |config| {
        config.sasl.max_reauth = HOUR * 2;
        config.sasl.reload_interval = Duration::from_millis(50);
        config.sasl.tokens = Some(TokenSettings {
            jwks_file,
            issuer: Some("issuer".to_owned()),
            audiences: vec!["milena".to_owned()],
            clock_skew: Duration::from_secs(30),
            subject_claim: "sub".to_owned(),
        });
    })
    .await
}

fn bearing(signed: &str) -> SaslAuthenticateRequest {
    token(format!("n,,\u{1}auth=Bearer {signed}\u{1}\u{1}").as_bytes())
}

#[tokio::test]
async fn a_token_lets_in_for_as_long_as_it_lasts() {
    let (signer, folder) = (Signer::new(), tempfile::tempdir().unwrap());
    let server = with_tokens(&signer, &folder).await;
    let mut client = server.client().await;
    client.request(1, &handshake("OAUTHBEARER")).await;
    let let_in = client.request(1, &bearing(&signer.token("worker", 3_600))).await;
    assert_eq!((let_in.error_code, let_in.auth_bytes.len()), (0, 0));
    let lifetime = let_in.session_lifetime_ms;
    assert!((3_000_000..=3_600_000).contains(&lifetime), "{lifetime}");
    client.request(1, &MetadataRequest::default()).await;
    assert_eq!(counted(&server, Mechanism::OauthBearer), (1, 0));
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_answered_with_why_and_then_refused() {
    let (signer, folder) = (Signer::new(), tempfile::tempdir().unwrap());
    let server = with_tokens(&signer, &folder).await;
    let unsigned = format!("{}.{}.", base64url(br#"{"alg":"none"}"#), base64url(br#"{"sub":"root","exp":9999999999}"#));
    let bad = [signer.token("worker", -60), Signer::new().token("worker", 3_600), unsigned, "x".to_owned()];
    for signed in bad {
        let mut client = server.client().await;
        client.request(1, &handshake("OAUTHBEARER")).await;
        let told = client.request(1, &bearing(&signed)).await;
        assert_eq!((told.error_code, &told.auth_bytes[..]), (0, &br#"{"status":"invalid_token"}"#[..]));
        let refused = client.request(1, &token(b"\x01")).await;
        assert_eq!((refused.error_code, refused.error_message.as_deref()), (58, Some(r#"{"status":"invalid_token"}"#)));
        client.expect_close().await;
    }
}

#[tokio::test]
async fn keys_that_are_exchanged_count_from_then_on() {
    let (old, new, folder) = (Signer::new(), Signer::new(), tempfile::tempdir().unwrap());
    let server = with_tokens(&old, &folder).await;
    std::fs::write(folder.path().join("jwks"), new.key_set()).unwrap();
    let mut left = 300;
    loop {
        let mut client = server.client().await;
        client.request(1, &handshake("OAUTHBEARER")).await;
        if client.request(1, &bearing(&new.token("worker", 3_600))).await.auth_bytes.is_empty() {
            break;
        }
        left -= 1;
        assert!(left > 0, "the new keys are not read");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn users_are_changed_by_whoever_has_said_who_it_is_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, "# mine\n").unwrap();
    let server = server_with(&[Mechanism::Plain], |config| {
        config.sasl.users_file = Some(file.clone());
        let plain = milena_server::ListenerConfig::new("plain", "127.0.0.1:0".parse().unwrap());
        config.listeners.push(plain);
    })
    .await;
    let upsert = |name: &str, mechanism: i8, iterations: i32| {
        let hash = if mechanism == 1 { Hash::Sha256 } else { Hash::Sha512 };
        let salted = hash.salted("new", b"salt", std::num::NonZeroU32::new(5_000).unwrap());
        alter_user_scram_credentials_request::ScramCredentialUpsertion::default()
            .with_name(text(name))
            .with_mechanism(mechanism)
            .with_iterations(iterations)
            .with_salt(b"salt".to_vec().into())
            .with_salted_password(salted.into())
    };
    let delete = |name: &str, mechanism: i8| {
        let deletion = alter_user_scram_credentials_request::ScramCredentialDeletion::default();
        deletion.with_name(text(name)).with_mechanism(mechanism)
    };
    let codes = |response: AlterUserScramCredentialsResponse| -> Vec<(String, i16)> {
        response.results.iter().map(|result| (result.user.to_string(), result.error_code)).collect()
    };
    let put = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsert("carol", 2, 5_000)]);
    let mut stranger = RawClient::connect(server.server().addresses()[1].address).await;
    assert_eq!(codes(stranger.request(0, &put).await), [("carol".to_owned(), 31)]);
    let mut client = let_in(&server, Mechanism::Plain).await;
    let offered = client.request(3, &ApiVersionsRequest::default()).await;
    assert!(offered.api_keys.iter().any(|api| api.api_key == 51));
    assert_eq!(codes(client.request(0, &put).await), [("carol".to_owned(), 0)]);
    let mut carol = server.client().await;
    carol.request(1, &handshake("PLAIN")).await;
    assert_eq!(carol.request(1, &token(&plain::token("carol", "new"))).await.error_code, 0);
    let wrong = AlterUserScramCredentialsRequest::default()
        .with_deletions(vec![delete("carol", 1), delete("dave", 3), delete("erin", 1), delete("fred", 2)])
        .with_upsertions(vec![
            upsert("erin", 1, 5_000),
            upsert("gina", 1, 4_095),
            upsert("hans", 2, 16_385),
            upsert("alice", 1, 5_000),
            upsert("", 1, 5_000),
            upsert("ivan", 1, 5_000),
        ]);
    let refused = codes(client.request(0, &wrong).await);
    let expected = [
        ("", 93),
        ("alice", 93),
        ("carol", 91),
        ("dave", 33),
        ("erin", 92),
        ("fred", 91),
        ("gina", 93),
        ("hans", 93),
        ("ivan", 0),
    ];
    assert_eq!(refused, expected.map(|(name, code)| (name.to_owned(), code)));
    let described = client.request(0, &DescribeUserScramCredentialsRequest::default().with_users(None)).await;
    let names: Vec<String> = described.results.iter().map(|result| result.user.to_string()).collect();
    assert_eq!(names, ["alice", "bob", "carol", "ivan"]);
    let gone = AlterUserScramCredentialsRequest::default().with_deletions(vec![delete("carol", 2)]);
    assert_eq!(codes(client.request(0, &gone).await), [("carol".to_owned(), 0)]);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.starts_with("# mine\n") && !kept.contains("carol"), "{kept}");
    assert!(kept.contains("\nivan:SCRAM-SHA-256$5000:"), "{kept}");
    let mut carol = server.client().await;
    carol.request(1, &handshake("PLAIN")).await;
    assert_eq!(carol.request(1, &token(&plain::token("carol", "new"))).await.error_code, 58);
}

#[tokio::test]
async fn a_listener_for_strangers_beside_does_not_tell_who_there_is() {
    let server = server_with(&[Mechanism::Plain], |config| {
        config.listeners.push(milena_server::ListenerConfig::new("plain", "127.0.0.1:0".parse().unwrap()));
    })
    .await;
    let asked = |users| DescribeUserScramCredentialsRequest::default().with_users(users);
    let mut stranger = RawClient::connect(server.server().addresses()[1].address).await;
    let named = vec![UserName::default().with_name(text(USER))];
    for (users, codes) in [(None, &[][..]), (Some(named), &[91][..])] {
        let told = stranger.request(0, &asked(users)).await;
        let told_codes: Vec<i16> = told.results.iter().map(|result| result.error_code).collect();
        assert_eq!((told.error_code, &told_codes[..]), (0, codes));
    }
    let mut known = let_in(&server, Mechanism::Plain).await;
    let told = known.request(0, &asked(None)).await;
    assert_eq!((told.error_code, told.results.len()), (0, 2));
}
