#!/usr/bin/env bash
client=java-4
. "$(dirname "$0")/../lib.sh"
[ "$1" = --install ] || set -- "$client" "$@"
java_client "$root/compat/harness/java/Cases.java" "$@"
