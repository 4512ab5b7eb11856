#!/usr/bin/env bash
client=kcat
. "$(dirname "$0")/../lib.sh"
# That of the distribution, whose librdkafka is old: that is what it is here for.
if [ "$1" = --install ]; then
  command -v kcat >/dev/null && exit 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kcat >/dev/null
  exit 0
fi
PYTHONPATH=$root/compat/harness/python PYTHONDONTWRITEBYTECODE=1 exec python3 "$source_folder/cases.py" "$@"
