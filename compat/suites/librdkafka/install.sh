#!/usr/bin/env bash
client=suites/librdkafka
. "$(dirname "$0")/../../lib.sh"
# Two tests read statistics with RapidJSON, others want TLS, and libcurl to fetch tokens with.
missing=()
for header in zlib.h zstd.h rapidjson/document.h openssl/ssl.h curl/curl.h; do
  [ -e "/usr/include/$header" ] || [ -e "/usr/include/$(gcc -print-multiarch)/$header" ] && continue
  case $header in
    zlib.h) missing+=(zlib1g-dev) ;;
    zstd.h) missing+=(libzstd-dev) ;;
    rapidjson/*) missing+=(rapidjson-dev) ;;
    openssl/*) missing+=(libssl-dev) ;;
    curl/*) missing+=(libcurl4-openssl-dev) ;;
  esac
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi
sources=$(crate_sources "$root/compat/rdkafka/Cargo.toml" rdkafka-sys)
# Without optimisation it is built in half of the time.
options=(--disable-optimization --disable-debug-symbols --disable-gssapi --enable-ssl --enable-curl)
if [ "$(cat "$target/complete" 2>/dev/null)" != "$sources ${options[*]}" ]; then
  rm -rf "$target/complete" "$target/librdkafka"
  cp -r "$sources/librdkafka" "$target/librdkafka"
  cd "$target/librdkafka"
  ./configure "${options[@]}"
  make -j"$(nproc)" libs
  make -j"$(nproc)" -C tests build
  echo "$sources ${options[*]}" >"$target/complete"
fi
# Kafka's own tool, as the scripts of its distribution start it.
"$root/compat/kafka-tools/run.sh" --install
mkdir -p "$target/kafka/bin"
cat >"$target/kafka/bin/kafka-topics.sh" <<SCRIPT
#!/usr/bin/env bash
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$root/target/compat/kafka-tools/jars/*" org.apache.kafka.tools.TopicCommand "\$@"
SCRIPT
chmod +x "$target/kafka/bin/kafka-topics.sh"
