//! Every target of `milena_auth::fuzzing`; the first byte picks one. The crate's tests run the same functions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use milena_auth::fuzzing::TARGETS;

fuzz_target!(|data: &[u8]| {
    let Some((pick, rest)) = data.split_first() else { return };
    let (_, target) = TARGETS[usize::from(*pick) % TARGETS.len()];
    target(rest);
});
