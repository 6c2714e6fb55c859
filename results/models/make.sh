#!/bin/sh
# Makes the files of this folder anew: some 25 minutes on two idle cores. Run from the root of the repository, after `make install`.
set -e
for family in pendulum-gravity hopper-gravity cheetah-gravity point-goal box-jump; do
  .venv/bin/posterity run "$family" --out "runs/$family"
  .venv/bin/posterity export "runs/$family" --out "results/models/$family.posterity" --task new --memory 1600 --force
  .venv/bin/posterity evaluate "results/models/$family.posterity" --episodes 5 > "results/models/$family.txt"
done
