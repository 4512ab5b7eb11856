//! What is kept of a password (RFC 5802, section 3): enough to check it, not enough to log in with.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Fewest iterations, as Kafka and RFC 7677 have it.
pub const ITERATIONS_MIN: u32 = 4_096;

/// Most iterations, as Kafka has it. A server does this much work for each PLAIN login, before it knows who asks.
pub const ITERATIONS_MAX: u32 = 16_384;

/// Bytes of a salt that is made here.
pub const SALT_BYTES: usize = 16;

/// Fewest and most bytes of a salt that somebody else made.
const SALT_BYTES_RANGE: std::ops::RangeInclusive<usize> = 1..=255;

/// The hash of a SCRAM mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Name of the SCRAM mechanism with this hash.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Bytes of its output.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The digest of some bytes.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    /// HMAC of some bytes under a key.
    #[must_use]
    pub fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
    }

    /// `Hi()` of RFC 5802: PBKDF2 with this hash. This is the slow part, some milliseconds.
    #[must_use]
    pub fn salted(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        salted
    }
}

/// What is kept of a password under one hash. As text it is `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, with
/// base64 for the last three, as PostgreSQL writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    hash: Hash,
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

/// Why text or numbers are no verifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadVerifier {
    /// The text has another form.
    #[error("it must look like SCRAM-SHA-512$4096:SALT$STOREDKEY:SERVERKEY")]
    Form,
    /// Iterations are out of range.
    #[error("{0} iterations; they must lie between {ITERATIONS_MIN} and {ITERATIONS_MAX}")]
    Iterations(u32),
    /// The salt is too short or too long.
    #[error("a salt of {0} bytes; it must have between 1 and 255")]
    Salt(usize),
    /// A key has not the length of the hash.
    #[error("a key of {0} bytes, which is not what the hash gives")]
    Key(usize),
}

impl Verifier {
    /// The verifier of a password.
    ///
    /// # Errors
    /// When iterations or salt are out of range.
    pub fn derive(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Result<Self, BadVerifier> {
        let counted = counted(iterations, salt)?;
        Self::of_salted(hash, &hash.salted(password, salt, counted), salt, iterations)
    }

    /// The verifier of a password that was salted elsewhere.
    ///
    /// # Errors
    /// When iterations, salt or the salted password are out of range.
    pub fn of_salted(hash: Hash, salted: &[u8], salt: &[u8], iterations: u32) -> Result<Self, BadVerifier> {
        let iterations = counted(iterations, salt)?;
        if salted.len() != hash.bytes() {
            return Err(BadVerifier::Key(salted.len()));
        }
        let stored_key = hash.digest(&hash.hmac(salted, b"Client Key"));
        let server_key = hash.hmac(salted, b"Server Key");
        Ok(Self { hash, iterations, salt: salt.to_vec(), stored_key, server_key })
    }

    /// One that nobody derived from a password; `None` where keys have another length.
    pub(crate) fn made_up(hash: Hash, iterations: NonZeroU32, salt: Vec<u8>, keys: [Vec<u8>; 2]) -> Option<Self> {
        let [stored_key, server_key] = keys;
        let fits = [&stored_key, &server_key].iter().all(|key| key.len() == hash.bytes());
        fits.then_some(Self { hash, iterations, salt, stored_key, server_key })
    }

    /// True for the right password, which must be prepared. Slow, and as slow for a wrong one.
    #[must_use]
    pub fn matches(&self, password: &str) -> bool {
        let salted = self.hash.salted(password, &self.salt, self.iterations);
        let stored = self.hash.digest(&self.hash.hmac(&salted, b"Client Key"));
        verify_slices_are_equal(&stored, &self.stored_key).is_ok()
    }

    /// True for the proof that the client of an exchange gives, whose messages are `exchange` (RFC 5802: `AuthMessage`).
    pub(crate) fn proves(&self, proof: &[u8], exchange: &[u8]) -> bool {
        let signature = self.hash.hmac(&self.stored_key, exchange);
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(proof, signature)| proof ^ signature).collect();
        let stored = self.hash.digest(&client_key);
        proof.len() == signature.len() && verify_slices_are_equal(&stored, &self.stored_key).is_ok()
    }

    /// By what the client knows that it talks to who keeps this.
    pub(crate) fn signature(&self, exchange: &[u8]) -> Vec<u8> {
        self.hash.hmac(&self.server_key, exchange)
    }

    /// Its hash.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// How often the hash is applied.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// As [`Self::iterations`].
    pub(crate) fn counted(&self) -> NonZeroU32 {
        self.iterations
    }

    /// Its salt.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Bytes that nobody knows who has not read this.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.server_key
    }
}

fn counted(iterations: u32, salt: &[u8]) -> Result<NonZeroU32, BadVerifier> {
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return Err(BadVerifier::Iterations(iterations));
    }
    if !SALT_BYTES_RANGE.contains(&salt.len()) {
        return Err(BadVerifier::Salt(salt.len()));
    }
    NonZeroU32::new(iterations).ok_or(BadVerifier::Iterations(iterations))
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| BASE64.encode(bytes);
        let (salt, stored, server) = (text(&self.salt), text(&self.stored_key), text(&self.server_key));
        write!(f, "{}${}:{salt}${stored}:{server}", self.hash.mechanism(), self.iterations)
    }
}

/// Without the keys: a server key lets whoever has it pretend to be the server.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}${}", self.hash.mechanism(), self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = BadVerifier;

    fn from_str(text: &str) -> Result<Self, BadVerifier> {
        let mut parts = text.split('$');
        let (Some(mechanism), Some(salted), Some(keys), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadVerifier::Form);
        };
        let hash = Hash::ALL.into_iter().find(|hash| hash.mechanism() == mechanism).ok_or(BadVerifier::Form)?;
        let (iterations, salt) = salted.split_once(':').ok_or(BadVerifier::Form)?;
        let (stored, server) = keys.split_once(':').ok_or(BadVerifier::Form)?;
        let bytes = |text: &str| BASE64.decode(text).map_err(|_| BadVerifier::Form);
        let (salt, stored_key, server_key) = (bytes(salt)?, bytes(stored)?, bytes(server)?);
        let iterations = counted(iterations.parse().map_err(|_| BadVerifier::Form)?, &salt)?;
        for key in [&stored_key, &server_key] {
            if key.len() != hash.bytes() {
                return Err(BadVerifier::Key(key.len()));
            }
        }
        Ok(Self { hash, iterations, salt, stored_key, server_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_matches() {
        for hash in Hash::ALL {
            let verifier = Verifier::derive(hash, "secret", b"0123456789abcdef", 4_096).unwrap();
            assert!(verifier.matches("secret"));
            for wrong in ["", "Secret", "secret ", "secre"] {
                assert!(!verifier.matches(wrong), "{wrong}");
            }
        }
    }

    #[test]
    fn its_text_reads_back_and_its_debug_form_has_no_keys() {
        for hash in Hash::ALL {
            let verifier = Verifier::derive(hash, "secret", b"0123456789abcdef", 8_192).unwrap();
            assert_eq!(verifier.to_string().parse(), Ok(verifier.clone()));
            assert_eq!(format!("{verifier:?}"), format!("{}$8192", hash.mechanism()));
        }
    }

    /// As the tool that PostgreSQL's documentation describes would have it: RFC 7677's example.
    #[test]
    fn the_keys_of_the_rfcs_example_are_derived() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive(Hash::Sha256, "pencil", &salt, 4_096).unwrap();
        let expected = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(verifier.to_string(), expected);
    }

    #[test]
    fn iterations_and_salts_are_bounded() {
        let of = |iterations, salt: usize| Verifier::derive(Hash::Sha256, "p", &vec![1; salt], iterations).err();
        assert_eq!(of(4_095, 16), Some(BadVerifier::Iterations(4_095)));
        assert_eq!(of(16_385, 16), Some(BadVerifier::Iterations(16_385)));
        assert_eq!(of(0, 16), Some(BadVerifier::Iterations(0)));
        assert_eq!(of(16_384, 1), None);
        assert_eq!(of(4_096, 255), None);
        assert_eq!(of(4_096, 0), Some(BadVerifier::Salt(0)));
        assert_eq!(of(4_096, 256), Some(BadVerifier::Salt(256)));
    }

    #[test]
    fn text_that_is_no_verifier_is_refused() {
        let good = Verifier::derive(Hash::Sha256, "secret", b"0123456789abcdef", 4_096).unwrap().to_string();
        let bad = [
            String::new(),
            good.replace("SHA-256", "SHA-1"),
            good.replace("SHA-256", "SHA-512"),
            good.replace("4096", "100"),
            good.replace("4096", "-1"),
            good.replace('$', ":"),
            format!("{good}$"),
            good.get(..good.len() - 4).unwrap().to_owned(),
            good.replace("4096:", "4096:!"),
        ];
        for text in bad {
            assert!(text.parse::<Verifier>().is_err(), "{text}");
        }
    }
}
