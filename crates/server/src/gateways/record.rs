//! What a gateway appends to the log `gateways`, and its stored form.
//!
//! A record is the byte 1 (version) and a JSON object. Records of another version and what is no record at all count for
//! nothing, for every reader alike: whoever can append to the log must not be able to end the service of all gateways.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::groups::Endpoint;

/// First byte of a record.
const VERSION: u8 = 1;

/// One life of the process of a gateway. Random, so that two of one number are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Instance number of the sender.
    pub instance: u16,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Counts the beats of one incarnation, so that it recognises its own when it reads them.
    pub seq: u64,
    /// Where clients reach it; nothing while it does not serve them.
    pub endpoints: Vec<Endpoint>,
    /// Takes the number from another incarnation whose last beat has this offset, if it still is the last one.
    pub takes: Option<u64>,
    /// What it says about coordinating groups.
    pub lease: LeaseWord,
    /// It goes, and this is its last beat.
    pub leaves: bool,
}

/// What a beat says about the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseWord {
    /// Nothing.
    Nothing,
    /// Takes it, if the last word of its holder still is the one at this offset; `None` when nobody ever had it.
    Claim {
        /// Offset of the last word.
        follows: Option<u64>,
    },
    /// Keeps it.
    Renew {
        /// Offset of the claim that it was taken with.
        term: u64,
        /// A renewal that counted, and from which on the log says all that matters; what is before it may be trimmed.
        base: u64,
    },
    /// Gives it back.
    Release {
        /// Offset of the claim that it was taken with.
        term: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    instance: u16,
    incarnation: String,
    seq: u64,
    endpoints: Vec<Endpoint>,
    takes: Option<u64>,
    lease: LeaseWord,
    leaves: bool,
}

/// The stored form; `None` for what cannot be written, which does not happen.
pub(super) fn encode(beat: &Beat) -> Option<Vec<u8>> {
    let stored = Stored {
        instance: beat.instance,
        incarnation: Uuid::from_u128(beat.incarnation.0).to_string(),
        seq: beat.seq,
        endpoints: beat.endpoints.clone(),
        takes: beat.takes,
        lease: beat.lease,
        leaves: beat.leaves,
    };
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, &stored).ok()?;
    Some(bytes)
}

/// The beat in a message; `None` when it is none that this version knows.
pub(super) fn decode(payload: &[u8]) -> Option<Beat> {
    let ([VERSION], json) = payload.split_first_chunk::<1>()? else { return None };
    let stored: Stored = serde_json::from_slice(json).ok()?;
    Some(Beat {
        instance: stored.instance,
        incarnation: Incarnation(Uuid::parse_str(&stored.incarnation).ok()?.as_u128()),
        seq: stored.seq,
        endpoints: stored.endpoints,
        takes: stored.takes,
        lease: stored.lease,
        leaves: stored.leaves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(lease: LeaseWord) -> Beat {
        let endpoint = Endpoint { listener: "inside".to_owned(), host: "kafka.example".to_owned(), port: 9_092 };
        let incarnation = Incarnation(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        Beat { instance: 7, incarnation, seq: 3, endpoints: vec![endpoint], takes: None, lease, leaves: false }
    }

    /// What version 1 wrote; it must be readable for ever.
    #[test]
    fn the_stored_form_of_version_1_does_not_change() {
        let head = r#"{"instance":7,"incarnation":"01234567-89ab-cdef-0123-456789abcdef","seq":3,"endpoints":[{"listener":"inside","host":"kafka.example","port":9092}],"takes":null,"lease":"#;
        let fixtures = [
            (LeaseWord::Nothing, r#""nothing""#),
            (LeaseWord::Claim { follows: Some(5) }, r#"{"claim":{"follows":5}}"#),
            (LeaseWord::Renew { term: 4, base: 2 }, r#"{"renew":{"term":4,"base":2}}"#),
            (LeaseWord::Release { term: 4 }, r#"{"release":{"term":4}}"#),
        ];
        for (lease, json) in fixtures {
            let bytes = [b"\x01", head.as_bytes(), json.as_bytes(), br#","leaves":false}"#].concat();
            assert_eq!(encode(&beat(lease)), Some(bytes.clone()));
            assert_eq!(decode(&bytes), Some(beat(lease)));
        }
    }

    #[test]
    fn what_is_no_record_of_this_version_is_no_beat() {
        for bytes in [&b""[..], b"\x01", b"\x01{}", b"\x02{}", b"hello"] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
