#!/usr/bin/env bash
client=connect
. "$(dirname "$0")/../lib.sh"
if [ "$1" = --install ]; then
  java_jars
  exit
fi
PYTHONPATH=$root/compat/harness/python PYTHONDONTWRITEBYTECODE=1 exec python3 "$source_folder/cases.py" "$@"
