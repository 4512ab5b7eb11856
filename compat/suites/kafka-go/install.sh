#!/usr/bin/env bash
client=suites/kafka-go
. "$(dirname "$0")/../../lib.sh"
go_tests "$source_folder" github.com/segmentio/kafka-go/sasl sasl-tests
go_tests "$source_folder" github.com/segmentio/kafka-go
