# shellcheck shell=bash
# What the scripts of tools/ share: messages, packages of the system, the virtual environment.
# Sourced with `root` set to the tree. Leaves the environment's directory in `venv`.

root=$(cd "$root" && pwd -P)
log=  # everything that the helpers print; named in the message when one fails
scratch=
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT # also where the interrupted tool, as pip, ends as if it had failed

say() { printf 'ocisbx: %s\n' "$1" >&2; }

# die WHAT [REMEDY [EXIT_CODE]]
die() {
  say "$1"
  [[ -z ${2-} ]] || printf '  remedy: %s\n' "$2" >&2
  exit "${3:-69}"
}

# Inside an unfinished environment it goes with that, should this script be killed.
open_scratch() {
  if [[ -z $scratch && -e ${venv-}/.ocisbx-unfinished ]]; then
    scratch=$venv/.scratch
    mkdir -p "$scratch"
  fi
  [[ -n $scratch ]] || scratch=$(mktemp -d "${TMPDIR:-/tmp}/ocisbx-setup.XXXXXXXX")
  log=${log:-$scratch/log}
}

# step LINE COMMAND...: one line of progress; the command's own output is shown only if it fails.
step() {
  local line=$1
  shift
  say "$line"
  open_scratch
  : >"$log"
  "$@" </dev/null >>"$log" 2>&1 && return
  tail -n 15 "$log" | sed 's/^/  | /' >&2
  die "failed: $line"
}

# ~ and not $HOME: it is known for a caller without that variable too.
user_cache() {
  local home=~
  echo "${XDG_CACHE_HOME:-$home/.cache}"
}

# ------------------------------------------------------------------ packages of the system

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }
apt_add() {
  apt_get install -y --no-install-recommends "$@" || { apt_get update && apt_get install -y --no-install-recommends "$@"; }
}

# need_packages WHAT PACKAGE...: installs them as root, else says what an administrator must run.
need_packages() {
  local what=$1
  shift
  type -P apt-get >/dev/null || die "$what" "install it with your system's package manager (Debian's names: $*)"
  ((EUID == 0)) || die "$what" "as an administrator run: apt-get update && apt-get install -y --no-install-recommends $*"
  step "installing $* (apt-get)" apt_add "$@"
}

# ------------------------------------------------------------------ Python

# usable_python PROGRAM [MODULE]: is it 3.11 or newer, and has it the module?
usable_python() {
  [[ -x $1 ]] && "$1" -I -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null &&
    { [[ -z ${2-} ]] || "$1" -I -c "import $2" 2>/dev/null; }
}

# Leaves the interpreter in `python`, or, where there is none, what to install in `missing`. The
# system's comes first: one from a home directory cannot be started by other users, who may share
# this tree's environment.
find_python() {
  local name candidate system=() all=()
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    [[ -x /usr/bin/$name ]] && system+=("/usr/bin/$name")
  done
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    candidate=$(type -P "$name") && all+=("$candidate")
  done
  for python in "${system[@]}" "${all[@]}"; do
    usable_python "$python" ensurepip && return
    # Debian splits ensurepip off; root can have it, and then keeps to the system's Python.
    ((EUID == 0)) && [[ $python == /usr/bin/* ]] && usable_python "$python" && type -P apt-get >/dev/null && break
  done
  for python in "${system[@]}"; do
    usable_python "$python" && missing+=("${python##*/}-venv") && return 1
  done
  # Of the supported releases only Ubuntu 22.04 has an older python3; it has python3.11 beside it.
  if [[ -x /usr/bin/python3 ]]; then
    missing+=(python3.11 python3.11-venv)
  else
    missing+=(python3 python3-venv)
  fi
  return 1
}

pip() { "$venv/bin/python" -I -m pip --no-input --disable-pip-version-check "$@"; }
pip_install() { PIP_ROOT_USER_ACTION=ignore pip install --quiet "$@"; }
# --only-binary: no package may run code of its own while it is installed.
pip_locked() { pip_install --require-hashes --only-binary :all: -r "$root/tools/requirements/$1.txt" "${@:2}"; }

# Without write access, and with an environment there that another user made and this one cannot
# start, the environment goes to the user's cache, with a copy of the package inside.
choose_venv() {
  venv=$root/.venv
  in_tree=1
  if [[ ! -w $root || (-e $venv && ! -O $venv) ]]; then
    in_tree=
    venv=$(user_cache)/ocisbx/venv-$(printf %s "$root" | sha256sum | cut -c1-16)
  fi
}

# Prints a hash of all that an environment for the stage is made from.
digest() {
  {
    printf '%s\0' "$root"/{pyproject.toml,tools/build_init.py,ocisbx/version.py} "$root/tools/requirements/$1.txt"
    if [[ $in_tree ]]; then
      printf '%s\0' "$root"/ocisbx/init/*.[ch]
    else
      find "$root/ocisbx" -name __pycache__ -prune -o -path '*/init/bin' -prune -o -type f -print0 | sort -z
    fi
  } | xargs -0 sha256sum | sha256sum | cut -c1-64
}

# is_set_up STAGE: by content, where tools/run looked at times only.
is_set_up() {
  local stamp=$venv/.ocisbx-$1 made_for made_from
  [[ -r $stamp && -x $venv/bin/python && ! -e $venv/.ocisbx-unfinished ]] || return 1
  [[ ! $in_tree || -x $root/ocisbx/init/bin/ocisbx-init-$HOSTTYPE ]] || return 1
  { IFS= read -r -d '' made_for && IFS= read -r -d '' runtime && IFS= read -r -d '' made_from; } <"$stamp" || return 1
  [[ $made_for == "$root" && (-z $runtime || -x $runtime) && $made_from == "$(digest "$1")" ]]
}

venv_works() { [[ ! -e $venv/.ocisbx-unfinished ]] && usable_python "$venv/bin/python" pip; }

# need_system STAGE: what this system must have, asked for at once.
need_system() {
  missing=()
  venv_works || find_python || true
  [[ $1 != run ]] || find_runtime || missing+=(crun)
  ((${#missing[@]})) || return 0
  need_packages "this system lacks ${missing[*]}" "${missing[@]}"
  missing=()
  venv_works || find_python || die "Python 3.11 or newer is needed, and this system's packages have none"
  [[ $1 != run ]] || find_runtime || die "an OCI runtime was installed, but is not to be found"
}

make_venv() {
  if ! venv_works; then
    [[ ! -e $venv || -e $venv/pyvenv.cfg || -e $venv/.ocisbx-unfinished ]] || die "$venv is in the way: not a virtual environment" "move it away"
    rm -rf "$venv"
    mkdir -p "$venv"
    : >"$venv/.ocisbx-unfinished"
    step "making a virtual environment ($venv, $("$python" -V 2>&1))" "$python" -m venv "$venv"
  fi
  # Whatever ends this before its end, the next call starts anew.
  : >"$venv/.ocisbx-unfinished"
}

# build_init TREE: with the machine's compiler, else with PyPI's ziglang, fetched for this one use.
build_init() {
  open_scratch
  "$venv/bin/python" "$1/tools/build_init.py" >"$scratch/init" 2>&1 && return
  step "getting a C compiler from PyPI (ziglang, about 90 MB, used once)" pip_locked init --target "$scratch/zig"
  step "building the container's init" env PYTHONPATH="$scratch/zig" XDG_CACHE_HOME="$scratch" "$venv/bin/python" "$1/tools/build_init.py"
  rm -rf "$scratch/zig" "$scratch/zig-cache"
}

install_package() {
  if [[ $in_tree ]]; then
    build_init "$root"
    step "installing ocisbx (editable)" pip_install --no-deps --no-build-isolation -e "$root"
  else
    open_scratch
    mkdir "$scratch/tree"
    cp -R "$root"/{pyproject.toml,README.md,ocisbx,tools} "$scratch/tree"
    build_init "$scratch/tree"
    step "installing ocisbx" pip_install --no-deps --no-build-isolation --force-reinstall "$scratch/tree"
  fi
}

# Leaves the path of a runtime in `runtime`; which of several is used, ocisbx decides at each run.
find_runtime() {
  local directory name IFS=:
  for directory in "$root/.runtimes/bin" $PATH /usr/local/sbin /usr/sbin /sbin; do
    for name in crun runc youki; do
      runtime=$directory/$name
      [[ $directory == /* && -f $runtime && -x $runtime ]] && return
    done
  done
  runtime=
  return 1
}

# set_up STAGE: `run` what ocisbx run needs; `dev` the tools and tests of a developer.
set_up() {
  local stage=$1 runtime='' callers_umask
  choose_venv
  is_set_up "$stage" && { touch "$venv/.ocisbx-$stage"; return; }
  callers_umask=$(umask)
  umask 022 # what root makes here, other users run
  mkdir -p "${venv%/*}"
  # Two at once: the second waits, and then finds nothing left to do.
  exec {lock}>"$venv.lock"
  flock -n "$lock" || { say "waiting for another set-up of $venv"; flock "$lock"; }
  if ! is_set_up "$stage"; then
    runtime=
    need_system "$stage"
    make_venv
    step "installing the Python packages (tools/requirements/$stage.txt)" pip_locked "$stage"
    install_package
    "$venv/bin/python" -I -m compileall -q "$root/ocisbx" >/dev/null 2>&1 || true
    printf '%s\0' "$root" "$runtime" "$(digest "$stage")" >"$venv/.ocisbx-$stage.new"
    mv "$venv/.ocisbx-$stage.new" "$venv/.ocisbx-$stage"
    rm -f "$venv/.ocisbx-unfinished"
  fi
  exec {lock}>&-
  umask "$callers_umask" # the payload's too
  rm -rf "$scratch"
  scratch='' log=''
  trap - INT
}
