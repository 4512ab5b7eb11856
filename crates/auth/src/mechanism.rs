//! The mechanisms, by Kafka's names.

use std::fmt;

use crate::verifier::Hash;

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Name and password in the clear (RFC 4616).
    Plain,
    /// SCRAM with SHA-256 (RFC 7677).
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
    /// A token that somebody else has signed (RFC 7628).
    OauthBearer,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OauthBearer];

    /// Its name in requests and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }

    /// The mechanism of that name, which is spelled with capitals.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// The hash of a SCRAM mechanism.
    #[must_use]
    pub const fn hash(self) -> Option<Hash> {
        match self {
            Self::ScramSha256 => Some(Hash::Sha256),
            Self::ScramSha512 => Some(Hash::Sha512),
            Self::Plain | Self::OauthBearer => None,
        }
    }

    /// True when whoever listens on the way learns what it takes to log in.
    #[must_use]
    pub const fn shows_secret(self) -> bool {
        matches!(self, Self::Plain | Self::OauthBearer)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_is_found_by_its_name_and_by_no_other_spelling() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::of(mechanism.name()), Some(mechanism));
            assert_eq!(Mechanism::of(&mechanism.name().to_lowercase()), None);
        }
        for name in ["", "GSSAPI", "SCRAM-SHA-1", "PLAIN ", "EXTERNAL"] {
            assert_eq!(Mechanism::of(name), None, "{name}");
        }
    }
}
