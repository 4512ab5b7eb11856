#!/usr/bin/env bash
client=confluent-kafka
. "$(dirname "$0")/../lib.sh"
python_client "$@"
