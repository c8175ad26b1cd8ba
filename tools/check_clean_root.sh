#!/usr/bin/env bash
# tools/check_clean_root.sh [SUITE]: proves ./run and ./test on a bare Debian, and times them.
#
# Makes a minimal root (no compiler, no make, no git, no sudo, HOME unset) with debootstrap in a
# temporary folder, copies the tree into it without .git and builds, at a path with a space, and
# throws all of it away at the end. Needs root. Packages come from where this machine's apt gets
# its own. SUITE is bookworm unless given.
set -euo pipefail
suite=${1:-bookworm}
tree=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
die() { printf 'check_clean_root: %s\n' "$*" >&2; exit 1; }

[[ $(id -u) == 0 ]] || die "must be root, to make a root"
command -v debootstrap >/dev/null || die "needs debootstrap: apt-get install debootstrap"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" |
  awk 'NR == 1')
[[ $mirror ]] || die "this machine's apt has no source for $suite"

box=$(mktemp -d) && chmod 755 "$box"
trap 'rm -rf --one-file-system "$box"' EXIT
echo "== making a minimal $suite"
[[ $mirror != https:* ]] || certificates=--include=ca-certificates
debootstrap --variant=minbase ${certificates:-} "$suite" "$box" "$mirror" >"$box.log" 2>&1 ||
  { tail -n 20 "$box.log"; die "debootstrap failed"; }
rm "$box.log"
# Proxies and the like.
apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Retries)' \
  >"$box/etc/apt/apt.conf.d/90host" || true
cp /etc/resolv.conf /etc/hosts "$box/etc/"
mkdir "$box/opt/head room"
tar -C "$tree" --exclude=./.git --exclude='./build*' -cf - . | tar -C "$box/opt/head room" -xf -

# The mounts are in a name space of their own and end with it.
unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  mount -t proc proc "$0/proc"
  mount -t sysfs -o ro sysfs "$0/sys"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$0" /bin/bash -euo pipefail' "$box" <<'END'
cd "/opt/head room"
timed() {  # timed LIMIT-SECONDS WHAT COMMAND...
  local start=$SECONDS
  printf '\n== %s\n' "$2"
  "${@:3}" </dev/null
  printf '== %s: %d s (at most %d)\n' "$2" $((SECONDS - start)) "$1"
  ((SECONDS - start <= $1)) || { echo "== too slow"; exit 1; }
}

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
timed 60 "./test again" ./test
before=$(stat -c %Y build/headroom)
cd / && timed 2 "./run from elsewhere, nothing rebuilt" "/opt/head room/run" devices --json
[[ $(stat -c %Y "/opt/head room/build/headroom") == "$before" ]]
END
echo "== all as it should be"
