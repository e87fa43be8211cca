# shellcheck shell=bash
# What builds programs of Go, and where what is built is kept: sourced after setup.sh.

GO=1.26.8 # for a machine whose Go is too old to fetch a newer one by itself

# Outside the tree, so that a second clone has it at once; root's is for other users too.
cache=$(user_cache)/ocisbx-dev
((EUID == 0)) && cache=/var/cache/ocisbx-dev

# Leaves the newest Go at hand in `go`.
find_go() {
  for go in "$(type -P go)" /usr/local/go/bin/go /usr/lib/go-*/bin/go; do
    [[ -x $go ]] && return
  done
  return 1
}

# Makes sure that `go` can fetch by itself the toolchain that a module asks for.
use_go() {
  local version
  find_go
  version=$("$go" env GOVERSION)
  version=${version#go1.}
  ((${version%%[!0-9]*} >= 21)) || get_toolchain
}

# The Go module proxy serves toolchains as a module too, which an older Go can fetch by hand.
get_toolchain() {
  local module
  module=golang.org/toolchain@v0.0.1-go$GO.linux-$("$go" env GOARCH)
  if [[ ! -x $cache/go-$GO/bin/go ]]; then
    open_scratch
    # shellcheck disable=SC2154 # setup.sh opens it
    step "getting Go $GO (the system's $("$go" env GOVERSION) is too old)" env GOFLAGS=-modcacherw GOPATH="$scratch/go" "$go" mod download "$module"
    mkdir -p "$cache"
    chmod +x "$scratch/go/pkg/mod/$module"/{bin,pkg/tool/*}/*
    rm -rf "$cache/go-$GO"
    mv "$scratch/go/pkg/mod/$module" "$cache/go-$GO"
  fi
  go=$cache/go-$GO/bin/go
}
