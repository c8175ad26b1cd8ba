#!/usr/bin/env bash
# tools/check_clean_root.sh [OPTION]... [SUITE]: proves ./run and ./test on a bare system.
#
# Makes a minimal root (no compiler, no make, no git, no sudo, HOME unset) in a temporary folder,
# copies the tree into it at a path with a space, builds and tests there, says how long each step
# took, and throws all of it away. Needs root, and debootstrap.
#   --judge-times   a step that takes too long fails; the limits hold for two idle cores
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/clean_root.sh"

judge_times=
own_option() { [[ $1 == --judge-times ]] && judge_times=yes; }
read_root_options "$@"

make_root clean
copy_tree clean
in_root clean judge_times=$judge_times <<'END'
cd "/opt/head room"
for program in c++ make git sudo python3; do
  ! command -v $program || { echo "the root is not bare: it has $program"; exit 1; }
done

printf '\n== a user who may not install\n'
chown -R nobody . && said=$(setpriv --reuid=nobody --clear-groups ./run 2>&1) && exit 1
printf '%s\n' "$said"
[[ $said == "headroom: to build headroom, run this as root first: apt-get install "* ]]
(($(wc -l <<<"$said") == 1))
chown -R root .

timed 480 "./run devices, from nothing" ./run devices
if dpkg-query -W libgtest-dev >/dev/null 2>&1; then echo "./run installed test libraries"; exit 1; fi
timed 2 "./run devices again" ./run devices
timed 480 "./test, with its packages" ./test
timed 240 "./test again" ./test
before=$(stat -c %Y build/headroom)
cd / && timed 2 "./run from elsewhere, nothing rebuilt" "/opt/head room/run" devices
"/opt/head room/run" devices --json </dev/null | python3 -m json.tool >/dev/null
[[ $(stat -c %Y "/opt/head room/build/headroom") == "$before" ]]
END
echo "== all as it should be on $suite"
