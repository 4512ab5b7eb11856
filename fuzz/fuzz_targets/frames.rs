//! Frames of every key and version through header, guard and decoder. The crate's tests run the same functions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use milena_wire::fuzzing::{request_frame, response_frame};

fuzz_target!(|data: &[u8]| {
    // An error is a fine answer; a panic or a large reservation is not.
    let _ = request_frame(data);
    let _ = response_frame(data);
});
