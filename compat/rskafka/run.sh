#!/usr/bin/env bash
client=rskafka
. "$(dirname "$0")/../lib.sh"
rust_client "$@"
