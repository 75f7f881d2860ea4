#!/usr/bin/env bash
# PyTorch for a virtual environment of tests: another Python's, or with 1 for that one of its own.
#
# Usage: lend_torch.sh 1|PYTHON_THAT_HAS_IT PYTHON_OF_THE_ENVIRONMENT
set -euo pipefail

if [ "$1" = 1 ]; then
  exec "$2" -m pip install -q torch
fi
packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
if [ "$(version "$1")" != "$(version "$2")" ]; then
  echo "NOT TESTED: with PyTorch: $1 is Python $(version "$1"), $2 is $(version "$2")"
  exit 0
fi
# What the environment has itself comes first.
packages "$1" > "$(packages "$2")/lent_torch.pth"
"$2" -c 'import torch; print("PyTorch", torch.__version__, "is lent")'
