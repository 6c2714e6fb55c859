#!/usr/bin/env bash
# Makes every record, table and figure of this folder anew: about an hour on two quiet cores. Called by `make results`.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PWD/.venv/bin:$PATH"
out=results/finite
rm -rf runs/results

{ # one run a line: its folder, then the arguments of `posterity run`
  for method in boss blrl; do
    echo "item-search/$method item-search --method $method --seeds 5"
    echo "random-mdp/$method random-mdp --method $method --seeds 10 --tasks 60" # what `posterity theory transfer` runs
  done
  echo "item-search/best item-search --preset best --seeds 5"
  for alike in 1 2 5 20; do # how tasks should be pooled, by how alike they are
    run="random-mdp --env.concentration $alike --seeds 5 --tasks 40"
    echo "pooling/alike-$alike-evidence $run"
    echo "pooling/alike-$alike-counts $run --pooling counts"
    echo "pooling/alike-$alike-evidence-task $run --unknown task"
    echo "pooling/alike-$alike-boss $run --method boss"
  done
  run="examples/own_family.py:Corridor --known 5 --concentration 0.1 --seeds 5"
  echo "corridor/boss $run"
  echo "corridor/ucb $run --explorer ucb --unknown task"
} | xargs -P 2 -L 1 bash -c 'echo "$0"; posterity run "${@}" --out "runs/results/$0" > /dev/null'

# records of the corridor are not kept: they name the file of the family
(cd runs/results && find . -name config.toml -not -path '*/corridor/*' -printf '%P\n') | xargs -n 1 dirname | while read -r run; do
  rm -rf "${out:?}/$run"
  posterity join "runs/results/$run" --compact --out "$out/$run" > /dev/null
done
posterity report "$out"/item-search/{best,blrl,boss} --tasks 51-300 --out "$out/item-search"
posterity report "$out"/random-mdp/{blrl,boss} --out "$out/random-mdp"
# radius of the prior, and steps that were not optimal, by how tasks are pooled and how alike they are
posterity report "$out"/pooling/alike-*-{evidence,evidence-task,counts,boss} --tasks 11-40 --no-figures --out "$out/pooling/report"
posterity report runs/results/corridor/{boss,ucb} --tasks 11-20 --no-figures --out "$out/corridor"
python "$out/heldout.py"
# explorers beside each other, item search beside its oracle, and what scale costs
rm -f "$out/peers/seeds.csv"
python "$out/peers.py" cells | xargs -P 2 -d '\n' -I{} python "$out/peers.py" run {}
python "$out/peers.py" table
python "$out/rivers.py"
python "$out/item_search.py"
python "$out/scale.py"
