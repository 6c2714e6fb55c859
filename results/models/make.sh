#!/bin/sh
# Makes the files of this folder anew, on a CPU. Run from the root of the repository, after `make install`.
set -e
models() {
  .venv/bin/posterity run "$@" --out "runs/$1"
  .venv/bin/posterity export "runs/$1" --out "results/models/$1.posterity" --task new --memory 1600 --force
  .venv/bin/posterity evaluate "results/models/$1.posterity" --episodes 5 > "results/models/$1.txt"
}
models pendulum-gravity
models hopper-gravity
models cheetah-gravity
models point-goal
for family in item-search random-mdp river-swim chain; do models $family --preset best; done
models grid --preset best --env.side 6 # 10 x 10 makes a file of 0.6 MiB
# models box-jump    # not made yet: its twenty tasks take longer than the others
