#!/usr/bin/env bash
client=kafka-go
. "$(dirname "$0")/../lib.sh"
go_client "$@"
