#!/usr/bin/env bash
# tools/check_package.sh [OPTION]... [SUITE]: proves the packages of tools/package.sh.
#
# Makes them in a bare root, then, each in a bare root of its own: installs the Debian package, runs
# the command, builds programs against it, removes it and looks for what is left; unpacks the archive
# at a path with a space and runs the command there. Needs root, and debootstrap.
#   --packages FOLDER  those in this folder, made on SUITE before
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/clean_root.sh"

packages=
own_option() {
  [[ $1 == --packages ]] || return 1
  packages=$(readlink -e "$2") || die "--packages: no such folder: '$2'"
  taken=2
}
read_root_options "$@"

# What a user does first, as a user who owns nothing; called in a root.
try_command() {  # try_command PROGRAM SAMPLES
  local as_user=(setpriv --reuid=nobody --clear-groups env HOME=/nonexistent LANG=C.UTF-8)
  cd /
  "${as_user[@]}" "$1" demo >/tmp/demo.txt
  grep -m 1 'gpt2_varlen' /tmp/demo.txt
  grep -m 1 'expandable_segments:True' /tmp/demo.txt
  "${as_user[@]}" "$1" doctor "$2/leak_loss.pickle.zst" >/tmp/doctor.txt && return 1
  (($? == 3))  # done, and the answer is bad news
  grep -m 1 'leak' /tmp/doctor.txt
}

# with_functions: the commands of standard input, and before them the functions they call.
with_functions() { declare -f try_command; cat; }

if [[ ! $packages ]]; then
  make_root build
  copy_tree build
  in_root build <<'END'
    cd "/opt/head room"
    timed 480 "tools/package.sh" tools/package.sh
END
  packages="$box/build/opt/head room/build/packages"
fi

make_root installed
cp "$packages"/headroom_*.deb "$box/installed/tmp/headroom.deb"
cp -r "$tree/tests/install" "$box/installed/tmp/tests"
with_functions <<'END' | in_root installed
  export DEBIAN_FRONTEND=noninteractive
  apt_get() { apt-get -q -y "$@" </dev/null >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }; }
  # Every file but what apt and the loader remember for themselves.
  list_files() {
    find / -xdev -path /proc -prune -o -path /sys -prune -o -path /tmp -prune -o \
      -path '/var/cache/*' -prune -o -path /var/lib/apt -prune -o -path '/var/log/*' -prune -o \
      -path /var/lib/dpkg -prune -o -path /etc/ld.so.cache -prune -o -print | sort
  }

  printf '\n== the Debian package\n'
  dpkg-deb --info /tmp/headroom.deb
  apt_get update
  list_files >/tmp/before
  apt_get install --no-install-recommends /tmp/headroom.deb
  dpkg --verify headroom
  timed 60 "the command, installed" try_command headroom /usr/share/headroom/samples

  printf '\n== removed\n'
  apt_get purge --autoremove headroom
  list_files | diff /tmp/before - || { echo "the package left files behind"; exit 1; }
  ! find / -xdev -path /tmp -prune -o -path /proc -prune -o -iname '*headroom*' -print | grep . ||
    { echo "the package left these behind"; exit 1; }
  echo "nothing is left"

  apt_get install --no-install-recommends /tmp/headroom.deb g++ make cmake pkgconf
  build_consumer() {  # build_consumer COMPONENT
    cmake -S /tmp/tests/consumer -B "/tmp/with $1" -D COMPONENT="$1" >/tmp/cmake.log &&
      cmake --build "/tmp/with $1" >>/tmp/cmake.log || { cat /tmp/cmake.log; return 1; }
    "/tmp/with $1/consumer" >/tmp/said && cat /tmp/said && [[ $(</tmp/said) == "meta:1 20MiB" ]]
  }
  timed 30 "find_package(headroom COMPONENTS memory)" build_consumer memory
  build_c_program() {
    cc -Wall -Wextra -Werror /tmp/tests/program.c -o /tmp/program $(pkg-config --cflags --libs headroom)
    /tmp/program
  }
  timed 10 "a C program, by pkg-config" build_c_program
  suggested=$(dpkg-deb --field /tmp/headroom.deb Suggests)
  apt_get install --no-install-recommends ${suggested//,/}
  timed 30 "find_package(headroom), with what the package suggests" build_consumer ""
END

make_root unpacked
mkdir "$box/unpacked/opt/my tools"
tar -C "$box/unpacked/opt/my tools" -xzf "$packages"/headroom-*.tar.gz
with_functions <<'END' | in_root unpacked
  printf '\n== the archive\n'
  cd "/opt/my tools"/headroom-*
  ldd bin/headroom lib/libheadroom_c.so lib/headroom/libheadroom_torch.so >/tmp/libraries
  ! grep 'not found' /tmp/libraries || exit 1
  ls lib/*.so.* share/doc/headroom/third-party
  here=$PWD
  ln -s "$here/bin/headroom" /usr/bin/headroom
  timed 60 "the command, unpacked" try_command "$here/bin/headroom" "$here/share/headroom/samples"
  timed 60 "the command, by a link" try_command headroom "$here/share/headroom/samples"
END
echo "== all as it should be on $suite"
