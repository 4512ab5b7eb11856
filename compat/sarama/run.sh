#!/usr/bin/env bash
client=sarama
. "$(dirname "$0")/../lib.sh"
go_client "$@"
