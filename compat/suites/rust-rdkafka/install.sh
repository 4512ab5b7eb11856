#!/usr/bin/env bash
client=suites/rust-rdkafka
. "$(dirname "$0")/../../lib.sh"
crate_copy rdkafka
crate_tests --test test_metadata --test test_low_producers --test test_high_producers --test test_low_consumers --test test_high_consumers --test test_admin
