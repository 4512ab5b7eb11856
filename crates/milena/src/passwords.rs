//! Passwords as people give them.

use std::io;
use std::path::Path;

use milena_auth::verifier::{BadVerifier, SALT_BYTES};
use milena_auth::{Hash, Verifier};

/// The first line of a file. What editors and people put behind it is no part of a password.
pub(crate) fn password_in(file: &Path) -> io::Result<String> {
    std::fs::read_to_string(file).map(|text| first_line(&text))
}

/// The first line of a text, without its end.
pub(crate) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What is kept of a password, with a salt of its own.
pub(crate) fn verifier(hash: Hash, password: &str, iterations: u32) -> Result<Verifier, BadVerifier> {
    Verifier::derive(hash, password, &rand::random::<[u8; SALT_BYTES]>(), iterations)
}
