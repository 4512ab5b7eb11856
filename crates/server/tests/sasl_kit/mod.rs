//! What the tests of authentication share: a server with one user, and the requests of a login.

#![allow(dead_code, reason = "each test binary uses its own part")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use milena_auth::verifier::Verifier;
use milena_auth::{Hash, Mechanism, Users, plain};
use milena_server::ServerConfig;
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;

pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "secret";

/// Users with one password each.
pub(crate) fn users(named: &[(&str, &str)]) -> Users {
    let of = |password: &str, hash| Verifier::derive(hash, password, b"0123456789abcdef", 4_096).unwrap();
    let single = |(name, password): &(&str, &str)| Users::single(name, Hash::ALL.map(|hash| of(password, hash)));
    named.iter().map(single).fold(Users::default(), Users::or)
}

/// A server whose one listener has these mechanisms.
pub(crate) async fn server(mechanisms: &[Mechanism]) -> TestServer {
    server_with(mechanisms, |_| {}).await
}

/// As [`server`], with a changed configuration.
pub(crate) async fn server_with(mechanisms: &[Mechanism], change: impl FnOnce(&mut ServerConfig)) -> TestServer {
    let configured = |config: &mut ServerConfig| {
        config.listeners[0].sasl = mechanisms.to_vec();
        config.sasl.users = users(&[(USER, PASSWORD), ("bob", "bobs")]);
        change(config);
    };
    TestServer::builder().config(configured).start().await
}

pub(crate) fn handshake(mechanism: &str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(mechanism.to_owned()))
}

pub(crate) fn token(bytes: &[u8]) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest::default().with_auth_bytes(bytes.to_vec().into())
}

pub(crate) fn names(shaken: &SaslHandshakeResponse) -> Vec<String> {
    shaken.mechanisms.iter().map(ToString::to_string).collect()
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A token behind a length alone.
pub(crate) fn bare(token: &[u8]) -> Vec<u8> {
    [&u32::try_from(token.len()).unwrap().to_be_bytes()[..], token].concat()
}

/// A connection of the user.
pub(crate) async fn let_in(server: &TestServer, mechanism: Mechanism) -> RawClient {
    let mut client = server.client().await;
    assert_eq!(client.request(1, &handshake(mechanism.name())).await.error_code, 0);
    assert_eq!(client.request(1, &token(&plain::token(USER, PASSWORD))).await.error_code, 0);
    client
}

/// Clients that were let in by a mechanism, and those that were not.
pub(crate) fn counted(server: &TestServer, mechanism: Mechanism) -> (u64, u64) {
    let metrics = &server.server().broker().metrics.authentication;
    let of = |accepted| metrics.of(mechanism, accepted).unwrap().get();
    (of(true), of(false))
}

/// Text of bytes as tokens have it.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Who signs tokens.
pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    pub(crate) fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// The public key, as a server reads it.
    pub(crate) fn key_set(&self) -> String {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (base64url(x), base64url(y));
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}]}}"#)
    }

    /// A token of the issuer `issuer` for `milena`, which ends in so many seconds.
    pub(crate) fn token(&self, subject: &str, ends_in: i64) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let expires_at = now.checked_add_signed(ends_in).unwrap();
        let claims = format!(r#"{{"sub":"{subject}","iss":"issuer","aud":"milena","exp":{expires_at}}}"#);
        let message = format!("{}.{}", base64url(br#"{"alg":"ES256","typ":"JWT"}"#), base64url(claims.as_bytes()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", base64url(signature.as_ref()))
    }
}
