#!/bin/sh
# Put the command `penstock` on this machine from this bundle alone. Needs root, sh and Python 3.11 or newer.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
for python in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$python" -I -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" -I "$here/bootstrap.py" "$@"
    fi
done
echo "error: Python 3.11 or newer, with venv, is not installed. Hint: install it from this machine's own medium." >&2
exit 5
