# Sourced by the commands beside it: installs the missing packages and toolchains they need on a Debian
# machine.

# Runs a command as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs the missing ones of the named Debian packages.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "installing ${missing[*]}"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Makes sure that the toolchain of rust-toolchain.toml is there, with its components and targets.
need_rust() {
    if ! command -v rustup >/dev/null; then
        echo "rustup is missing: install it, then run this again" >&2
        exit 1
    fi
    local channel
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup run "$channel" rustc --version >/dev/null 2>&1; then
        rustup toolchain install "$channel" --profile minimal
    fi
    local have component
    have=$(rustup component list --toolchain "$channel" --installed)
    for component in rustfmt clippy; do
        grep -q "^$component" <<<"$have" || rustup component add --toolchain "$channel" "$component"
    done
    need_target x86_64-unknown-none
    cargo --version
}

# Makes sure that the toolchain can build for a target.
need_target() {
    local channel have
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    have=$(rustup component list --toolchain "$channel" --installed)
    grep -q "^rust-std-$1" <<<"$have" || rustup target add --toolchain "$channel" "$1"
}

# Makes sure that volumes can be mounted.
need_fuse() {
    need_packages fuse3
    [ -e /dev/fuse ] || as_root modprobe fuse || true
    if [ ! -e /dev/fuse ]; then
        echo "there is no /dev/fuse: this machine cannot mount a file system by FUSE" >&2
        exit 1
    fi
}

# Makes sure that a program of crates.io is there in this version.
need_tool() {
    case "$("$1" --version 2>/dev/null || cargo "${1#cargo-}" --version 2>/dev/null)" in
        *" $2" | *" $2 "*) return ;;
    esac
    cargo install "$1" --locked --debug --force --version "$2"
}

# Makes sure that the tests can be run one process each.
need_nextest() {
    [[ "$(cargo nextest --version 2>/dev/null)" = "cargo-nextest 0.9."* ]] && return
    cargo install cargo-nextest --locked --debug --version 0.9.151 --no-default-features --features default-no-update
}
