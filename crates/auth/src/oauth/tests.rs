//! Tokens of all kinds, signed here with keys of the moment.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA512,
    RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};

use super::keys::{BadKeys, KEYS_MAX, Keys};
use super::{Bearer, TokenRules, Untrusted};

/// The time of the tests.
const NOW: u64 = 1_800_000_000;

/// A key pair that signs tokens.
pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(crate) fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    /// The public key.
    fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        match self {
            Self::Rsa(pair) => {
                let key = pair.public_key();
                let (n, e) = (key.modulus(), key.exponent());
                let of = |bytes: &[u8]| text(bytes);
                json!({ "kty": "RSA", "kid": id, "use": "sig",
                        "n": of(n.big_endian_without_leading_zero()), "e": of(e.big_endian_without_leading_zero()) })
            }
            Self::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": text(x), "y": text(y) })
            }
            Self::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "alg": "EdDSA", "x": text(pair.public_key().as_ref()) })
            }
        }
    }

    pub(crate) fn keys(&self) -> Keys {
        set(&[self.jwk("k")])
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let padding: &'static dyn RsaEncoding =
                    if algorithm.starts_with("PS") { &RSA_PSS_SHA512 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with that header and these claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64URL.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let algorithm = header["alg"].as_str().unwrap_or_default();
        format!("{message}.{}", BASE64URL.encode(self.sign(algorithm, message.as_bytes())))
    }
}

fn set(keys: &[Value]) -> Keys {
    Keys::parse(&json!({ "keys": keys }).to_string()).unwrap()
}

pub(crate) fn rules(keys: Keys) -> TokenRules {
    TokenRules {
        keys,
        issuer: Some("https://issuer.example".to_owned()),
        audiences: vec!["milena".to_owned(), "kafka".to_owned()],
        clock_skew: 30,
        subject_claim: "sub".to_owned(),
    }
}

/// Claims that are taken at `now` for an hour, with some of them changed; null takes one away.
pub(crate) fn claims_at(now: u64, changes: &Value) -> Value {
    let mut claims = json!({ "sub": "alice", "iss": "https://issuer.example", "aud": "milena", "exp": now + 3_600 });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn claims(changes: &Value) -> Value {
    claims_at(NOW, changes)
}

fn alice() -> Bearer {
    Bearer { name: "alice".to_owned(), expires_at: NOW + 3_600 }
}

#[test]
fn tokens_of_every_kind_of_key_are_taken() {
    let signers =
        [(Signer::rsa(), vec!["RS256", "PS512"]), (Signer::ec(), vec!["ES256"]), (Signer::ed(), vec!["EdDSA"])];
    for (signer, algorithms) in &signers {
        for algorithm in algorithms {
            for header in [json!({ "alg": algorithm, "kid": "k", "typ": "JWT" }), json!({ "alg": algorithm })] {
                let token = signer.token(&header, &claims(&json!({})));
                assert_eq!(rules(signer.keys()).check(&token, NOW), Ok(alice()), "{header}");
            }
        }
    }
}

#[test]
fn a_token_without_a_signature_or_with_a_shared_secret_is_never_taken() {
    let (signer, taken) = (Signer::ec(), claims(&json!({})));
    let rules = rules(signer.keys());
    for header in [json!({ "alg": "none" }), json!({ "alg": "None", "kid": "k" }), json!({}), json!({ "alg": 1 })] {
        assert_eq!(rules.check(&signer.token(&header, &taken), NOW), Err(Untrusted::Form), "{header}");
    }
    let hs = signer.token(&json!({ "alg": "HS256", "kid": "k" }), &taken);
    assert_eq!(rules.check(&hs, NOW), Err(Untrusted::Key));
    let good = signer.token(&json!({ "alg": "ES256" }), &taken);
    let (message, signature) = good.rsplit_once('.').unwrap();
    assert_eq!(rules.check(&format!("{message}."), NOW), Err(Untrusted::Signature));
    assert_eq!(rules.check(message, NOW), Err(Untrusted::Form));
    let other = claims(&json!({ "sub": "root" })).to_string();
    let head = message.split('.').next().unwrap();
    let forged = format!("{head}.{}.{signature}", BASE64URL.encode(other));
    assert_eq!(rules.check(&forged, NOW), Err(Untrusted::Signature));
    for text in ["", ".", "..", "...", "a.b.c", "\u{1}"] {
        assert_eq!(rules.check(text, NOW), Err(Untrusted::Form), "{text}");
    }
}

#[test]
fn a_key_signs_only_what_it_is_for() {
    let (ours, other) = (Signer::ec(), Signer::ec());
    let ask = |header: Value, signer: &Signer, keys: &Keys| {
        rules(keys.clone()).check(&signer.token(&header, &claims(&json!({}))), NOW)
    };
    let both = set(&[other.jwk("other"), ours.jwk("ours")]);
    assert_eq!(ask(json!({ "alg": "ES256", "kid": "ours" }), &ours, &both), Ok(alice()));
    assert_eq!(ask(json!({ "alg": "ES256" }), &ours, &both), Ok(alice()), "all are tried when none is named");
    assert_eq!(ask(json!({ "alg": "ES256", "kid": "other" }), &ours, &both), Err(Untrusted::Signature));
    assert_eq!(ask(json!({ "alg": "ES256", "kid": "gone" }), &ours, &both), Err(Untrusted::Key));
    let rsa = Signer::rsa();
    assert_eq!(ask(json!({ "alg": "RS256" }), &rsa, &both), Err(Untrusted::Key));
    let mut only = rsa.jwk("k");
    only["alg"] = json!("RS512");
    let keys = set(&[only, ours.jwk("e")]);
    assert_eq!(ask(json!({ "alg": "RS256", "kid": "k" }), &rsa, &keys), Err(Untrusted::Key));
}

#[test]
fn times_count_with_the_clock_skew() {
    let signer = Signer::ec();
    let rules = rules(signer.keys());
    let ask = |changes: Value| rules.check(&signer.token(&json!({ "alg": "ES256" }), &claims(&changes)), NOW);
    assert!(ask(json!({ "exp": NOW - 29 })).is_ok());
    assert_eq!(ask(json!({ "exp": NOW - 30 })), Err(Untrusted::Expired(30)));
    assert!(ask(json!({ "exp": NOW as f64 + 0.5 })).is_ok());
    assert!(ask(json!({ "nbf": NOW + 30 })).is_ok());
    assert_eq!(ask(json!({ "nbf": NOW + 31 })), Err(Untrusted::Early(31)));
    for exp in [json!(null), json!("soon"), json!(-1), json!(1e300)] {
        assert_eq!(ask(json!({ "exp": exp })), Err(Untrusted::Claim("exp".to_owned())), "{exp}");
    }
    assert_eq!(ask(json!({ "exp": u64::MAX })).map(|bearer| bearer.expires_at), Ok(u64::MAX));
}

#[test]
fn issuer_audience_and_subject_must_be_right() {
    let signer = Signer::ec();
    let with = |rules: &TokenRules, changes: Value| {
        rules.check(&signer.token(&json!({ "alg": "ES256" }), &claims(&changes)), NOW).map(|bearer| bearer.name)
    };
    let strict = rules(signer.keys());
    assert_eq!(with(&strict, json!({ "aud": ["x", "kafka"] })), Ok("alice".to_owned()));
    for aud in [json!(null), json!("x"), json!(["x"]), json!([]), json!(7)] {
        assert_eq!(with(&strict, json!({ "aud": aud })), Err(Untrusted::Audience), "{aud}");
    }
    for iss in [json!(null), json!("https://issuer.example/"), json!(["https://issuer.example"])] {
        assert_eq!(with(&strict, json!({ "iss": iss })), Err(Untrusted::Issuer), "{iss}");
    }
    for sub in [json!(null), json!(""), json!(1), json!("x".repeat(1_025)), json!("a\nforged line")] {
        assert_eq!(with(&strict, json!({ "sub": sub })), Err(Untrusted::Claim("sub".to_owned())));
    }
    let loose = TokenRules { issuer: None, audiences: Vec::new(), subject_claim: "client_id".to_owned(), ..strict };
    let changes = json!({ "iss": null, "aud": null, "sub": null, "client_id": "worker" });
    assert_eq!(with(&loose, changes), Ok("worker".to_owned()));
}

#[test]
fn a_set_is_bounded_and_keys_that_cannot_be_used_are_passed_over() {
    let good = Signer::ec().jwk("k");
    let mut encrypts = good.clone();
    encrypts["use"] = json!("enc");
    let mut wraps = good.clone();
    wraps["key_ops"] = json!(["wrapKey"]);
    // 1,024 bits, with zeros before.
    let short = [vec![0; 256], vec![0xff; 128]].concat();
    let odd = [
        wraps,
        json!({ "kty": "RSA", "n": BASE64URL.encode(short), "e": "AQAB" }),
        json!({ "kty": "oct", "k": "c2VjcmV0" }),
        encrypts,
        json!({ "kty": "new" }),
        json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB", "alg": "RSA-OAEP" }),
        json!(1),
    ];
    assert_eq!(set(&[&odd[..], std::slice::from_ref(&good)].concat()).len(), 1);
    let parse = |value: Value| Keys::parse(&value.to_string()).map(|keys| keys.len());
    assert_eq!(parse(json!({ "keys": odd })), Err(BadKeys::Empty));
    assert_eq!(parse(json!({ "keys": [] })), Err(BadKeys::Empty));
    assert_eq!(parse(json!({ "keys": vec![good.clone(); KEYS_MAX] })), Ok(KEYS_MAX));
    assert_eq!(parse(json!({ "keys": vec![good; KEYS_MAX + 1] })), Err(BadKeys::TooMany(KEYS_MAX + 1)));
    for bad in [json!({}), json!([]), json!({ "keys": 1 })] {
        assert!(matches!(parse(bad), Err(BadKeys::Form(_))));
    }
    assert!(matches!(Keys::parse("no JSON"), Err(BadKeys::Form(_))));
}
