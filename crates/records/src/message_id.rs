//! Message ids that carry producer state.
//!
//! The engine stores a 128-bit id that the writer chooses and gives it back on every read. The ids of records from
//! idempotent producers say who wrote them and at which sequence, so that this state survives restarts and moves
//! between gateways for no extra bytes:
//!
//! ```text
//! bit 127..126  01
//! bit 125..63   producer id (63 bits)
//! bit 62..48    producer epoch (15 bits)
//! bit 47..17    sequence of this record (31 bits)
//! bit 16..0     check: low 17 bits of XXH3-64 over bits 127..17 (14 bytes, big-endian, right-aligned)
//! ```
//!
//! Native writers use random ids, so an id counts as ours only if marker and check match.

use xxhash_rust::xxh3::xxh3_64;

const MARKER: u128 = 0b01 << 126;
const MARKER_MASK: u128 = 0b11 << 126;
const PRODUCER_BITS: u64 = (1 << 63) - 1;
const EPOCH_BITS: u16 = (1 << 15) - 1;
const SEQUENCE_BITS: u32 = (1 << 31) - 1;
const CHECK_BITS: u64 = (1 << 17) - 1;

/// One record's place in a producer's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerSequence {
    /// Producer id, 63 bits.
    pub producer_id: u64,
    /// Epoch, 15 bits.
    pub epoch: u16,
    /// Sequence, 31 bits.
    pub sequence: u32,
}

impl ProducerSequence {
    /// The message id of this place. Bits above the widths of the fields are dropped.
    #[must_use]
    #[inline]
    pub fn to_message_id(self) -> u128 {
        let fields = MARKER
            | u128::from(self.producer_id & PRODUCER_BITS) << 63
            | u128::from(self.epoch & EPOCH_BITS) << 48
            | u128::from(self.sequence & SEQUENCE_BITS) << 17;
        fields | u128::from(check_of(fields))
    }

    /// Reads an id back; `None` when marker or check do not match.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "each field is masked to its width")]
    pub fn from_message_id(id: u128) -> Option<Self> {
        if id & MARKER_MASK != MARKER || (id as u64) & CHECK_BITS != check_of(id) {
            return None;
        }
        Some(Self {
            producer_id: ((id >> 63) as u64) & PRODUCER_BITS,
            epoch: ((id >> 48) as u16) & EPOCH_BITS,
            sequence: ((id >> 17) as u32) & SEQUENCE_BITS,
        })
    }

    /// The place `records` further on; the sequence wraps from 2^31-1 to 0.
    #[must_use]
    #[inline]
    pub fn plus(self, records: u32) -> Self {
        Self { sequence: self.sequence.wrapping_add(records) & SEQUENCE_BITS, ..self }
    }
}

#[inline]
fn check_of(id: u128) -> u64 {
    let covered = (id >> 17).to_be_bytes();
    // 111 bits lie in the last 14 of 16 bytes.
    let (_, covered) = covered.split_at(2);
    xxh3_64(covered) & CHECK_BITS
}

/// Where the ids of a batch come from.
#[derive(Debug, Clone, Copy)]
pub enum MessageIds {
    /// From an idempotent producer; the sequence rises by one a record and wraps from 2^31-1 to 0.
    Producer(ProducerSequence),
    /// Random: record i gets `seed + i` with the two top bits cleared.
    Plain {
        /// Random bits from the caller.
        seed: u128,
    },
}

impl MessageIds {
    /// The id of record `index` of the batch.
    #[must_use]
    #[inline]
    pub fn id(&self, index: u32) -> u128 {
        match self {
            Self::Producer(first) => first.plus(index).to_message_id(),
            Self::Plain { seed } => seed.wrapping_add(u128::from(index)) & !MARKER_MASK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::RngExt;

    #[test]
    fn a_known_place_has_a_known_id() {
        let place = ProducerSequence { producer_id: 1, epoch: 2, sequence: 3 };
        let id = place.to_message_id();
        // The check is computed here from the published hash over the documented 14 bytes.
        let covered = [0x20, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x01, 0, 0, 0, 3u8];
        assert_eq!(id >> 17, (0b01u128 << 109) | (1 << 46) | (2 << 31) | 3);
        assert_eq!(&(id >> 17).to_be_bytes()[2..], &covered);
        assert_eq!(id & 0x1_ffff, u128::from(xxh3_64(&covered) & 0x1_ffff));
    }

    #[test]
    fn the_sequence_wraps_to_zero() {
        let last = ProducerSequence { producer_id: 7, epoch: 0, sequence: 0x7fff_ffff };
        let ids = MessageIds::Producer(last);
        assert_eq!(ProducerSequence::from_message_id(ids.id(0)), Some(last));
        assert_eq!(ProducerSequence::from_message_id(ids.id(1)), Some(ProducerSequence { sequence: 0, ..last }));
    }

    #[test]
    fn plain_ids_rise_by_one_and_are_never_taken_for_ours() {
        let ids = MessageIds::Plain { seed: u128::MAX };
        assert_eq!(ids.id(0), u128::MAX >> 2);
        assert_eq!(ids.id(1), 0);
        assert_eq!(ProducerSequence::from_message_id(ids.id(0)), None);
    }

    #[test]
    fn a_million_random_uuids_hold_few_that_pass_and_none_below_a_real_mark() {
        let mut rng = rand::rng();
        let mut passed = 0u32;
        for _ in 0..1_000_000 {
            let uuid = (rng.random::<u128>() & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
            if let Some(place) = ProducerSequence::from_message_id(uuid) {
                passed += 1;
                // Instance 0 after a million allocated ids: what a gateway would still believe.
                assert!(place.producer_id >= 1_000_000);
            }
        }
        // One in 2^19 is expected.
        assert!(passed < 20, "{passed}");
    }

    proptest! {
        #[test]
        fn places_round_trip(producer_id in 0..=PRODUCER_BITS, epoch in 0..=EPOCH_BITS, sequence in 0..=SEQUENCE_BITS) {
            let place = ProducerSequence { producer_id, epoch, sequence };
            prop_assert_eq!(ProducerSequence::from_message_id(place.to_message_id()), Some(place));
        }

        #[test]
        fn a_single_changed_bit_is_noticed_or_is_another_check(id in any::<u64>(), bit in 0u32..17) {
            let place = ProducerSequence { producer_id: id & PRODUCER_BITS, epoch: 1, sequence: 9 };
            prop_assert_eq!(ProducerSequence::from_message_id(place.to_message_id() ^ (1 << bit)), None);
        }
    }
}
