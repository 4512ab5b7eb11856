#!/usr/bin/env bash
client=platformatic
. "$(dirname "$0")/../lib.sh"
node_client "$@"
