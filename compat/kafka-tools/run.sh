#!/usr/bin/env bash
# Kafka's own command line tools: each case is a transcript of what they printed in front of Apache Kafka, which is typed in anew.
#   run.sh --record|--accept <bootstrap> <case>... writes the transcripts, or the accepted differences, instead.
client=kafka-tools
. "$(dirname "$0")/../lib.sh"
if [ "$1" = --install ]; then
  java_jars
  exit
fi
mode=
if [[ $1 == --* ]]; then
  mode=$1
  shift
fi
bootstrap=$1
shift
printed=$target/printed
rm -rf "$printed"
mkdir -p "$printed"
transcripts=("${@/#/$source_folder/transcripts/}")
java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$source_folder/log4j2.properties" "-Dtools.log=$target/tools.log" \
  -cp "$target/jars/*" "$source_folder/Tools.java" "$bootstrap" "${COMPAT_RUN:-run}-tools" "$printed" "${transcripts[@]/%/.txt}" >&2
printf '{"client": "kafka-tools", "version": "%s"}\n' "$(basename "$target"/jars/kafka-tools-[0-9]*.jar .jar | sed 's/^kafka-tools-//')"
python3 "$source_folder/compare.py" ${mode:+"$mode"} "$printed" "$@"
