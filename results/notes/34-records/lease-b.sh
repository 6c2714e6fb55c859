#!/bin/bash
# bash results/notes/34-records/lease-b.sh SECONDS    runs in the background of one machine; see lease-a.sh
export XLA_PYTHON_CLIENT_PREALLOCATE=false OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH=$PWD/site:$PWD/src
export POSTERITY_PLAYERS=off JAX_COMPILATION_CACHE_DIR=$PWD/runs/cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.5
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none
start=$(date +%s) seconds=$1
for w in .offline/*.whl; do python3 -m zipfile -e "$w" site; done
mkdir -p runs/log
nvidia-cuda-mps-control -d
one() { # name, arm, scores to measure, arguments
  local name=$1 arm=$2 scores=$3
  shift 3
  [ -f runs/.later-$name ] && until [ -s runs/$(cat runs/.later-$name)/records.jsonl ] && grep -q '"iteration": 4' runs/$(cat runs/.later-$name)/records.jsonl || [ $(($(date +%s) - start)) -gt 200 ]; do sleep 2; done
  python3 results/notes/34-records/arm.py $arm run "$@" --preset best --env.prestep off --seeds 4 --out runs/$name \
    --time-limit $((seconds - ($(date +%s) - start)))s >runs/log/$name.txt 2>&1
  timeout 120 python3 results/notes/34-records/arm.py $arm evaluate runs/$name --scores $scores --episodes 2 >runs/log/$name-evaluate.txt 2>&1
  touch runs/.done-$name
}
stream="zero-shot start train"
after() { echo $2 >runs/.later-$1; } # the same programs: they wait for the other's, which are then in the cache
for method in single-task actor-critic; do
  for body in cheetah hopper walker; do
    after $body-bodyparts-$method $body-gravity-$method
    one $body-gravity-$method FIFTH train $body-gravity --method $method --tasks 1 &
    one $body-bodyparts-$method FIFTH train $body-bodyparts --method $method --tasks 1 &
  done
done
after cheetah-bodyparts-vblrl cheetah-gravity-vblrl
one cheetah-gravity-pooled PLAIN "$stream" cheetah-gravity --method pooled --tasks 20 &
for family in cheetah-gravity cheetah-bodyparts; do one $family-vblrl PLAIN "$stream" $family --tasks 20 & done
for family in hopper-gravity walker-gravity; do one $family-latent PLAIN "$stream" $family --latent.size 4 --tasks 8 & done
wait
touch runs/.all
