#!/usr/bin/env bash
# tools/setup.sh on machines that this one is not: the only programs there are those put in $box.
set -uo pipefail
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failures=0

machine() {  # machine NAME [PROGRAM SCRIPT]...: a fresh one, where the package `absent` is missing
  name=$1
  shift
  rm -f "$box"/*
  ln -s "$(command -v awk)" "$(command -v env)" "$(command -v bash)" "$box"
  program present ':'
  while (($#)); do program "$1" "$2"; shift 2; done
}
program() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$box/$1" && chmod +x "$box/$1"; }

expect() {  # expect STATUS PATTERN ENTRY...: what ensure_packages answers for these packages
  expect_of 'ensure_packages "build it" "$@"' "$@"
}
expect_of() {  # expect_of COMMANDS STATUS PATTERN ARGUMENT...
  local output status commands=$1
  shift
  output=$(PATH=$box bash -euo pipefail -c "source \"\$0\"; $commands" \
    "$root/tools/setup.sh" "${@:3}" 2>&1)
  status=$?
  [[ $status == "$1" && $output =~ ^$2$ ]] && return
  printf 'FAILED: %s: status %s, said:\n%s\n' "$name" "$status" "$output"
  failures=$((failures + 1))
}

dpkg='echo "installed libhere-dev"; echo "config-files libgone-dev"; exit 1'
apt='echo "apt-get ${*: -2}"'
any=$'(.|\n)*'

machine "all is there" dpkg-query "$dpkg" apt-get "$apt" id 'echo 0'
expect 0 "" libhere-dev present:present

machine "root, packages missing" dpkg-query "$dpkg" apt-get "$apt" id 'echo 0'
expect 0 "headroom: installing tool libgone-dev \(needed to build it\)$any"\
"apt-get $any update${any}apt-get tool libgone-dev" libhere-dev libgone-dev tool:absent

machine "a user with sudo" dpkg-query "$dpkg" apt-get "$apt" id 'echo 1000' \
  sudo 'echo with sudo; exec "$@"'
expect 0 "${any}with sudo${any}apt-get --no-install-recommends libgone-dev" libgone-dev

machine "a user without sudo" dpkg-query "$dpkg" apt-get "$apt" id 'echo 1000'
expect 1 "headroom: to build it, run this as root first: apt-get install libgone-dev" libgone-dev

machine "apt-get fails" dpkg-query "$dpkg" apt-get 'echo E: no network; exit 100' id 'echo 0'
expect 1 "${any}E: no network${any}apt-get could not install libgone-dev $any" libgone-dev

machine "not Debian, tools missing" id 'echo 0'
expect 1 "headroom: to build it, install what Debian calls tool \(there is no apt-get $any" \
  libgone-dev tool:absent

machine "not Debian, tools there: CMake looks for the libraries" id 'echo 0'
expect 0 "" libgone-dev present:present
expect 0 "" libgone-dev@no/such/header.h present:present

machine "not Debian, no compiler: all is named at once" id 'echo 0'
expect 1 "headroom: to build it, install what Debian calls tool libgone-dev \(there is no apt-get $any" \
  libgone-dev@no/such/header.h tool:absent

compiler="exec '$(command -v c++)' \"\$@\""
machine "not Debian, with a compiler: only what it does not find" c++ "$compiler" id 'echo 0'
expect 1 "headroom: to build it, install what Debian calls tool libgone-dev \(there is no apt-get $any" \
  libgone-dev@no/such/header.h libhere-dev@cstddef tool:absent

# CMake may know of a place that the compiler does not, so it is asked first.
old='echo cmake version 3.22.1'
new='[[ $1 != --version ]] || { echo cmake version 3.31.6; exit; }; echo CMake Error; exit 1'
settings='root=/; build_packages=(libgone-dev@no/such/header.h libhere-dev@cstddef tool:absent)'
machine "not Debian, CMake fails" c++ "$compiler" cmake "$new" id 'echo 0'
expect_of "$settings; configure release /no/build" 1 "CMake Error${any}headroom: CMake could not configure /no/build \
\(see above\); the compiler does not find what Debian calls libgone-dev"

machine "Debian, CMake fails" c++ "$compiler" cmake "$new" dpkg-query "$dpkg" id 'echo 0'
expect_of "$settings; configure release /no/build" 1 "CMake Error${any}headroom: CMake could not configure /no/build \
\(see above\)"

machine "CMake is too old" cmake "$old" id 'echo 0'
expect_of "$settings; configure release /no/build" 1 \
  "headroom: needs CMake 3.25 or newer, as Debian 12 and Ubuntu 24.04 have; this is 3.22.1"

((failures == 0)) && echo "all as expected"
exit $((failures > 0))
