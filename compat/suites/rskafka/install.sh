#!/usr/bin/env bash
client=suites/rskafka
. "$(dirname "$0")/../../lib.sh"
crate_copy rskafka
# The one in its lock file, 2.2.0, is refused by newer compilers.
cargo update --quiet rsasl --precise 2.3.1
crate_tests --features full --test client --test consumer --test produce_consume --test producer
