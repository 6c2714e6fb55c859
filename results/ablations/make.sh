#!/bin/sh
# vblrl with an ensemble, a latent and a value, and less one part each: five seeds, the same tasks. Ten minutes a run on
# one busy core.  results/ablations/make.sh FAMILY NAME OUT [PART ...]
set -e
cd "$(dirname "$0")/../.."
family=$1 name=$2 out=$3
shift 3
common="--seeds 5 --tasks 4 --iterations 4 --steps-per-iteration 200 --no-snapshots --network.hidden 32 32
  --planner.particles 6 --planner.candidates 100 --planner.elites 10 --planner.cem-iterations 3 --planner.horizon 20
  --learner.gradient-steps 300 --value.gradient-steps 100 --latent.transitions 128"
for part in "${@:-full}"; do
  method=vblrl more="--members 3 --latent.size 2"
  case $part in
    full) ;;
    latent-off) more="--members 3 --latent.size 0" ;;
    ensemble-off) more="--members 1 --latent.size 2" ;;
    posterior-off) more="--members 1 --latent.size 0 --bayesian none" ;;
    value-fresh) method=results/ablations/variants.py:FreshValue ;;
    width-fixed) method=results/ablations/variants.py:FixedWidth ;;
    *) echo "no part $part" >&2; exit 1 ;;
  esac
  .venv/bin/posterity run "$family" --method "$method" $common $more --out "$out/$name-$part"
done
