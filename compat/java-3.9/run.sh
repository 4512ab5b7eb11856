#!/usr/bin/env bash
client=java-3.9
. "$(dirname "$0")/../lib.sh"
[ "$1" = --install ] || set -- "$client" "$@"
java_client "$root/compat/harness/java/Cases.java" "$@"
