#!/bin/bash
# bash results/notes/34-records/lease-a.sh SECONDS    from the root, with the wheels of what is lacking in .offline
export XLA_PYTHON_CLIENT_PREALLOCATE=false OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH=$PWD/site:$PWD/src
start=$(date +%s) seconds=$1
for w in .offline/*.whl; do python3 -m zipfile -e "$w" site; done
mkdir -p runs/log
for players in on off; do
  POSTERITY_PLAYERS=$players timeout 100 python3 -m posterity bench run --family hopper-gravity --preset best --lanes 3 \
    --iterations 10 --json >runs/log/bench-$players.json 2>runs/log/bench-$players.txt
done
echo "benches took $(($(date +%s) - start)) s"
nvidia-cuda-mps-control -d
export POSTERITY_PLAYERS=off
one() { # name, arm, arguments
  local name=$1 arm=$2
  shift 2
  python3 results/notes/34-records/arm.py $arm run "$@" --preset best --env.prestep off --seeds 4 --out runs/$name \
    --time-limit $((seconds - ($(date +%s) - start)))s >runs/log/$name.txt 2>&1
  timeout 90 python3 results/notes/34-records/arm.py $arm evaluate runs/$name --episodes 2 >runs/log/$name-evaluate.txt 2>&1
}
short="--planner.horizon 3 --planner.output mean"
one cg-short PLAIN cheetah-gravity $short &
one cb-short PLAIN cheetah-bodyparts $short &
one cg-wide WIDE cheetah-gravity &
one cg-two TWO cheetah-gravity &
one cg-draws DRAWS cheetah-gravity &
one cg-short-wide WIDE cheetah-gravity $short &
for body in hopper-gravity hopper-bodyparts walker-gravity; do one $body-latent PLAIN $body --latent.size 4 & done
wait
cd runs && tail -qn 1 log/*.txt
tar cJf $OUT/a.tar.xz log */config.toml */records.jsonl */versions.json */evaluation
