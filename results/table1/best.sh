#!/bin/bash
# The runs of table1/*-best and actor/walker-gravity-half, side by side on one GPU through MPS: run, evaluate, export.
#
#     results/table1/best.sh 880        seconds of running, from the root of the repository; evaluating takes a minute more
#
# The machine that made the records has no package index: there PYTHONPATH named a folder with the packages it lacked and
# a copy of src, so versions.json has no commit. The commands of the runs are the same.
export XLA_PYTHON_CLIENT_PREALLOCATE=false OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
start=$(date +%s) seconds=$1
mkdir -p runs/log
nvidia-cuda-mps-control -d
one() { # name, transitions of each task in the exported file (0: none), arguments of the run
  local name=$1 memory=$2
  shift 2
  python3 -m posterity run "$@" --env.prestep off --seeds 4 --out "runs/$name" \
    --time-limit $((seconds - ($(date +%s) - start)))s >"runs/log/$name.txt" 2>&1
  python3 -m posterity evaluate "runs/$name" --episodes 2 >"runs/log/$name-evaluate.txt" 2>&1
  [ "$memory" = 0 ] || python3 -m posterity export "runs/$name" --out "runs/$name.posterity" --task new --memory "$memory"
}
for family in hopper-gravity hopper-bodyparts walker-gravity walker-bodyparts; do
  one $family 800 $family --preset best --tasks 8 &
done
for family in cheetah-gravity cheetah-bodyparts; do one $family 400 $family --preset best --tasks 20 & done
one walker-gravity-half 0 walker-gravity --preset best --policy.imagined-share 0.5 --tasks 3 &
one cheetah-gravity-pooled 0 cheetah-gravity --method pooled --preset best --tasks 12 &
wait
