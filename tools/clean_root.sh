# Sourced by check_clean_root.sh and check_package.sh: bare systems in temporary folders, made with
# debootstrap and thrown away at the end.
#
#   read_root_options "$@"      # what root_usage says; the script's own options by its own_option
#   make_root build             # a minimal $suite in $box/build
#   copy_tree build             # this tree without .git and builds, at /opt/head room
#   in_root build NAME=VALUE <<'END' ... END    # commands for bash there, with a bare environment

tree=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
die() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; exit 1; }

# The comment at the top of the script, then the options of all.
show_usage() {
  awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"
  cat <<'END'

SUITE is a release of Debian or Ubuntu: bookworm, trixie, noble; this machine's own unless given.
  --mirror URL    where its packages are, else where this machine's apt gets its own
  --ccache FOLDER compile with ccache and this cache, for work on the scripts themselves
END
}

own_option() { return 1; }  # own_option NAME VALUE: sets `taken` to how many words it took

# read_root_options OPTION...: sets `suite`, `mirror` and `ccache`.
read_root_options() {
  local taken
  suite='' mirror='' ccache=''
  while (($#)); do
    taken=1
    case $1 in
      -h | --help) show_usage; exit ;;
      --mirror) mirror=${2:-} taken=2; [[ $mirror ]] || die "--mirror needs an address" ;;
      --ccache) ccache=$(readlink -e "${2:-}") || die "--ccache: no such folder: '${2:-}'"; taken=2 ;;
      -*) own_option "$1" "${2:-}" || die "no such option: '$1' ($0 --help lists them)" ;;
      *) [[ ! $suite ]] || die "one suite at a time, not '$suite' and '$1'"; suite=$1 ;;
    esac
    shift "$taken"
  done
  [[ $suite ]] || suite=$(own_suite)
  [[ $suite ]] || die "name a suite: $0 bookworm"
}

own_suite() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release; }

# Where this machine's apt gets its own packages; a mirror of Debian has all of its suites.
own_mirror() {
  ! command -v apt-get >/dev/null ||
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(own_suite)" |
    awk 'NR == 1'
}

# The first root comes from debootstrap; the others are copies of it, made before it is used.
make_root() {  # make_root NAME
  [[ ${box:-} ]] || bootstrap
  cp -a "$box/pristine" "$box/$1"
}

bootstrap() {
  local origin script also=() options=(--variant=minbase)
  [[ $(id -u) == 0 ]] || die "must be root, to make a root"
  command -v debootstrap >/dev/null || die "needs debootstrap: apt-get install debootstrap"
  mirror=${mirror:-$(own_mirror)}
  mirror=${mirror%/}
  [[ $mirror ]] || die "this machine's apt names no mirror: --mirror URL"
  origin=$(wget -q -T 30 -t 2 -O - "$mirror/dists/$suite/InRelease" |
    awk '/^Origin:/ { print $2; exit }') || true
  [[ $origin ]] || die "$suite cannot be had from $mirror (--mirror URL names another)"
  box=$(mktemp -d) && chmod 755 "$box"
  trap 'rm -rf --one-file-system "$box"' EXIT
  printf '== making a minimal %s %s\n' "$origin" "$suite"
  [[ $mirror != https:* ]] || also+=(ca-certificates)
  [[ $origin != Ubuntu ]] || options+=(--components=main,universe)
  [[ ! $ccache ]] || also+=(ccache)
  ((${#also[@]} == 0)) || options+=("--include=$(IFS=,; echo "${also[*]}")")
  # For a suite newer than this debootstrap, the script of an older one does.
  script=/usr/share/debootstrap/scripts/$suite
  if [[ ! -e $script ]]; then
    script=${script%/*}/sid
    [[ $origin != Ubuntu ]] || script=${script%/*}/gutsy
  fi
  debootstrap "${options[@]}" "$suite" "$box/pristine" "$mirror" "$script" >"$box/log" 2>&1 ||
    { tail -n 20 "$box/log"; die "debootstrap failed"; }
  # Proxies and the like.
  ! command -v apt-config >/dev/null || apt-config dump |
    grep -E '^Acquire::(http|https|Check-Valid-Until|Retries)' \
      >"$box/pristine/etc/apt/apt.conf.d/90host" || true
  cp /etc/resolv.conf /etc/hosts "$box/pristine/etc/"
  [[ ! $ccache ]] || mkdir "$box/pristine/ccache"
}

copy_tree() {  # copy_tree NAME
  mkdir "$box/$1/opt/head room"
  tar -C "$tree" --exclude=./.git --exclude='./build*' -cf - . |
    tar -C "$box/$1/opt/head room" --no-same-owner -xf -
}

# The mounts are in a name space of their own and end with it, as does all that was started.
in_root() {  # in_root NAME [VARIABLE=VALUE...]; the commands come from standard input
  local cache=()
  [[ ! $ccache ]] || cache=(CCACHE_DIR=/ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache)
  { declare -f timed; cat; } |
    CACHE=$ccache unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
      mount -t proc proc "$0/proc"
      mount -t sysfs -o ro sysfs "$0/sys"
      [[ ! $CACHE ]] || mount --bind "$CACHE" "$0/ccache"
      exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" chroot "$0" /bin/bash -euo pipefail
    ' "$box/$1" "${cache[@]}" "${@:2}"
}

# timed LIMIT-SECONDS WHAT COMMAND...: the limit counts only where judge_times is set, since it says
# nothing on a machine that is busy with something else.
timed() {
  local start=$SECONDS
  printf '\n== %s\n' "$2"
  "${@:3}" </dev/null
  printf '== %s: %d s (at most %d on an idle machine)\n' "$2" $((SECONDS - start)) "$1"
  [[ ! ${judge_times:-} ]] || ((SECONDS - start <= $1)) || { echo "== too slow"; exit 1; }
}
