# Sourced by ./run and ./test: gets what is missing from Debian's packages, configures, builds.
# Does nothing, quickly, when all is there. Everything it says goes to stderr.

# A package:command, where any provider of the command will do; a package, or package@header, by
# which it is looked for where there is no dpkg.
build_packages=(g++:c++ cmake:cmake ninja-build:ninja libfmt-dev@fmt/format.h libcli11-dev@CLI/CLI.hpp
  nlohmann-json3-dev@nlohmann/json.hpp libzstd-dev@zstd.h libdw-dev@elfutils/libdwfl.h
  libopenblas-dev@cblas.h)
test_packages=(libgtest-dev libgmock-dev python3:python3 zstd:zstd)
page_packages=(chromium:chromium)  # for pages, opened in a browser; it brings a font
package_packages=(dpkg-dev:dpkg-shlibdeps file:file)
lint_packages=(clang-format:clang-format clang-tidy:clang-tidy python3:python3)

launcher=()  # put before whatever runs our binaries

say() { printf 'headroom: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# missing_packages ENTRY...: prints the packages that are not installed.
missing_packages() {
  local entry names=() lacks_tool=
  for entry in "$@"; do
    if [[ $entry != *:* ]]; then
      names+=("${entry%@*}")
    elif ! command -v "${entry#*:}" >/dev/null; then
      printf '%s\n' "${entry%%:*}"
      lacks_tool=yes
    fi
  done
  if ! command -v dpkg-query >/dev/null; then
    # By themselves these stop nothing: CMake may find what the compiler does not.
    [[ ! $lacks_tool ]] || unseen_libraries "$@"
    return
  fi
  ((${#names[@]})) || return 0
  dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null |
    awk -v wanted="${names[*]}" '
      $1 == "installed" { have[$2] = 1 }
      END {
        split(wanted, want, " ")
        for (i = 1; i in want; i++) if (!(want[i] in have)) print want[i]
      }'
}

# unseen_libraries ENTRY...: prints the packages whose header the compiler does not find; all of them
# where there is no compiler.
unseen_libraries() {
  local entry
  for entry in "$@"; do
    [[ $entry == *@* ]] || continue
    if command -v c++ >/dev/null; then
      printf '#if !__has_include(<%s>)\n%s\n#endif\n' "${entry#*@}" "${entry%@*}" |
        c++ -E -P -x c++ -I/usr/include/openblas - 2>/dev/null  # where Fedora keeps OpenBLAS's
    else
      printf '%s\n' "${entry%@*}"
    fi
  done
}

# ensure_packages PURPOSE ENTRY...: installs what is missing, as root or with sudo.
ensure_packages() {
  local purpose=$1 missing as_root=()
  shift
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null ||
    die "to $purpose, install what Debian calls ${missing[*]} (there is no apt-get here to do it)"
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      die "to $purpose, run this as root first: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]} (needed to $purpose)"
  apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" </dev/null >&2
  }
  apt_get update || say "could not refresh the package lists; trying with the lists that are here"
  apt_get install --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install ${missing[*]} (its message is above)"
}

# has_cached DIR NAME=VALUE...: whether the build in DIR was configured with these values.
has_cached() {
  local dir=$1 entry
  shift
  for entry in "$@"; do
    sed -n "s/^${entry%%=*}:[A-Z]*=//p" "$dir/CMakeCache.txt" |
      grep -qxF -- "${entry#*=}" || return 1
  done
}

# configure PRESET DIR [NAME=VALUE...]: unless DIR is a build of this tree with these values.
# Only what is lacking is asked for, so ./run never takes the tests out of a build that has them.
configure() {
  local preset=$1 dir=$2 options=()
  shift 2
  if [[ -f $dir/CMakeCache.txt ]] && ! has_cached "$dir" "CMAKE_HOME_DIRECTORY=$root"; then
    options=(--fresh)  # the tree was moved or copied with its build
  elif [[ -f $dir/build.ninja && ! $root/CMakePresets.json -nt $dir/build.ninja ]] &&
    has_cached "$dir" "$@"; then
    return
  fi
  check_cmake
  (cd "$root" && cmake --preset "$preset" "${options[@]}" "${@/#/-D}") >&2 ||
    die "CMake could not configure $dir (see above)$(name_unseen)"
}

# Older ones cannot read the presets, and do not say so.
check_cmake() {
  local version
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  awk -v version="$version" 'BEGIN {
    split(version, part, ".")
    exit !(part[1] > 3 || (part[1] == 3 && part[2] >= 25))
  }' || die "needs CMake 3.25 or newer, as Debian 12 and Ubuntu 24.04 have; this is $version"
}

# Where no package manager of ours says it, the end of the message has every library there is not.
name_unseen() {
  local unseen
  command -v dpkg-query >/dev/null && return
  mapfile -t unseen < <(unseen_libraries "${build_packages[@]}")
  ((${#unseen[@]} == 0)) || printf '; the compiler does not find what Debian calls %s' "${unseen[*]}"
}

# build DIR [TARGET...]: shows progress when there is something to do, and is silent otherwise.
build() {
  local dir=$1
  shift
  [[ $(ninja -C "$dir" -n "$@" 2>&1 | tail -n 1) != "ninja: no work to do." ]] || return 0
  "${launcher[@]}" ninja -C "$dir" -j "$(jobs_that_fit)" "$@" >&2 ||
    die "the build failed (see above)"
}

# One job a core, but no more than there is memory for: a compiler may take 1 GiB.
jobs_that_fit() {
  local cores gib
  cores=$(nproc)
  gib=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  ((gib >= cores)) || cores=$gib
  echo $((cores > 0 ? cores : 1))
}
