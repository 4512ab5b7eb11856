#!/usr/bin/env bash
client=java-3.9
. "$(dirname "$0")/../lib.sh"
[ "$1" = --install ] || set -- "$root/compat/harness/java/Cases.java" "$client" "$@"
java_client "$@"
