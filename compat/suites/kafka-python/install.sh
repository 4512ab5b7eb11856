#!/usr/bin/env bash
client=suites/kafka-python
. "$(dirname "$0")/../../lib.sh"
venv "$target/venv" "$source_folder/requirements.txt"
version=$(sed -n 's/^kafka-python==//p' "$source_folder/requirements.txt")
archive=$target/kafka_python-$version.tar.gz
if [ ! -e "$archive" ]; then
  "$target/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-binary kafka-python \
    -d "$target" "kafka-python==$version"
fi
rm -rf "$target/source"
mkdir "$target/source"
tar -xzf "$archive" -C "$target/source" --strip-components 1
# The package that is tested is the one that is installed.
rm -rf "$target/source/kafka"
touch "$target/source/test/__init__.py"
cp "$source_folder/service.py" "$target/source/test/service.py"
