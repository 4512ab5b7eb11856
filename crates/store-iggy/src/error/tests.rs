use iggy_common::IggyErrorDiscriminants;

use super::*;

/// Above the highest code of the SDK's enum.
const CODES: u32 = 100_000;
/// Variants of that enum, as its source has them. With another version of the SDK: see which class its new ones belong to.
const VARIANTS: usize = 240;

fn every_error() -> Vec<IggyError> {
    (0..CODES).filter(|code| IggyErrorDiscriminants::from_repr(*code).is_some()).map(IggyError::from_code).collect()
}

#[test]
fn every_error_of_the_sdk_has_an_answer_that_says_whether_it_was_applied() {
    let all = every_error();
    assert_eq!(all.len(), VARIANTS, "the walk leaves none out");
    for error in all {
        let (class, code) = (class(&error), error.as_code());
        let change = store_error(Op::Change, &error, "a thing");
        let read = store_error(Op::Read, &error, "a thing");
        assert!(!matches!(read, StoreError::InDoubt { .. }), "a read is never in doubt: {code}");
        let in_doubt = matches!(change, StoreError::InDoubt { .. });
        assert_eq!(in_doubt, matches!(class, Class::Unknown | Class::Storage), "{code}");
        assert!(!matches!(change, StoreError::OutOfRange { .. } | StoreError::Closed), "{code}");
        if matches!(class, Class::NotApplied | Class::Identity) {
            // Also a login that the server refuses: that is between it and the gateway, and no client may hear that it is
            // not allowed to do what it wants.
            let both_are_busy = [&change, &read].into_iter().all(|error| matches!(error, StoreError::Busy { .. }));
            assert!(both_are_busy, "{code}: {change:?} {read:?}");
        }
    }
}

#[test]
fn the_codes_that_decide_on_data_are_where_they_belong() {
    let table: &[(Class, &[u32])] = &[
        (Class::NotApplied, &[9, 58, 61]),
        (Class::Identity, &[40, 41, 42, 53, 54, 14003]),
        (Class::Unknown, &[1, 4, 8, 31, 57, 59, 206, 304, 11001, 12001]),
        (Class::NotFound, &[20, 1009, 1010, 2010, 2011, 3007]),
        (Class::Exists, &[1012, 2013, 5004]),
        (Class::Limit, &[2015, 3024, 4017, 4022, 4024, 4025, 4038]),
        (Class::Unsupported, &[3, 5, 4041, 4042, 4100]),
    ];
    for (expected, codes) in table {
        for code in *codes {
            assert_eq!(class(&IggyError::from_code(*code)), *expected, "code {code}");
        }
    }
}

#[test]
fn a_code_that_no_sdk_knows_leaves_a_change_in_doubt() {
    let error = IggyError::from_code(54_321);
    assert!(matches!(store_error(Op::Change, &error, "a thing"), StoreError::InDoubt { .. }));
}

#[test]
fn a_connection_is_kept_after_an_answer_and_dropped_after_its_loss() {
    for code in [20, 41, 57, 58, 59, 1012, 2013, 3007, 4022, 4041] {
        assert!(!breaks_connection(&IggyError::from_code(code)), "code {code}");
    }
    for code in [4, 8, 9, 31, 40, 61, 206, 304] {
        assert!(breaks_connection(&IggyError::from_code(code)), "code {code}");
    }
}
