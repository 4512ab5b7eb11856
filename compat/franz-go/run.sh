#!/usr/bin/env bash
client=franz-go
. "$(dirname "$0")/../lib.sh"
go_client "$@"
