#!/usr/bin/env bash
# tools/tidy.sh BUILD-DIR [PATTERN]: clang-tidy over our sources as that build compiles them (those
# whose path contains PATTERN), one job a core. Prints the complaints, and each file as it is done.
# A build in batches is read in batches, several times as fast; to look at some files alone:
# cmake --preset tsan && tools/tidy.sh build-tsan device/cpu
set -euo pipefail
build=$(readlink -f "$1")
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")

check_one() {  # check_one BUILD ROOT FILE
  local out start=$SECONDS
  if out=$(clang-tidy --quiet -p "$1" --checks=-bugprone-suspicious-include "$3" 2>&1); then
    printf 'tidy  %3d s  %s\n' $((SECONDS - start)) "${3#"$2"/}"
  else
    # Without the notes, which can be hundreds of lines of expanded macros.
    awk '/: note: /{ skip = 1 } /: (error|warning): /{ skip = 0 } !skip && !/ generated\.$/' <<<"$out"
    exit 1
  fi
}
export -f check_one

# A batch lies in the build, but its files are judged as those of its folder.
[[ ! -d $build/tests ]] || cp "$root/tests/.clang-tidy" "$build/tests/"

# Our files and batches of them only: not what else CMake writes into the build, and not C, whose
# names follow other rules.
sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" | sort -u |
  awk -v root="$root/" -v build="$build/" -v pattern="${2:-}" \
    'index($0, root) == 1 && (index($0, build) != 1 || /\/Unity\//) &&
     !/\.c$/ && (pattern == "" || $0 ~ pattern)' |
  xargs -d '\n' -P "$(nproc)" -n 1 bash -c 'check_one "$@"' tidy "$build" "$root"
