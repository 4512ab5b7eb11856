#!/usr/bin/env bash
client=suites/franz-go
. "$(dirname "$0")/../../lib.sh"
go_tests "$root/compat/franz-go" github.com/twmb/franz-go/pkg/kgo
