//! OAUTHBEARER (RFC 7628): a token that somebody else has signed says who the client is.
//!
//! - [`message`]: what a client sends
//! - [`keys`]: the public keys of whoever signs (RFC 7517)
//! - [`TokenRules`]: which tokens are taken
//!
//! Tokens are signed JWTs (RFC 7519). Unsigned ones, and those signed with a shared secret, are never taken.

pub mod keys;
pub mod message;
#[cfg(test)]
pub(crate) mod tests;

use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::prepare::TEXT_BYTES_MAX;
use keys::Keys;

/// Which tokens are taken.
#[derive(Debug, Clone)]
pub struct TokenRules {
    /// Keys that they may be signed with.
    pub keys: Keys,
    /// Who must have issued them (`iss`); `None` is anybody who has one of the keys.
    pub issuer: Option<String>,
    /// For whom they must be (`aud`): one of these, or anybody where there are none.
    pub audiences: Vec<String>,
    /// Seconds by which clocks may differ.
    pub clock_skew: u64,
    /// Name of the claim that says who the client is.
    pub subject_claim: String,
}

/// Who a token says that its bearer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// Name of the user.
    pub name: String,
    /// When the token ends, in seconds since the Unix epoch.
    pub expires_at: u64,
}

/// Why a token is not taken. For the log: no part of the token is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// It is no signed JWT.
    #[error("the token is no signed JWT with an algorithm that is taken")]
    Form,
    /// No key fits it.
    #[error("the token is signed with a key that is not known here")]
    Key,
    /// The signature is wrong.
    #[error("the signature of the token is wrong")]
    Signature,
    /// It has ended.
    #[error("the token ended {0} s ago")]
    Expired(u64),
    /// It does not count yet.
    #[error("the token counts from {0} s on")]
    Early(u64),
    /// A claim is missing or has another form.
    #[error("the token has no usable claim `{0}`")]
    Claim(String),
    /// Somebody else issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
}

impl TokenRules {
    /// Looks at a token at `now`, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn check(&self, token: &str, now: u64) -> Result<Bearer, Untrusted> {
        let header = decode_header(token).map_err(|_| Untrusted::Form)?;
        self.claims(&self.signed(token, &header)?, now)
    }

    /// The claims of a token whose signature is right.
    fn signed(&self, token: &str, header: &Header) -> Result<Map<String, Value>, Untrusted> {
        let mut validation = Validation::new(header.alg);
        // Claims are looked at below, with the time of the caller.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let mut found = Untrusted::Key;
        for key in self.keys.fitting(header) {
            match decode::<Map<String, Value>>(token, key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) if matches!(error.kind(), jsonwebtoken::errors::ErrorKind::InvalidSignature) => {
                    found = Untrusted::Signature;
                }
                Err(_) => found = Untrusted::Form,
            }
        }
        Err(found)
    }

    fn claims(&self, claims: &Map<String, Value>, now: u64) -> Result<Bearer, Untrusted> {
        let bad = |name: &str| Untrusted::Claim(name.to_owned());
        let expires_at = claims.get("exp").and_then(seconds).ok_or_else(|| bad("exp"))?;
        if expires_at.saturating_add(self.clock_skew) <= now {
            return Err(Untrusted::Expired(now - expires_at));
        }
        if let Some(from) = claims.get("nbf") {
            let from = seconds(from).ok_or_else(|| bad("nbf"))?;
            if from > now.saturating_add(self.clock_skew) {
                return Err(Untrusted::Early(from - now));
            }
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(Untrusted::Issuer);
        }
        if !self.audiences.is_empty() && !self.is_for_us(claims.get("aud")) {
            return Err(Untrusted::Audience);
        }
        let name = claims.get(&self.subject_claim).and_then(Value::as_str);
        // A name is written in logs.
        let usable =
            |name: &&str| !name.is_empty() && name.len() <= TEXT_BYTES_MAX && !name.chars().any(char::is_control);
        let name = name.filter(usable);
        let name = name.ok_or_else(|| bad(&self.subject_claim))?.to_owned();
        Ok(Bearer { name, expires_at })
    }

    /// One audience is text, several are a list.
    fn is_for_us(&self, audience: Option<&Value>) -> bool {
        let ours = |one: &Value| one.as_str().is_some_and(|one| self.audiences.iter().any(|known| known == one));
        match audience {
            Some(Value::Array(several)) => several.iter().any(ours),
            Some(one) => ours(one),
            None => false,
        }
    }
}

/// A time of a claim: seconds, which may have a fraction.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn seconds(value: &Value) -> Option<u64> {
    // Beyond this a float is not exact, and no clock gets there.
    const MAX: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| value.as_f64().filter(|time| (0.0..MAX).contains(time)).map(|time| time as u64))
}
