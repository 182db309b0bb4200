# Makes the virtual environments that the scripts run in. Source it: it goes to the root of the checkout and defines
#   require_python      prints the command of a Python 3.11 or newer, 3.11 first; PYTHON=... overrides
#   newest_python       prints that of the newest Python from 3.12 on which really runs, or nothing
#   make_env DIR PYTHON fills DIR with this project, its notebooks and its pinned tools; instant when nothing changed
#   find_browser        prints the command of a browser that needs no window, or nothing; installs it where $CI is set

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# A version manager's shim may exist and yet fail, so a candidate counts only once it has run.
runs_at_least() {
    "$1" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < $2)" >/dev/null 2>&1
}

require_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14 python}; do
        if runs_at_least "$candidate" "(3, 11)"; then
            echo "$candidate"
            return
        fi
    done
    echo "error: no Python 3.11 or newer with venv was found; PYTHON=/path/to/python names one" >&2
    return 1
}

newest_python() {
    local minor candidate
    for minor in 14 13 12; do
        for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python; do
            if runs_at_least "$candidate" "(3, $minor)"; then
                echo "$candidate"
                return
            fi
        done
    done
}

make_env() {
    local dir=$1 python=$2 wanted
    # What decides the environment; a change of the linter's configuration does not.
    wanted="$PWD $("$python" -c 'import sys, tomllib
found = tomllib.load(open("pyproject.toml", "rb"))
print(sys.version, *(found[name] for name in ("build-system", "project", "dependency-groups")))')"
    if [[ "$(cat "$dir/.burn-xla" 2>/dev/null)" == "$wanted" ]]; then
        return
    fi
    if [[ -e "$dir" && ! -e "$dir/.burn-xla" ]]; then
        echo "error: $dir exists and is not ours; move it away" >&2
        return 1
    fi
    echo "installing into $dir ($("$python" -V)); this is done once" >&2
    "$python" -m venv --clear "$dir"
    echo "unfinished" >"$dir/.burn-xla"
    # pip has read dependency groups itself only since 25.1; Python 3.11 comes with an older one.
    "$dir/bin/python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' >"$dir/requirements.txt"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[notebooks]' \
        --requirement "$dir/requirements.txt" || return
    echo "$wanted" >"$dir/.burn-xla"
}

find_browser() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        if "$name" --version >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    # A person's machine is theirs; one that runs nothing but tests may be changed.
    if [[ -n ${CI:-} && $EUID == 0 ]] && apt-get --version >/dev/null 2>&1; then
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends chromium-headless-shell >&2 || return
        echo chromium-headless-shell
    fi
}
