#!/usr/bin/env bash
client=kafka-python
. "$(dirname "$0")/../lib.sh"
python_client "$@"
