#!/usr/bin/env bash
# Makes every record, table and figure of this folder anew: about twelve minutes on two cores. Called by `make results`.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PWD/.venv/bin:$PATH"
out=results/finite
rm -rf runs/results

keep() { # a run folder, without its checkpoint and with its records compressed
  mkdir -p "$out/$1"
  cp "runs/results/$1/config.toml" "runs/results/$1/versions.json" "$out/$1/"
  xz -9e -c "runs/results/$1/records.jsonl" > "$out/$1/records.jsonl.xz"
}

for method in blrl boss; do
  posterity run item-search --method "$method" --seeds 5 --out "runs/results/item-search/$method"
  keep "item-search/$method"
done
posterity report "$out"/item-search/{blrl,boss} --tasks 51-300 --out "$out/item-search"

posterity theory transfer --seeds 10 --tasks 60 --out runs/results/random-mdp
keep random-mdp/blrl
keep random-mdp/boss
posterity report "$out"/random-mdp/{blrl,boss} --out "$out/random-mdp"

# How tasks should be pooled, by how alike they are
for alike in 1 2 5 20; do
  for way in evidence counts boss; do
    settings=(--method blrl --pooling "$way")
    [ "$way" = boss ] && settings=(--method boss)
    run="pooling/alike-$alike-$way"
    posterity run random-mdp "${settings[@]}" --env.concentration "$alike" --seeds 5 --tasks 40 --out "runs/results/$run"
    keep "$run"
  done
done
python results/finite/pooling.py
