//! Requests of Iggy clients through header and decoders, and batches to the store and back. The crate's tests run the same
//! function.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    milena_iggy_door::fuzzing::frame(data);
});
