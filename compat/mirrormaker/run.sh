#!/usr/bin/env bash
client=mirrormaker
. "$(dirname "$0")/../lib.sh"
if [ "$1" = --install ]; then
  java_jars
  "$root/compat/kafka"
fi
python_client "$@"
