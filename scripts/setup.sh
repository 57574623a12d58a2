#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes .venv ready: a virtual environment with this project, its compiled core, the packages of an extra of
# pyproject.toml, and a Java for Spark. For tests also an archive of Spark's classes.
# Safe to run at any time. It returns at once if nothing has changed since it last succeeded, and starts over where it
# was interrupted. It knows no package registry by name: pip's own configuration decides where packages come from.
#
#   scripts/setup.sh [EXTRA]   what to install: demo, or dev, which has everything (default: dev)
#
#   PYTHON=...      the interpreter to use       (default: python3, else python3.13 ... python3.11)
#   JAVA_HOME=...   the Java to use, 17 or newer (default: java on the PATH, the usual folders, then apt)

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly EXTRA=${1:-dev}
readonly STAMP=.venv/.ready   # ends with the extra that is installed
readonly CORE_STAMP=.venv/.core
readonly CORE_LOG=.venv/.core.log
readonly JAVA_NOTE=.venv/.java-home
readonly JAVA_MIN=17

say() { printf '%s\n' "$@" >&2; }

step() { say "setup ($((SECONDS)) s): $1"; }

die() { # what, why and what to do: one line each
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" >&2
    exit 1
}

# Everything that makes an existing .venv stale. The folder is part of it: a virtual environment cannot be moved.
fingerprint() { { pwd; printf '%s\n' "${PYTHON:-}" "${JAVA_HOME:-}"; cat pyproject.toml setup.py scripts/setup.sh; } | cksum; }

# What the compiled core is made from.
core_fingerprint() { cat setup.py broker_core/wire/core/*.p* | cksum; }

up_to_date() {
    local now
    now=$(fingerprint)
    [ -f "$STAMP" ] && [ -x .venv/bin/python ] || return 1
    case $(cat "$STAMP") in "$now $EXTRA" | "$now dev") java_works "$(cat "$JAVA_NOTE")" ;; *) return 1 ;; esac
}

# -- Python

python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        python_is_new_enough "$PYTHON" || die "$PYTHON is not a Python of version 3.11 or newer" "set PYTHON to one"
        printf '%s\n' "$PYTHON"
        return
    fi
    local name
    # python3 first where it will do: it is the one that its owner chose. Then the versions that we test with.
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if command -v "$name" >/dev/null 2>&1 && python_is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    die "no Python of version 3.11 or newer was found" "looked for python3, python3.11 to python3.14 and python on the PATH" \
        "install one, or name it: make setup PYTHON=/path/to/python3"
}

make_venv() {
    [ -x .venv/bin/python ] && [ -x .venv/bin/pip ] && [ "$(cat .venv/.folder 2>/dev/null)" = "$PWD" ] && return
    local python
    python=$(find_python)
    step "virtual environment .venv with $("$python" --version)"
    rm -rf .venv
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        # Debian and its children ship the venv module apart from Python.
        local package
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        apt_install "$package" || die "this Python cannot make virtual environments: its venv or ensurepip module is missing" \
            "Debian and Ubuntu have them in a package of their own" "install it as root: apt-get install $package"
    fi
    "$python" -m venv .venv || die "the virtual environment could not be made with $python" "see the lines above"
    printf '%s\n' "$PWD" > .venv/.folder
}

pip_install() { # with a bar for each download where somebody sees it; modules are compiled when they are imported
    # Spark comes as a source archive, from which pip makes a wheel: its 450 MB of JARs are compressed already.
    printf '[bdist_wheel]\ncompression = stored\n' > .venv/build.cfg
    local -x DIST_EXTRA_CONFIG=$PWD/.venv/build.cfg
    local -a how=(--no-input --disable-pip-version-check)
    [ -t 2 ] || how+=(--quiet)
    [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || how+=(--no-compile)
    .venv/bin/python -m pip install "${how[@]}" "$@" >&2 \
        || die "pip could not install the packages" "see its own words above" "check the network and pip's configuration, then run the command again"
}

install_packages() { # and compile the core meanwhile
    local tools; compiling=""
    tools=$(.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
    step "tools that build the core: $tools"
    # shellcheck disable=SC2086 - words of their own
    pip_install $tools
    if ! core_is_compiled; then
        .venv/bin/python setup.py -q build_ext --inplace >"$CORE_LOG" 2>&1 &
        compiling=$!
        trap 'kill "$compiling" 2>/dev/null || true' EXIT
    fi
    local first=$EXTRA
    [ "$EXTRA" != dev ] || first=spark # so that its classes can be archived while the rest is installed
    step "packages for $first, of which Spark is the largest (450 MB, the first time), while the core compiles"
    PULSARISH_UNCOMPILED=1 pip_install --no-build-isolation --editable ".[$first]"
    if [ -n "$compiling" ]; then
        wait "$compiling" || { cat "$CORE_LOG" >&2; core_failed; }
        trap - EXIT
        core_fingerprint > "$CORE_STAMP"
    fi
    [ "$first" != "$EXTRA" ] || return 0
    step "packages for $EXTRA, while Spark's classes are archived once (for later runs)"
    archive_spark_classes &
    PULSARISH_UNCOMPILED=1 pip_install --no-build-isolation --editable ".[$EXTRA]"
    wait
}

# -- the compiled core

compiler_works() { # a C compiler, and the headers of this Python
    local include
    include=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    printf '#include <Python.h>\n' | "${CC:-cc}" -I"$include" -x c -fsyntax-only - >/dev/null 2>&1
}

find_compiler() {
    compiler_works && return
    say "setup: no C compiler with Python's headers found, asking apt for them"
    local headers
    headers=$(.venv/bin/python -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')
    apt_install gcc libc6-dev || true
    compiler_works || apt_install "$headers" || true
    compiler_works || say "setup: there is none: the core stays uncompiled, so that all is several times slower" \
        "install one (Debian, as root: apt-get install gcc libc6-dev $headers), then run make clean and the command again"
}

core_is_compiled() { [ -f "$CORE_STAMP" ] && [ "$(cat "$CORE_STAMP")" = "$(core_fingerprint)" ]; }

core_failed() { die "the core could not be compiled" "see the lines above"; }

compile_core() { # after a change of its sources
    core_is_compiled && return
    step "compiling the core, which has changed"
    .venv/bin/python setup.py -q build_ext --inplace >&2 || core_failed
    core_fingerprint > "$CORE_STAMP"
}

# -- Java

java_works() { # a home with a Java that Spark accepts: new enough, and with the module that Spark asks for
    [ -x "$1/bin/java" ] || return 1
    local major
    major=$("$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge "$JAVA_MIN" ] && "$1/bin/java" --add-modules jdk.incubator.vector -version >/dev/null 2>&1
}

java_candidates() {
    printf '%s\n' "${JAVA_HOME:-}"
    local java
    if java=$(command -v java 2>/dev/null); then
        "$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p'
    fi
    printf '%s\n' /usr/lib/jvm/* /opt/java/* /opt/jdk* /opt/openjdk* /usr/local/openjdk* "${HOME:-/nonexistent}"/.jdks/* \
        "${HOME:-/nonexistent}"/.sdkman/candidates/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home \
        /opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home /usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home
}

find_java() {
    local home
    while IFS= read -r home; do
        if [ -n "$home" ] && java_works "$home"; then
            printf '%s\n' "$home"
            return
        fi
    done < <(java_candidates)
    return 1
}

note_java() {
    local home
    if ! home=$(find_java); then
        say "setup: no Java $JAVA_MIN or newer found, asking apt for one"
        { apt_install default-jre-headless && home=$(find_java); } || die "Spark needs Java $JAVA_MIN or newer, and none was found" \
            "looked at JAVA_HOME, the PATH and the usual folders; apt is missing, refused, or not allowed to us" \
            "install one (Debian, as root: apt-get install default-jre-headless) or set JAVA_HOME, then run the command again"
    fi
    printf '%s\n' "$home" > "$JAVA_NOTE"
    step "Java at $home"
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        apt=(sudo -n "${apt[@]}")
    fi
    say "setup: apt-get install $*"
    # The lists may be absent or old; an update that fails in part need not stop the install.
    "${apt[@]}" update >&2 || true
    "${apt[@]}" install -y --no-install-recommends "$@" >&2 </dev/null
}

# -- what later runs start with

archive_spark_classes() { # only makes later Sparks start sooner, so that nothing depends on it
    JAVA_HOME="$(cat "$JAVA_NOTE")" .venv/bin/python -m scripts.archive_spark_classes >.venv/.spark-classes.log 2>&1 \
        || say "setup: Spark's classes could not be archived, so tests start it more slowly; see .venv/.spark-classes.log"
}

main() {
    if ! up_to_date; then
        mkdir -p .venv && rm -f "$STAMP"
        make_venv
        find_compiler
        note_java
        install_packages
        printf '%s %s\n' "$(fingerprint)" "$EXTRA" > "$STAMP"
        step "done"
    fi
    compile_core
}

main
