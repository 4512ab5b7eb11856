//! The public keys of whoever signs tokens: a JSON Web Key Set (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header};
use serde_json::Value;

/// Most keys of a set. Each may have to be tried. Passed: the set is refused.
pub const KEYS_MAX: usize = 64;

/// Most keys that are tried for one token that names none.
const TRIED_MAX: usize = 8;

/// Fewest bytes of an RSA key's modulus, 2,048 bits: no signature of a shorter one is taken (RFC 7518, section 3.3).
const RSA_BYTES_MIN: usize = 256;

/// Algorithms that tokens may be signed with.
const TAKEN: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Keys that tokens may be signed with.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug, Clone)]
struct Key {
    id: Option<String>,
    /// The one algorithm that it is for, if it says so.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// Why text is no set of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKeys {
    /// It is not JSON of that form.
    #[error("it is no JSON Web Key Set ({0})")]
    Form(String),
    /// None of its keys can be used.
    #[error(
        "it has no public key that tokens could be signed with (RSA from 2048 bits on, EC with P-256 or P-384, Ed25519)"
    )]
    Empty,
    /// It has too many.
    #[error("it has {0} keys, more than {KEYS_MAX}")]
    TooMany(usize),
}

impl Keys {
    /// Reads a set. Keys of another kind, for encryption, and shared secrets are passed over.
    ///
    /// # Errors
    /// When it is no set, or no key in it can be used.
    pub fn parse(text: &str) -> Result<Self, BadKeys> {
        let form = |problem: String| BadKeys::Form(problem);
        let set: Value = serde_json::from_str(text).map_err(|error| form(error.to_string()))?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or_else(|| form("it has no list `keys`".to_owned()))?;
        if keys.len() > KEYS_MAX {
            return Err(BadKeys::TooMany(keys.len()));
        }
        let keys: Vec<Key> = keys.iter().filter_map(usable).collect();
        if keys.is_empty() { Err(BadKeys::Empty) } else { Ok(Self(keys)) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when no token can be checked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that a token with that header may be signed with.
    pub(super) fn fitting(&self, header: &Header) -> impl Iterator<Item = &DecodingKey> {
        let (algorithm, id) = (header.alg, header.kid.clone());
        let fits = move |key: &&Key| {
            TAKEN.contains(&algorithm)
                && key.key.family() == algorithm.family()
                && key.algorithm.is_none_or(|only| only == algorithm)
                && (id.is_none() || key.id == id)
        };
        self.0.iter().filter(fits).map(|key| &key.key).take(TRIED_MAX)
    }
}

fn usable(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let algorithm = match &jwk.common.key_algorithm {
        None => None,
        // A key for something that is not known is for nothing here.
        Some(algorithm) => Some(algorithm.to_string().parse().ok().filter(|one| TAKEN.contains(one))?),
    };
    let verifies = jwk.common.key_operations.as_ref().is_none_or(|listed| listed.contains(&KeyOperations::Verify));
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (signs && verifies && is_long(&jwk) && key.family() != AlgorithmFamily::Hmac).then_some(Key {
        id: jwk.common.key_id,
        algorithm,
        key,
    })
}

/// False for an RSA key that is too short.
fn is_long(jwk: &Jwk) -> bool {
    let AlgorithmParameters::RSA(rsa) = &jwk.algorithm else { return true };
    let modulus = BASE64URL.decode(&rsa.n).unwrap_or_default();
    modulus.iter().skip_while(|byte| **byte == 0).count() >= RSA_BYTES_MIN
}
