#!/usr/bin/env bash
client=streams
. "$(dirname "$0")/../lib.sh"
[ "$1" = --install ] || set -- "$1" "$target/state" "${@:2}"
java_client "$source_folder/WordCount.java" "$@"
