# Run the first Python of this machine that fits: `sh tools/python.sh -m tools.set_up lab`.
# A name on PATH proves nothing (pyenv puts shims there for versions that are not active), so each
# is tried. python3 comes first: it is the one that a reader's `module load` or conda put in place.
fits='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
runs='import sys; sys.exit(sys.version_info < (3, 6))'

try() {
    "$1" -c "$2" >/dev/null 2>&1 </dev/null
}

if [ -n "$PYTHON" ]; then
    if try "$PYTHON" "$runs"; then exec "$PYTHON" "$@"; fi
    echo "PYTHON=$PYTHON is no Python 3 that runs: name one of Python 3.11, 3.12 or 3.13." >&2
    exit 1
fi

for test in "$fits" "$runs"; do # a Python that does not fit may still say itself what is wrong
    for python in python3 python3.13 python3.12 python3.11 python; do
        if try "$python" "$test"; then exec "$python" "$@"; fi
    done
done
echo "No Python was found here: install Python 3.11, 3.12 or 3.13, then run this again." >&2
exit 1
