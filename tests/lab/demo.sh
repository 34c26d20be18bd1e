#!/bin/bash
# demo.sh up|down: the demo as root or through sudo; without either, with nodes on loopback addresses (LLMGW_DEMO=rootless
# asks for that).
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022
python=${PYTHON:-python3}
as_root=()
if [ "${LLMGW_DEMO:-}" = rootless ]; then
    as_root=(false)
elif [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null && sudo true; }; then
        as_root=(sudo --preserve-env=PATH,LANG env)
    else
        as_root=(false)
    fi
fi
root=yes
if [ "${as_root[*]}" = false ]; then
    root=no as_root=()
elif [ "$1" = up ]; then
    "${as_root[@]}" "$python" -m tests.lab.packages demo
fi
if [ "$1" = up ]; then
    layer=true
    if [ "$root" = yes ]; then # what hosts need, while the environment is made
        "${as_root[@]}" "$python" -m tests.lab.layer >/dev/null &
        layer="wait $!"
    fi
    make --no-print-directory engine
    $layer
fi
exec "${as_root[@]}" build/venv/bin/python -m tests.lab.demo "$1"
