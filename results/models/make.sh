#!/bin/sh
# Makes the files of this folder anew, on a CPU. Run from the root of the repository, after `make install`. Those of
# hoppers and walkers are policies of runs on a GPU: README.md says which.
set -e
models() {
  .venv/bin/posterity run "$@" --out "runs/$1"
  results/models/add.sh "runs/$1" "$1" "${memory:-1600}"
}
models pendulum-gravity
for family in cheetah-gravity cheetah-bodyparts; do memory=400 models $family; done
for family in item-search random-mdp river-swim chain; do models $family --preset best; done
models grid --preset best --env.side 6 # 10 x 10 makes a file of 0.6 MiB
memory=228 models box-jump # all that a task has; ten minutes on two busy cores
for family in reach reach-wall; do memory=300 models $family; done
