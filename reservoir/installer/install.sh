#!/bin/sh
# Put the command `penstock` on this machine from this bundle alone. Needs root, sh and Python 3.11 or newer.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if ! command -v python3 >/dev/null 2>&1; then
    echo "error: python3 is not installed. Cure: install Python 3.11 or newer from this machine's own medium." >&2
    exit 5
fi
exec python3 -I "$here/bootstrap.py" "$@"
