#!/usr/bin/env bash
client=suites/rskafka
. "$(dirname "$0")/../../lib.sh"
export CARGO_PROFILE_DEV_DEBUG=0
crate_tests rskafka --features full --test client --test consumer --test produce_consume --test producer
