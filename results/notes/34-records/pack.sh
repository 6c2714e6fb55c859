#!/bin/bash
# bash results/notes/34-records/pack.sh UNTIL    waits for lease-b.sh, at most until UNTIL seconds of this call, and packs
while [ ! -f runs/.all ] && [ $SECONDS -lt $1 ]; do sleep 1; done
cd runs
ls -a | grep done | wc -l
tail -qn 1 log/*.txt | cut -c1-150
tar cJf $OUT/b.tar.xz --ignore-failed-read log */config.toml */records.jsonl */versions.json */evaluation 2>/dev/null
[ "$2" = cache ] && tar c cache | xz -1 -T8 | split -b 15m - $OUT/cache.tar.xz. && ls -la $OUT && du -sh cache
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader; uptime
