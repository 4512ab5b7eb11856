#!/usr/bin/env bash
client=kafkajs
. "$(dirname "$0")/../lib.sh"
node_client "$@"
