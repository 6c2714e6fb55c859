#!/usr/bin/env bash
# Makes every record of this folder anew: 20 runs of 4 to 15 minutes each, as many at once as WORKERS says (two cores: 2).
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PWD/.venv/bin:$PATH"
export JAX_PLATFORMS=cpu
rm -rf runs/baselines

one() { # folder, then the arguments of `posterity run`
  local name=$1
  shift
  posterity run "$@" --preset paper --seeds 3 --out "runs/baselines/$name" > /dev/null
  [ "$name" = hopper-gravity-npg-original ] || posterity evaluate "runs/baselines/$name" > /dev/null
  rm -rf "results/baselines/$name"
  posterity join "runs/baselines/$name" --compact --out "results/baselines/$name" > /dev/null
  echo "$name"
}
export -f one

{
  for family in {cheetah,hopper,walker}-{gravity,bodyparts}; do
    for method in npg ewc lpg-ftw; do echo "$family-$method $family --method $method"; done
  done
  echo "hopper-gravity-fine-tune hopper-gravity --method npg --fine-tune" # one policy goes on: what is forgotten?
  # LPG-FTW's own budget, more or less: does the method learn, given the samples?
  echo "hopper-gravity-npg-original hopper-gravity --method npg --tasks 1 --iterations 30 --steps-per-iteration 10000 --env.max-episode-steps 1000"
} | xargs -P "${WORKERS:-2}" -L 1 bash -c 'set -euo pipefail; one "$@"' _
posterity report results/baselines/hopper-gravity-npg-original --out results/baselines/original
posterity report results/baselines/hopper-gravity-{npg,fine-tune,ewc,lpg-ftw} --out results/baselines/hopper-gravity
posterity report results/table1/*/ results/baselines/*-{npg,ewc,lpg-ftw,fine-tune}/ --paper --no-figures --out runs/baselines/report
cp runs/baselines/report/paper.* results/table1/
