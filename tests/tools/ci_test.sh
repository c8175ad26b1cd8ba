#!/usr/bin/env bash
# .ci/run over a tree with a ./test that only notes how it was called.
set -uo pipefail
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failures=0

expect() {  # expect WHAT CONDITION...
  "${@:2}" && return
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

mkdir -p "$box/tree/.ci" "$box/tree/.git" "$box/tree/build"
cp "$root/.ci/run" "$box/tree/.ci/run"
cat >"$box/tree/test" <<END
#!/usr/bin/env bash
printf '%s|' "\$PWD" "\${CI:-}" "\${HEADROOM_TEST_SEED:-}" "\$*" \$(ls -A) "\$(cat)" >>'$box/calls'
echo >>'$box/calls'
exit "\${VERDICT:-0}"
END
chmod +x "$box/tree/test"

(cd / && printf 'typed' | bash "$box/tree/.ci/run" >"$box/said" 2>&1)
expect "it passes" [ $? == 0 ]
expect "it says so" grep -qx '== all: passed in [0-9]* min [0-9]* s' "$box/said"
there="$box/tree/build-ci/head room|true|1"
expect "twice, in a copy without .git and builds, and nothing to read" \
  [ "$(<"$box/calls")" == "$there||.ci|test||
$there|--lint --asan --tsan|.ci|test||" ]
expect "nothing is left" [ ! -e "$box/tree/build-ci" ]

VERDICT=1 bash "$box/tree/.ci/run" >"$box/said" 2>&1
expect "it fails where ./test does" [ $? == 1 ]
expect "and does not say that it passed" [ ! -s "$box/said" ]
expect "nothing is left then either" [ ! -e "$box/tree/build-ci" ]

((failures == 0)) && echo "all as expected"
exit $((failures > 0))
