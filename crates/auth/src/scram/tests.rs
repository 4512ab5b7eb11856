//! Both sides together, and each alone with the examples of the RFCs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;

use super::server::Answer;
use super::{ClientError, Denied, ScramClient, ScramServer};
use crate::users::Users;
use crate::verifier::{Hash, Verifier};

fn users(name: &str, password: &str) -> Users {
    let of = |hash| Verifier::derive(hash, password, b"0123456789abcdef", 4_096).unwrap();
    Users::single(name, Hash::ALL.map(of))
}

fn challenge(answer: Answer) -> Vec<u8> {
    let Answer::Challenge(token) = answer else { panic!("{answer:?} is no challenge") };
    token
}

/// An exchange to its end: what the client was told, or why it was refused.
fn exchange(
    hash: Hash,
    users: &Users,
    name: &str,
    password: &str,
) -> Result<(String, Result<(), ClientError>), Denied> {
    let mut server = ScramServer::new(hash);
    let (mut client, first) = ScramClient::new(hash, name, "client-nonce");
    let challenged = challenge(server.step(&first, users, "server-nonce")?);
    let proof = client.prove(&challenged, password).unwrap();
    let Answer::Accepted { token, name } = server.step(&proof, users, "unused")? else { panic!("a second challenge") };
    Ok((name, client.verify(&token)))
}

#[test]
fn the_example_of_rfc_7677_is_served() {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let verifier = Verifier::derive(Hash::Sha256, "pencil", &salt, 4_096).unwrap();
    let users = Users::parse(&format!("user:{verifier}")).unwrap();
    let mut server = ScramServer::new(Hash::Sha256);
    let first =
        challenge(server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", &users, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").unwrap());
    assert_eq!(
        String::from_utf8(first).unwrap(),
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let last =
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    let token = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_vec();
    assert_eq!(server.step(last, &users, "unused"), Ok(Answer::Accepted { token, name: "user".to_owned() }));
    assert_eq!(server.step(last, &users, "unused"), Err(Denied::Over));
}

#[test]
fn the_example_of_rfc_7677_is_asked_for() {
    let (mut client, first) = ScramClient::new(Hash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO");
    assert_eq!(first, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let proof = client.prove(challenge, "pencil").unwrap();
    let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    assert_eq!(String::from_utf8(proof).unwrap(), expected);
    assert_eq!(client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    assert_eq!(client.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Err(ClientError::Server));
    assert_eq!(client.verify(b"e=invalid-proof"), Err(ClientError::Server));
}

#[test]
fn a_wrong_password_and_a_user_that_does_not_exist_are_refused_alike() {
    for hash in Hash::ALL {
        let users = users("alice", "secret");
        assert_eq!(exchange(hash, &users, "alice", "secret"), Ok(("alice".to_owned(), Ok(()))));
        assert_eq!(exchange(hash, &users, "alice", "wrong"), Err(Denied::Credentials));
        assert_eq!(exchange(hash, &users, "nobody", "secret"), Err(Denied::Credentials));
    }
}

#[test]
fn a_name_that_looks_alike_is_the_same_user() {
    // With a soft hyphen, which SASLprep takes out.
    let name = exchange(Hash::Sha256, &users("alice", "secret"), "al\u{ad}ice", "secret").unwrap().0;
    assert_eq!(name, "alice");
}

#[test]
fn whoever_wants_to_act_for_somebody_else_is_refused() {
    let users = users("alice", "secret");
    let step = |token: &[u8]| ScramServer::new(Hash::Sha256).step(token, &users, "n");
    assert!(step(b"n,a=alice,n=alice,r=x").is_ok());
    assert_eq!(step(b"n,a=bob,n=alice,r=x"), Err(Denied::AuthorizationId));
}

#[test]
fn the_last_message_must_belong_to_the_first() {
    let users = users("alice", "secret");
    for (from, to) in [("r=client-nonceserver-nonce", "r=client-nonce"), ("c=biws", "c=eSws")] {
        let mut server = ScramServer::new(Hash::Sha512);
        let (mut client, first) = ScramClient::new(Hash::Sha512, "alice", "client-nonce");
        let challenged = challenge(server.step(&first, &users, "server-nonce").unwrap());
        let proof = String::from_utf8(client.prove(&challenged, "secret").unwrap()).unwrap();
        assert!(proof.contains(from), "{proof}");
        assert_eq!(server.step(proof.replace(from, to).as_bytes(), &users, "n"), Err(Denied::Nonce));
    }
}

/// As librdkafka before 2.6.1, that of Debian's kcat among them, which Apache Kafka lets in no more since 3.7.2.
#[test]
fn a_client_that_repeats_its_own_nonce_is_let_in() {
    let (users, hash) = (users("alice", "secret"), Hash::Sha256);
    let attempt = |nonce_of: &dyn Fn(&str) -> String| {
        let mut server = ScramServer::new(hash);
        let challenged = challenge(server.step(b"n,,n=alice,r=mine", &users, "yours").unwrap());
        let challenged = String::from_utf8(challenged).unwrap();
        let nonce = challenged.strip_prefix("r=").and_then(|rest| rest.split(',').next()).unwrap();
        let without_proof = format!("c=biws,r={}", nonce_of(nonce));
        let salted = hash.salted("secret", b"0123456789abcdef", std::num::NonZeroU32::new(4_096).unwrap());
        let client_key = hash.hmac(&salted, b"Client Key");
        let exchange = format!("n=alice,r=mine,{challenged},{without_proof}");
        let signature = hash.hmac(&hash.digest(&client_key), exchange.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        let last = format!("{without_proof},p={}", BASE64.encode(proof));
        server.step(last.as_bytes(), &users, "unused")
    };
    assert!(matches!(attempt(&|nonce| nonce.to_owned()), Ok(Answer::Accepted { .. })));
    assert!(matches!(attempt(&|nonce| format!("mine{nonce}")), Ok(Answer::Accepted { .. })));
    for other in
        ["mine", "yours", "mineyoursyours", "minemineyour", "xmineyours", "minemineyoursx", "mineminemineyours"]
    {
        assert_eq!(attempt(&|_| other.to_owned()), Err(Denied::Nonce), "{other}");
    }
}

#[test]
fn a_client_does_not_trust_a_challenge_that_is_none() {
    let of = |challenge: &[u8]| ScramClient::new(Hash::Sha256, "u", "nonce").0.prove(challenge, "p").err();
    assert_eq!(of(b"r=nonceserver,s=c2FsdA==,i=4096"), None);
    assert_eq!(of(b"r=nonceserver,s=c2FsdA==,i=1000001"), Some(ClientError::Iterations(1_000_001)));
    let bad: [&[u8]; 7] = [
        b"",
        b"r=nonce,s=c2FsdA==,i=4096",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=nonceserver,s=!,i=4096",
        b"r=nonceserver,s=c2FsdA==,i=0",
        b"e=unknown-user",
        b"\xff",
    ];
    for challenge in bad {
        assert_eq!(of(challenge), Some(ClientError::Challenge), "{challenge:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn whoever_knows_the_password_gets_in_and_nobody_else(
        name in "[a-z,=:]{1,8}",
        password in "[ -~]{1,12}",
        other in "[ -~]{1,12}",
        hash in prop::sample::select(&Hash::ALL),
    ) {
        let users = users(&name, &password);
        prop_assert_eq!(exchange(hash, &users, &name, &password), Ok((name.clone(), Ok(()))));
        if other != password {
            prop_assert_eq!(exchange(hash, &users, &name, &other), Err(Denied::Credentials));
        }
    }
}
