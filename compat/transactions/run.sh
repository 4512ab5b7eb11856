#!/usr/bin/env bash
client=transactions
. "$(dirname "$0")/../lib.sh"
if [ "$1" = --install ]; then
  java_compile "$source_folder/Transactions.java"
  exit
fi
version_of() { basename "$target/jars/$1"-[0-9]*.jar .jar | sed "s/^$1-//"; }
version="clients $(version_of kafka-clients), Spring $(version_of spring-kafka), Flink $(version_of flink-clients)"
exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens java.base/java.util=ALL-UNNAMED --add-opens java.base/java.lang=ALL-UNNAMED \
  --add-opens java.base/java.time=ALL-UNNAMED -cp "$target/classes:$target/jars/*" Transactions "$version" "$@"
