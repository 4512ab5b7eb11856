#!/usr/bin/env bash
# test.sh INSTALLED BOOTSTRAP NUMBER [ARGUMENT...]: one number of librdkafka's tests, those of it that need a broker. SETTINGS in the environment
# are lines of the client's configuration.
set -euo pipefail
installed=$1 bootstrap=$2 number=$3
shift 3
cd "$installed/librdkafka/tests"
settings=$(mktemp)
trap 'rm -f "$settings"' EXIT
printf 'metadata.broker.list=%s\ntest.topic.random=true\ntest.timeout.multiplier=2\n' "$bootstrap" >"$settings"
printf '%s\n' "${SETTINGS:-}" >>"$settings"
export RDKAFKA_TEST_CONF=$settings LD_LIBRARY_PATH=../src:../src-cpp
# For 0045 and 0052, which call kafka-topics.sh.
export KAFKA_PATH=$installed/kafka BROKERS=$bootstrap
TEST_KAFKA_VERSION=${TEST_KAFKA_VERSION:-3.9.0} TESTS=$number ./test-runner -L -K -p1 "$@"
