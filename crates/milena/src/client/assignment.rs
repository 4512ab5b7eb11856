//! The assignment of a consumer, as its group's leader wrote it (`ConsumerProtocolAssignment` of Kafka).
//!
//! The coordinator relays the bytes without a look at them, so they are whatever some client made of them.

use super::groups::TopicPartition;

/// The assigned partitions, in order; `None` for bytes that are no assignment. No bytes are an assignment of nothing:
/// that is what a member gets that its leader left out.
pub(crate) fn partitions_of(bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let mut rest = bytes;
    // Later versions add fields behind those that are read here.
    let _version: [u8; 2] = take(&mut rest)?;
    let topics = i32::from_be_bytes(take(&mut rest)?);
    let mut partitions = Vec::new();
    for _ in 0..topics.max(0) {
        let len = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let (name, behind) = rest.split_at_checked(len)?;
        rest = behind;
        let name = str::from_utf8(name).ok()?;
        let count = i32::from_be_bytes(take(&mut rest)?);
        for _ in 0..count.max(0) {
            partitions.push((name.to_owned(), i32::from_be_bytes(take(&mut rest)?)));
        }
    }
    partitions.sort();
    Some(partitions)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &[u8] = &[0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];

    #[test]
    fn partitions_are_read_in_order_and_user_data_is_left_alone() {
        assert_eq!(partitions_of(EXAMPLE), Some(vec![("t".to_owned(), 1), ("t".to_owned(), 3)]));
    }

    #[test]
    fn no_bytes_assign_nothing() {
        assert_eq!(partitions_of(&[]), Some(Vec::new()));
    }

    #[test]
    fn bytes_that_end_early_or_count_more_than_they_hold_are_no_assignment() {
        for len in 1..21 {
            assert_eq!(partitions_of(&EXAMPLE[..len]), None, "{len} bytes");
        }
        assert_eq!(partitions_of(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }
}
