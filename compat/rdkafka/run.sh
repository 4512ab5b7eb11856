#!/usr/bin/env bash
client=rdkafka
. "$(dirname "$0")/../lib.sh"
rust_client "$@"
