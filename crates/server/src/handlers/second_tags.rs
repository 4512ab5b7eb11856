//! Requests of clients that end a flexible body twice.

use bytes::Bytes;
use milena_wire::kafka_protocol::protocol::Request;
use milena_wire::{WireError, decode_request};

/// The body without a second field of tags behind its end, where a client sends two of them.
///
/// segmentio's kafka-go writes the filter of DescribeAcls as a structure of its own, and librdkafka closes
/// AlterUserScramCredentials once more than it should: two empty fields of tags end the body where the message has one. Apache Kafka
/// ignores what is left. A body that ends in two zeros may be whole, as its last value can be 0, so that only reading it
/// tells.
pub(super) fn without<Q: Request>(mut body: Bytes, version: i16) -> Bytes {
    let flexible = Q::header_version(version) >= 2;
    if flexible
        && body.ends_with(&[0, 0])
        && matches!(decode_request::<Q>(body.clone(), version), Err(WireError::BytesLeft(1)))
    {
        body.truncate(body.len() - 1);
    }
    body
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
    use milena_wire::kafka_protocol::messages::{AlterUserScramCredentialsRequest, DescribeAclsRequest};
    use milena_wire::kafka_protocol::protocol::{Encodable, StrBytes};

    use super::*;

    fn encoded(request: &impl Encodable, version: i16, behind: &[u8]) -> Bytes {
        let mut body = bytes::BytesMut::new();
        request.encode(&mut body, version).unwrap();
        body.extend_from_slice(behind);
        body.freeze()
    }

    #[test]
    fn one_field_of_tags_too_many_is_taken_away_and_nothing_else() {
        let upsertion =
            ScramCredentialUpsertion::default().with_name(StrBytes::from_static_str("user")).with_mechanism(1);
        let users = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]);
        let whole = encoded(&users, 0, &[]);
        assert!(whole.ends_with(&[0, 0]), "the tags of the upsertion, and those of the message");
        assert_eq!(without::<AlterUserScramCredentialsRequest>(encoded(&users, 0, &[0]), 0), whole);
        for behind in [&[][..], &[0, 0], &[1], &[0, 1]] {
            let body = encoded(&users, 0, behind);
            assert_eq!(without::<AlterUserScramCredentialsRequest>(body.clone(), 0), body, "{behind:?}");
        }
    }

    #[test]
    fn a_body_without_tags_stays_as_it_is() {
        let body = encoded(&DescribeAclsRequest::default(), 1, &[0, 0]);
        assert_eq!(without::<DescribeAclsRequest>(body.clone(), 1), body);
    }
}
