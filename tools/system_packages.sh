# Debian packages that some tests need and pip cannot install: `make system-packages`.
# The notebooks need none of them.
set -eu

packages="
chromium
fonts-dejavu-core
"
# chromium: tests/browser runs every notebook in a real JupyterLab page
# fonts-dejavu-core: letters on that page, which a bare machine has none of

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "make system-packages knows Debian and Ubuntu only. Elsewhere, install Chromium with your" >&2
    echo "own package manager; without it the browser tests are skipped and all others run." >&2
    exit 1
fi

missing=""
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "System packages: all there."
    exit 0
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "Installing$missing needs root: run make system-packages as root." >&2
        exit 1
    fi
    as_root=sudo
fi
echo "System packages: installing$missing"
$as_root apt-get -qq update
# shellcheck disable=SC2086 # one word a package
DEBIAN_FRONTEND=noninteractive $as_root apt-get -qq install -y --no-install-recommends $missing
