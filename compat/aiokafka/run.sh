#!/usr/bin/env bash
client=aiokafka
. "$(dirname "$0")/../lib.sh"
python_client "$@"
